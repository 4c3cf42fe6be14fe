"""What Gaussian processes of one column share: a Markov process of time, regressors, and a start.

The columns beside the time enter linearly, with a Gaussian prior on their weights. Each weight is a
state that never changes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pyro
import torch
from torch import Tensor

from ...capabilities import Capability, Components, IntegratedCoefficients
from ...data.dataset import Dataset, Scaler
from ...density.handlers import quietly
from ...errors import NotApplicable, NumericalError, SettingError, counted
from ...kernels import Kernel, Sum
from ...kernels.base import check_kernel
from ...kernels.constant import constants
from ...kernels.state_space import StateSpace, require, summed
from ...kernels.units import Factor, Units
from ...kernels.wrappers import as_written
from ...likelihoods import Likelihood
from ...priors import (
    InUnitsOfData,
    Normal,
    Param,
    PriorLike,
    Site,
    bare,
    prefixed,
    tensor_of,
    under,
)
from ..advice.advice import instead_of
from ..advice.memory_checks import check_memory_of_rows
from ..base import Model
from ..sites import Theta
from .state_space_rows import Steps, steps_of

FACTORS = (1.0, 0.3, 0.1, 0.03, 0.01)  # all lengthscales, in sd of the times
NOISES = (1.0, 0.1, 0.01)  # the noise variance, in variances of y
MOST_ROWS = 5_000  # successive rows on which the places are compared


@dataclass(frozen=True)
class MarkovProcess:
    """f(t) - mean = a Markov process of time + regressors.

    Attributes:
        kernel: A kernel with a state space.
        regressors: Prior Normal(0, scale) of the weights of the columns beside the time, or None.
    """

    kernel: Kernel
    regressors: PriorLike | None

    # -- the recipe -------------------------------------------------------------------------------

    def check(self) -> None:
        """Check what a user gave.

        Raises:
            SettingError: If the kernel is none, or the prior of the weights is neither
                Normal(0, scale) nor None.
            NotApplicable: For a kernel without a state space.
        """
        require(check_kernel(self.kernel))
        inner = bare(self.regressors)
        centred = isinstance(inner, Normal) and not bool(torch.as_tensor(inner.loc).any())
        if self.regressors is not None and not centred:
            do = "write Normal(0, scale), with one scale or one per column"
            raise SettingError("Normal(0, scale) or None as regressors", repr(self.regressors), do)

    def sites(
        self, d: int, model: str, likelihood: Likelihood | None = None
    ) -> dict[str, Site | Param]:
        """Return the sites of the kernel.

        Args:
            d: The number of columns of X.
            model: The name of the model, for messages.
            likelihood: That of y given f, for advice; None: Gaussian noise.

        Raises:
            SettingError: For columns beside the time without a prior, or with another number.
        """
        if d != 1 and self.regressors is None:
            wanted = f"one column of X, the time, for {model} without regressors"
            other = instead_of("StateSpaceGP", d, likelihood=likelihood)
            do = (
                "pass that column alone, give the other columns a prior, such as "
                f"regressors=Normal(0, 1), or {other}"
            )
            raise SettingError(wanted, f"{d} columns", do)
        scale = torch.as_tensor(getattr(bare(self.regressors), "scale", 1.0))
        if scale.ndim and len(scale) != d - 1:
            wanted = f"one scale, or one for each of {counted(d - 1, 'regressor')} beside the time"
            raise SettingError(wanted, f"{len(scale)} scales", "correct regressors")
        return prefixed("kernel", self.kernel.sites(1))

    def regressors_for(self, data: Dataset) -> PriorLike | None:
        """Return the prior of the weights, which is Normal(0, 1) where the rows name the time."""
        if self.regressors is None and data.d > 1 and data.time_column == 0:
            return Normal(0.0, 1.0)
        return self.regressors

    def check_time(self, data: Dataset) -> None:
        """Check that the time is the first column, if the rows name it.

        Raises:
            SettingError: If it is another column.
        """
        if data.time_column not in (None, 0):
            got = f"column {data.time_column}, {data.time}"
            do = "move it to the front, as Dataset.from_frame(table, target, time=) does"
            raise SettingError("the time as the first column of X", got, do)

    def check_memory(self, n: int, d: int, like: Tensor) -> None:
        """Check that the matrices of n rows fit into memory.

        Raises:
            NotEnoughMemory: If they do not.
        """
        s = self.width(d)
        do = "pass fewer rows, or average rows that are close in time"
        check_memory_of_rows(n, 12.0 * s * s + 20.0 * s, like, "the states", do)

    def lacks(self, capability: type[Capability], model: str) -> NotApplicable | None:
        """Return why a model of this name cannot tell the parts of the process apart, if so."""
        if capability is IntegratedCoefficients and self.regressors is None:
            got = f"{model} without regressors"
            return NotApplicable(capability.wanted, got, "pass regressors=Normal(0, scale)")
        if capability is Components and not isinstance(self.kernel, Sum):
            got = type(as_written(self.kernel)).__name__
            return NotApplicable("a sum of kernels", got, "add kernels with +, or use latent")
        return None

    def in_units(self, scaler: Scaler) -> dict[str, Any]:
        """Return the kernel and the regressors on the scale of the model."""
        regressors = self.regressors
        if isinstance(regressors, InUnitsOfData):
            scales = tensor_of(regressors.prior.scale, scaler.x_sd) * scaler.x_sd[1:] / scaler.y_sd
            regressors = Normal(0.0, tuple(scales.tolist()))
        kernel = self.kernel.in_units(Units.of(scaler).columns((0,)))
        return {"kernel": kernel, "regressors": regressors}

    def factors(self, scaler: Scaler) -> dict[str, Factor]:
        """Return {site of the kernel: what brings its draws into the units of the data}."""
        return prefixed("kernel", self.kernel.factors(Units.of(scaler).columns((0,))))

    # -- the states -------------------------------------------------------------------------------

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
        return summed([space, constants(self._weight_variances(X))])

    def in_direction(self, theta: Theta, X: Tensor, backwards: bool) -> tuple[StateSpace, Tensor]:
        """Return the process and the times at rows of X, or those of f(-t)."""
        space, t = self.space(theta, X), X[:, 0]
        return (space.backwards(), -t) if backwards else (space, t)

    def steps(self, theta: Theta, X: Tensor, noise: Tensor, backwards: bool = False) -> Steps:
        """Return the process at rows of X, with noise variances [*b, 1] or [*b, n]."""
        space, t = self.in_direction(theta, X, backwards)
        return steps_of(space, t, noise, columns_of(X))

    # -- the prior --------------------------------------------------------------------------------

    def covariance(self, theta: Theta, X: Tensor, other: Tensor | None = None) -> Tensor:
        """Return the prior covariance of f at rows of X and of ``other``, or of X."""
        K = self.kernel(under("kernel", theta), X[:, :1], None if other is None else other[:, :1])
        if X.shape[-1] == 1:
            return K
        second = X if other is None else other
        return K + (X[:, 1:] * self._weight_variances(X)) @ second[:, 1:].mT

    def variances(self, theta: Theta, X: Tensor) -> Tensor:
        """Return the prior variances of f at rows of X."""
        variances = self.kernel.diag(under("kernel", theta), X[:, :1])
        if X.shape[-1] == 1:
            return variances
        return variances + X[:, 1:].square() @ self._weight_variances(X)

    def _weight_variances(self, X: Tensor) -> Tensor:
        """Return the prior variance of the weight of each regressor, [r]."""
        scale = getattr(bare(self.regressors), "scale", 1.0)
        return tensor_of(scale, X).square().expand(X.shape[-1] - 1)


def columns_of(X: Tensor) -> Tensor | None:
    """Return the regressors [r, n] among the columns of X; None if there are none."""
    return X[:, 1:].mT if X.shape[-1] > 1 else None


def first_scales(model: Model, data: Dataset, given: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return {site: value} of the highest density among common factors of all lengthscales.

    A density of lengthscales has a mode for each scale of the function. From lengthscales as long
    as the data a search ends in that of the trend, where a season is noise.

    Args:
        model: A model with sites "noise" and "kernel...lengthscale".
        data: The rows; of many, ``MOST_ROWS`` successive ones are used.
        given: {site: value} where other sites start, the rest at 1 or 0.

    Returns:
        The values; empty if no lengthscale is free, or no density is finite.
    """
    free = {k: s for k, s in model.sites_at(data.d).items() if isinstance(s, Site) and not s.fixed}
    scales = [name for name in free if name.endswith("lengthscale") and name not in given]
    if not scales:
        return {}
    rest = {k: torch.full(s.shape, float(s.positive)).to(data.X) for k, s in free.items()} | given
    rows = data if data.n <= MOST_ROWS else data.rows(_successive(data.X[:, 0]))
    noises = NOISES if "noise" in free else NOISES[:1]
    spread, variance = float(data.X[:, 0].std()), float(data.y.var())
    if not spread > 0 or not variance > 0:
        return {}
    best: dict[str, Tensor] = {}
    highest = -math.inf
    for factor in FACTORS:
        for noise in noises:
            place = {k: torch.full_like(rest[k], factor * spread) for k in scales}
            if "noise" in free:
                place["noise"] = torch.full_like(rest["noise"], noise * variance)
            height = _log_density(model, {**rest, **place}, rows)
            if height > highest:
                best, highest = place, height
    return best


def _successive(times: Tensor) -> Tensor:
    """Return the rows in the middle of the times."""
    first = (len(times) - MOST_ROWS) // 2
    return torch.argsort(times)[first : first + MOST_ROWS]


def _log_density(model: Model, values: dict[str, Tensor], data: Dataset) -> float:
    """Return the log density of the values and of y; minus infinity where it is not finite."""
    args, kwargs = data.passed()
    try:
        with quietly(), torch.no_grad():
            run = pyro.poutine.trace(pyro.poutine.condition(model.model, data=values))
            total = run.get_trace(*args, **kwargs).log_prob_sum()
    except (NumericalError, RuntimeError, ValueError, ArithmeticError):
        return -math.inf
    value = float(total)
    return -math.inf if math.isnan(value) else value
