"""Whole short fits with the density compiled as the library decides, and never compiled.

Long fits, as NUTS is, evaluate thousands of gradients, and compiling takes some tens of them.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from posteriors import logistic, schools
from torch import Tensor

import ppgp
from ppgp import inference, kernels, models
from ppgp.data import Dataset
from ppgp.density.target import Graphs

ROUNDS = 3
MORE, SLACK = 1.1, 0.02  # of the seconds without compiling, and seconds
F64 = torch.float64
METHODS: dict[str, Callable[[], Any]] = {
    "map": inference.MAP,
    "laplace": inference.Laplace,
    "svi": lambda: inference.SVI("multivariate_normal", method="deterministic"),
}


def gp(n: int) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(n, 2, generator=generator, dtype=F64)
    y = torch.sin(2 * X[:, 0]) + 0.3 * torch.randn(n, generator=generator, dtype=F64)
    return models.GP(kernels.ARD(kernels.RBF())), Dataset(X, y)


def mixture() -> tuple[Any, Any]:
    def program(y: Tensor) -> None:
        zero = torch.zeros(2, dtype=F64)
        weights = pyro.sample("weights", dist.Dirichlet(zero + 2.0))
        centres = pyro.sample(
            "centres", dist.Normal(torch.tensor([-2.0, 2.0]).to(F64), 1.0).to_event(1)
        )
        scales = pyro.sample("scales", dist.LogNormal(zero, 0.5).to_event(1))
        with pyro.plate("rows", len(y)):
            parts = dist.Normal(centres, scales)
            pyro.sample("y", dist.MixtureSameFamily(dist.Categorical(weights), parts), obs=y)

    e = torch.randn(200, generator=torch.Generator().manual_seed(0), dtype=F64)
    return program, {"y": torch.where(torch.arange(200) < 80, e - 2.0, 0.5 * e + 2.0)}


def ordinal() -> tuple[Any, Any]:
    def program(X: Tensor, y: Tensor) -> None:
        zero = torch.zeros(X.shape[1], dtype=F64)
        w = pyro.sample("w", dist.Normal(zero, 1.0).to_event(1))
        first = pyro.sample("first", dist.Normal(zero[0], 2.0))
        gaps = pyro.sample("gaps", dist.LogNormal(zero[:2], 1.0).to_event(1))
        cuts = first + torch.cat([zero[:1], gaps]).cumsum(0)
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.OrderedLogistic(X @ w, cuts), obs=y)

    generator = torch.Generator().manual_seed(0)
    X = torch.randn(300, 5, generator=generator, dtype=F64)
    latent = X.sum(1) + torch.randn(300, generator=generator, dtype=F64)
    return program, {"X": X, "y": torch.bucketize(latent, torch.tensor([-1.0, 0.0, 1.0]).to(F64))}


CASES: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "logistic": logistic,
    "gp 100": lambda _: gp(100),
    "gp 2000": lambda _: gp(2000),
    "schools": schools,
    "mixture": lambda _: mixture(),
    "ordinal": lambda _: ordinal(),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("case", CASES)
def test_a_fit_takes_no_longer_than_without_compiling(
    case: str, method: str, data_dir: Any, monkeypatch: pytest.MonkeyPatch, benchmark: Any
) -> None:
    if case == "gp 2000" and method != "map":
        pytest.skip("its gradients alone take minutes, of which compiling is nothing")
    model, data = CASES[case](data_dir)
    original = Graphs.__init__

    def never(self: Graphs, density: Any, compile: bool, notes: list[str], watch: bool) -> None:
        original(self, density, False, notes, watch)

    seconds: dict[str, list[float]] = {"as it is": [], "never compiled": []}
    rounds = 1 if case == "gp 2000" else ROUNDS

    def alternate() -> None:
        for seed in range(rounds + 1):
            for name, own in seconds.items():
                with monkeypatch.context() as patch, warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    if name == "never compiled":
                        patch.setattr(Graphs, "__init__", never)
                    started = time.process_time()
                    ppgp.fit(model, data, METHODS[method](), seed=seed, progress=False)
                    own.append(time.process_time() - started)

    benchmark.pedantic(alternate, rounds=1)
    ours, eager = (statistics.median(own[1:]) for own in seconds.values())
    print(f"\n{method} on {case}: {ours:.3f} s, never compiled {eager:.3f} s ({ours / eager:.2f})")
    assert ours < MORE * eager + SLACK
