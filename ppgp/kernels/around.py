"""Kernels around one other kernel, and a kernel in the proportions of the data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from ..capabilities import Capability
from ..display.overrides import computed
from ..errors import NotApplicable
from ..priors import Param, Site, tensor_of
from .base import Kernel, OutputColumn, Theta, check_kernel, mapped, replaced
from .fourier_features import Draw, Path
from .state_space import Markov, StateSpace, lacking, require
from .units import Factor, Units


class Around(Kernel):
    """The common part of the kernels that wrap one other kernel."""

    kernel: Kernel

    def __post_init__(self) -> None:
        super().__post_init__()
        check_kernel(self.kernel)

    def lacks(self, capability: type[Capability]) -> NotApplicable | None:
        """Return the error of the kernel inside; see ``state_space.Markov``."""
        return lacking(self.kernel)

    def _terms(self) -> int:
        return self.kernel.terms

    terms = computed(_terms)

    def _about_origin(self) -> bool:
        return self.kernel.about_origin

    about_origin = computed(_about_origin)

    def _several_modes(self) -> bool:
        return self.kernel.several_modes

    several_modes = computed(_several_modes)

    def measured(self) -> bool:
        return self.kernel.measured()

    def uncertain_level(self) -> bool:
        return self.kernel.uncertain_level()

    def output_columns(self) -> Mapping[int, OutputColumn]:
        return self.kernel.output_columns()

    def waves(self, X: Tensor) -> Mapping[str, Tensor]:
        return self.kernel.waves(X)

    def alike(self, d: int) -> tuple[str, ...]:
        return self.kernel.alike(d)

    def has_places(self) -> bool:
        return self.kernel.has_places()

    def check_places(self, X: Tensor, names: Sequence[str] | None = None) -> None:
        self.kernel.check_places(X, names)

    def in_units(self, units: Units) -> Kernel:
        return replaced(self, kernel=self.kernel.in_units(units))

    def factors(self, units: Units) -> dict[str, Factor]:
        return self.kernel.factors(units)


@dataclass(frozen=True)
class Unscaled(Around, Markov):
    """kernel(X * factor + shift): standardised columns, back in the proportions of the data.

    ``fit`` puts it around a kernel with a length, period or angle in the units of the data. A
    covariance of mapped inputs is a covariance, Rasmussen & Williams (2006), section 4.2.3.

    Args:
        kernel: The kernel to use on the mapped columns.
        factor: One number, or one per column of X [n, d], in a tuple.
        shift: One number, or one per column, in a tuple; in the units of the mapped columns.

    Raises:
        SettingError: If ``kernel`` is no kernel; on use, if there is not one number for each column
            of X.

    Examples:
        Columns with the standard deviations 10 and 1 were divided by them; factors of 10 and 1
        restore the distances:

        >>> import torch
        >>> from ppgp import kernels
        >>> X = torch.tensor([[0.0, 0.0], [10.0, 0.0], [0.0, 1.0]])
        >>> kernel = kernels.RBF(variance=1.0, lengthscale=10.0)
        >>> kernels.Unscaled(kernel, factor=(10.0, 1.0))({}, X / torch.tensor([10.0, 1.0]))[0]
        tensor([1.0000, 0.6065, 0.9950])
        >>> kernel({}, X)[0]
        tensor([1.0000, 0.6065, 0.9950])
    """

    kernel: Kernel
    factor: Factor = 1.0
    shift: Factor = 0.0

    def _widths(self) -> tuple[int, float]:
        sizes = [len(v) for v in (self.factor, self.shift) if isinstance(v, tuple)]
        return (sizes[0], sizes[0]) if sizes else (1, math.inf)

    widths = computed(_widths)

    def rescaled(self, X: Tensor) -> Tensor:
        """Return X as the kernel inside sees it."""
        self.check_columns(X.shape[-1])
        return X * tensor_of(self.factor, X) + tensor_of(self.shift, X)

    def check_places(self, X: Tensor, names: Sequence[str] | None = None) -> None:
        if self.has_places():  # columns that the kernel inside does not see are not checked
            self.kernel.check_places(self.rescaled(X), names)

    def sites(self, d: int) -> dict[str, Site | Param]:
        self.check_columns(d)
        return self.kernel.sites(d)

    def waves(self, X: Tensor) -> Mapping[str, Tensor]:
        return self.kernel.waves(self.rescaled(X))

    def factors(self, units: Units) -> dict[str, Factor]:
        return self.kernel.factors(units.divided(self.factor))

    def output_columns(self) -> Mapping[int, OutputColumn]:
        found = {}
        for c, inner in self.kernel.output_columns().items():
            factor, shift = (v[c] if isinstance(v, tuple) else v for v in (self.factor, self.shift))
            moved = inner.factor * shift + inner.shift
            found[c] = OutputColumn(inner.outputs, inner.factor * factor, moved)
        return found

    def __call__(self, theta: Theta, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        return self.kernel(theta, self.rescaled(X1), mapped(self.rescaled, X2))

    def diag(self, theta: Theta, X: Tensor) -> Tensor:
        return self.kernel.diag(theta, self.rescaled(X))

    def nugget(self, theta: Theta, X: Tensor) -> Tensor | None:
        return self.kernel.nugget(theta, self.rescaled(X))

    def check_fit(self, theta: Theta, X: Tensor) -> list[str]:
        return self.kernel.check_fit(theta, self.rescaled(X))

    def path(self, theta: Theta, d: int, draw: Draw) -> Path:
        inner = self.kernel.path(theta, d, replace(draw, like=self.rescaled(draw.like)))
        return lambda X: inner(self.rescaled(X))

    def state_space(self, theta: Theta, like: Tensor) -> StateSpace:
        factor, shift = (v[0] if isinstance(v, tuple) else v for v in (self.factor, self.shift))
        return require(self.kernel).state_space(theta, like).of_moved_times(factor, shift)


def proportioned(kernel: Kernel, units: Units) -> Kernel:
    """Return the kernel on columns in the proportions of the data, in units of ``units.middle``."""
    factor: Factor = 1.0
    if not units.isotropic:
        factor = tuple(s / units.middle for s in units.x_sd)
    shift: Factor = 0.0
    if kernel.about_origin and any(units.x_mean):
        shift = tuple(m / units.middle for m in units.x_mean)
    return kernel if (factor, shift) == (1.0, 0.0) else Unscaled(kernel, factor, shift)


Kernel.proportioned = staticmethod(proportioned)
