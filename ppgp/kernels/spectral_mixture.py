"""The spectral mixture kernel: a stationary kernel whose spectrum is a mixture of Gaussians."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..errors import SettingError
from ..priors import LogNormal, Param, PriorLike, Site, moved, site, value_of
from .base import Kernel, Theta
from .fourier_features import Draw, Path, fourier
from .units import Units, power


@dataclass(frozen=True)
class SpectralMixture(Kernel):
    """sum_q weight_q prod_k exp(-2 pi^2 (x_k - x'_k)^2 bandwidth_qk^2) cos(2 pi (x_k - x'_k) frequency_qk).

    Wilson & Adams (2013), equation 12; bandwidth is the root of their v. With enough components it comes close to any stationary
    kernel, periodic ones included, and so it can extrapolate a pattern; the density has many modes. Searches start with
    frequencies spread over (0, 1) cycles a unit, as equal components would stay equal.

    Sites: ``weight`` [components], ``frequency`` and ``bandwidth`` [components, d]; a number fixes all of one.

    Raises:
        SettingError: if components is not a positive whole number.
    """

    components: int = 3
    weight: PriorLike = LogNormal(-1.0, 1.0)
    frequency: PriorLike = LogNormal(-1.0, 1.0)
    bandwidth: PriorLike = LogNormal(-1.5, 1.0)
    hyper = ("weight", "frequency", "bandwidth")
    dimensions = {"weight": (2, 0), "frequency": (0, -1), "bandwidth": (0, -1)}
    about_origin = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if (
            isinstance(self.components, bool)
            or not isinstance(self.components, int)
            or self.components < 1
        ):
            raise SettingError(
                "a positive whole number of components in SpectralMixture",
                repr(self.components),
                "use 3",
            )

    def sites(self, d: int) -> dict[str, Site | Param]:
        Q = self.components
        spread = ((torch.arange(Q, dtype=torch.float64) + 0.5) / Q)[:, None].expand(Q, d)
        checked = site("frequency", self.frequency, (Q, d), positive=True)
        return {
            "weight": site("weight", self.weight, (Q,), positive=True),
            "frequency": Site(
                checked.prior, checked.shape, True, start=None if checked.fixed else spread
            ),
            "bandwidth": site("bandwidth", self.bandwidth, (Q, d), positive=True),
        }

    def in_units(self, units: Units) -> Kernel:
        weight = moved(self.weight, power(units.y_sd, -2), what="weight")
        frequency, bandwidth = (
            moved(prior, units.x_sd) for prior in (self.frequency, self.bandwidth)
        )  # one a column
        return replace(self, weight=weight, frequency=frequency, bandwidth=bandwidth)

    def _parts(self, theta: Theta, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Weight [*batch, Q], frequency and bandwidth [*batch, Q, d]."""
        shapes = {
            "weight": (self.components,),
            **dict.fromkeys(("frequency", "bandwidth"), (self.components, X.shape[-1])),
        }
        found = []
        for name, shape in shapes.items():
            value = value_of(theta, name, getattr(self, name), X)
            value = value.expand(shape) if value.ndim < len(shape) else value
            if tuple(value.shape[-len(shape) :]) != shape:
                raise SettingError(
                    f"{name} of shape {list(shape)}",
                    f"{list(value.shape)}",
                    "pass the same columns of X",
                )
            found.append(value)
        return found[0], found[1], found[2]

    def __call__(self, theta: Theta, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        weight, frequency, bandwidth = self._parts(theta, X1)
        other = X1 if X2 is None else X2
        total = weight[..., None, None]
        for k in range(X1.shape[-1]):
            difference = (X1[..., :, None, k] - other[..., None, :, k]).unsqueeze(
                -3
            )  # [*b, 1, n1, n2], a component an entry
            envelope = torch.exp(
                -2 * math.pi**2 * (difference * bandwidth[..., k, None, None]).square()
            )
            total = (
                total
                * envelope
                * torch.cos(2 * math.pi * difference * frequency[..., k, None, None])
            )
        return total.sum(-3)

    def diag(self, theta: Theta, X: Tensor) -> Tensor:
        weight, _, _ = self._parts(theta, X)
        level = weight.sum(-1, keepdim=True)
        return level.expand(*level.shape[:-1], X.shape[-2])

    def path(self, theta: Theta, d: int, draw: Draw) -> Path:
        weight, frequency, bandwidth = self._parts(theta, draw.like)
        size = (draw.samples, draw.features)
        # on the CPU, where the generator lives
        chosen = torch.multinomial(
            weight.double().cpu(), draw.samples * draw.features, True, generator=draw.generator
        )
        chosen = chosen.reshape(size).to(draw.like.device)
        sign = draw.normal(
            *size, d
        ).sign()  # a product of cosines: every combination of signs alike
        centre, spread = sign * frequency[chosen], bandwidth[chosen] * draw.normal(*size, d)
        return fourier(draw, 2 * math.pi * (centre + spread), weight.sum())
