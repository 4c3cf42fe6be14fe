"""The likelihood of Gaussian noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from ..distributions.standard_normal import hazard, pdf
from ..numerics.cholesky import LOG_2PI
from ..priors import LogNormal, PriorLike
from .base import Theta
from .parametric import Parametric, Predicted
from .scored import LARGEST_STEP, log_or_zero, raised

SQRT_PI = math.sqrt(math.pi)


@dataclass(frozen=True)
class Gaussian(Parametric):
    """y ~ N(f, noise). Rasmussen & Williams (2006), section 2.2.

    f [n] is in the units of y. With ``noise=Predicted()`` the log of the variance is a second
    function of x, and the functions are [2, n].

    Args:
        noise: Prior of the variance, a number that fixes it, or ``Predicted()``. A number is in the
            units of y squared. A prior is on the standardised scale unless ``InUnitsOfData`` holds
            it.

    Raises:
        SettingError: If the variance is negative, or a class in place of an instance. ``fit``
            raises it for 0, and for a prior that allows negative numbers.
        UnknownArgument: If an argument has another name.

    Examples:
        With flat priors MAP is least squares, and the noise the mean square of the residuals:

        >>> import ppgp
        >>> from ppgp import inference, likelihoods, models, priors
        >>> flat = priors.Flat()
        >>> data = ppgp.Dataset([[0.0], [0.0], [1.0], [1.0]], [1.0, 5.0, 6.0, 10.0])
        >>> model = models.GLM(likelihoods.Gaussian(noise=flat), weight=flat, bias=flat)
        >>> posterior = ppgp.fit(model, data, inference.MAP("newton"), progress=False)
        >>> draws = posterior.draws_in("data")
        >>> {name: round(float(draw), 3) for name, draw in draws.items()}
        {'weight': 5.0, 'bias': 3.0, 'noise': 4.0}

        The variance of y is that of f plus the noise:

        >>> import torch
        >>> mean, variance = torch.tensor([1.0, 2.0]), torch.tensor([0.0, 0.5])
        >>> likelihoods.Gaussian(noise=0.25).marginal({}, mean, variance).variance.tolist()
        [0.25, 0.75]
    """

    noise: PriorLike | Predicted = LogNormal(-2.0, 1.0)
    dimensions = {"noise": 2}
    integrates_f = True
    censorable = True
    limits = (math.inf, 2 * LARGEST_STEP)

    def dispersion_parameter(self) -> str | None:
        return None if self.predicted else "noise"

    def dispersion(self, theta: Theta, like: Tensor) -> Tensor:
        return (
            super().dispersion(theta, like) if self.predicted else self.value(theta, "noise", like)
        )

    def most_probable(self, y: Tensor) -> Tensor:
        return y

    def _distribution(self, p: Theta, f: Tensor) -> Distribution:
        return dist.Normal(f, p["noise"].sqrt())

    def _marginal(self, p: Theta, mean: Tensor, variance: Tensor) -> Distribution:
        return dist.Normal(mean, (variance + p["noise"]).sqrt())

    def _expected(self, p: Theta, mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
        noise = p["noise"]
        return -0.5 * (LOG_2PI + noise.log() + ((y - mean).square() + variance) / noise)

    def expected(self, theta: Theta, mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
        """Return E log p(y | f) in closed form.

        Hensman, Fusi & Lawrence (2013), equation 4; for two functions Lazaro-Gredilla & Titsias
        (2011), equation 6.
        """
        if not self.predicted:
            return super().expected(theta, mean, variance, y)
        log_noise, spread = mean[..., 1, :], variance[..., 1, :]
        if "noise" in theta:
            log_noise = log_noise + theta["noise"].log()[..., None]
        square = (y - mean[..., 0, :]).square() + variance[..., 0, :]
        return -0.5 * (LOG_2PI + log_noise + square * torch.exp(0.5 * spread - log_noise))

    # the slopes by log noise are half of those by log s, as noise = s^2

    def _score(self, p: Theta, f: Tensor, y: Tensor, kind: str) -> Tensor:
        if kind == "nll":
            return 0.5 * (LOG_2PI + p["noise"].log() + (y - f).square() / p["noise"])
        s = p["noise"].sqrt()
        z = (y - f) / s
        return s * (z * (2 * torch.special.ndtr(z) - 1) + 2 * pdf(z) - 1 / SQRT_PI)

    def _slopes(self, p: Theta, f: Tensor, y: Tensor, kind: str) -> tuple[Tensor, ...]:
        if kind == "nll":
            e = (y - f) / p["noise"]
            return -e, 0.5 * (1 - (y - f) * e)
        s = p["noise"].sqrt()
        z = (y - f) / s
        return 1 - 2 * torch.special.ndtr(z), 0.5 * s * (2 * pdf(z) - 1 / SQRT_PI)

    def _second_slopes(self, p: Theta, f: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return -1 / p["noise"], -0.5 * (y - f).square() / p["noise"]

    def _curvature(self, p: Theta, f: Tensor, kind: str) -> Mapping[tuple[int, int], Tensor]:
        if kind == "nll":
            return {(0, 0): 1 / p["noise"], (1, 1): torch.full_like(p["noise"], 0.5)}
        s = p["noise"].sqrt()
        return {(0, 0): 1 / (s * SQRT_PI), (1, 1): s / (8 * SQRT_PI)}

    def _censored(self, p: Theta, f: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        s = p["noise"].sqrt()
        z = (y - f) / s
        h = hazard(z)
        return -torch.special.log_ndtr(-z), -h / s, -0.5 * h * z

    def _guess(self, y: Tensor) -> tuple[float, ...]:
        return float(y.mean()), 2 * log_or_zero(float(y.std()))

    def tempered(self, f: Tensor, log_temperature: float | Tensor) -> Tensor:
        """Return f with the log of the sd raised by ``log_temperature``."""
        return raised(f, 1, 2 * log_temperature) if self.predicted else f
