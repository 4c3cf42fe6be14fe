"""The gamma likelihood of positive targets."""

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
from ..display.overrides import computed
from ..distributions.gamma_functions import (
    HALF_LOG_2PI,
    STEP,
    digamma_gap,
    five_points,
    gamma_crps_metric,
    log1p_excess,
    log_gamma_rest,
    reciprocal_beta,
    trigamma_gap,
)
from ..distributions.gamma_times_log_normal import GammaTimesLogNormal
from ..errors import UnknownName
from ..numerics.shapes import broadcast_shapes
from ..priors import PriorLike
from .base import Theta, root
from .parametric import Parametric, Predicted
from .scored import LARGEST_STEP, log_or_zero, raised
from .target_checks import check_positive

LINKS = ("log", "inverse")


@dataclass(frozen=True)
class Gamma(Parametric):
    """y ~ Gamma with mean exp(f), y > 0: the sd is the mean divided by the root of the shape.

    McCullagh & Nelder (1989), section 8.3. f [n] is the log of a mean in the units of y. With
    ``shape=Predicted()`` the log of the shape is a second function of x, and the functions are
    [2, n]. With ``link="inverse"``, the canonical one, the mean is 1 / f. f must then be positive,
    which neither a Gaussian process nor a sum of learners is, so that SVGP and Boosted refuse it.

    Args:
        shape: Prior of the shape, a number that fixes it, or ``Predicted()``. It has no unit.
        link: "log" or "inverse".

    Raises:
        UnknownName: If the link is neither.
        UnknownArgument: If an argument has another name.
        SettingError: If the shape is a class in place of an instance. ``fit`` raises it for a shape
            of 0 or less, and for a prior that allows one.

    Examples:
        A shape of 4 means a standard deviation of half of the mean, whatever the mean is:

        >>> import ppgp
        >>> from ppgp import inference, likelihoods, models, priors
        >>> data = ppgp.Dataset([[0.0], [0.0], [1.0], [1.0]], [1.0, 7.0, 10.0, 30.0])
        >>> likelihood = likelihoods.Gamma(shape=4.0)
        >>> model = models.GLM(likelihood, weight=priors.Flat(), bias=priors.Flat())
        >>> posterior = ppgp.fit(model, data, inference.MAP("newton"), progress=False)
        >>> costs = posterior.predict([[0.0], [1.0]])
        >>> costs.mean.round(decimals=3).tolist()
        [4.0, 20.0]
        >>> costs.std.round(decimals=3).tolist()
        [2.0, 10.0]
    """

    shape: PriorLike | Predicted = priors.LogNormal(1.0, 1.0)
    link: str = "log"
    scales = "X"
    positive = True
    structure = ("link",)
    integrates_f = True
    limits = (math.inf, LARGEST_STEP)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.link not in LINKS:
            raise UnknownName("link", self.link, LINKS)

    def _positive_f(self) -> bool:
        """Whether f must be positive."""
        return self.link == "inverse"

    positive_f = computed(_positive_f)

    def prepare(self, data: Dataset) -> Gamma:
        """Return this likelihood.

        Raises:
            DataError: If a target is not positive.
        """
        check_positive(data)
        return self

    def _mean(self, f: Tensor) -> Tensor:
        return 1 / f if self.positive_f else f.exp()

    def _rate(self, f: Tensor) -> Tensor:
        """Return 1 / mean."""
        return f if self.positive_f else torch.exp(-f)

    def _log_rate(self, f: Tensor) -> Tensor:
        """Return the log of 1 / mean."""
        return f.log() if self.positive_f else -f

    def ratio(self) -> str | None:
        return "ratio of means" if self.link == "log" else None

    def dispersion_parameter(self) -> str | None:
        return None if self.predicted else "shape"

    def dispersion(self, theta: Theta, like: Tensor) -> Tensor:
        if self.predicted:
            return super().dispersion(theta, like)
        return 1 / self.value(theta, "shape", like)

    def most_probable(self, y: Tensor) -> Tensor:
        return 1 / y if self.positive_f else y.log()

    def _distribution(self, p: Theta, f: Tensor) -> Distribution:
        if self.positive_f:  # the density is NaN where f is not positive
            return dist.Gamma(p["shape"], p["shape"] * f, validate_args=False)
        return dist.Gamma(p["shape"], p["shape"] * torch.exp(-f))

    def _marginal(self, p: Theta, mean: Tensor, variance: Tensor) -> Distribution:
        shape = p["shape"]
        return GammaTimesLogNormal(
            shape, torch.ones_like(shape), mean, root(variance), validate_args=False
        )

    def marginal(self, theta: Theta, mean: Tensor, variance: Tensor) -> Distribution:
        """Return the distribution of y for f ~ N(mean, variance), batch [*draw, n].

        Raises:
            NotApplicable: With the inverse link.
        """
        self.check_real_f()
        return super().marginal(theta, mean, variance)

    def expected(self, theta: Theta, mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
        """Return E log p(y | f) over f ~ N(mean, variance), [*draw, n], in closed form.

        Raises:
            NotApplicable: With the inverse link.
        """
        self.check_real_f()
        return super().expected(theta, mean, variance, y)

    def _expected(self, p: Theta, mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
        a = p["shape"]
        inverse = torch.exp(0.5 * variance - mean)  # E exp(-f)
        return a * (a.log() - mean - y * inverse) - torch.lgamma(a) + (a - 1) * y.log()

    def _score(self, p: Theta, f: Tensor, y: Tensor, kind: str) -> Tensor:
        a = p["shape"]
        if kind == "nll":
            r, log_r = y * self._rate(f), y.log() + self._log_rate(f)
            rest = log_gamma_rest(a) + HALF_LOG_2PI - 0.5 * a.log()
            return rest + y.log() - a * log1p_excess(r - 1, log_r)
        mean = self._mean(f)
        return mean * _crps(a, y / mean)

    def _slopes(self, p: Theta, f: Tensor, y: Tensor, kind: str) -> tuple[Tensor, ...]:
        a, mean = p["shape"], self._mean(f)
        unit = self._by_log_mean(f)
        r = y / mean
        if kind == "nll":
            log_r = y.log() + self._log_rate(f)
            by_shape = a * (digamma_gap(a) - log1p_excess(r - 1, log_r))
            return a * (1 - r) * unit, by_shape
        by_y = 2 * torch.special.gammainc(a, a * r) - 1
        log_a = a.log().expand(r.shape)
        step = torch.full_like(log_a, STEP)
        by_shape = five_points(lambda at: _crps(at.exp(), r), log_a, step)
        return (mean * _crps(a, r) - y * by_y) * unit, mean * by_shape

    def _by_log_mean(self, f: Tensor) -> Tensor | float:
        """Return the derivative of the log of the mean by f."""
        return -1 / f if self.positive_f else 1.0

    def _second_slopes(self, p: Theta, f: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        a = p["shape"]
        by_shape = -self._slopes(p, f, y, "nll")[1] - a.square() * trigamma_gap(a)
        if self.positive_f:
            return -a / f.square(), by_shape
        return -a * y * torch.exp(-f), by_shape

    def _curvature(self, p: Theta, f: Tensor, kind: str) -> Mapping[tuple[int, int], Tensor]:
        a = p["shape"].expand(broadcast_shapes(p["shape"].shape, f.shape))
        unit = self._by_log_mean(f)
        if kind == "nll":
            return {(0, 0): a * unit**2, (1, 1): a.square() * trigamma_gap(a)}
        by_mean, by_shape, both = gamma_crps_metric(a)
        mean = self._mean(f)
        return {
            (0, 0): mean * by_mean * unit**2,
            (0, 1): mean * both * unit,
            (1, 1): mean * by_shape,
        }

    def _guess(self, y: Tensor) -> tuple[float, ...]:
        mean, variance = float(y.mean()), float(y.var())
        first = 1 / mean if self.positive_f else log_or_zero(mean)
        return first, log_or_zero(mean**2 / max(variance, 1e-12 * mean**2))

    def tempered(self, f: Tensor, log_temperature: float | Tensor) -> Tensor:
        """Return f with the sd relative to the mean multiplied by the temperature."""
        return raised(f, 1, -2 * log_temperature) if self.predicted else f


def _crps(a: Tensor, r: Tensor) -> Tensor:
    """Return the CRPS of a gamma distribution of mean 1 and shape a at r."""
    lower, higher = torch.special.gammainc(a, a * r), torch.special.gammainc(a + 1, a * r)
    return r * (2 * lower - 1) - (2 * higher - 1) - reciprocal_beta(a)
