"""The exponential likelihood of positive targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from ..data.dataset import Dataset
from ..distributions.gamma_times_log_normal import GammaTimesLogNormal
from .base import Theta, root
from .parametric import Parametric
from .scored import log_or_zero
from .target_checks import check_positive


@dataclass(frozen=True)
class Exponential(Parametric):
    """y ~ Exponential with mean exp(f), y > 0. Duan et al. (2020).

    f [n] is the log of a mean in the units of y. The likelihood has no arguments.

    Raises:
        UnknownArgument: If an argument is given by name.

    Examples:
        Waiting times in minutes, whose mean doubles from one group of rows to the other:

        >>> import ppgp
        >>> from ppgp import inference, likelihoods, models, priors
        >>> data = ppgp.Dataset([[0.0], [0.0], [1.0], [1.0]], [1.0, 3.0, 2.0, 6.0])
        >>> model = models.GLM(likelihoods.Exponential(), weight=priors.Flat(), bias=priors.Flat())
        >>> posterior = ppgp.fit(model, data, inference.MAP("newton"), progress=False)
        >>> waiting = posterior.predict([[0.0], [1.0]])
        >>> waiting.mean.round(decimals=3).tolist()
        [2.0, 4.0]
        >>> waiting.std.round(decimals=3).tolist()  # of an exponential variable: the mean
        [2.0, 4.0]
    """

    scales = "X"
    positive = True
    integrates_f = True
    censorable = True

    def prepare(self, data: Dataset) -> Exponential:
        """Return this likelihood.

        Raises:
            DataError: If a target is not positive.
        """
        check_positive(data)
        return self

    def ratio(self) -> str:
        return "ratio of means"

    def most_probable(self, y: Tensor) -> Tensor:
        return y.log()

    def _distribution(self, p: Theta, f: Tensor) -> Distribution:
        return dist.Exponential(torch.exp(-f))

    def _marginal(self, p: Theta, mean: Tensor, variance: Tensor) -> Distribution:
        one = torch.ones_like(mean)
        return GammaTimesLogNormal(one, one, mean, root(variance), validate_args=False)

    def _expected(self, p: Theta, mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
        return -mean - y * torch.exp(0.5 * variance - mean)

    def _score(self, p: Theta, f: Tensor, y: Tensor, kind: str) -> Tensor:
        s = f.exp()
        if kind == "nll":
            return f + y / s
        return y - 1.5 * s + 2 * s * torch.exp(-y / s)

    def _slopes(self, p: Theta, f: Tensor, y: Tensor, kind: str) -> tuple[Tensor, ...]:
        s = f.exp()
        if kind == "nll":
            return (1 - y / s,)
        return (-1.5 * s + 2 * torch.exp(-y / s) * (s + y),)

    def _second_slopes(self, p: Theta, f: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return (-y * torch.exp(-f),)

    def _curvature(self, p: Theta, f: Tensor, kind: str) -> Mapping[tuple[int, int], Tensor]:
        if kind == "nll":
            return {(0, 0): torch.ones_like(f)}
        return {(0, 0): 0.5 * f.exp()}

    def _censored(self, p: Theta, f: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return y * torch.exp(-f), -y * torch.exp(-f)

    def _guess(self, y: Tensor) -> tuple[float, ...]:
        return (log_or_zero(float(y.mean())),)
