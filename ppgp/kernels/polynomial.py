"""The polynomial kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from ..display.overrides import computed
from ..errors import SettingError
from ..priors import LogNormal, PriorLike
from .base import Kernel, Theta, other_rows
from .units import Factor, Units


@dataclass(frozen=True)
class Polynomial(Kernel):
    """variance * (x'x + offset)^degree.

    Here x is a row of X [n, d]. Rasmussen & Williams (2006), section 4.2.2.

    If ``fit`` standardises X, priors refer to the kernel of x minus the mean of the training rows,
    and so do their draws in the units of the data; numbers refer to the kernel of x itself.

    Args:
        degree: A positive whole number.
        variance: Prior of the variance, or a number that fixes it, in the unit of
            y^2 / X^(2 degree).
        offset: Prior of the offset, or a number that fixes it, in the unit of X^2.

    Raises:
        SettingError: If degree is not a positive whole number; if a hyperparameter is neither a
            prior nor a finite number, or is negative; in a fit, if it is fixed to 0.

    Examples:
        >>> import torch
        >>> from ppgp import kernels
        >>> X = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
        >>> kernels.Polynomial(degree=2, variance=1.0, offset=1.0)({}, X)
        tensor([[4., 4.],
                [4., 9.]])
    """

    degree: int = 2
    variance: PriorLike = LogNormal(0.0, 1.0)
    offset: PriorLike = LogNormal(0.0, 1.0)
    hyper = ("variance", "offset")

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.degree, bool) or not isinstance(self.degree, int) or self.degree < 1:
            wanted = "a whole degree of 1 or more in Polynomial"
            raise SettingError(wanted, repr(self.degree), "use 2 or 3")

    def _dimensions(self) -> Mapping[str, tuple[float, float]]:
        return {"variance": (2, -2 * self.degree), "offset": (0, 2)}

    dimensions = computed(_dimensions)

    def factors(self, units: Units) -> dict[str, Factor]:
        if units.isotropic:
            return super().factors(units)
        return dict.fromkeys(self.hyper, math.nan)

    def gram(self, h: Theta, X1: Tensor, X2: Tensor | None) -> Tensor:
        return h["variance"] * (X1 @ other_rows(X1, X2).mT + h["offset"]).pow(self.degree)

    def variances(self, h: Theta, X: Tensor) -> Tensor:
        return h["variance"] * (X.square().sum(-1) + h["offset"]).pow(self.degree)
