"""The mean of a Gaussian process as a function of the columns of X.

A mean is a number, a prior, a ``LinearMean``, or a function that the user gives. ``WithMean`` is
the base class of the models that have one.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, TypeAlias, cast

import numpy as np
import pyro
import torch
from torch import Tensor

from ..arguments import named_arguments
from ..data.dataset import Dataset, Scaler
from ..data.entries.magnitudes import average
from ..errors import DataError, SettingError, an, counted
from ..kernels import Kernel
from ..kernels.base import OutputColumn, output_of_rows
from ..kernels.units import Factor
from ..numerics.shapes import broadcast_shapes
from ..priors import (
    Normal,
    Param,
    PriorLike,
    Site,
    rescaled,
    site,
    under,
    value_of,
    with_plain_fields,
)
from .base import Model
from .sites import Theta
from .units import coefficients_in_units, coefficients_of_data, power, times

__all__ = ["ConstantMean", "LinearMean", "Mean", "OutputMeans", "UserMean"]

KEPT = 2  # tables whose means are kept: the training rows and those of a prediction


@named_arguments
class Mean:
    """The mean m(x) of a Gaussian process, with sites under "mean".

    theta is {site: [*draw, *event]} with the names of the model.

    Attributes:
        varies: Whether it depends on x.
    """

    varies: bool = True

    @abstractmethod
    def sites(self, d: int) -> Mapping[str, Site | Param]:
        """Return {name in the model: site} for inputs with d columns."""

    @abstractmethod
    def at(self, theta: Theta, X: Tensor) -> Tensor:
        """Return the mean at rows X [*b, n, d], [*draw, *b, n] or [*draw, 1] if it is constant."""

    @abstractmethod
    def in_units(self, scaler: Scaler) -> Mean:
        """Return the mean on the scale of the model."""

    @abstractmethod
    def of_data(self, draws: Theta, scaler: Scaler) -> dict[str, Tensor | None]:
        """Return the draws of its sites in the units of the data."""


#: a number or a prior of a constant, a LinearMean, or a function X [n, d] -> [n]
MeanLike: TypeAlias = PriorLike | Mean | Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class ConstantMean(Mean):
    """The same mean for all rows: the site "mean".

    Args:
        value: Prior or number; None: 0, until ``prepare`` fills in the mean of the rows.
    """

    value: PriorLike | None = None
    varies = False

    def sites(self, d: int) -> dict[str, Site | Param]:
        return {"mean": site("mean", 0.0 if self.value is None else self.value)}

    def at(self, theta: Theta, X: Tensor) -> Tensor:
        value = 0.0 if self.value is None else self.value
        return value_of(theta, "mean", value, X).unsqueeze(-1)

    def in_units(self, scaler: Scaler) -> ConstantMean:
        y_mean, y_sd = float(scaler.y_mean), float(scaler.y_sd)
        if self.value is None:
            return self if (y_mean, y_sd) == (0.0, 1.0) else ConstantMean(0.0)
        return ConstantMean(rescaled(self.value, 1 / y_sd, -y_mean / y_sd, "the mean"))

    def of_data(self, draws: Theta, scaler: Scaler) -> dict[str, Tensor | None]:
        if "mean" not in draws:
            return {}
        return {"mean": scaler.y_mean + scaler.y_sd * draws["mean"]}


@dataclass(frozen=True)
class LinearMean(Mean):
    """The mean x'weight + bias of a Gaussian process: ``GP(mean=LinearMean())``.

    Its sites are "mean.weight" [d] and "mean.bias". A draw in the units of the data has weights in
    units of y over units of x_j. Numbers and priors are those of ``LinearRegression``. The kernels
    Linear and Constant are the same model with the weights integrated out. Rasmussen & Williams
    (2006), section 2.7.

    Args:
        weight: Prior or number of each of the d weights.
        bias: Prior or number of the value at x = 0. Under ``fit(standardise=True)`` that is the
            mean of the training rows.

    Raises:
        SettingError: From ``fit``, if weight or bias is neither a prior nor a number.

    Examples:
        >>> import ppgp, torch
        >>> from ppgp import inference, kernels, models, priors
        >>> X = torch.linspace(0, 4, 20, dtype=torch.float64)[:, None]
        >>> data = ppgp.Dataset(X, 1 + 2 * X[:, 0])
        >>> mean = models.LinearMean(priors.Flat(), priors.Flat())
        >>> model = models.GP(kernels.RBF(0.01, 0.3), noise=0.001, mean=mean)
        >>> posterior = ppgp.fit(model, data, inference.MAP(), progress=False)
        >>> posterior.draws_in("data")["mean.weight"].numpy().round(1)  # units of y over those of x
        array([[[2.]]])
        >>> posterior.predict([[100.0]]).mean.numpy().round(1)  # along the line, far from the rows
        array([201.])
    """

    weight: PriorLike = Normal(0.0, 1.0)
    bias: PriorLike = Normal(0.0, 1.0)

    def __post_init__(self) -> None:
        with_plain_fields(self)

    def sites(self, d: int) -> dict[str, Site | Param]:
        weight = site("the weight of the mean", self.weight, (d,))
        return {"mean.weight": weight, "mean.bias": site("the bias of the mean", self.bias)}

    def at(self, theta: Theta, X: Tensor) -> Tensor:
        weight = value_of(theta, "mean.weight", self.weight, X)
        bias = value_of(theta, "mean.bias", self.bias, X)
        weight = weight.expand(*weight.shape[:-1], X.shape[-1])
        # a product of matrices: that of a vector and a matrix writes in place, which no graph takes
        products = X.reshape(-1, X.shape[-1]) @ weight.unsqueeze(-1)
        of_rows = products.squeeze(-1) + bias[..., None]
        return of_rows.reshape(*of_rows.shape[:-1], *X.shape[:-1])

    def in_units(self, scaler: Scaler) -> LinearMean:
        return LinearMean(*coefficients_in_units(self.weight, self.bias, scaler))

    def of_data(self, draws: Theta, scaler: Scaler) -> dict[str, Tensor | None]:
        own = under("mean", draws)
        weight = value_of(own, "weight", self.weight, scaler.x_mean)
        found = coefficients_of_data(own, weight, scaler)
        return {f"mean.{name}": value for name, value in found.items()}


@dataclass(frozen=True)
class UserMean(Mean):
    """A known mean: a function of X in the units of the data, with values in those of y.

    A model keeps it in place of the function that was given to it. Files do not hold the function:
    ``load_posterior(path, model=recipe)`` takes it from the recipe.

    Args:
        function: X [n, d] -> [n].
        x_mean: The columns of X in the units of the data are x_mean + x_sd * X; (): X itself.
        x_sd: See ``x_mean``.
        y_mean: The mean on the scale of the model is (function - y_mean) / y_sd.
        y_sd: See ``y_mean``.
    """

    function: Callable[[Tensor], Tensor]
    x_mean: tuple[float, ...] = ()
    x_sd: tuple[float, ...] = ()
    y_mean: float = 0.0
    y_sd: float = 1.0
    _kept: list[tuple[Tensor, tuple[Any, ...], Tensor]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    def sites(self, d: int) -> dict[str, Site | Param]:
        return {}

    def at(self, theta: Theta, X: Tensor) -> Tensor:
        """Return the values at rows X [*b, n, d], [*b, n].

        Those of the same table are computed once. Only X has a gradient: the function has nothing
        to estimate.

        Raises:
            DataError: Unless the function returns one finite number per row.
        """
        if X.requires_grad or X.is_inference():
            return self._values(X)
        if X.numel():
            # raises an error where a graph is recorded for any rows: it would hold the values of
            # these
            float(X.detach().flatten()[0])
        key = (X.data_ptr(), X.shape, X.stride(), X.dtype, X._version)
        # while X is held, no other tensor has its address
        found = [entry for entry in self._kept if entry[1] == key]
        others = [entry for entry in self._kept if entry[1] != key]
        last = found or [(X, key, self._values(X).detach())]
        self._kept[:] = [*others[1 - KEPT :], *last]  # the latest of them last
        return last[0][2]

    def _values(self, X: Tensor) -> Tensor:
        rows = X.reshape(-1, X.shape[-1])
        if self.x_sd:
            rows = rows * rows.new_tensor(self.x_sd) + rows.new_tensor(self.x_mean)
        with pyro.poutine.block():  # its statements are none of the model's
            given: Any = self.function(rows)
        if isinstance(given, np.ndarray):
            given = torch.from_numpy(given)
        got = _wrong(given, len(rows))
        if got is not None:
            wanted = f"a finite number for each of {counted(len(rows), 'row')} from the mean"
            raise DataError(wanted, got, "correct the function, which gets X [n, d] of the data")
        values = given.to(X)
        if (self.y_mean, self.y_sd) != (0.0, 1.0):
            values = (values - self.y_mean) / self.y_sd
        return values.reshape(X.shape[:-1])

    def in_units(self, scaler: Scaler) -> UserMean:
        if scaler.is_identity:
            return self
        x_mean, x_sd = tuple(scaler.x_mean.tolist()), tuple(scaler.x_sd.tolist())
        return UserMean(self.function, x_mean, x_sd, float(scaler.y_mean), float(scaler.y_sd))

    def of_data(self, draws: Theta, scaler: Scaler) -> dict[str, Tensor | None]:
        return {}


@dataclass(frozen=True)
class OutputMeans(Mean):
    """A constant for each output that a column of codes tells apart: the site "mean" [outputs].

    ``prepare`` puts it in place of the mean None where the kernel has a ``Coregionalisation``.

    Args:
        columns: {column of X: what its codes are}, see ``Kernel.output_columns``.
        value: Prior of each constant, on the scale of the model.
        starts: Where a search starts, one number for each output.
    """

    columns: Mapping[int, tuple[int, float, float]]  # a file holds no OutputColumn
    value: PriorLike
    starts: tuple[float, ...]

    @classmethod
    def standard(cls, columns: Mapping[int, OutputColumn]) -> OutputMeans:
        """Return the means for a standardised y, of columns of codes."""
        outputs = math.prod(column.outputs for column in columns.values())
        plain = {c: (k.outputs, k.factor, k.shift) for c, k in columns.items()}
        return cls(plain, Normal(0.0, 1.0), (0.0,) * outputs)

    @property
    def _outputs(self) -> dict[int, OutputColumn]:
        return {c: OutputColumn(*column) for c, column in self.columns.items()}

    def sites(self, d: int) -> dict[str, Site | Param]:
        own = site("mean", self.value, (len(self.starts),))
        return {"mean": replace(own, start=torch.tensor(self.starts, dtype=torch.float64))}

    def at(self, theta: Theta, X: Tensor) -> Tensor:
        each = value_of(theta, "mean", self.value, X)
        return each[..., output_of_rows(self._outputs, X)]

    def in_units(self, scaler: Scaler) -> OutputMeans:
        columns = {}
        for c, column in self._outputs.items():
            shift = column.shift + column.factor * float(scaler.x_mean[c])
            factor = column.factor * float(scaler.x_sd[c])
            columns[c] = (column.outputs, factor, shift)
        y_mean, y_sd = float(scaler.y_mean), float(scaler.y_sd)
        value = rescaled(self.value, 1 / y_sd, -y_mean / y_sd, "the mean")
        return OutputMeans(columns, value, tuple((start - y_mean) / y_sd for start in self.starts))

    def of_data(self, draws: Theta, scaler: Scaler) -> dict[str, Tensor | None]:
        return {"mean": scaler.y_mean + scaler.y_sd * draws["mean"]}


def means_of_outputs(
    columns: Mapping[int, OutputColumn], X: Tensor, y: Tensor, weights: Tensor | None
) -> OutputMeans:
    """Return the means of outputs for these rows: their prior is about as wide as y.

    An output may be measured where it is high, so that the mean of its rows is where a search
    starts, and no estimate.

    Args:
        columns: The columns of X that hold codes.
        X: Inputs of the training rows [n, d].
        y: Their targets [n].
        weights: The weight of each row [n]; None: 1.
    """
    number = output_of_rows(columns, X)
    of_all = float(average(y, weights))
    means = OutputMeans.standard(columns)
    starts = [of_all] * len(means.starts)
    for output in number.unique().tolist():
        rows = number == output
        starts[output] = float(average(y[rows], None if weights is None else weights[rows]))
    width = math.sqrt(float(average((y - of_all).square(), weights))) or 1.0
    return replace(means, value=Normal(of_all, width), starts=tuple(starts))


def _wrong(values: Any, n: int) -> str | None:
    """Return what a function returned in place of n finite numbers; None if it returned these."""
    if not isinstance(values, Tensor):
        return an(type(values).__name__)
    if values.shape != (n,):
        return f"shape {list(values.shape)}"
    if not bool(torch.isfinite(values).all()):
        return "NaN or infinity"
    return None


def rows_of_mean(mean: Tensor, rows: slice | Tensor) -> Tensor:
    """Return a mean [*draw, n] at some of the rows; one that is constant, [*draw, 1], as it is."""
    return mean if mean.shape[-1] == 1 else mean[..., rows]


class WithMean(Model):
    """A model of f ~ GP(mean, kernel).

    Attributes:
        mean: Number, prior, ``LinearMean`` or function X [n, d] -> [n]; None: the mean of the
            training rows, or 0; where the kernel has a ``Coregionalisation`` and y holds numbers,
            a constant for each output that is estimated, see ``OutputMeans``.
        mean_is_free: Whether None stands for the mean of the rows; else, for classes and counts, it
            is 0.
    """

    mean: MeanLike | None
    mean_is_free: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        given: Any = self.mean
        if isinstance(given, str):
            wanted = "a number, a prior, a LinearMean or a function as mean"
            raise SettingError(wanted, repr(given), "write mean=0.0 for a mean of 0")

    @cached_property
    def mean_function(self) -> Mean:
        """The mean as a function of X, built once, as a recipe never changes."""
        if isinstance(self.mean, Mean):
            return self.mean
        if callable(self.mean) and not isinstance(self.mean, type):
            return UserMean(self.mean)
        return ConstantMean(cast("PriorLike | None", self.mean))

    def output_columns(self, d: int) -> Mapping[int, OutputColumn]:
        """Return the columns of X [n, d] by which the kernel tells outputs apart."""
        kernel = getattr(self, "kernel", None)
        return kernel.output_columns() if isinstance(kernel, Kernel) else {}

    def mean_at(self, theta: Theta, X: Tensor) -> Tensor:
        """Return the mean of f at rows X [n, d]: [*draw, n], or [*draw, 1] if it is constant."""
        return self.mean_of(X.shape[-1]).at(theta, X)

    def mean_of(self, d: int) -> Mean:
        """Return the mean for inputs with d columns.

        A recipe that was not prepared has the sites of the prepared one, with other starts.
        """
        if self.mean is None and self.mean_is_free:
            columns = self.output_columns(d)
            if columns:
                return OutputMeans.standard(columns)
        return self.mean_function

    def axes_of_mean(self, theta: Theta, d: int) -> torch.Size:
        """Return the axes of the draws of the mean; [] if none of its sites is drawn."""
        axes = [
            theta[name].shape[: theta[name].ndim - len(s.shape)]
            for name, s in self.mean_of(d).sites(d).items()
            if name in theta
        ]
        return broadcast_shapes(*axes)

    def mean_in_units(self, scaler: Scaler) -> MeanLike | None:
        """Return the mean on the scale of the model.

        None stands for the mean of the rows. It becomes 0 where y was standardised, unless each
        output has a mean of its own.
        """
        outputs = self.mean_is_free and self.output_columns(len(scaler.x_mean))
        if self.mean is None and outputs:
            return None
        mean = self.mean_function.in_units(scaler)
        return mean.value if isinstance(mean, ConstantMean) else mean

    def mean_for(self, data: Dataset) -> MeanLike:
        """Return the mean; in place of None that of the rows, or one for each output.

        Args:
            data: The training rows.

        Raises:
            DataError: If a function does not return one finite number per row.
        """
        if self.mean is None:
            if not self.mean_is_free:
                return 0.0
            columns = self.output_columns(data.d)
            if columns:
                return means_of_outputs(columns, data.X, data.y, data.weights)
            if data.target_mean is not None:
                return data.target_mean
            return float(average(data.y, data.weights))
        if isinstance(self.mean_function, UserMean):
            self.mean_at({}, data.X)
        return self.mean

    def hyperparameters_of_data(
        self, draws: Theta, factors: Mapping[str, Factor], scaler: Scaler
    ) -> dict[str, Tensor | None]:
        """Return the draws of the kernel, the mean and the noise in the units of the data.

        Args:
            draws: {site: [chain, draw, *event]} on the scale of the model.
            factors: {site: what brings it into the units of the data}, without mean and noise.
            scaler: The Scaler that standardised the data.
        """
        converted = times(draws, {**factors, "noise": power(float(scaler.y_sd), 2)})
        return {**converted, **self.mean_function.of_data(draws, scaler)}
