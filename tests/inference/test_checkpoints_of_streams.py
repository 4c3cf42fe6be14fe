"""A killed fit to a stream of rows goes on in mid-epoch and ends like an undisturbed one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import ppgp
from ppgp.data.stream.streamed_rows import StreamedRows
from ppgp.data.training_data import Batch
from ppgp.errors import StorageError
from ppgp.inference import MAP, SGLD, SVI, Inference
from ppgp.kernels import RBF, Deep
from ppgp.models import SGPR, SVGP, LinearRegression
from ppgp.networks.networks import MLP
from tests.inference.test_checkpoints_of_searches import Killed, Saves, differences
from tests.parquet_tables import columns_of, regression, write

X, Y = regression(400)
DROPPING = MLP((6,), out=2, dropout=0.3)
# 70 rows a step: an epoch of 400 rows ends within a batch
FITS: dict[str, tuple[Any, Inference]] = {
    "SVGP": (SVGP(RBF(), inducing=8), SVI(steps=30, batch_size=70)),
    "SVGP, q by Adam": (SVGP(RBF(), inducing=8, q="full"), SVI(steps=30, batch_size=70)),
    "SVDKL with dropout": (SVGP(Deep(DROPPING, RBF()), 8), SVI(steps=20, batch_size=70)),
    "linear by adam": (LinearRegression(), MAP("adam", steps=40, batch_size=70)),
    "linear by sgd": (LinearRegression(), MAP("sgd", steps=40, batch_size=70)),
    "linear by lbfgs": (LinearRegression(), MAP(steps=40)),
    "SGPR by lbfgs": (SGPR(RBF(), inducing=8), MAP(steps=20)),
    "SGPR by adam": (SGPR(RBF(), inducing=8), MAP("adam", steps=20)),
    "linear by langevin": (
        LinearRegression(),
        SGLD(draws=20, warmup=10, chains=2, batch_size=70, thin=2),
    ),
}


@pytest.fixture
def saves(monkeypatch: pytest.MonkeyPatch) -> Saves:
    return Saves(monkeypatch)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "a.parquet", 90, **columns_of(X, Y))


def fitted(
    name: str, path: Path, checkpoint: Path | None = None, columns: list[str] | None = None
) -> ppgp.Posterior:
    model, how = FITS[name]
    rows = ppgp.stream(path, "y", columns)
    return ppgp.fit(model, rows, how, progress=False, checkpoint=checkpoint)


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
@pytest.mark.parametrize("name", FITS)
def test_a_fit_killed_twice_in_mid_epoch_ends_like_an_undisturbed_one(
    name: str, path: Path, tmp_path: Path, saves: Saves, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pools of 150 rows: the rows that were in a pool at the kill are read again."""
    monkeypatch.setattr("ppgp.data.stream.streamed_rows.POOL", 150)
    whole = fitted(name, path)
    assert differences(fitted(name, path, tmp_path / "whole.ckpt"), whole) == []
    third = saves.count // 3
    assert third >= 2
    for _ in range(2):
        saves.kill_after(third)
        with pytest.raises(Killed):
            fitted(name, path, tmp_path / "killed.ckpt")
    saves.kill_after(0)
    assert differences(fitted(name, path, tmp_path / "killed.ckpt"), whole) == []
    assert saves.count < 3 * third


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_the_file_of_another_stream_is_refused(path: Path, tmp_path: Path) -> None:
    fitted("linear by adam", path, tmp_path / "a.ckpt")
    longer = write(tmp_path / "b.parquet", 90, **columns_of(*regression(401)))
    other_groups = write(tmp_path / "c.parquet", 91, **columns_of(X, Y))
    fits: list[dict[str, Any]] = [
        {"path": longer},
        {"path": other_groups},
        {"path": path, "columns": ["x0", "x2"]},
    ]
    for options in fits:
        with pytest.raises(StorageError, match="of a run with other data"):
            fitted("linear by adam", checkpoint=tmp_path / "a.ckpt", **options)


def test_batches_of_several_sizes_go_on(path: Path) -> None:
    """Each size has an order of its own, which follows from one generator."""
    rows = ppgp.stream(path, "y")
    data = StreamedRows.of(rows, rows.sample(100))
    generator = torch.Generator().manual_seed(0)
    for size in (30, 70, 30, 30, 70):
        data.draw(size, generator)
    order = data.order_of_batches(generator)
    again, other = StreamedRows.of(rows, rows.sample(100)), torch.Generator()
    other.set_state(generator.get_state())
    again.continue_batches(other, order)
    for size in (70, 30, 50):
        here, there = data.draw(size, generator), again.draw(size, other)
        assert isinstance(here, Batch)
        assert isinstance(there, Batch)
        assert torch.equal(here.tables[0], there.tables[0])
