"""The Weibull likelihood of positive targets, such as times to an event."""

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
from ..distributions.gamma_functions import lower_by_parameter
from ..distributions.gamma_times_log_normal import GammaTimesLogNormal
from ..errors import NotApplicable
from ..numerics.shapes import broadcast_shapes
from ..priors import PriorLike
from .base import Theta, root
from .parametric import Parametric, Predicted
from .scored import HUGE_STEP, LARGEST_STEP, largest_log, log_or_zero, raised
from .target_checks import check_positive

EULER = 0.5772156649015329
LOG_2 = math.log(2.0)


@dataclass(frozen=True)
class Weibull(Parametric):
    """P(Y > y) = exp(-(y / exp(f))^shape), y > 0. Duan et al. (2020).

    f [n] is the log of a scale in the units of y, which y exceeds with probability exp(-1). With
    ``shape=Predicted()`` the log of the shape is a second function of x, and the functions are
    [2, n]. SVGP refuses that, as the mean of the log density over a normal log shape is minus
    infinity.

    Args:
        shape: Prior of the shape, a number that fixes it, or ``Predicted()``. It has no unit; 1
            makes the distribution exponential.

    Raises:
        UnknownArgument: If an argument has another name.
        SettingError: If the shape is a class in place of an instance. ``fit`` raises it for a shape
            of 0 or less, and for a prior that allows one.

    Examples:
        With shape 2 the square of the scale is the mean of y^2 at the maximum of the likelihood,
        here 25 and 100:

        >>> import math
        >>> import ppgp
        >>> from ppgp import inference, likelihoods, models, priors
        >>> data = ppgp.Dataset([[0.0], [0.0], [1.0], [1.0]], [1.0, 7.0, 2.0, 14.0])
        >>> likelihood = likelihoods.Weibull(shape=2.0)
        >>> model = models.GLM(likelihood, weight=priors.Flat(), bias=priors.Flat())
        >>> posterior = ppgp.fit(model, data, inference.MAP("newton"), progress=False)
        >>> times = posterior.predict([[0.0], [1.0]])
        >>> times.quantile(1 - math.exp(-1)).round(decimals=3).tolist()
        [5.0, 10.0]
    """

    shape: PriorLike | Predicted = priors.LogNormal(0.0, 1.0)
    scales = "X"
    positive = True
    integrates_f = True
    censorable = True
    limits = (HUGE_STEP, LARGEST_STEP)

    def prepare(self, data: Dataset) -> Weibull:
        """Return this likelihood.

        Raises:
            DataError: If a target is not positive.
        """
        check_positive(data)
        return self

    def check_expected(self) -> None:
        """Check that the shape is no function of x.

        Raises:
            NotApplicable: If it is.
        """
        if self.predicted:
            raise NotApplicable(
                "a likelihood whose expected log density is finite for SVGP",
                "Weibull(shape=Predicted())",
                "give the shape as a number or a prior, or use Gamma(shape=Predicted())",
            )

    def ratio(self) -> str:
        return "time ratio"

    def most_probable(self, y: Tensor) -> Tensor:
        return y.log()

    def _distribution(self, p: Theta, f: Tensor) -> Distribution:
        scale, shape = torch.broadcast_tensors(f.exp(), p["shape"])
        return dist.Weibull(scale, shape)

    def _marginal(self, p: Theta, mean: Tensor, variance: Tensor) -> Distribution:
        shape = p["shape"]
        return GammaTimesLogNormal(
            torch.ones_like(shape), shape, mean, root(variance), validate_args=False
        )

    def _expected(self, p: Theta, mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
        k, log_y = p["shape"], y.log()
        power = torch.exp(k * (log_y - mean) + 0.5 * k.square() * variance)  # E (y / exp(f))^k
        return k.log() + (k - 1) * log_y - k * mean - power

    def _score(self, p: Theta, f: Tensor, y: Tensor, kind: str) -> Tensor:
        k, log_r = p["shape"], y.log() - f
        u = torch.exp(k * log_r)
        if kind == "nll":
            return u + y.log() - k.log() - k * log_r
        b = 1 + 1 / k
        spread = 2 ** (-1 / k) - 2 * torch.special.gammainc(b, u)
        return y * (1 - 2 * torch.exp(-u)) + torch.exp(f + torch.lgamma(b)) * spread

    def _slopes(self, p: Theta, f: Tensor, y: Tensor, kind: str) -> tuple[Tensor, ...]:
        k, log_r = p["shape"], y.log() - f
        if kind == "nll":
            u = torch.exp((k * log_r).clamp_max(largest_log(y)))  # natural steps are then finite
            return k * (1 - u), -1 - k * log_r * (1 - u)
        k = _with_crps(k)
        u = torch.exp(k * log_r)
        by_y = 1 - 2 * torch.exp(-u)
        b = (1 + 1 / k).expand(u.shape)
        whole = torch.exp(torch.lgamma(b) - b * LOG_2) * (torch.digamma(b) - LOG_2)
        by_shape = 2 * f.exp() / k * (lower_by_parameter(b, u) - whole)
        return self._score({"shape": k}, f, y, kind) - y * by_y, by_shape

    def _second_slopes(self, p: Theta, f: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        k, log_r = p["shape"], y.log() - f
        u = torch.exp(k * log_r)
        return -k.square() * u, k * log_r * (1 - u - k * log_r * u)

    def _curvature(self, p: Theta, f: Tensor, kind: str) -> Mapping[tuple[int, int], Tensor]:
        k = p["shape"].expand(broadcast_shapes(p["shape"].shape, f.shape))
        if kind == "nll":
            shapes = torch.full_like(k, math.pi**2 / 6 + (1 - EULER) ** 2)
            return {(0, 0): k.square(), (0, 1): -k * (1 - EULER), (1, 1): shapes}
        k = _with_crps(k)
        b = 2 + 1 / k
        unit = 2 * torch.exp(f + torch.lgamma(b) - b * LOG_2)
        middle = torch.digamma(b) - LOG_2
        return {
            (0, 0): unit * k,
            (0, 1): -unit * middle,
            (1, 1): unit * (middle.square() + torch.polygamma(1, b)) / k,
        }

    def _censored(self, p: Theta, f: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        k, log_r = p["shape"], y.log() - f
        u = torch.exp((k * log_r).clamp_max(largest_log(y)))
        return u, -k * u, u * k * log_r

    def _guess(self, y: Tensor) -> tuple[float, ...]:
        log_y = y.log()
        sd = max(float(log_y.std()), 1e-6)
        return float(log_y.mean()) + EULER * sd * math.sqrt(6) / math.pi, log_or_zero(1.28 / sd)

    def tempered(self, f: Tensor, log_temperature: float | Tensor) -> Tensor:
        """Return f with the log of the shape lowered by ``log_temperature``."""
        return raised(f, 1, -log_temperature) if self.predicted else f


def _with_crps(k: Tensor) -> Tensor:
    """Return the shapes, raised to the least one whose CRPS and its slopes are floats."""
    return k.clamp_min(1 / 150 if k.dtype == torch.float64 else 1 / 20)
