"""A killed run, started again, ends like an undisturbed one."""

from __future__ import annotations

import random
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import forked
import pytest
import torch

import ppgp
from ppgp import inference, likelihoods
from ppgp.errors import NotApplicable, StorageError
from ppgp.inference import HMC, NUTS, SGHMC, SGLD, SVI, Gibbs, Inference, MetropolisHastings
from ppgp.inference import checkpoint as checkpoints
from ppgp.models import GLM, LinearRegression, LogisticRegression
from ppgp.priors import InverseGamma, Normal

SCRIPT = """
import sys, torch, ppgp
from ppgp import inference, models
from ppgp.inference import checkpoint
checkpoint.EVERY, checkpoint.SHARE = 0.05, 0.5
data = ppgp.load("breast_cancer")
data = ppgp.Dataset(data.X[:120, :4], data.y[:120])
open(sys.argv[3] + ".ready", "w").close()
how = eval("inference." + sys.argv[1])
p = ppgp.fit(models.LogisticRegression(), data, how, progress=False, checkpoint=sys.argv[2])
torch.save(p.draws["weight"], sys.argv[3])
"""
LONG = [
    "SGLD(draws=150, warmup=75)",
    "SVI(steps=1000, patience=1000)",
    "NUTS(draws=100, warmup=100, metric='diagonal')",
]


def small() -> ppgp.Dataset:
    data = ppgp.load("breast_cancer")
    return ppgp.Dataset(data.X[:120, :4], data.y[:120])


def start(how: str, path: Path, out: Path) -> ForkServerProcess:
    """Start a fit in a process of its own, and wait until its data are loaded."""
    ready = Path(f"{out}.ready")
    ready.unlink(missing_ok=True)
    process = forked.start(SCRIPT, how, str(path), str(out))
    while not ready.exists():
        assert process.exitcode is None
        time.sleep(0.01)
    return process


def ended(process: ForkServerProcess) -> bool:
    """Wait for a process, and return whether it ended without an error."""
    process.join()
    return process.exitcode == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "kills"), list(zip(LONG, (8, 8, 4), strict=True)), ids=lambda v: str(v)[:5]
)
def test_a_run_killed_at_random_moments_ends_like_an_undisturbed_one(
    how: str, kills: int, tmp_path: Path
) -> None:
    """Twenty kills in all, by SIGKILL.

    Processes may differ in the last digit of a sum, which the tolerances allow for.
    """
    undisturbed = start(how, tmp_path / "a.ckpt", tmp_path / "a.pt")
    begun = time.monotonic()
    assert ended(undisturbed)
    length = time.monotonic() - begun
    moments = random.Random(0)
    for _ in range(kills):
        process = start(how, tmp_path / "b.ckpt", tmp_path / "b.pt")
        time.sleep(moments.uniform(0.1, 0.7) * length)
        process.kill()
        process.join()
    assert ended(start(how, tmp_path / "b.ckpt", tmp_path / "b.pt"))
    a, b = (torch.load(tmp_path / f"{name}.pt", weights_only=True) for name in "ab")
    torch.testing.assert_close(a, b, rtol=0, atol=1e-8)


