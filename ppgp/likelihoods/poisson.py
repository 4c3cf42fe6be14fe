"""The Poisson likelihood of counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from ..data.dataset import Dataset
from ..distributions.distributions import PoissonLogNormal
from .base import Theta, log_of_count, root
from .parametric import Parametric
from .scored import log_rate
from .target_checks import check_counts_of_events


@dataclass(frozen=True)
class Poisson(Parametric):
    """y ~ Poisson(exp(f)), y = 0, 1, 2, ...: a log-Gaussian Cox process on a grid.

    Moller, Syversveen & Waagepetersen (1998). f [n] is the log of an expected count, which has no
    unit. The likelihood has no arguments.

    Raises:
        UnknownArgument: If an argument is given by name.

    Examples:
        Events per unit of exposure, 6 / 3 where x = 0 and 20 / 4 where x = 1. The offset is the log
        of the exposure:

        >>> import math
        >>> import ppgp
        >>> from ppgp import inference, likelihoods, models, priors
        >>> X, events, exposure = [[0.0], [0.0], [1.0], [1.0]], [1, 5, 5, 15], [1.0, 2.0, 1.0, 3.0]
        >>> data = ppgp.Dataset(X, events, offset=[math.log(one) for one in exposure])
        >>> model = models.GLM(likelihoods.Poisson(), weight=priors.Flat(), bias=priors.Flat())
        >>> posterior = ppgp.fit(model, data, inference.MAP("newton"), progress=False)
        >>> table = posterior.coefficients("model", exponentiate=True)
        >>> table["estimate"].round(3).to_dict()  # the rate where x = 0, and the rate ratio
        {'intercept': 2.0, 'x0': 2.5}
    """

    scales = "X"
    integrates_f = True
    counts = True
    numeric = True

    def prepare(self, data: Dataset) -> Poisson:
        """Return this likelihood.

        Raises:
            DataError: If a target is not a count.
        """
        check_counts_of_events(data)
        return self

    def ratio(self) -> str:
        return "rate ratio"

    def most_probable(self, y: Tensor) -> Tensor:
        return log_of_count(y)

    def _distribution(self, p: Theta, f: Tensor) -> Distribution:
        return dist.Poisson(f.exp())

    def _marginal(self, p: Theta, mean: Tensor, variance: Tensor) -> Distribution:
        return PoissonLogNormal(mean, root(variance))

    def _expected(self, p: Theta, mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
        # y E f - E exp(f) - log y!
        return y * mean - (mean + 0.5 * variance).exp() - torch.lgamma(y + 1)

    def _score(self, p: Theta, f: Tensor, y: Tensor, kind: str) -> Tensor:
        rate = f.exp()
        log_mass = y * f - rate - torch.lgamma(y + 1)
        if kind == "nll":
            return -log_mass
        upto = torch.special.gammaincc(y + 1, rate)  # P(Y <= y)
        bessel = torch.special.i0e(2 * rate) + torch.special.i1e(2 * rate)
        return (y - rate) * (2 * upto - 1) + 2 * rate * log_mass.exp() - rate * bessel

    def _slopes(self, p: Theta, f: Tensor, y: Tensor, kind: str) -> tuple[Tensor, ...]:
        rate = f.exp()
        if kind == "nll":
            return (rate - y,)
        below = torch.special.gammaincc(y.clamp_min(1.0), rate)  # P(Y <= y - 1)
        below = torch.where(y > 0, below, torch.zeros_like(below))
        return (rate * (1 - 2 * below - torch.special.i0e(2 * rate)),)

    def _second_slopes(self, p: Theta, f: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return (-f.exp(),)

    def _curvature(self, p: Theta, f: Tensor, kind: str) -> Mapping[tuple[int, int], Tensor]:
        rate = f.exp()
        if kind == "nll":
            return {(0, 0): rate}
        return {(0, 0): 2 * rate.square() * torch.special.i0e(2 * rate)}

    def _guess(self, y: Tensor) -> tuple[float, ...]:
        return (log_rate(y),)

    def _has_least(self, y: Tensor) -> bool:
        return bool(y.max() > 0)
