"""A killed search for a mode, or fit of a bound, goes on and ends like an undisturbed one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import forked
import pytest
import torch
from interrupted_search import interrupted_at
from torch import Tensor

import ppgp
from ppgp.errors import StorageError
from ppgp.inference import MAP, SVI, Inference
from ppgp.inference import checkpoint as checkpoints
from ppgp.inference.optimise import scipy_search
from ppgp.inference.optimise import search as records
from ppgp.kernels import ARD, RBF, Deep
from ppgp.likelihoods import Bernoulli, Gaussian
from ppgp.models import (
    GLM,
    GP,
    SGPR,
    SVGP,
    LinearRegression,
    LogisticRegression,
    NeuralRegression,
    Vecchia,
)
from ppgp.networks.networks import MLP
from ppgp.priors import Flat, Normal
from ppgp.runtime import torch_optimisers

ROWS = 60
NETWORK = NeuralRegression(MLP((6,), activation="tanh"), Gaussian(), Normal(0.0, 0.5))
DROPPING = MLP((6,), out=2, dropout=0.3)


def rows(binary: bool = False) -> ppgp.Dataset:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(ROWS, 2, generator=generator, dtype=torch.float64)
    noise = torch.randn(ROWS, generator=generator, dtype=torch.float64)
    y = (2 * X[:, 0]).sin() + 0.3 * noise
    return ppgp.Dataset(X, (y > 0).double() if binary else y)


FITS: dict[str, tuple[Any, Inference]] = {
    "SVGP of mini-batches": (SVGP(RBF(), inducing=8), SVI(steps=30, batch_size=20)),
    "SVGP, q by Adam": (SVGP(RBF(), inducing=8, q="full"), SVI(steps=30, batch_size=20)),
    "SVGP of all rows": (SVGP(RBF(), inducing=8), SVI(steps=40, patience=10)),
    "SVGP of labels": (SVGP(RBF(), 8, Bernoulli()), SVI(steps=20)),
    "SVGP, deterministic": (SVGP(RBF(), 8, Bernoulli()), SVI(method="deterministic", steps=12)),
    "SVDKL with dropout": (SVGP(Deep(DROPPING, RBF()), 8), SVI(steps=30, batch_size=20)),
    "GP by lbfgs": (GP(ARD(RBF())), MAP(starts=1)),
    "GP by lbfgs, compiled": (NETWORK, MAP(steps=80, starts=1)),
    "GP from starts": (GP(RBF(Flat(), Flat())), MAP(starts=3)),
    "GP by newton": (GP(RBF()), MAP("newton")),
    "GP by gd": (GP(RBF()), MAP("gd", steps=40)),
    "GP by gd, fixed": (GP(RBF()), MAP("gd", steps=30, learning_rate=0.05)),
    "GP by adam": (GP(RBF()), MAP("adam", steps=40)),
    "GP by adam from starts": (GP(RBF()), MAP("adam", steps=20, starts=3)),
    "SGPR by lbfgs": (SGPR(RBF(), inducing=8), MAP(steps=40)),
    "SGPR, reselected": (
        SGPR(Deep(MLP((4,), out=2), RBF()), inducing=8, reselect=3),
        MAP("adam", steps=20),
    ),
    "Vecchia, placed again": (Vecchia(ARD(RBF()), neighbours=5), MAP(steps=40)),
    "linear": (LinearRegression(), MAP()),
    "linear by sgd": (LinearRegression(), MAP("sgd", steps=40)),
    "linear, held out": (LinearRegression(), MAP("adam", steps=60, hold_out=0.2)),
    "linear by lbfgs, held out": (LinearRegression(), MAP(hold_out=0.2)),
    "linear, adversarial": (LinearRegression(), MAP("sgd", steps=30, adversarial=0.01)),
    "logistic by newton": (LogisticRegression(), MAP("newton")),
    "GLM by newton": (GLM(Bernoulli()), MAP("newton")),
    "network by gauss_newton": (NETWORK, MAP("gauss_newton", steps=12, starts=1)),
    "network by kfac": (NETWORK, MAP("kfac", steps=30, batch_size=20)),
    "network by kfac, all rows": (NETWORK, MAP("kfac", steps=30)),
}
OF_LABELS = ("SVGP, deterministic", "SVGP of labels", "logistic by newton", "GLM by newton")


class Killed(BaseException):
    """Nothing after it is run, as after a kill."""


class Saves:
    """Count saves, and raise ``Killed`` after the one that is ``last``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.last = 0, 0
        monkeypatch.setattr(checkpoints, "EVERY", 0.0)
        monkeypatch.setattr(checkpoints, "SHARE", 1e9)
        monkeypatch.setattr("os.fsync", lambda _: None)  # of hundreds of saves
        save = checkpoints.Checkpoint.save

        def counted(checkpoint: checkpoints.Checkpoint, tensors: Mapping[str, Tensor]) -> None:
            save(checkpoint, tensors)
            self.count += 1
            if self.count == self.last:
                raise Killed

        monkeypatch.setattr(checkpoints.Checkpoint, "save", counted)

    def kill_after(self, saves: int) -> None:
        self.count, self.last = 0, saves


