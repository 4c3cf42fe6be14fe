"""The periodic kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ..errors import SettingError
from ..priors import LogNormal, PriorLike
from .base import Kernel, Theta, constant_variance, other_rows
from .state_space import Markov, StateSpace, level, summed, wave

PHASES = 128  # at which the wave is read: its harmonics are exact for lengthscales from 0.1


@dataclass(frozen=True)
class Periodic(Kernel, Markov):
    """variance * exp(-2 sum_k sin^2(pi (x_k - x'_k) / period) / lengthscale^2).

    Here x and x' are rows of X [n, d]. The lengthscale is relative to the sine and has no unit.
    With several columns it is the product of the kernels of the columns, which have the same
    period. For one column among many use ``Subspace``.

    MacKay (1998), equation 47. On one column it is a sum of cosines whose variances are Bessel
    functions, Solin & Sarkka (2014), section 3.2. ``StateSpaceGP`` keeps the first ``harmonics`` of
    them. Covariances then err by at most the variance of the others, as a share of all: with 8
    harmonics 4e-9 at a lengthscale of 1, 1e-4 at 0.5, and 5e-3 at 0.34.

    Args:
        variance: Prior of the variance, or a number that fixes it, in the unit of y^2.
        lengthscale: Prior of the lengthscale, or a number that fixes it, without a unit.
        period: Prior of the period, or a number that fixes it, in the unit of X.
        harmonics: How many cosines, beside a constant, the state space has. Models with a matrix of
            covariances have all of them.

    Raises:
        SettingError: If a hyperparameter is neither a prior nor a finite number, or is negative;
            in a fit, if it is fixed to 0; if harmonics is not a whole number of 1 or more. With a
            state space, for more than one column of X.

    Examples:
        Rows that are one period apart have the same value, those half a period apart differ most:

        >>> import torch
        >>> from ppgp import kernels
        >>> X = torch.tensor([[0.0], [6.0], [12.0]])
        >>> kernels.Periodic(variance=1.0, lengthscale=1.0, period=12.0)({}, X)[0]
        tensor([1.0000, 0.1353, 1.0000])
    """

    variance: PriorLike = LogNormal(0.0, 1.0)
    lengthscale: PriorLike = LogNormal(0.0, 1.0)
    period: PriorLike = LogNormal(0.0, 1.0)
    harmonics: int = 8
    hyper = ("variance", "lengthscale", "period")
    dimensions = {"lengthscale": (0, 0)}  # of the wave, which has no unit
    about_origin = False

    def __post_init__(self) -> None:
        super().__post_init__()
        given: object = self.harmonics
        if isinstance(given, bool) or not isinstance(given, int) or given < 1:
            wanted = "a whole number of harmonics of 1 or more in Periodic"
            raise SettingError(wanted, repr(given), "use 8")

    def gram(self, h: Theta, X1: Tensor, X2: Tensor | None) -> Tensor:
        other = other_rows(X1, X2)
        total = torch.zeros((), dtype=X1.dtype, device=X1.device)
        for k in range(X1.shape[-1]):
            difference = X1[..., :, None, k] - other[..., None, :, k]
            total = total + torch.sin(math.pi * difference / h["period"]).square()
        return h["variance"] * torch.exp(-2.0 * total / h["lengthscale"].square())

    def waves(self, X: Tensor) -> Mapping[str, Tensor]:
        return {"period": X}

    def variances(self, h: Theta, X: Tensor) -> Tensor:
        return constant_variance(h, X)

    def state_space(self, theta: Theta, like: Tensor) -> StateSpace:
        """Return a level, and the waves of the harmonics, which are independent of each other."""

        def variance(j: int, axes: int) -> Tensor:
            h = self._values(theta, like, axes)
            return h["variance"] * self._shares(h["lengthscale"])[..., j]

        def frequency(j: int, axes: int) -> Tensor:
            return 2 * math.pi * j / self._values(theta, like, axes)["period"]

        waves = [
            wave(partial(frequency, j), partial(variance, j)) for j in range(1, self.harmonics + 1)
        ]
        return summed([level(partial(variance, 0)), *waves])

    def harmonics_left_out(self, lengthscale: Tensor) -> Tensor:
        """Return the share of the variance in the harmonics that the state space leaves out.

        It bounds the error of its covariances, as a share of the variance.

        Args:
            lengthscale: Values of any shape.
        """
        return (1 - self._shares(lengthscale).sum(-1)).clamp_min(0.0)

    def _shares(self, lengthscale: Tensor) -> Tensor:
        """Return the shares of the variance in the level and each harmonic, [..., 1 + harmonics].

        The share of harmonic j is 2 I_j(a) exp(-a) with a = 1 / lengthscale^2, the coefficient of
        cos(j x) in exp(a (cos x - 1)). It is read off by the trapezoid rule at equal phases x.
        """
        x = torch.arange(PHASES).to(lengthscale) * (2 * math.pi / PHASES)
        heights = torch.exp((x.cos() - 1) / lengthscale.square()[..., None])
        j = torch.arange(self.harmonics + 1).to(lengthscale)
        weights = torch.cos(x[:, None] * j) * (2.0 / PHASES)
        weights = torch.cat([0.5 * weights[:, :1], weights[:, 1:]], -1)
        return (heights @ weights).clamp_min(0.0)
