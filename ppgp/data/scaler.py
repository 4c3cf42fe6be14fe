"""Standardisation of a table's columns, and its inverse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, TypeVar, runtime_checkable

import torch
from torch import Tensor

from ..display.user_warnings import warn
from ..errors import DataError, DataWarning, counted, listed
from ..runtime.team import Team
from .entries import magnitudes
from .entries.arrays import destination
from .roles import ROLES, columns_given

__all__ = ["GivenScaler", "IdentityScaler", "Scaler"]

SAME_SCALE = 1e-5  # relative to an sd: how far means and sds of the same rows differ after rounding


@runtime_checkable
class Table(Protocol):
    """What a Scaler reads of a Dataset."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def X(self) -> Tensor: ...
    @property
    def y(self) -> Tensor: ...
    @property
    def noise_sd(self) -> Tensor | None: ...
    @property
    def weights(self) -> Tensor | None: ...
    @property
    def feature_names(self) -> Sequence[str] | None: ...
    @property
    def together(self) -> list[int]: ...
    @property
    def coded(self) -> list[int]: ...
    @property
    def team(self) -> Team: ...
    def with_origin_of(self, other: Any) -> Any: ...


T = TypeVar("T", bound=Table)


@dataclass(frozen=True, eq=False)
class Scaler:
    """Standardisation of columns and of the target, and its inverse.

    It maps x to (x - x_mean) / x_sd per column, and y to (y - y_mean) / y_sd. All coordinates of a
    Dataset have the same ``x_sd``. Hastie, Tibshirani & Friedman (2009), section 3.4.1, on why
    inputs are standardised. ``Scaler.of(data)`` makes it, with squared deviations divided by n.

    Attributes:
        is_identity: Whether it stands for data that were left as they are.
        x_mean: [d], the means of the columns, each in the units of its column.
        x_sd: [d], their standard deviations, in the same units.
        y_mean: [], the mean of the target, in the units of y.
        y_sd: [], its standard deviation, in the units of y.

    Raises:
        DataError: By ``inputs`` and the call, if X has another number of columns than the training
            rows, or rows too far from them.

    Examples:
        >>> import ppgp
        >>> from ppgp import data
        >>> table = ppgp.Dataset([[1.0], [3.0]], [10.0, 14.0])
        >>> scaler = data.Scaler.of(table)
        >>> scaler.x_mean, scaler.y_sd
        (tensor([2.], dtype=torch.float64), tensor(2., dtype=torch.float64))
        >>> scaler(table).X
        tensor([[-1.],
                [ 1.]], dtype=torch.float64)
        >>> scaler.targets_back(scaler.targets(table.y))
        tensor([10., 14.], dtype=torch.float64)
    """

    x_mean: Tensor
    x_sd: Tensor
    y_mean: Tensor
    y_sd: Tensor
    is_identity: ClassVar[bool] = False

    @classmethod
    def of(
        cls,
        data: Table,
        scale_X: bool = True,
        scale_y: bool = True,
        spreads: tuple[magnitudes.Spread, magnitudes.Spread] | None = None,
    ) -> Scaler:
        """Return the Scaler that standardises a Dataset.

        Coordinates share one standard deviation, the root mean square of their own. A constant
        column or target is centred and not scaled, and a DataWarning names it. Codes of categories
        stay as they are. Missing values do not count, and a row counts as often as its weight says.

        Args:
            data: The Dataset.
            scale_X: Whether to standardise the columns of X.
            scale_y: Whether to standardise y.
            spreads: The statistics of X and of y, if they are those of more rows than these.
        """
        X, y = data.X, data.y
        x_mean, x_sd = torch.zeros_like(X[0]), torch.ones_like(X[0])
        y_mean, y_sd = torch.zeros_like(y[0]), torch.ones_like(y[0])
        if scale_X:
            own = spreads or (magnitudes.spread_without_missing(X, data.weights),)
            x_mean, own_sd, constant = _of_team(data, X, own[0])
            x_mean[data.coded], own_sd[data.coded], constant[data.coded] = 0.0, 1.0, False
            if bool(constant.any()):
                _warn_constant(constant, data.feature_names)
            # beyond 1e15, the rounding errors of a constant column exceed 1
            x_sd = torch.where(constant, own_sd.clamp_min(1.0), own_sd)
            if data.together and not bool(constant[data.together].all()):
                x_sd[data.together] = magnitudes.root_mean_square(own_sd[data.together])
        if scale_y:
            of_y = spreads[1] if spreads else magnitudes.spread(y, data.weights)
            y_mean, y_sd, constant = _of_team(data, y, of_y)
            if bool(constant):
                warn(
                    "y is constant: centred, not scaled; every model will predict that constant",
                    DataWarning,
                )
                y_sd = y_sd.clamp_min(1.0)
        return cls(x_mean, x_sd, y_mean, y_sd)

    def like(self, other: Scaler) -> bool:
        """Return whether both scalers are the same up to rounding."""
        if self.x_mean.shape != other.x_mean.shape:
            return False
        pairs = (
            (self.x_mean, self.x_sd, other.x_mean, other.x_sd),
            (self.y_mean, self.y_sd, other.y_mean, other.y_sd),
        )
        eps = 8 * max(torch.finfo(scaler.y_sd.dtype).eps for scaler in (self, other))
        for mean, sd, other_mean, other_sd in pairs:
            gap = torch.maximum((mean - other_mean).abs(), (sd - other_sd).abs())
            if not bool((gap <= SAME_SCALE * sd + eps * mean.abs()).all()):
                return False
        return True

    def inputs(self, X: Tensor) -> Tensor:
        """Return X [n, d] on the standardised scale.

        Raises:
            DataError: If X has another number of columns than the training rows, or rows so far
                from them that the distance overflows.
        """
        if X.shape[-1] != len(self.x_mean):
            raise DataError(
                f"{counted(len(self.x_mean), 'column')}, as in training",
                f"{X.shape[-1]}",
                "pass the same columns in the same order",
            )
        scaled = magnitudes.standardised(X, self.x_mean, self.x_sd)
        # below this limit, squared distances in lengthscales are finite
        limit = torch.finfo(scaled.dtype).max ** 0.25
        if (
            scaled.numel()
            and not float(torch.linalg.vector_norm(scaled.detach(), torch.inf)) <= limit
        ):
            _refuse_far(scaled, limit)
        return scaled

    def targets(self, y: Tensor) -> Tensor:
        """Return y on the standardised scale."""
        return magnitudes.standardised(y, self.y_mean, self.y_sd)

    def noise(self, noise_sd: Tensor) -> Tensor:
        """Return known noise on the standardised scale: divided by y_sd."""
        return noise_sd / self.y_sd

    def columns(self, data: Table) -> dict[str, Tensor]:
        """Return ``{role: column}`` of the roles in the unit of y, on the standardised scale."""
        return {name: self.noise(column) for name, column in _in_unit_of_y(data).items()}

    def __call__(self, data: T) -> T:
        """Return a Dataset on the standardised scale; known noise is divided by y_sd."""
        X, y = self.inputs(data.X), self.targets(data.y)
        return replace(data, X=X, y=y, **self.columns(data)).with_origin_of(data)

    def inputs_back(self, X: Tensor) -> Tensor:
        """Return standardised X [n, d] in its original units."""
        return X * self.x_sd + self.x_mean

    def targets_back(self, y: Tensor) -> Tensor:
        """Return standardised y in its original units."""
        return y * self.y_sd + self.y_mean

    def back(self, data: T) -> T:
        """Return a standardised Dataset in its original units."""
        X, y = self.inputs_back(data.X), self.targets_back(data.y)
        columns = {name: column * self.y_sd for name, column in _in_unit_of_y(data).items()}
        return replace(data, X=X, y=y, **columns).with_origin_of(data)

    @property
    def location_and_scale(self) -> tuple[float | Tensor, float | Tensor]:
        """The pair (offset, scale) with y = offset + scale * (y on the standardised scale)."""
        return self.y_mean, self.y_sd

    def log_scale(self, data: Table) -> float:
        """Return n log(y_sd): log p(y) on the standardised scale minus that in original units.

        With weights, n is their sum.
        """
        n = len(data.y) if data.weights is None else float(data.weights.sum())
        return n * float(self.y_sd.log())

    def to(self, *where: Any, device: Any = None, dtype: Any = None) -> Scaler:
        """Return the scaler on another device or in another dtype, as ``Dataset.to``."""
        place = destination(where, device, dtype)
        parts = (self.x_mean, self.x_sd, self.y_mean, self.y_sd)
        return type(self)(*(part.to(*place) for part in parts))