RESUMED: list[Inference] = [
    SVI(steps=300, patience=300),
    SVI("normal", steps=300, patience=300, batch_size=20),
    SVI(optimizer="natural", particles=4, learning_rate=0.1, steps=300, patience=300),
    NUTS(draws=20, warmup=30),
    HMC(draws=30, warmup=60),
    MetropolisHastings(draws=30, warmup=60),
    SGLD(draws=30, warmup=30, batch_size=20),
    SGHMC(draws=30, warmup=30),
    Gibbs(draws=30, warmup=30),
]


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
@pytest.mark.parametrize("how", RESUMED, ids=lambda h: repr(h)[:30])
def test_a_resumed_run_gives_the_draws_of_an_undisturbed_one(
    how: Inference, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state of any step is enough to resume from; a finished run is only read."""
    model = (
        LinearRegression(noise=InverseGamma(2.0, 1.0))
        if isinstance(how, Gibbs)
        else LogisticRegression()
    )
    whole = ppgp.fit(model, small(), how, progress=False)
    monkeypatch.setattr(checkpoints, "EVERY", 0.0)
    monkeypatch.setattr(checkpoints, "SHARE", 1e9)
    monkeypatch.setattr("os.fsync", lambda _: None)  # of hundreds of saves
    path, saves = tmp_path / "run.ckpt", 0
    save = checkpoints.Checkpoint.save

    def dies(self: checkpoints.Checkpoint, tensors: dict[str, torch.Tensor]) -> None:
        nonlocal saves
        save(self, tensors)
        saves += 1
        if saves == (1 if isinstance(how, NUTS) else 37):
            raise SystemError("killed")

    monkeypatch.setattr(checkpoints.Checkpoint, "save", dies)
    with pytest.raises(SystemError, match="killed"):
        ppgp.fit(model, small(), how, progress=False, checkpoint=path)
    again = ppgp.fit(model, small(), how, progress=False, checkpoint=path)
    assert all(torch.equal(again.draws[name], whole.draws[name]) for name in whole.draws)
    monkeypatch.setattr(checkpoints.Checkpoint, "save", save)
    third = ppgp.fit(model, small(), how, progress=False, checkpoint=path)
    assert all(torch.equal(third.draws[name], whole.draws[name]) for name in whole.draws)


def test_the_file_of_another_run_is_refused_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    how = SGLD(draws=10, warmup=10, chains=2)
    with pytest.warns(ppgp.errors.ConvergenceWarning):
        ppgp.fit(LogisticRegression(), small(), how, progress=False, checkpoint=path)
    before = path.read_bytes()
    half = small().rows(slice(0, 100))
    narrow = LogisticRegression(weight=Normal(0.0, 0.5))
    more = SGLD(draws=11, warmup=9, chains=2)
    others: list[tuple[Any, Any, Inference, int, str]] = [
        (LogisticRegression(), small(), how, 1, "a run with seed=0, not 1: choose"),
        (LogisticRegression(), half, how, 0, "a run with other data: choose"),
        (LogisticRegression(), small(), more, 0, "with draws=10, not 11, warmup=10, not 9: choose"),
        (narrow, small(), how, 0, "with another recipe of LogisticRegression: choose"),
        (GLM(likelihoods.Bernoulli()), small(), how, 0, "the model LogisticRegression, not GLM: "),
        (LogisticRegression(), half, NUTS(), 2, "method SGLD, not NUTS, seed=0, not 2, other data"),
    ]
    for model, data, method, seed, words in others:
        with pytest.raises(StorageError, match=words):
            ppgp.fit(model, data, method, seed=seed, progress=False, checkpoint=path)
    assert path.read_bytes() == before
    path.write_text("something else")
    with pytest.raises(StorageError, match="cannot be read"):
        ppgp.fit(LogisticRegression(), small(), how, progress=False, checkpoint=path)


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    """With one changed bit, the run would continue from another state."""
    path = tmp_path / "run.ckpt"
    how = SGLD(draws=10, warmup=10, chains=2)
    with pytest.warns(ppgp.errors.ConvergenceWarning):
        ppgp.fit(LogisticRegression(), small(), how, progress=False, checkpoint=path)
    content = bytearray(path.read_bytes())
    for place in (-1, -100, -1000):
        damaged = content.copy()
        damaged[place] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(StorageError, match="checksum"):
            ppgp.fit(LogisticRegression(), small(), how, progress=False, checkpoint=path)


@pytest.mark.parametrize(
    ("how", "advice"),
    [
        (inference.Laplace(), "use MAP, SVI"),
        (inference.SWAG(), "use MAP, SVI"),
        (NUTS(engine="pyro"), "nutpie"),
        (SVI("lowrank"), "Gaussian guide"),
    ],
    ids=repr,
)
def test_other_methods_refuse_a_checkpoint(how: Inference, advice: str, tmp_path: Path) -> None:
    with pytest.raises(NotApplicable, match=advice):
        ppgp.fit(
            LogisticRegression(), small(), how, progress=False, checkpoint=tmp_path / "run.ckpt"
        )
    assert not list(tmp_path.iterdir())
