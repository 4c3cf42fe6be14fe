"""What the Gaussian processes of one column share as recipes: a kernel, a mean and regressors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...data.dataset import Dataset, Scaler
from ...errors import SettingError
from ...kernels import Kernel
from ...kernels.base import check_kernel
from ...kernels.constant import constants
from ...kernels.state_space import StateSpace, require, summed
from ...kernels.units import Factor, Units
from ...priors import Param, PriorLike, Site, prefixed, under
from ..advice.advice import instead_of
from ..advice.memory_checks import check_memory_of_rows
from ..sites import Theta
from ..with_mean import WithMean
from .first_scales import first_scales
from .state_space_regressors import (
    check_regressors,
    check_width,
    columns_of,
    regressors_in_units,
    weight_variances,
)
from .state_space_rows import Steps, steps_of

UNCOMPILED = 1500  # rows times states from which a graph of all steps takes long to compile


class StateSpaceRecipe(WithMean):
    """f(t) = mean + a Markov process of time + regressors.

    Attributes:
        kernel: A kernel with a state space.
        regressors: Prior Normal(0, scale) of the weights of the columns beside the time, or None.
    """

    kernel: Kernel
    regressors: PriorLike | None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(check_kernel(self.kernel))
        check_regressors(self.regressors)

    def kernel_sites(self, d: int) -> dict[str, Site | Param]:
        """Return the sites of the kernel.

        Raises:
            SettingError: For columns beside the time without a prior, or with another number.
        """
        if d != 1 and self.regressors is None:
            name, likelihood = type(self).__name__, getattr(self, "likelihood", None)
            wanted = f"one column of X, the time, for {name} without regressors"
            other = instead_of("StateSpaceGP", d, likelihood=likelihood)
            do = (
                "pass that column alone, give the other columns a prior, such as "
                f"regressors=Normal(0, 1), or {other}"
            )
            raise SettingError(wanted, f"{d} columns", do)
        check_width(self.regressors, d)
        return prefixed("kernel", self.kernel.sites(1))

    def start(self, data: Dataset) -> dict[str, Tensor]:
        """Return the values of sites that define them, and the scales of highest density."""
        given = super().start(data)
        return {**given, **first_scales(self, data, given)}

    def chunked(self, data: Dataset) -> bool:
        return data.n * self.width(data.d) >= UNCOMPILED

    def check_memory(self, n: int, d: int, like: Tensor) -> None:
        """Check that the matrices of n rows fit into memory.

        Raises:
            NotEnoughMemory: If they do not.
        """
        s = self.width(d)
        do = "pass fewer rows, or average rows that are close in time"
        check_memory_of_rows(n, 12.0 * s * s + 20.0 * s, like, "the states", do)

    def process_in_units(self, scaler: Scaler) -> dict[str, Any]:
        """Return the kernel, the mean and the regressors on the scale of the model."""
        return {
            "kernel": self.kernel.in_units(Units.of(scaler).columns((0,))),
            "mean": self.mean_in_units(scaler),
            "regressors": regressors_in_units(self.regressors, scaler),
        }

    def process_factors(self, scaler: Scaler) -> dict[str, Factor]:
        """Return {site of the kernel: what brings its draws into the units of the data}."""
        factors = self.kernel.factors(Units.of(scaler).columns((0,)))
        return {f"kernel.{name}": factor for name, factor in factors.items()}

    # -- the process ----------------------------------------------------------------

    def width(self, d: int) -> int:
        """Return the number of states for inputs with d columns."""
        return len(self.observation(torch.zeros(1, d, dtype=torch.float64)))

    def observation(self, X: Tensor) -> Tensor:
        """Return the weights H with f = H'x at rows of X, [s, m]."""
        values = {name: X.new_ones(s.shape) for name, s in self.kernel.sites(1).items()}
        H = torch.tensor(require(self.kernel).state_space(values, X).observation).to(X)
        return torch.cat([H[:, None].expand(-1, len(X)), X[:, 1:].mT])

    def space(self, theta: Theta, X: Tensor) -> StateSpace:
        """Return the process at the hyperparameters theta."""
        space = require(self.kernel).state_space(under("kernel", theta), X)
        if X.shape[-1] == 1:
            return space
        return summed([space, constants(weight_variances(self.regressors, X))])

    def in_direction(self, theta: Theta, X: Tensor, backwards: bool) -> tuple[StateSpace, Tensor]:
        """Return the process and the times at rows of X, or those of f(-t)."""
        space, t = self.space(theta, X), X[:, 0]
        return (space.backwards(), -t) if backwards else (space, t)

    def steps(self, theta: Theta, X: Tensor, noise: Tensor, backwards: bool = False) -> Steps:
        """Return the process at rows of X, with noise variances [*b, 1] or [*b, n]."""
        space, t = self.in_direction(theta, X, backwards)
        return steps_of(space, t, noise, columns_of(X))

    def prior(self, theta: Theta, X: Tensor, other: Tensor | None = None) -> Tensor:
        """Return the prior covariance of f at rows of X and of ``other``, or of X."""
        K = self.kernel(under("kernel", theta), X[:, :1], None if other is None else other[:, :1])
        if X.shape[-1] == 1:
            return K
        second = X if other is None else other
        return K + (X[:, 1:] * weight_variances(self.regressors, X)) @ second[:, 1:].mT

    def prior_variances(self, theta: Theta, X: Tensor) -> Tensor:
        """Return the prior variances of f at rows of X."""
        variances = self.kernel.diag(under("kernel", theta), X[:, :1])
        if X.shape[-1] == 1:
            return variances
        return variances + X[:, 1:].square() @ weight_variances(self.regressors, X)
