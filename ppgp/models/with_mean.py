"""What Gaussian processes with a field ``mean`` share."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ..data.dataset import Dataset, Scaler
from ..data.entries.magnitudes import average
from ..kernels import Kernel
from ..kernels.base import OutputColumn
from ..kernels.units import Factor
from ..priors import Param, Site
from ..priors.units import power
from .base import Model
from .means import (
    ConstantMean,
    Mean,
    MeanLike,
    OutputMeans,
    UserMean,
    mean_of,
    means_of_outputs,
    refuse_text,
)
from .sites import Theta
from .units import times


class WithMean(Model):
    """A model of f ~ GP(mean, kernel).

    Attributes:
        mean: Number, prior, ``LinearMean`` or function X [n, d] -> [n]; None: the mean of the
            training rows, or 0; where the kernel has a ``Coregionalisation`` and y holds numbers,
            a constant for each output that is estimated, see ``OutputMeans``.
    """

    mean: MeanLike | None

    @property
    def mean_is_free(self) -> bool:
        """Whether None stands for the mean of the rows; else, for classes and counts, it is 0."""
        return True

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_text(self.mean)

    @property
    def mean_function(self) -> Mean:
        """The mean as a function of X, built once, as a recipe never changes."""
        own = vars(self)
        if "_mean_function" not in own:
            own["_mean_function"] = mean_of(self.mean)
        return own["_mean_function"]

    def output_columns(self, d: int) -> Mapping[int, OutputColumn]:
        """Return the columns of X [n, d] by which the kernel tells outputs apart."""
        kernel = getattr(self, "kernel", None)
        return kernel.output_columns() if isinstance(kernel, Kernel) else {}

    def mean_sites(self, d: int) -> Mapping[str, Site | Param]:
        """Return the sites of the mean for inputs with d columns."""
        return self._mean_of_columns(d).sites(d)

    def mean_at(self, theta: Theta, X: Tensor) -> Tensor:
        """Return the mean of f at rows X [n, d]: [*draw, n], or [*draw, 1] if it is constant."""
        return self._mean_of_columns(X.shape[-1]).at(theta, X)

    def _mean_of_columns(self, d: int) -> Mean:
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
            for name, s in self.mean_sites(d).items()
            if name in theta
        ]
        return torch.broadcast_shapes(*axes)

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
