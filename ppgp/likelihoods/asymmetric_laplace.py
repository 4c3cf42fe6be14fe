"""The likelihood of asymmetric Laplace noise, whose location is a quantile."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from ..distributions.standard_normal import pdf
from ..errors import SettingError
from ..priors import LogNormal, PriorLike
from .base import Theta, root
from .laplace import LaplacePlusNormal
from .parametric import Parametric, Predicted
from .scored import LARGEST_STEP, log_or_zero, raised


@dataclass(frozen=True)
class AsymmetricLaplace(Parametric):
    """y = f + noise, where f is the quantile of y at a level q: quantile regression.

    The density of y is q (1 - q) / scale exp(-rho(y - f) / scale), where rho(u) = q u above 0 and
    (q - 1) u below is the loss of Koenker & Bassett (1978). Yu & Moyeed (2001). The mode under flat
    priors is the estimate of quantile regression. The posterior spread holds where the noise has
    this law; other noise has another one. f [n] is in the units of y. With ``scale=Predicted()``
    the log of the scale is a second function of x, and the functions are [2, n]. At q = 1/2 it is
    ``Laplace`` with twice the scale.

    Args:
        quantile: The level q of the quantile, between 0 and 1.
        scale: Prior of the scale, which is the mean loss, a number that fixes it, or
            ``Predicted()``. A number is in the units of y. A prior is on the standardised scale
            unless ``InUnitsOfData`` holds it.

    Raises:
        SettingError: If the quantile is not between 0 and 1, the scale is negative, or a class in
            place of an instance. ``fit`` raises it for a scale of 0, and for a prior that allows
            negative numbers.
        UnknownArgument: If an argument has another name.

    Examples:
        The upper quartile of five numbers:

        >>> import ppgp
        >>> from ppgp import inference, likelihoods, models, priors
        >>> X, y = [[0.0], [1.0], [2.0], [3.0], [4.0]], [1.0, 2.0, 3.0, 4.0, 1000.0]
        >>> quartile = likelihoods.AsymmetricLaplace(0.75, scale=1.0)
        >>> model = models.GLM(quartile, weight=0.0, bias=priors.Flat())
        >>> posterior = ppgp.fit(model, ppgp.Dataset(X, y), inference.MAP(), progress=False)
        >>> round(float(posterior.draws_in("data")["bias"]), 1)
        4.0
    """

    quantile: float = 0.5
    scale: PriorLike | Predicted = LogNormal(-1.5, 1.0)
    structure = ("quantile",)
    dimensions = {"scale": 1}
    integrates_f = True
    limits = (math.inf, LARGEST_STEP)

    def __post_init__(self) -> None:
        super().__post_init__()
        q = self.quantile
        if isinstance(q, bool) or not isinstance(q, int | float) or not 0 < q < 1:
            do = "for example 0.9 for the value that one row in ten exceeds"
            raise SettingError("a quantile between 0 and 1", repr(q), do)

    def most_probable(self, y: Tensor) -> Tensor:
        return y

    def _sides(self, p: Theta) -> tuple[Tensor, Tensor]:
        """Return the means of the exponential laws below and above f."""
        return p["scale"] / (1 - self.quantile), p["scale"] / self.quantile

    def _loss(self, u: Tensor) -> Tensor:
        """Return rho(u) of u = y - f."""
        return torch.maximum(self.quantile * u, (self.quantile - 1) * u)

    def _distribution(self, p: Theta, f: Tensor) -> Distribution:
        q = self.quantile
        scale = p["scale"] / math.sqrt(q * (1 - q))
        asymmetry = torch.full_like(scale, math.sqrt(q / (1 - q)))
        return dist.AsymmetricLaplace(f, scale, asymmetry)

    def _marginal(self, p: Theta, mean: Tensor, variance: Tensor) -> Distribution:
        return LaplacePlusNormal(mean, *self._sides(p), root(variance), validate_args=False)

    def _expected(self, p: Theta, mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
        q, sd = self.quantile, root(variance)
        z = (y - mean) / sd
        distance = sd * (2 * pdf(z) + z * (2 * torch.special.ndtr(z) - 1))  # E abs(y - f)
        loss = 0.5 * distance + (q - 0.5) * (y - mean)
        return math.log(q * (1 - q)) - p["scale"].log() - loss / p["scale"]

    def _score(self, p: Theta, f: Tensor, y: Tensor, kind: str) -> Tensor:
        q, scale = self.quantile, p["scale"]
        if kind == "nll":
            return self._loss(y - f) / scale + scale.log() - math.log(q * (1 - q))
        distance, side, share = self._crps_parts(p, f, y)
        # Jordan, Kruger & Lerch (2019), the two-piece exponential law
        bend = 2 * share * side * torch.expm1(-distance / side)
        return distance + bend + scale * self._constant()

    def _crps_parts(self, p: Theta, f: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return abs(y - f), the scale on its side, and the probability of that side."""
        q = self.quantile
        left, right = self._sides(p)
        above = y >= f
        share = torch.where(above, torch.full_like(y - f, 1 - q), torch.full_like(y - f, q))
        return (y - f).abs(), torch.where(above, right, left), share

    def _constant(self) -> float:
        """Return the CRPS at y = f of a law with scale 1."""
        q = self.quantile
        return (q**3 + (1 - q) ** 3) / (2 * q * (1 - q))

    def _slopes(self, p: Theta, f: Tensor, y: Tensor, kind: str) -> tuple[Tensor, ...]:
        q, u = self.quantile, y - f
        if kind == "nll":
            side = torch.where(u > 0, -q * torch.ones_like(u), (1 - q) * torch.ones_like(u))
            return side * (u != 0) / p["scale"], 1 - self._loss(u) / p["scale"]
        distance, side, share = self._crps_parts(p, f, y)
        e = torch.exp(-distance / side)
        sign = torch.where(u < 0, -torch.ones_like(u), torch.ones_like(u))
        of_log_scale = 2 * share * (side * torch.expm1(-distance / side) + distance * e)
        return -sign * (1 - 2 * share * e), of_log_scale + p["scale"] * self._constant()

    def _second_slopes(self, p: Theta, f: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return torch.zeros_like(f), -self._loss(y - f) / p["scale"]

    def _curvature(self, p: Theta, f: Tensor, kind: str) -> Mapping[tuple[int, int], Tensor]:
        q, scale = self.quantile, p["scale"]
        if kind == "nll":
            return {(0, 0): q * (1 - q) * scale**-2, (1, 1): torch.ones_like(scale)}
        return {
            (0, 0): q * (1 - q) / scale,
            (0, 1): torch.full_like(scale, 0.5 - q),
            (1, 1): scale * self._constant(),
        }

    def _guess(self, y: Tensor) -> tuple[float, ...]:
        f = y.quantile(self.quantile)
        return float(f), log_or_zero(float(self._loss(y - f).mean()))

    def tempered(self, f: Tensor, log_temperature: float | Tensor) -> Tensor:
        """Return f with the log of the scale raised by ``log_temperature``."""
        return raised(f, 1, log_temperature) if self.predicted else f
