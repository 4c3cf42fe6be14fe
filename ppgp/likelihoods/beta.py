"""The beta likelihood of targets between 0 and 1."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.nn.functional import logsigmoid

from .. import priors
from ..data.dataset import Dataset
from ..distributions.gamma_functions import (
    log1p_excess,
    log_gamma_rest,
    scaled_digamma_gap,
    scaled_trigamma_gap,
)
from ..numerics.cholesky import LOG_2PI
from ..priors import PriorLike
from .base import Theta
from .parametric import Parametric, Predicted
from .scored import LARGEST_STEP, log_or_zero, raised
from .target_checks import check_shares


@dataclass(frozen=True)
class Beta(Parametric):
    """Shares y in (0, 1) of mean mu = sigmoid(f) and variance mu (1 - mu) / (1 + precision).

    Ferrari & Cribari-Neto (2004), equation 4. With ``precision=Predicted()`` the log of the
    precision is a second function of x, and the functions are [2, n] instead of [n]. The log
    density is not concave in f. There is no CRPS, whose gradient has no closed form.

    Args:
        precision: Prior of the precision, a number that fixes it, or ``Predicted()``. It has no
            unit.

    Raises:
        UnknownArgument: If an argument has another name.
        SettingError: If the precision is a class in place of an instance. ``fit`` raises it for a
            precision of 0 or less, and for a prior that allows one.

    Examples:
        With precision 4 and f = 0 the mean is 1 / 2, and the variance (1 / 4) / 5:

        >>> import torch
        >>> from ppgp import likelihoods
        >>> shares = likelihoods.Beta(precision=4.0).distribution({}, torch.zeros(3))
        >>> shares.mean.tolist()
        [0.5, 0.5, 0.5]
        >>> shares.variance.double().round(decimals=5).tolist()
        [0.05, 0.05, 0.05]

        A target of 0 or 1 has no density:

        >>> import ppgp
        >>> from ppgp import inference, models
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0]], [0.2, 0.7, 1.0])
        >>> ppgp.fit(models.GLM(likelihoods.Beta()), data, inference.MAP(), progress=False)
        Traceback (most recent call last):
            ...
        ppgp.errors.DataError: expected targets above 0 and below 1 in y, got 1 in row 2: ...
    """

    precision: PriorLike | Predicted = priors.LogNormal(2.0, 1.5)
    scales = "X"
    numeric = True
    kinds = ("nll",)
    limits = (math.inf, LARGEST_STEP)

    def prepare(self, data: Dataset) -> Beta:
        """Return this likelihood.

        Raises:
            DataError: If a target is not between 0 and 1, or equal to one of them.
        """
        check_shares(data)
        return self

    def ratio(self) -> str:
        return "odds ratio"

    def _distribution(self, p: Theta, f: Tensor) -> Distribution:
        return MeanBeta(f, p["precision"])

    def _score(self, p: Theta, f: Tensor, y: Tensor, kind: str) -> Tensor:
        return -self._distribution(p, f).log_prob(y)

    def _expected(self, p: Theta, mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
        return self._turning(p, mean, variance, y, torch.zeros_like(p["precision"]))

    def _by_f(self, p: Theta, f: Tensor, y: Tensor) -> Tensor:
        """Return the derivative of the log density by f: equation 7 of the source."""
        precision, mean, rest = p["precision"], torch.sigmoid(f), torch.sigmoid(-f)
        up, down = (scaled_digamma_gap(precision * share) for share in (mean, rest))
        return precision * mean * rest * (y.log() - torch.log1p(-y) - f) - rest * up + mean * down

    def _slopes(self, p: Theta, f: Tensor, y: Tensor, kind: str) -> tuple[Tensor, ...]:
        precision, mean, rest = p["precision"], torch.sigmoid(f), torch.sigmoid(-f)
        up, down, both = (
            scaled_digamma_gap(precision * share) for share in (mean, rest, torch.ones_like(f))
        )
        return -self._by_f(p, f, y), precision * _divergence(f, y) + up + down - both

    def _second_slopes(self, p: Theta, f: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        mean, rest = torch.sigmoid(f), torch.sigmoid(-f)
        fisher = self._fisher(p, f)
        by_precision = -self._slopes(p, f, y, "nll")[1] - fisher[1, 1]
        return (rest - mean) * self._by_f(p, f, y) - fisher[0, 0], by_precision

    def _fisher(self, p: Theta, f: Tensor) -> dict[tuple[int, int], Tensor]:
        """Return the Fisher information: section 3 of the source, by f and the log precision."""
        precision, mean, rest = p["precision"], torch.sigmoid(f), torch.sigmoid(-f)
        # the terms 1 / x of the trigamma functions sum by hand
        up, down, both = (
            scaled_trigamma_gap(precision * share) for share in (mean, rest, torch.ones_like(f))
        )
        return {
            (0, 0): rest.square() * up + mean.square() * down + precision * mean * rest,
            (0, 1): rest * up - mean * down,
            (1, 1): up + down - both,
        }

    def _curvature(self, p: Theta, f: Tensor, kind: str) -> Mapping[tuple[int, int], Tensor]:
        return self._fisher(p, f)

    def _guess(self, y: Tensor) -> tuple[float, ...]:
        mean, variance = float(y.mean()), float(y.var())
        spread = mean * (1 - mean)
        precision = spread / max(variance, 1e-12 * spread) - 1
        return math.log(mean) - math.log1p(-mean), log_or_zero(precision)

    def tempered(self, f: Tensor, log_temperature: float | Tensor) -> Tensor:
        """Return f with the log of the precision lowered, which widens the distribution."""
        return raised(f, 1, -2 * log_temperature) if self.predicted else f


class MeanBeta(dist.TorchDistribution):
    """Beta(mean precision, (1 - mean) precision), without cancellation.

    Ferrari & Cribari-Neto (2004), equation 4.

    Args:
        logit: [*batch], the logit of the mean.
        precision: [*batch], the sum of the two parameters.
        validate_args: Whether to check arguments, as in torch.
    """

    arg_constraints: Any = {"logit": constraints.real, "precision": constraints.positive}
    support: Any = constraints.unit_interval

    def __init__(self, logit: Tensor, precision: Tensor, validate_args: bool | None = None) -> None:
        self.logit, self.precision = torch.broadcast_tensors(logit, precision)
        super().__init__(self.logit.shape, torch.Size(), validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> MeanBeta:
        shape = torch.Size(batch_shape)
        logit, precision = self.logit.expand(shape), self.precision.expand(shape)
        return MeanBeta(logit, precision, validate_args=False)

    @property
    def concentration1(self) -> Tensor:
        """The power of y in the density, plus 1."""
        return self.precision * torch.sigmoid(self.logit)

    @property
    def concentration0(self) -> Tensor:
        """The power of 1 - y in the density, plus 1."""
        return self.precision * torch.sigmoid(-self.logit)

    @property
    def mean(self) -> Tensor:
        return torch.sigmoid(self.logit)

    @property
    def variance(self) -> Tensor:
        return torch.sigmoid(self.logit) * torch.sigmoid(-self.logit) / (1 + self.precision)

    def log_prob(self, value: Tensor) -> Tensor:
        a, b, total = self.concentration1, self.concentration0, self.precision
        log_mean, log_rest = logsigmoid(self.logit), logsigmoid(-self.logit)
        log_y, log_not_y = value.log(), torch.log1p(-value)
        # minus the precision times the divergence, and what Stirling's formula leaves
        near = -total * _divergence(self.logit, value)
        width = 0.5 * (log_mean + log_rest + total.log() - LOG_2PI)
        rest = log_gamma_rest(total) - log_gamma_rest(a) - log_gamma_rest(b)
        return near + width + rest - log_y - log_not_y

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with torch.no_grad():
            shape = torch.Size(sample_shape)
            tiny = torch.finfo(self.logit.dtype).tiny
            a, b = self.concentration1.clamp_min(tiny), self.concentration0.clamp_min(tiny)
            drawn = dist.Beta(a, b, validate_args=False).sample(shape)
            return drawn.clamp(tiny, 1 - torch.finfo(drawn.dtype).eps)


def _divergence(logit: Tensor, y: Tensor) -> Tensor:
    """Return mean log(mean / y) + (1 - mean) log((1 - mean) / (1 - y)).

    The terms linear in y - mean, which cancel, are left out.
    """
    mean, rest = torch.sigmoid(logit), torch.sigmoid(-logit)
    up = log1p_excess((y - mean) / mean, y.log() - logsigmoid(logit))
    down = log1p_excess((1 - y - rest) / rest, torch.log1p(-y) - logsigmoid(-logit))
    return -mean * up - rest * down
