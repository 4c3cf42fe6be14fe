"""The spectral mixture kernel: a stationary kernel whose spectrum is a mixture of Gaussians."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..errors import SettingError
from ..priors import LogNormal, Param, PriorLike, Site, rescaled, site, value_of
from .base import Kernel, Theta, other_rows
from .fourier_features import Draw, Path, fourier
from .units import Units, power


@dataclass(frozen=True)
class SpectralMixture(Kernel):
    """sum_q weight_q prod_k exp(-2 pi^2 r_k^2 bandwidth_qk^2) cos(2 pi r_k frequency_qk).

    Here r is x - x', for rows x and x' of X [n, d]; Wilson & Adams (2013), equation 12, where
    bandwidth is the root of their v. With enough components it approximates any stationary kernel
    of one column, periodic ones included, and can extrapolate a pattern. With several columns it
    approximates those that are even in each difference r_k. The posterior has many modes. Searches
    start with frequencies spread over (0, 1) cycles per unit, because equal components would stay
    equal.

    Args:
        components: The number of components.
        weight: Prior of the weights [components], or a number that fixes all of them, in the unit
            of y^2.
        frequency: Prior of the frequencies [components, d], or a number that fixes all of them, in
            the unit of 1 / X.
        bandwidth: Prior of the bandwidths [components, d], or a number that fixes all of them, in
            the unit of 1 / X.

    Raises:
        SettingError: If components is not a positive whole number; if a hyperparameter is neither a
            prior nor a finite number, or is negative; in a fit, if it is fixed to 0.

    Examples:
        One component of 0.5 cycles per unit: a wave of period 2, which is forgotten after a while.

        >>> import torch
        >>> from ppgp import kernels
        >>> X = torch.tensor([[0.0], [1.0], [2.0]])
        >>> kernel = kernels.SpectralMixture(1, weight=1.0, frequency=0.5, bandwidth=0.1)
        >>> kernel({}, X)[0]
        tensor([ 1.0000, -0.8209,  0.4540])
        >>> {name: site.shape for name, site in kernels.SpectralMixture(3).sites(d=2).items()}
        {'weight': (3,), 'frequency': (3, 2), 'bandwidth': (3, 2)}
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
        count: object = self.components
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            wanted = "a positive whole number of components in SpectralMixture"
            raise SettingError(wanted, repr(count), "use 3")

    def sites(self, d: int) -> dict[str, Site | Param]:
        Q = self.components
        frequency = site("frequency", self.frequency, (Q, d), positive=True)
        if not frequency.fixed:
            spread = ((torch.arange(Q, dtype=torch.float64) + 0.5) / Q)[:, None].expand(Q, d)
            frequency = replace(frequency, start=spread)
        return {
            "weight": site("weight", self.weight, (Q,), positive=True),
            "frequency": frequency,
            "bandwidth": site("bandwidth", self.bandwidth, (Q, d), positive=True),
        }

    def waves(self, X: Tensor) -> Mapping[str, Tensor]:
        return {"frequency": X}

    def in_units(self, units: Units) -> Kernel:
        weight = rescaled(self.weight, power(units.y_sd, -2), what="weight")
        # one number per column
        frequency, bandwidth = (
            rescaled(self.frequency, units.x_sd),
            rescaled(self.bandwidth, units.x_sd),
        )
        return replace(self, weight=weight, frequency=frequency, bandwidth=bandwidth)

    def _parts(self, theta: Theta, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return weight [*batch, Q], frequency and bandwidth [*batch, Q, d]."""
        Q, d = self.components, X.shape[-1]
        shapes = {"weight": (Q,), "frequency": (Q, d), "bandwidth": (Q, d)}
        parts = []
        for name, shape in shapes.items():
            value = value_of(theta, name, getattr(self, name), X)
            if value.ndim < len(shape):
                value = value.expand(shape)
            if tuple(value.shape[-len(shape) :]) != shape:
                wanted, got = f"{name} of shape {list(shape)}", f"{list(value.shape)}"
                raise SettingError(wanted, got, "pass the same columns of X")
            parts.append(value)
        return parts[0], parts[1], parts[2]

    def __call__(self, theta: Theta, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        weight, frequency, bandwidth = self._parts(theta, X1)
        other = other_rows(X1, X2)
        total = weight[..., None, None]
        for k in range(X1.shape[-1]):
            # [*b, 1, n1, n2]; the axis of length 1 is that of the components
            difference = (X1[..., :, None, k] - other[..., None, :, k]).unsqueeze(-3)
            width, centre = bandwidth[..., k, None, None], frequency[..., k, None, None]
            envelope = torch.exp(-2 * math.pi**2 * (difference * width).square())
            total = total * envelope * torch.cos(2 * math.pi * difference * centre)
        return total.sum(-3)

    def diag(self, theta: Theta, X: Tensor) -> Tensor:
        weight, _, _ = self._parts(theta, X)
        level = weight.sum(-1, keepdim=True)
        return level.expand(*level.shape[:-1], X.shape[-2])

    def path(self, theta: Theta, d: int, draw: Draw) -> Path:
        weight, frequency, bandwidth = self._parts(theta, draw.like)
        size = (draw.samples, draw.features)
        count = draw.samples * draw.features
        # on the CPU, which is the device of the generator
        chosen = torch.multinomial(weight.double().cpu(), count, True, generator=draw.generator)
        chosen = chosen.reshape(size).to(draw.like.device)
        # for a product of cosines all combinations of signs have the same probability
        sign = draw.normal(*size, d).sign()
        centre, spread = sign * frequency[chosen], bandwidth[chosen] * draw.normal(*size, d)
        return fourier(draw, 2 * math.pi * (centre + spread), weight.sum())
