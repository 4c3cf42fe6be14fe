"""A default search ends no lower than the best of eight, on forty pairs of model and data."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import inference, kernels, likelihoods, models, priors

GAP = 0.1  # in nats
F64 = torch.float64

Made = tuple[Any, Any]


@dataclass(frozen=True)
class Pair:
    """A model and data, made when they are needed.

    Attributes:
        name: Its name.
        make: Returns the model and the data.
    """

    name: str
    make: Callable[[], Made]


def smooth(n: int = 60, d: int = 1, noise: float = 0.2, seed: int = 0) -> ppgp.Dataset:
    """Return a smooth function on random places."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, d))
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, -1] + noise * rng.normal(size=n)
    return ppgp.Dataset(X, y)


def step(n: int = 50) -> ppgp.Dataset:
    """Return a jump, which a short lengthscale and a long one with much noise explain."""
    rng = np.random.default_rng(4)
    x = np.sort(rng.uniform(0, 10, n))
    return ppgp.Dataset(x[:, None], (x > 5) + 0.3 * rng.normal(size=n))


def rough(n: int = 20, seed: int = 12) -> ppgp.Dataset:
    """Return few rows of a function that changes fast, on a slope."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.normal(0.0, 0.8, n))
    K = np.exp(-0.5 * ((x[:, None] - x) / 0.25) ** 2) + 1e-8 * np.eye(n)
    f = np.linalg.cholesky(K) @ rng.normal(size=n)
    return ppgp.Dataset(x[:, None], f + 0.1 * rng.normal(size=n) + 0.5 * x + 1.0)


def noise_alone(n: int = 40) -> ppgp.Dataset:
    rng = np.random.default_rng(8)
    return ppgp.Dataset(rng.normal(size=(n, 2)), rng.normal(size=n))


def seasons(n: int = 90, period: float = 7.0, trend: float = 0.05) -> ppgp.Dataset:
    """Return a series with a trend and a season."""
    rng = np.random.default_rng(5)
    t = np.arange(float(n))
    y = 40 + trend * t + 2 * np.sin(2 * np.pi * t / period) + 0.5 * rng.normal(size=n)
    return ppgp.Dataset(t[:, None], y)


def two_seasons(n: int = 120) -> ppgp.Dataset:
    rng = np.random.default_rng(6)
    t = np.arange(float(n))
    y = np.sin(2 * np.pi * t / 7) + 2 * np.sin(2 * np.pi * t / 31) + 0.3 * rng.normal(size=n)
    return ppgp.Dataset(t[:, None], y)


def outliers(n: int = 60, share: float = 0.15, seed: int = 1) -> ppgp.Dataset:
    """Return a line with outliers on one side."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = X @ [1.0, -0.5] + 0.2 * rng.normal(size=n)
    y[: round(share * n)] += rng.uniform(4, 10, round(share * n))
    return ppgp.Dataset(X, y)


def two_lines(n: int = 60) -> ppgp.Dataset:
    """Return rows of two lines, between which heavy tails choose."""
    rng = np.random.default_rng(2)
    x = rng.uniform(-2, 2, n)
    slope = np.where(rng.random(n) < 0.55, 2.0, -2.0)
    return ppgp.Dataset(x[:, None], slope * x + 0.2 * rng.normal(size=n))


def labels(n: int = 60) -> ppgp.Dataset:
    rng = np.random.default_rng(3)
    x = rng.uniform(-3, 3, n)
    return ppgp.Dataset(x[:, None], (rng.random(n) < 1 / (1 + np.exp(-3 * np.sin(2 * x)))) * 1)


def counts(n: int = 60) -> ppgp.Dataset:
    rng = np.random.default_rng(3)
    x = rng.uniform(-3, 3, n)
    return ppgp.Dataset(x[:, None], rng.poisson(np.exp(1 + np.sin(2 * x))))


def clumps(k: int = 3, n: int = 90, d: int = 2) -> ppgp.Dataset:
    rng = np.random.default_rng(7)
    middle = 4 * rng.normal(size=(k, d))
    X = middle[rng.integers(k, size=n)] + rng.normal(size=(n, d))
    return ppgp.Dataset(X, X[:, 0])


def grid() -> ppgp.Dataset:
    rng = np.random.default_rng(9)
    a, b = np.meshgrid(np.linspace(0, 1, 9), np.linspace(0, 1, 7), indexing="ij")
    X = np.stack([a.ravel(), b.ravel()], 1)
    return ppgp.Dataset(X, np.sin(6 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=63))


def mixture_of_normals(y: Tensor) -> None:
    """Three components with one prior: at its median they are alike."""
    with pyro.plate("components", 3):
        means = pyro.sample("means", dist.Normal(torch.zeros((), dtype=y.dtype), 5.0))
    scale = pyro.sample("scale", dist.HalfNormal(torch.ones((), dtype=y.dtype)))
    shares = pyro.sample("shares", dist.Dirichlet(torch.ones(3, dtype=y.dtype)))
    with pyro.plate("rows", len(y)):
        z = pyro.sample("z", dist.Categorical(shares), infer={"enumerate": "parallel"})
        pyro.sample("y", dist.Normal(means[z], scale), obs=y)


def mixture_of_lines(x: Tensor, y: Tensor) -> None:
    with pyro.plate("lines", 2):
        slope = pyro.sample("slope", dist.Normal(torch.zeros((), dtype=y.dtype), 3.0))
    scale = pyro.sample("scale", dist.HalfNormal(torch.ones((), dtype=y.dtype)))
    share = pyro.sample("share", dist.Beta(2 * torch.ones((), dtype=y.dtype), 2.0))
    with pyro.plate("rows", len(y)):
        z = pyro.sample("z", dist.Bernoulli(share), infer={"enumerate": "parallel"})
        pyro.sample("y", dist.Normal(slope[z.long()] * x, scale), obs=y)


