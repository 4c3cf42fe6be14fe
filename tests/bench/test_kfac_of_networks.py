"""MAP of networks by K-FAC and by Adam, each at its best learning rate, in the same CPU time.

Every run has mini-batches and a cosine schedule, and as many steps as fit into its time. The best
rate is the one of the highest log density at the end. The time to a level is that at which the mean
loss of mini-batches over one pass reaches it.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits
from uci import split

from ppgp.data import Dataset
from ppgp.density import Target
from ppgp.inference import MAP
from ppgp.likelihoods import Categorical, Gaussian
from ppgp.models import NeuralRegression
from ppgp.networks.networks import CNN, MLP
from ppgp.priors import Normal

SECONDS = 8.0  # of CPU per run, without what compiling takes
RATES = {"adam": (0.003, 0.01, 0.03), "kfac": (0.003, 0.01, 0.03)}
BATCH = 128
FIRST = 60  # steps whose time tells how many fit


def digits() -> tuple[Dataset, Dataset]:
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    X, y = torch.as_tensor(images)[order] / 16, torch.as_tensor(labels).double()[order]
    return Dataset(X[360:], y[360:]), Dataset(X[:360], y[:360])


def problem(name: str, folder: Path) -> tuple[Any, Dataset, Dataset]:
    """Return a model and its training and test rows."""
    if name == "digits":
        train, test = digits()
        network: Any = CNN((8, 16), dropout=0.0)
        return NeuralRegression(network, Categorical(), Normal(0, 1)).prepare(train), train, test
    train, test = split(folder, name)
    hidden = {"kin8nm": (64, 64, 32), "energy": (50,)}[name]
    network = MLP(hidden=hidden, activation="tanh", dropout=0.0)
    return NeuralRegression(network, Gaussian(), Normal(0, 1)).prepare(train), train, test


def seconds_per_step(optimizer: str, target: Target) -> float:
    """Return the CPU time of a step, without compiling."""
    how = MAP(optimizer, steps=FIRST, starts=1, batch_size=BATCH)
    how(target)
    started = time.process_time()
    how(target)
    return (time.process_time() - started) / FIRST


def run(optimizer: str, rate: float, target: Target, each: float) -> tuple[Any, torch.Tensor]:
    """Return the posterior, and the mean loss per row of mini-batches over the last pass."""
    steps = max(FIRST, round(SECONDS / each))
    rates = {"network": rate, "": 0.05}
    if set(target.slices) == {name for name in target.slices if name.startswith("network.")}:
        rates = {"": rate}
    how = MAP(optimizer, steps, 1, rates, schedule="cosine", batch_size=BATCH)
    posterior = how(target)
    window = max(1, target.data.n // BATCH)
    losses = posterior.stats["losses"] / target.data.n
    passes = losses.unfold(0, window, 1).mean(1) if len(losses) >= window else losses
    return posterior, passes


def first_time(losses: torch.Tensor, level: float, each: float) -> float:
    reached = torch.nonzero(losses <= level)
    return float(reached[0]) * each if len(reached) else math.inf


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["kin8nm", "energy", "digits"])
def test_kfac_beside_adam(name: str, benchmark: Any, data_dir: Path) -> None:
    model, train, test = problem(name, data_dir)
    best: dict[str, tuple[Any, torch.Tensor, float, float]] = {}
    print(f"\n{name}: {model.network!r}, {train.n} rows; {SECONDS:.0f} s of CPU per run")
    for optimizer, rates in RATES.items():
        target = Target(model, train, True)
        each = seconds_per_step(optimizer, target)
        for rate in rates:
            posterior, losses = run(optimizer, rate, target, each)
            density = posterior.stats["log_density"] / train.n
            print(
                f"  {optimizer:<5} rate {rate:<6} {each * 1e3:6.2f} ms a step, "
                f"{posterior.stats['steps']:6d} steps: log density per row {density:8.4f}, "
                f"test NLPD {float(-posterior.predict(test.X).log_prob(test.y).mean()):8.4f}"
            )
            if optimizer not in best or density > best[optimizer][0].stats["log_density"] / train.n:
                best[optimizer] = posterior, losses, each, rate
    level = float(best["adam"][1].min())
    for optimizer, (posterior, losses, each, rate) in best.items():
        print(
            f"  {optimizer} at {rate}: {first_time(losses, level, each):6.2f} s to the lowest loss "
            f"of Adam, {first_time(losses, level + 0.1, each):6.2f} s to 0.1 above it"
        )
        assert math.isfinite(posterior.stats["log_density"])
    target = Target(model, train, True)
    benchmark.pedantic(MAP("kfac", steps=FIRST, starts=1, batch_size=BATCH), (target,), rounds=1)
