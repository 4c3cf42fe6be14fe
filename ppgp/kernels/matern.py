"""The Matern kernels with closed forms: nu = 1/2, 3/2, 5/2."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from ..errors import SettingError
from ..priors import Lengthscale, LogNormal, PriorLike
from .base import Kernel, Theta
from .distance import distance
from .fourier_features import Draw, student_frequencies
from .hyperparameters import constant_variance


@dataclass(frozen=True)
class Matern(Kernel):
    """variance * (polynomial in s) * exp(-s), s = sqrt(2 nu) |x - x'| / lengthscale. Rasmussen & Williams (2006), equation 4.17.

    Isotropic in X as the model sees it: ``fit`` scales columns one by one, those that ``Dataset(coordinates=)`` names by one factor.
    A length in the units of the data, a number, is one length in every direction of the data.

    Raises:
        SettingError: if nu is not 0.5, 1.5 or 2.5.
    """

    nu: float = 2.5
    variance: PriorLike = LogNormal(0.0, 1.0)
    lengthscale: PriorLike = Lengthscale()
    hyper = ("variance", "lengthscale")
    rescales = True
    about_origin = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nu not in (0.5, 1.5, 2.5):
            raise SettingError(
                "nu = 0.5, 1.5 or 2.5 in Matern",
                repr(self.nu),
                "use one of them, or RBF for infinity",
            )

    def gram(self, h: Theta, X1: Tensor, X2: Tensor | None) -> Tensor:
        s = math.sqrt(2 * self.nu) * distance(X1, X2, h["lengthscale"])
        polynomial = {0.5: 1.0, 1.5: 1.0 + s, 2.5: 1.0 + s + s.square() / 3.0}[self.nu]
        return h["variance"] * polynomial * (-s).exp()

    def variances(self, h: Theta, X: Tensor) -> Tensor:
        return constant_variance(h, X)

    def spectrum(self, h: Theta, d: int, draw: Draw) -> Tensor:
        return student_frequencies(draw, d, h["lengthscale"], self.nu)