@dataclass(frozen=True, eq=False)
class IdentityScaler(Scaler):
    """The Scaler of data that were left as they are: means 0 and standard deviations 1.

    What it converts is returned as it is. Its data may also be the arguments of a program, which
    have no columns.
    """

    is_identity = True

    @classmethod
    def for_data(cls, data: Any) -> IdentityScaler:
        """Return the IdentityScaler for the columns of a Dataset, or for other data."""
        if isinstance(data, Table):
            x, y = data.X.new_zeros(data.X.shape[1:]), data.y.new_zeros(())
        else:
            x, y = torch.zeros(0, dtype=torch.float64), torch.zeros((), dtype=torch.float64)
        return cls(x, torch.ones_like(x), y, torch.ones_like(y))

    def targets(self, y: Tensor) -> Tensor:
        """Return y."""
        return y

    def noise(self, noise_sd: Tensor) -> Tensor:
        """Return the known noise."""
        return noise_sd

    def __call__(self, data: T) -> T:
        """Return the data."""
        return data

    def inputs_back(self, X: Tensor) -> Tensor:
        """Return X."""
        return X

    def targets_back(self, y: Tensor) -> Tensor:
        """Return y."""
        return y

    def back(self, data: Any) -> Any:
        """Return the data."""
        return data

    @property
    def location_and_scale(self) -> tuple[float | Tensor, float | Tensor]:
        """(0, 1)."""
        return 0.0, 1.0

    def log_scale(self, data: Any) -> float:
        """Return 0."""
        return 0.0