@pytest.fixture
def saves(monkeypatch: pytest.MonkeyPatch) -> Saves:
    return Saves(monkeypatch)


def fitted(name: str, path: Path | None = None, seed: int = 0) -> ppgp.Posterior:
    model, how = FITS[name]
    data = rows(name in OF_LABELS)
    return ppgp.fit(model, data, how, seed=seed, progress=False, checkpoint=path)


def same(a: Any, b: Any) -> bool:
    """Return whether two stats are equal to the last bit; NaN equals NaN."""
    if isinstance(a, Tensor):
        return a.dtype == b.dtype and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b) or (a != a and b != b)


def differences(a: ppgp.Posterior, b: ppgp.Posterior) -> list[str]:
    """Return the names of the draws, params, stats and warnings that differ in a bit."""
    assert a.draws.keys() | a.params.keys()
    found = []
    for part in ("draws", "params", "stats"):
        one, other = getattr(a, part), getattr(b, part)
        assert one.keys() == other.keys()
        found += [f"{part}.{key}" for key in one if not same(one[key], other[key])]
    return found + (["warnings"] if a.warnings != b.warnings else [])


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
@pytest.mark.parametrize("name", FITS)
def test_a_fit_killed_twice_ends_like_an_undisturbed_one(
    name: str, tmp_path: Path, saves: Saves
) -> None:
    """After a third and two thirds of its saves; a finished fit is read again to the same end."""
    whole = fitted(name)
    assert differences(fitted(name, tmp_path / "whole.ckpt"), whole) == []
    third = saves.count // 3
    assert third >= 2
    path = tmp_path / "killed.ckpt"
    for _ in range(2):
        saves.kill_after(third)
        with pytest.raises(Killed):
            fitted(name, path)
    saves.kill_after(0)
    assert differences(fitted(name, path), whole) == []
    of_the_rest = saves.count
    assert of_the_rest < 3 * third
    saves.kill_after(0)
    assert differences(fitted(name, path), whole) == []
    assert saves.count <= of_the_rest


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
@pytest.mark.parametrize("name", ["GP by adam", "network by kfac", "SVGP of mini-batches"])
def test_a_step_that_ctrl_c_cuts_short_is_taken_again(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parameters and random numbers have moved when it comes; the file has them as they were."""
    whole = fitted(name)
    taken = 0
    step = torch_optimisers.Adam.step

    def interrupted(optimizer: torch.optim.Adam, *arguments: Any) -> Any:
        nonlocal taken
        step(optimizer, *arguments)
        taken += 1
        if taken == 8:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(torch_optimisers.Adam, "step", interrupted)
        cut = fitted(name, tmp_path / "cut.ckpt")
    assert cut.stats["interrupted"]
    assert differences(fitted(name, tmp_path / "cut.ckpt"), whole) == []


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_a_search_that_ctrl_c_cuts_short_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, path = "GP by lbfgs", tmp_path / "cut.ckpt"
    whole = fitted(name)

    with monkeypatch.context() as patched:
        patched.setattr(scipy_search, "_Objective", interrupted_at(6))
        cut = fitted(name, path)
    assert cut.stats["interrupted"]
    assert len(cut.stats["losses"]) == 5
    assert differences(fitted(name, path), whole) == []


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_a_search_computes_no_result_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second run of a finished search computes nothing."""
    computed = 0
    packed = records._packed

    def counted(results: Any) -> Tensor:
        nonlocal computed
        computed += 1
        return packed(results)

    monkeypatch.setattr(records, "_packed", counted)
    whole = fitted("GP by lbfgs", tmp_path / "a.ckpt")
    assert computed == len(whole.stats["losses"])
    assert differences(fitted("GP by lbfgs", tmp_path / "a.ckpt"), whole) == []
    assert computed == len(whole.stats["losses"])


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_results_past_the_limit_are_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saves: Saves
) -> None:
    """The posterior says so, and ends like one without a file."""
    name, path = "GP by lbfgs", tmp_path / "a.ckpt"
    whole = fitted(name)
    numbers = 1 + sum(value[0, 0].numel() for value in whole.draws.values())
    monkeypatch.setattr(records, "LARGEST", 8 * numbers * 4)
    saves.kill_after(7)
    with pytest.raises(Killed):
        fitted(name, path)
    saves.kill_after(0)
    again = fitted(name, path)
    assert [part for part in differences(again, whole) if part != "warnings"] == []
    assert any("holds 4 evaluations" in sentence for sentence in again.warnings)


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_results_at_other_points_are_not_used(tmp_path: Path) -> None:
    """As after another ``init``, or on a machine that rounds otherwise."""
    model, how = FITS["GP by lbfgs"]
    path = tmp_path / "a.ckpt"
    ppgp.fit(model, rows(), how, progress=False, checkpoint=path)
    p = sum(value[0, 0].numel() for value in fitted("GP by lbfgs").draws.values())
    elsewhere = torch.full((p,), 0.3, dtype=torch.float64)
    alone = ppgp.fit(model, rows(), how, progress=False, init=elsewhere)
    here = ppgp.fit(model, rows(), how, progress=False, init=elsewhere, checkpoint=path)
    assert differences(here, alone) == []


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
@pytest.mark.parametrize("name", ["GP by lbfgs", "GP by adam", "SVGP of mini-batches"])
def test_the_file_of_another_fit_is_refused_and_not_changed(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    fitted(name, path)
    before = path.read_bytes()
    model, how = FITS[name]
    others: list[tuple[Any, ppgp.Dataset, Inference, int, str]] = [
        (model, rows(), how, 1, "seed=0, not 1"),
        (model, rows().rows(slice(0, 50)), how, 0, "other data"),
        (model, rows(), replace(how, steps=7), 0, "steps=.*, not 7"),
        (replace(model, kernel=ARD(RBF(0.7))), rows(), how, 0, "another recipe of "),
    ]
    for model, data, how, seed, words in others:
        with pytest.raises(StorageError, match=f"of a run with {words}"):
            ppgp.fit(model, data, how, seed=seed, progress=False, checkpoint=path)
    assert path.read_bytes() == before


SCRIPT = """
import sys, torch, ppgp
from ppgp import inference, kernels, models
from ppgp.inference import checkpoint
checkpoint.EVERY, checkpoint.SHARE = 0.02, 0.5
generator = torch.Generator().manual_seed(0)
X = torch.randn(400, 2, generator=generator, dtype=torch.float64)
data = ppgp.Dataset(X, (2 * X[:, 0]).sin())
model, how = (eval(text, {**vars(inference), **vars(kernels), **vars(models)})
              for text in sys.argv[1:3])
open(sys.argv[4] + ".ready", "w").close()
p = ppgp.fit(model, data, how, progress=False, checkpoint=sys.argv[3])
torch.save({**p.draws, **p.params}, sys.argv[4])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "how"),
    [
        ("SVGP(RBF(), inducing=20)", "SVI(steps=300, batch_size=100)"),
        ("GP(ARD(RBF()))", "MAP(starts=4)"),
        ("SGPR(RBF(), inducing=20)", "MAP('adam', steps=200)"),
    ],
    ids=["SVI", "lbfgs", "adam"],
)
def test_a_fit_killed_by_sigkill_ends_like_an_undisturbed_one(
    model: str, how: str, tmp_path: Path
) -> None:
    """Processes may differ in the last digit of a sum, which the tolerance allows for."""

    def start(path: Path, out: Path) -> Any:
        ready = Path(f"{out}.ready")
        ready.unlink(missing_ok=True)
        process = forked.start(SCRIPT, model, how, str(path), str(out))
        while not ready.exists():
            assert process.exitcode is None
            time.sleep(0.01)
        return process

    undisturbed = start(tmp_path / "a.ckpt", tmp_path / "a.pt")
    begun = time.monotonic()
    undisturbed.join()
    assert undisturbed.exitcode == 0
    length = time.monotonic() - begun
    for share in (0.4, 0.6, 0.5):
        process = start(tmp_path / "b.ckpt", tmp_path / "b.pt")
        time.sleep(share * length)
        process.kill()
        process.join()
    last = start(tmp_path / "b.ckpt", tmp_path / "b.pt")
    last.join()
    assert last.exitcode == 0
    a, b = (torch.load(tmp_path / f"{name}.pt", weights_only=True) for name in "ab")
    torch.testing.assert_close(a, b, rtol=0, atol=1e-8)
