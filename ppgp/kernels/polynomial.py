"""The polynomial kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from ..errors import SettingError
from ..priors import LogNormal, PriorLike
from .base import Kernel, Theta
from .units import Factor, Units


@dataclass(frozen=True)
class Polynomial(Kernel):
    """variance * (x'x + offset)^degree. Rasmussen & Williams (2006), section 4.2.2.

    Where ``fit`` has standardised X, priors are on a kernel of x less the mean of the training rows, and so are its draws in the
    units of the data; numbers are on x itself.

    Raises:
        SettingError: if degree is not a positive whole number.
    """

    degree: int = 2
    variance: PriorLike = LogNormal(0.0, 1.0)
    offset: PriorLike = LogNormal(0.0, 1.0)
    hyper = ("variance", "offset")

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.degree, bool) or not isinstance(self.degree, int) or self.degree < 1:
            raise SettingError(
                "a whole degree of 1 or more in Polynomial", repr(self.degree), "use 2 or 3"
            )

    @property
    def dimensions(self) -> Mapping[str, tuple[float, float]]:  # type: ignore[override]
        return {"variance": (2, -2 * self.degree), "offset": (0, 2)}

    def factors(self, units: Units) -> dict[str, Factor]:
        return super().factors(units) if units.isotropic else dict.fromkeys(self.hyper, math.nan)

    def gram(self, h: Theta, X1: Tensor, X2: Tensor | None) -> Tensor:
        return h["variance"] * (X1 @ (X1 if X2 is None else X2).mT + h["offset"]).pow(self.degree)

    def variances(self, h: Theta, X: Tensor) -> Tensor:
        return h["variance"] * (X.square().sum(-1) + h["offset"]).pow(self.degree)