if TYPE_CHECKING:
    GivenScaler: TypeAlias = Scaler
else:  # a field of this type takes None in place of an IdentityScaler
    GivenScaler = Scaler | None


def _of_team(data: Table, values: Tensor, own: magnitudes.Spread) -> magnitudes.Spread:
    """Return the statistics of columns over the rows of a team, from those of this rank's rows."""
    if data.team.alone:
        return own
    counts = torch.ones_like(data.y) if data.weights is None else data.weights
    known = ~values.isnan()
    if values.ndim == 2:
        counts = counts[:, None]
    return magnitudes.over_ranks(data.team, own, (known * counts).sum(0))


def _in_unit_of_y(data: Table) -> dict[str, Tensor]:
    """Return ``{role: column}`` of the roles of a table that are distances in y."""
    return columns_given(data, [role for role in ROLES.values() if role.unit_of_y])


def _warn_constant(constant: Tensor, feature_names: Sequence[str] | None) -> None:
    """Warn of constant columns."""
    names: list[Any] = torch.nonzero(constant).flatten().tolist()
    if feature_names:
        names = [feature_names[i] for i in names]
    warn(
        f"{listed(names, 'column')} of X constant: centred, not scaled; "
        "a constant column does not inform the model",
        DataWarning,
    )


def _refuse_far(X: Tensor, limit: float) -> None:
    """Raise DataError for standardised rows beyond the limit."""
    rows = torch.nonzero(X.abs() > limit)[:, 0].unique().tolist()
    if rows:
        got = f"{listed(rows, 'row')} farther away"
        raise DataError(
            f"rows within {limit:.1g} sds of the training rows", got, "check their units"
        )
