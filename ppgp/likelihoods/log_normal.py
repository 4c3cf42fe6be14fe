"""The log-normal likelihood of positive targets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from .. import priors
from ..data.dataset import Dataset
from ..distributions.standard_normal import cdf, hazard, pdf
from ..numerics.cholesky import LOG_2PI
from ..priors import PriorLike
from .base import Theta
from .parametric import Parametric, Predicted
from .scored import LARGEST_STEP, largest_log, log_or_zero, raised
from .target_checks import check_positive

SQRT_2 = math.sqrt(2.0)
SQRT_PI = math.sqrt(math.pi)


@dataclass(frozen=True)
class LogNormal(Parametric):
    """log y ~ N(f, noise), y > 0. Duan et al. (2020), section 3.3.

    f [n] is the log of the median of y, in the units of y. With ``noise=Predicted()`` the log of
    the variance of log y is a second function of x, and the functions are [2, n].

    Args:
        noise: Prior of the variance of log y, a number that fixes it, or ``Predicted()``. It has no
            unit.

    Raises:
        UnknownArgument: If an argument has another name.
        SettingError: If the variance is a class in place of an instance. ``fit`` raises it for a
            variance of 0 or less, and for a prior that allows one.

    Examples:
        The medians of two groups of rows are their geometric means:

        >>> import ppgp
        >>> from ppgp import inference, likelihoods, models, priors
        >>> flat = priors.Flat()
        >>> data = ppgp.Dataset([[0.0], [0.0], [1.0], [1.0]], [1.0, 4.0, 8.0, 32.0])
        >>> model = models.GLM(likelihoods.LogNormal(noise=flat), weight=flat, bias=flat)
        >>> posterior = ppgp.fit(model, data, inference.MAP("newton"), progress=False)
        >>> posterior.predict([[0.0], [1.0]]).quantile(0.5).round(decimals=3).tolist()
        [2.0, 16.0]
    """

    noise: PriorLike | Predicted = priors.LogNormal(-2.0, 1.0)
    scales = "X"
    positive = True
    integrates_f = True
    censorable = True
    limits = (math.inf, 2 * LARGEST_STEP)

    def prepare(self, data: Dataset) -> LogNormal:
        """Return this likelihood.

        Raises:
            DataError: If a target is not positive.
        """
        check_positive(data)
        return self

    def ratio(self) -> str:
        return "ratio of medians"

    def most_probable(self, y: Tensor) -> Tensor:
        return y.log()

    def _distribution(self, p: Theta, f: Tensor) -> Distribution:
        return dist.LogNormal(f, p["noise"].sqrt())

    def _marginal(self, p: Theta, mean: Tensor, variance: Tensor) -> Distribution:
        return dist.LogNormal(mean, (variance + p["noise"]).sqrt())

    def _expected(self, p: Theta, mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
        noise, log_y = p["noise"], y.log()
        square = (log_y - mean).square() + variance
        return -0.5 * (LOG_2PI + noise.log() + square / noise) - log_y

    # the slopes by log noise are half of those by log s, as noise = s^2

    def _score(self, p: Theta, f: Tensor, y: Tensor, kind: str) -> Tensor:
        s, log_y = p["noise"].sqrt(), y.log()
        z = (log_y - f) / s
        if kind == "nll":
            return 0.5 * (LOG_2PI + z.square()) + s.log() + log_y
        mean = torch.exp(f + 0.5 * s.square())
        return y * (2 * torch.special.ndtr(z) - 1) - 2 * mean * _share(z, s)

    def _slopes(self, p: Theta, f: Tensor, y: Tensor, kind: str) -> tuple[Tensor, ...]:
        s = p["noise"].sqrt()
        if kind == "nll":
            z = (y.log() - f) / s
            return -z / s, 0.5 * (1 - z.square())
        s = _with_crps(s)
        z = (y.log() - f) / s
        mean, share = torch.exp(f + 0.5 * s.square()), _share(z, s)
        by_log_s = s * mean * (-2 * s * share + 2 * pdf(z - s) - SQRT_2 * pdf(s / SQRT_2))
        return -2 * mean * share, 0.5 * by_log_s

    def _second_slopes(self, p: Theta, f: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return -1 / p["noise"], -0.5 * (y.log() - f).square() / p["noise"]

    def _curvature(self, p: Theta, f: Tensor, kind: str) -> Mapping[tuple[int, int], Tensor]:
        s = p["noise"].sqrt()
        if kind == "nll":
            return {(0, 0): 1 / p["noise"], (1, 1): torch.full_like(s, 0.5)}
        s = _with_crps(s)
        unit = torch.exp(f + 0.25 * s.square()) / SQRT_PI
        return {
            (0, 0): unit / s,
            (0, 1): 0.25 * unit * s,
            (1, 1): 0.125 * unit * (s + 0.5 * s**3),
        }

    def _censored(self, p: Theta, f: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        s = p["noise"].sqrt()
        z = (y.log() - f) / s
        h = hazard(z)
        return -torch.special.log_ndtr(-z), -h / s, -0.5 * h * z

    def _guess(self, y: Tensor) -> tuple[float, ...]:
        log_y = y.log()
        return float(log_y.mean()), 2 * log_or_zero(float(log_y.std()))

    def tempered(self, f: Tensor, log_temperature: float | Tensor) -> Tensor:
        """Return f with the log of the sd of log y raised by ``log_temperature``."""
        return raised(f, 1, 2 * log_temperature) if self.predicted else f


def _share(z: Tensor, s: Tensor) -> Tensor:
    """Return Phi(z - s) + Phi(s / sqrt 2) - 1."""
    return cdf(z - s) - cdf(-s / SQRT_2)


def _with_crps(s: Tensor) -> Tensor:
    """Return the sds, lowered to the largest one whose mean of y, and slopes, are floats."""
    return s.clamp_max(math.sqrt(2 * largest_log(s)))
