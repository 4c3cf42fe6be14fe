"""Mixtures for tests, as torch distributions with batch [draw, n] and as SciPy components."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyro.distributions as dist
import torch
from scipy import optimize, stats
from torch import Tensor

DRAWS, ROWS = 5, 3


def between(low: float, high: float, seed: int, draws: int = DRAWS) -> Tensor:
    u = torch.rand(draws, ROWS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return low + (high - low) * u


@dataclass(frozen=True)
class Mixture:
    """A mixture with equal weights.

    Attributes:
        distribution: The torch distribution, batch [draw, n].
        row: row(i) is the frozen SciPy distribution of row i, with one entry per component.
        discrete: Whether it is a distribution of counts.
    """

    distribution: torch.distributions.Distribution
    row: Callable[[int], Any]
    discrete: bool = False

    def cdf(self, i: int, x: float) -> float:
        return float(np.mean(self.row(i).cdf(x)))

    def cdfs(self, i: int, x: np.ndarray) -> np.ndarray:
        """Return the cdf at several values."""
        return self.row(i).cdf(x[:, None]).mean(-1)

    def density(self, i: int, x: float) -> float:
        row = self.row(i)
        return float(np.mean(row.pmf(x) if self.discrete else row.pdf(x)))

    def quantile(self, i: int, p: float) -> float:
        ends = self.row(i).ppf(p)
        low, high = float(np.min(ends)), float(np.max(ends))
        if self.discrete:
            return next(float(k) for k in range(int(low), int(high) + 1) if self.cdf(i, k) >= p)
        return (
            optimize.brentq(lambda x: self.cdf(i, x) - p, low, high, xtol=1e-14, rtol=1e-14)
            if low < high
            else low
        )


def _frozen(kind: Any, columns: dict[str, Tensor], i: int) -> Any:
    return kind(**{name: value[:, i].numpy() for name, value in columns.items()})


def _normal(m: Tensor, s: Tensor) -> Mixture:
    return Mixture(dist.Normal(m, s), partial(_frozen, stats.norm, {"loc": m, "scale": s}))


def _student(df: Tensor, m: Tensor, s: Tensor) -> Mixture:
    return Mixture(
        dist.StudentT(df, m, s), partial(_frozen, stats.t, {"df": df, "loc": m, "scale": s})
    )


def _gamma(a: Tensor, b: Tensor) -> Mixture:
    return Mixture(dist.Gamma(a, b), partial(_frozen, stats.gamma, {"a": a, "scale": 1 / b}))


def _log_normal(m: Tensor, s: Tensor) -> Mixture:
    return Mixture(
        dist.LogNormal(m, s), partial(_frozen, stats.lognorm, {"s": s, "scale": m.exp()})
    )


def _uniform(low: Tensor, high: Tensor) -> Mixture:
    return Mixture(
        dist.Uniform(low, high), partial(_frozen, stats.uniform, {"loc": low, "scale": high - low})
    )


def _poisson(rate: Tensor) -> Mixture:
    return Mixture(dist.Poisson(rate), partial(_frozen, stats.poisson, {"mu": rate}), discrete=True)


def _negative_binomial(r: Tensor, q: Tensor) -> Mixture:
    distribution = dist.NegativeBinomial(r, probs=q)
    return Mixture(
        distribution, partial(_frozen, stats.nbinom, {"n": r, "p": 1 - q}), discrete=True
    )


CONTINUOUS = {
    "Normal": _normal(between(-3, 3, 0), between(0.1, 2, 1)),
    "one Normal": _normal(between(-3, 3, 0, draws=1), between(0.1, 2, 1, draws=1)),
    "Normal, far from 0": _normal(1e6 + between(-3, 3, 0), between(0.1, 2, 1)),
    "StudentT": _student(between(2.5, 9, 2), between(-3, 3, 3), between(0.1, 2, 4)),
    "Cauchy": _student(torch.ones(DRAWS, ROWS).double(), between(-3, 3, 3), between(0.1, 2, 4)),
    "Gamma": _gamma(between(0.5, 5, 5), between(0.2, 3, 6)),
    "LogNormal": _log_normal(between(-1, 1, 7), between(0.2, 1.2, 8)),
    "Uniform": _uniform(between(-2, 0, 9), between(0.5, 3, 10)),
}
COUNTS = {
    "Poisson": _poisson(between(0.2, 30, 11)),
    "rare Poisson": _poisson(between(0.001, 0.02, 12)),
    "NegativeBinomial": _negative_binomial(between(0.5, 6, 13), between(0.1, 0.8, 14)),
}
ALL = CONTINUOUS | COUNTS
