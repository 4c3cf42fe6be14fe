"""The likelihood of Laplace noise, whose location is a median."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from ..distributions.standard_normal import pdf
from ..priors import LogNormal, PriorLike
from .base import Theta, root
from .parametric import Parametric, Predicted
from .scored import LARGEST_STEP, log_or_zero, raised

LOG_2 = math.log(2.0)


@dataclass(frozen=True)
class Laplace(Parametric):
    """y = f + Laplace noise, with density exp(-abs(y - f) / scale) / (2 scale).

    Duan et al. (2020). f [n], the median of y, is in the units of y. With ``scale=Predicted()`` the
    log of the scale is a second function of x, and the functions are [2, n]. The density has a kink
    where f is y: MAP ends at kinks, as quantile regression does, and Laplace's method has the
    expected information of Koenker (2005), section 4.2, which holds where the noise has this law.

    Args:
        scale: Prior of the scale, which is the mean absolute deviation, a number that fixes it, or
            ``Predicted()``. A number is in the units of y. A prior is on the standardised scale
            unless ``InUnitsOfData`` holds it.

    Raises:
        SettingError: If the scale is negative, or a class in place of an instance. ``fit`` raises
            it for 0, and for a prior that allows negative numbers.
        UnknownArgument: If an argument has another name.

    Examples:
        The maximum of the likelihood is the median, 3, where the mean is 202:

        >>> import ppgp
        >>> from ppgp import inference, likelihoods, models, priors
        >>> X, y = [[0.0], [1.0], [2.0], [3.0], [4.0]], [1.0, 2.0, 3.0, 4.0, 1000.0]
        >>> model = models.GLM(likelihoods.Laplace(scale=1.0), weight=0.0, bias=priors.Flat())
        >>> posterior = ppgp.fit(model, ppgp.Dataset(X, y), inference.MAP(), progress=False)
        >>> round(float(posterior.draws_in("data")["bias"]), 1)
        3.0
    """

    scale: PriorLike | Predicted = LogNormal(-1.0, 1.0)
    dimensions = {"scale": 1}
    integrates_f = True
    limits = (math.inf, LARGEST_STEP)

    def most_probable(self, y: Tensor) -> Tensor:
        return y

    def _distribution(self, p: Theta, f: Tensor) -> Distribution:
        return dist.Laplace(f, p["scale"])

    def _marginal(self, p: Theta, mean: Tensor, variance: Tensor) -> Distribution:
        b = p["scale"]
        return LaplacePlusNormal(mean, b, b, root(variance), validate_args=False)

    def _expected(self, p: Theta, mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
        sd = root(variance)
        z = (y - mean) / sd
        distance = sd * (2 * pdf(z) + z * (2 * torch.special.ndtr(z) - 1))  # E abs(y - f)
        return -LOG_2 - p["scale"].log() - distance / p["scale"]

    def _score(self, p: Theta, f: Tensor, y: Tensor, kind: str) -> Tensor:
        b = p["scale"]
        distance = (y - f).abs()
        if kind == "nll":
            return LOG_2 + b.log() + distance / b
        return distance + b * torch.exp(-distance / b) - 0.75 * b

    def _slopes(self, p: Theta, f: Tensor, y: Tensor, kind: str) -> tuple[Tensor, ...]:
        b = p["scale"]
        distance, side = (y - f).abs(), torch.sign(y - f)
        if kind == "nll":
            return -side / b, 1 - distance / b
        e = torch.exp(-distance / b)
        return -side * (1 - e), e * (b + distance) - 0.75 * b

    def _second_slopes(self, p: Theta, f: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return torch.zeros_like(f), -(y - f).abs() / p["scale"]

    def _curvature(self, p: Theta, f: Tensor, kind: str) -> Mapping[tuple[int, int], Tensor]:
        b = p["scale"]
        if kind == "nll":
            return {(0, 0): b**-2, (1, 1): torch.ones_like(b)}
        return {(0, 0): 0.5 / b, (1, 1): 0.25 * b}

    def _guess(self, y: Tensor) -> tuple[float, ...]:
        middle = y.median()
        return float(middle), log_or_zero(float((y - middle).abs().mean()))

    def tempered(self, f: Tensor, log_temperature: float | Tensor) -> Tensor:
        """Return f with the log of the scale raised by ``log_temperature``."""
        return raised(f, 1, log_temperature) if self.predicted else f


class LaplacePlusNormal(dist.TorchDistribution):
    """The sum of a Laplace variable and a normal one. Reed (2006), equation 5.

    The Laplace variable may be asymmetric, with other scales below and above 0.

    Args:
        loc: [*batch], the location.
        left: [*batch], the scale of the Laplace variable below 0.
        right: [*batch], that above.
        sd: [*batch], the standard deviation of the normal one.
        validate_args: Whether to check arguments, as in torch.
    """

    arg_constraints: Any = {
        "loc": constraints.real,
        "left": constraints.positive,
        "right": constraints.positive,
        "sd": constraints.positive,
    }
    support: Any = constraints.real

    def __init__(
        self,
        loc: Tensor,
        left: Tensor,
        right: Tensor,
        sd: Tensor,
        validate_args: bool | None = None,
    ) -> None:
        parts = torch.broadcast_tensors(loc, left, right, sd)
        self.loc, self.left, self.right, self.sd = parts
        super().__init__(self.loc.shape, torch.Size(), validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> LaplacePlusNormal:
        shape = torch.Size(batch_shape)
        parts = [x.expand(shape) for x in (self.loc, self.left, self.right, self.sd)]
        return LaplacePlusNormal(*parts, validate_args=False)

    @property
    def mean(self) -> Tensor:
        return self.loc + self.right - self.left

    @property
    def variance(self) -> Tensor:
        return self.left.square() + self.right.square() + self.sd.square()

    def _log_halves(self, value: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logs of the densities of both exponential halves, times left + right."""
        z = (value - self.loc) / self.sd
        r, s = self.sd / self.right, self.sd / self.left
        above = 0.5 * r.square() - r * z + torch.special.log_ndtr(z - r)
        below = 0.5 * s.square() + s * z + torch.special.log_ndtr(-z - s)
        return above, below

    def log_prob(self, value: Tensor) -> Tensor:
        above, below = self._log_halves(value)
        return torch.logaddexp(above, below) - (self.left + self.right).log()

    def cdf(self, value: Tensor) -> Tensor:
        above, below = self._log_halves(value)
        total = self.left + self.right
        z = (value - self.loc) / self.sd
        halves = self.left / total * below.exp() - self.right / total * above.exp()
        return torch.special.ndtr(z) + halves

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with torch.no_grad():
            shape = self._extended_shape(torch.Size(sample_shape))
            normal = torch.randn(shape, dtype=self.loc.dtype, device=self.loc.device)
            above, below = self.loc.new_empty((2, *shape)).exponential_()
            return self.loc + self.right * above - self.left * below + self.sd * normal
