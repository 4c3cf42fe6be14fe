"""Predictive distributions to test scores with: mixtures [draw, n] of many families and units."""

from __future__ import annotations

import math
from collections.abc import Callable

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from ppgp import Prediction
from ppgp.distributions.distributions import NormalMixture

Make = Callable[..., Distribution]


class _Numbers:
    """Random numbers of one shape: u is uniform in (0, 1), z is standard normal."""

    def __init__(self, seed: int, dtype: torch.dtype, *shape: int) -> None:
        self.generator, self.dtype, self.shape = torch.Generator().manual_seed(seed), dtype, shape

    def u(self, *more: int) -> Tensor:
        return torch.rand(*self.shape, *more, generator=self.generator, dtype=torch.float64).to(
            self.dtype
        )

    def z(self, *more: int) -> Tensor:
        return torch.randn(*self.shape, *more, generator=self.generator, dtype=torch.float64).to(
            self.dtype
        )


#: (numbers, unit) -> the distribution; bounded ones take the unit from the Prediction
FAMILIES: dict[str, Make] = {
    "Normal": lambda r, c: dist.Normal(c * r.z(), c * (0.1 + r.u())),
    "StudentT": lambda r, c: dist.StudentT(0.8 + 3 * r.u(), c * r.z(), c * (0.1 + r.u())),
    "Cauchy": lambda r, c: dist.Cauchy(c * r.z(), c * (0.1 + r.u())),
    "Laplace": lambda r, c: dist.Laplace(c * r.z(), c * (0.1 + r.u())),
    "Logistic": lambda r, c: dist.Logistic(c * r.z(), c * (0.1 + r.u())),
    "Gumbel": lambda r, c: dist.Gumbel(c * r.z(), c * (0.1 + r.u())),
    "SoftLaplace": lambda r, c: dist.SoftLaplace(c * r.z(), c * (0.1 + r.u())),
    "AsymmetricLaplace": lambda r, c: dist.AsymmetricLaplace(
        c * r.z(), c * (0.1 + r.u()), 0.5 + r.u()
    ),
    "LogNormal": lambda r, c: dist.LogNormal(math.log(c) + 0.5 * r.z(), 0.2 + r.u()),
    "Gamma": lambda r, c: dist.Gamma(0.6 + 3 * r.u(), (0.5 + r.u()) / c),
    "Exponential": lambda r, c: dist.Exponential((0.5 + r.u()) / c),
    "HalfNormal": lambda r, c: dist.HalfNormal(c * (0.1 + r.u())),
    "HalfCauchy": lambda r, c: dist.HalfCauchy(c * (0.1 + r.u())),
    "Weibull": lambda r, c: dist.Weibull(c * (0.1 + r.u()), 0.8 + r.u()),
    "InverseGamma": lambda r, c: dist.InverseGamma(1 + 2 * r.u(), c * (0.1 + r.u())),
    "Pareto": lambda r, c: dist.Pareto(c * (0.1 + r.u()), 1 + r.u()),
    "Uniform": lambda r, c: dist.Uniform(c * r.z() - c, c * r.u() + 4 * c),
    "Beta": lambda r, c: dist.Beta(0.5 + 2 * r.u(), 0.5 + 2 * r.u()),
    "Kumaraswamy": lambda r, c: dist.Kumaraswamy(0.6 + r.u(), 0.6 + r.u()),
    "NormalMixture": lambda r, c: NormalMixture(
        torch.softmax(r.z(3), -1), c * r.z(3), c * (0.05 + r.u(3))
    ),
}
BOUNDED = ("Beta", "Kumaraswamy")


def prediction(
    name: str, unit: float, dtype: torch.dtype, seed: int, draws: int, n: int
) -> Prediction:
    """Return a mixture of a family in a unit."""
    numbers = _Numbers(seed, dtype, draws, n)
    if name in BOUNDED:
        return Prediction(FAMILIES[name](numbers, 1.0), scale=unit)
    return Prediction(FAMILIES[name](numbers, unit))