def numbers(means: tuple[float, ...] = (-4.0, 0.5, 5.0)) -> dict[str, Tensor]:
    rng = np.random.default_rng(11)
    y = np.concatenate([m + 0.7 * rng.normal(size=20) for m in means])
    return {"y": torch.as_tensor(y)}


def rows_of_lines() -> dict[str, Tensor]:
    data = two_lines()
    return {"x": data.X[:, 0], "y": data.y}


RBF, FLAT = kernels.RBF, priors.Flat()
STUDENT = likelihoods.StudentT()
WEEK = priors.InUnitsOfData(priors.LogNormal(math.log(7.0), 0.3))
QUASI = kernels.RBF(1.0) * kernels.Periodic()


def pair(name: str, model: Any, data: Callable[[], Any]) -> Pair:
    return Pair(name, lambda: (model, data()))


PAIRS = [
    pair("GP", models.GP(), smooth),
    pair("GP, a jump", models.GP(), step),
    pair("GP, few rows", models.GP(), rough),
    pair("GP, few rows of another seed", models.GP(), partial(rough, 24, 3)),
    pair("GP, noise alone", models.GP(), noise_alone),
    pair("GP, ARD", models.GP(kernels.ARD(RBF())), partial(smooth, 80, 3)),
    pair("GP, ARD on noise", models.GP(kernels.ARD(kernels.Matern(2.5))), noise_alone),
    pair("GP, Matern 1/2", models.GP(kernels.Matern(0.5)), step),
    pair("GP, rational quadratic", models.GP(kernels.RationalQuadratic()), rough),
    pair("GP, sum", models.GP(RBF() + kernels.Linear()), smooth),
    pair("GP, two RBF", models.GP(RBF() + RBF()), two_seasons),
    pair("GP, flat", models.GP(RBF(FLAT, FLAT), noise=FLAT, mean=FLAT), rough),
    pair("GP, period", models.GP(kernels.Periodic()), partial(seasons, 90, 7.0, 0.0)),
    pair("GP, week and trend", models.GP(RBF() + kernels.Periodic(period=WEEK)), seasons),
    pair("GP, quasi-periodic", models.GP(QUASI), seasons),
    pair("GP, two periods", models.GP(kernels.Periodic() + kernels.Periodic()), two_seasons),
    pair("GP, cosine", models.GP(kernels.Cosine()), partial(seasons, 60, 11.0, 0.0)),
    pair("GP, spectral mixture", models.GP(kernels.SpectralMixture(2)), two_seasons),
    pair("GP, polynomial and RBF", models.GP(kernels.Polynomial(2) + RBF()), smooth),
    pair("GP, anisotropy", models.GP(kernels.Anisotropy(kernels.Exponential())), grid),
    pair("SGPR", models.SGPR(inducing=15), smooth),
    pair(
        "SGPR, period", models.SGPR(kernels.Periodic(), inducing=20), partial(seasons, 90, 7.0, 0.0)
    ),
    pair("SKI", models.SKI(grid=30), smooth),
    pair("GridGP", models.GridGP(), grid),
    pair("Kriging", models.Kriging(), grid),
    pair("Vecchia", models.Vecchia(), smooth),
    pair("StateSpaceGP, Matern", models.StateSpaceGP(kernels.Matern(1.5)), seasons),
    pair(
        "StateSpaceGP, cycle",
        models.StateSpaceGP(kernels.Matern(0.5) * kernels.Cosine(1.0)),
        two_seasons,
    ),
    pair("LatentGP, labels", models.GP(likelihood=likelihoods.Bernoulli()), labels),
    pair("LatentGP, counts", models.GP(likelihood=likelihoods.Poisson()), counts),
    pair("LatentGP, Student-t", models.GP(likelihood=STUDENT), partial(smooth, 40)),
    pair("GLM, Student-t", models.GLM(STUDENT), outliers),
    pair("GLM, Student-t, many outliers", models.GLM(STUDENT), partial(outliers, 60, 0.4, 5)),
    pair("GLM, Student-t, two lines", models.GLM(STUDENT), two_lines),
    pair("GLM, Student-t of df 2", models.GLM(likelihoods.StudentT(df=2.0)), two_lines),
    pair("GaussianMixture", models.GaussianMixture(), clumps),
    pair("GaussianMixture, five", models.GaussianMixture(5), partial(clumps, 5, 120)),
    pair("mixture of normals", mixture_of_normals, numbers),
    pair("mixture of near normals", mixture_of_normals, partial(numbers, (-1.5, 0.0, 1.5))),
    pair("mixture of lines", mixture_of_lines, rows_of_lines),
]


def searched(made: Made, how: inference.MAP) -> tuple[ppgp.Posterior, float]:
    """Return a fit and the seconds that it took."""
    begun = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = ppgp.fit(*made, how, progress=False)
    return result, time.process_time() - begun


def test_there_are_forty() -> None:
    assert len(PAIRS) == len({each.name for each in PAIRS}) == 40


@pytest.mark.parametrize("each", PAIRS, ids=lambda each: each.name)
def test_a_default_search_ends_no_lower_than_the_best_of_eight(each: Pair) -> None:
    made = each.make()
    one, _ = searched(made, inference.MAP())
    many, _ = searched(made, inference.MAP(starts=8))
    assert float(one.stats["log_density"]) >= float(many.stats["log_density"]) - GAP
