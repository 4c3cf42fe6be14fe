"""Checkpoints that cannot be written, or that another run uses, cost no results."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

import ppgp
from ppgp.errors import StorageError, StorageWarning
from ppgp.inference import MAP, NUTS, SGLD, SVI, Exact, Inference
from ppgp.inference import checkpoint as checkpoints
from ppgp.models import LinearRegression, LogisticRegression

HOWS = [
    SVI("normal", steps=60, patience=30, draws=20),
    SGLD(draws=30, warmup=30, chains=2),
    NUTS(draws=20, warmup=30, chains=2),
    MAP("adam", steps=30),
]
HOLDS = """
import sys
from ppgp import files
with files.locked(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def data() -> ppgp.Dataset:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(30, 2, generator=generator, dtype=torch.float64)
    return ppgp.Dataset(
        X, (X[:, 0] + torch.randn(30, generator=generator, dtype=torch.float64) > 0).double()
    )


@pytest.fixture(autouse=True)
def at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "EVERY", 0.0)
    monkeypatch.setattr(checkpoints, "SHARE", 1e9)


def fitted(
    how: Inference, data: ppgp.Dataset, path: Path | None = None
) -> tuple[ppgp.Posterior, int]:
    """Return the posterior, and the number of warnings that the file cannot be written."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        posterior = ppgp.fit(LogisticRegression(), data, how, progress=False, checkpoint=path)
    return posterior, sum(issubclass(w.category, StorageWarning) for w in caught)


@pytest.mark.parametrize("how", HOWS, ids=lambda how: type(how).__name__)
def test_a_run_whose_file_cannot_be_written_gives_the_same_draws(
    how: Inference, data: ppgp.Dataset
) -> None:
    """No file can be written to /proc."""
    undisturbed, _ = fitted(how, data)
    posterior, times = fitted(how, data, Path("/proc/run.ckpt"))
    assert times == 1
    assert any("/proc/run.ckpt" in sentence for sentence in posterior.warnings)
    assert all(
        torch.equal(posterior.draws[name], undisturbed.draws[name]) for name in undisturbed.draws
    )


@pytest.mark.parametrize("how", HOWS, ids=lambda how: type(how).__name__)
def test_the_next_save_is_tried_again(
    how: Inference, data: ppgp.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file stands in place of the folder during the first save."""
    folder = tmp_path / "folder"
    path, saves = folder / "run.ckpt", 0
    save = checkpoints.Checkpoint.save

    def away_at_first(self: checkpoints.Checkpoint, tensors: dict[str, torch.Tensor]) -> None:
        nonlocal saves
        saves += 1
        if saves > 1:
            save(self, tensors)
            return
        folder.rename(tmp_path / "away")
        folder.write_text("")
        save(self, tensors)
        folder.unlink()

    monkeypatch.setattr(checkpoints.Checkpoint, "save", away_at_first)
    posterior, times = fitted(how, data, path)
    assert saves > 1
    assert times == 1
    assert not any("run.ckpt" in sentence for sentence in posterior.warnings)
    assert [p.name for p in folder.iterdir()] == ["run.ckpt"]
    again, _ = fitted(how, data, path)
    assert all(torch.equal(posterior.draws[name], again.draws[name]) for name in again.draws)


def test_an_impossible_path_is_refused_before_the_run(data: ppgp.Dataset, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (
        tmp_path,
        tmp_path / "file" / "run.ckpt",
        tmp_path / ("n" * 300),
        Path("/dev/null"),
    ):
        for call in (
            lambda path=path: ppgp.fit(
                LogisticRegression(), data, HOWS[1], progress=False, checkpoint=path
            ),
            lambda path=path: ppgp.sbc(
                LinearRegression(), Exact(), 20, progress=False, checkpoint=path
            ),
        ):
            with pytest.raises(StorageError) as error:
                call()
            assert "delete" not in str(error.value)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_the_error_names_the_process_that_uses_the_file(data: ppgp.Dataset, tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    command = [sys.executable, "-W", "ignore", "-c", HOLDS, str(path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        for how in HOWS:
            with pytest.raises(StorageError, match=rf"\b{first.pid}\b"):
                ppgp.fit(LogisticRegression(), data, how, progress=False, checkpoint=path)
        with pytest.raises(StorageError, match=rf"\b{first.pid}\b"):
            ppgp.sbc(LinearRegression(), Exact(), 20, progress=False, checkpoint=path)
        assert not path.exists()
        first.communicate("")
    posterior, times = fitted(HOWS[1], data, path)
    assert times == 0
    assert [p.name for p in tmp_path.iterdir()] == ["run.ckpt"]
    assert not any("checkpoint" in sentence for sentence in posterior.warnings)


def test_an_unreadable_file_is_not_reported_as_damaged(
    data: ppgp.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.ckpt"
    path.write_text("")

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)  # chmod does not stop the superuser
    with pytest.raises(StorageError, match="permission denied") as error:
        ppgp.fit(LogisticRegression(), data, HOWS[1], progress=False, checkpoint=path)
    assert "delete" not in str(error.value)


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_a_calibration_whose_log_cannot_be_written_gives_the_same_result(tmp_path: Path) -> None:
    whole = ppgp.sbc(LinearRegression(), Exact(draws=100), 20, progress=False)
    with pytest.warns(StorageWarning) as caught:
        found = ppgp.sbc(
            LinearRegression(), Exact(draws=100), 20, progress=False, checkpoint="/proc/sbc.jsonl"
        )
    assert (
        len([w for w in caught if w.category is StorageWarning]) == 2
    )  # once when it happens, and once at the end
    assert all((found.ranks[name] == whole.ranks[name]).all() for name in whole.ranks)


def test_a_deleted_log_is_written_again_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run writes the head and all earlier lines again."""
    from ppgp.diagnostics import simulation_based_calibration as module

    path, calls = tmp_path / "sbc.jsonl", 0
    one = module._simulate

    def away(*arguments: object) -> dict[str, int]:
        nonlocal calls
        calls += 1
        if calls == 10:
            path.unlink()
        return one(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "_simulate", away)
    whole = ppgp.sbc(LinearRegression(), Exact(draws=100), 20, progress=False, checkpoint=path)
    again = ppgp.sbc(LinearRegression(), Exact(draws=100), 20, progress=False, checkpoint=path)
    assert calls == 20  # the second call reads
    assert all((again.ranks[name] == whole.ranks[name]).all() for name in whole.ranks)
