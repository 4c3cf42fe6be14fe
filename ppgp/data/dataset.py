"""Dataset: a checked table of inputs and targets; Scaler: its standardisation and back."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from numbers import Number
from typing import Any

import torch
from torch import Tensor

from ..errors import DataError, DataWarning, SettingError, UnknownName, counted, listed
from . import magnitudes
from .arrays import (
    array_of,
    as_tensor,
    cast,
    check_coordinates,
    check_inputs,
    check_noise,
    of_tensor,
)
from .columns import (
    indicators,
    inputs_of,
    labels_of,
    name_of,
    names_of,
    numeric,
    positions,
    refuse_twice,
)
from .entries import missing_rows

__all__ = ["Dataset", "Scaler"]

SAME_SCALE = 1e-5  # of an sd, by which means and sds of the same rows may differ after rounding


@dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs X [n, d] and targets y [n], finite, of one dtype (float64 unless the arrays say otherwise) on one device.

    Labels (strings, booleans) become codes 0 .. K-1 in y, with their names in ``classes``. ``noise_sd`` [n] is what is known of each
    y's error, its standard deviation in the units of y; it comes on top of the noise that a model estimates, and ``fit`` refuses
    it for a model that would not use it. Names are those of a frame's columns and of a Series, where none are given; ``predict``
    then reads new frames by name.

    Args:
        coordinates: the columns of X that are places in one space and share a unit (metres east and
            north), by name, or by number where columns have no names. ``fit`` scales them by one factor, so
            that distances and directions between rows stay in proportion; every other column has its own.
            ``Kriging`` never scales X.
        noise_name: what the column of ``noise_sd`` is called; ``predict`` reads the known noise of a frame's rows from it.

    Raises:
        DataError: for NaN or infinity (rows and columns named), 1-D X, lengths that differ, text, no rows.
    """

    X: Tensor
    y: Tensor
    feature_names: tuple[str, ...] | None = None
    target_name: str | None = None
    classes: tuple[Any, ...] | None = None
    noise_sd: Tensor | None = None
    coordinates: tuple[str | int, ...] | None = None
    noise_name: str | None = None

    def __init__(
        self,
        X: Any,
        y: Any,
        feature_names: Sequence[str] | None = None,
        target_name: str | None = None,
        classes: Sequence[Any] | None = None,
        noise_sd: Any = None,
        coordinates: Sequence[str | int] | None = None,
        noise_name: str | None = None,
    ) -> None:
        feature_names = names_of(X) if feature_names is None else feature_names
        target_name = name_of(y) if target_name is None else target_name
        noise_name = name_of(noise_sd) if noise_name is None else noise_name
        X = check_inputs(X, feature_names)
        if feature_names is not None and len(feature_names) != X.shape[1]:
            raise DataError(
                counted(X.shape[1], "feature name"), f"{len(feature_names)}", "give one a column"
            )
        refuse_twice(map(str, feature_names or ()))
        refuse_no_rows(len(X))
        codes, classes = _encode(y, classes)
        codes = cast(codes, X, "y")
        if codes.ndim == 2 and codes.shape[1] == 1:
            codes = codes[:, 0]
        if codes.ndim != 1:
            raise DataError(
                "y with shape [n]", f"shape {list(codes.shape)}", "pass one target column"
            )
        if len(codes) != len(X):
            raise DataError(
                f"as many targets as rows of X ({len(X)})", f"{len(codes)}", "align X and y"
            )
        bad = torch.nonzero(~torch.isfinite(codes)).flatten().tolist()
        if bad:
            raise DataError(
                "finite targets", f"NaN or infinity in {listed(bad, 'row')} of y", "drop those rows"
            )
        names = None if feature_names is None else tuple(map(str, feature_names))
        for name, value in (
            ("X", X),
            ("y", codes),
            ("feature_names", names),
            ("target_name", target_name),
            ("classes", classes),
            ("noise_sd", None if noise_sd is None else check_noise(noise_sd, len(X), X)),
            ("noise_name", None if noise_sd is None or noise_name is None else str(noise_name)),
            ("coordinates", check_coordinates(coordinates, names, X.shape[1])),
        ):
            object.__setattr__(self, name, value)

    @property
    def n(self) -> int:
        return self.X.shape[0]

    @property
    def d(self) -> int:
        return self.X.shape[1]

    @property
    def together(self) -> list[int]:
        """The numbers of the columns that are scaled by one factor."""
        names = list(self.feature_names or ())
        return [one if isinstance(one, int) else names.index(one) for one in self.coordinates or ()]

    def __len__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        kind = f"{len(self.classes)} classes" if self.classes else "numbers"
        known = "" if self.noise_sd is None else ", noise known"
        where = f", coordinates {', '.join(map(str, self.coordinates))}" if self.coordinates else ""
        return f"<Dataset n={self.n} d={self.d} target={self.target_name or 'y'} ({kind}{known}{where})>"

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        target: str,
        one_hot: bool = False,
        noise_sd: str | None = None,
        coordinates: Sequence[str | int] | None = None,
    ) -> Dataset:
        """From a pandas DataFrame: ``target`` is y, every other column an input.

        Args:
            noise_sd: the column with the known standard deviation of each target's error; it is no input, and its name is kept.
            one_hot: turn each column of text or categories into one column of 0 and 1 a level, named ``column=level``.
            coordinates: the input columns that are scaled by one factor.

        Raises:
            UnknownName: if there is no such column (the nearest one is offered).
            SettingError: if target and noise_sd are one column.
            DataError: if an input column holds text, or two columns share a name.
        """
        for kind, name in (("target column", target), ("noise column", noise_sd)):
            if name is not None and name not in frame.columns:
                raise UnknownName(kind, name, map(str, frame.columns))
        if noise_sd == target:
            raise SettingError(
                "noise_sd in a column of its own", f"the target {target!r}", "name another column"
            )
        refuse_twice(map(str, frame.columns))
        refuse_no_rows(len(frame))
        inputs = frame.drop(columns=[target] if noise_sd is None else [target, noise_sd])
        if one_hot:
            inputs = indicators(inputs)
        y = frame[target]
        known = None if noise_sd is None else frame[noise_sd].to_numpy()
        called = None if noise_sd is None else str(noise_sd)
        names = [str(c) for c in inputs.columns]
        X = numeric(inputs).to_numpy(dtype=float)
        return cls(
            X,
            y.to_numpy(),
            names,
            str(target),
            noise_sd=known,
            coordinates=coordinates,
            noise_name=called,
        )

    def rows(self, index: Any) -> Dataset:
        """The same table with some of its rows (indices, a slice or a mask)."""
        return self._with(
            self.X[index], self.y[index], None if self.noise_sd is None else self.noise_sd[index]
        )

    def _with(self, X: Tensor, y: Tensor, noise_sd: Tensor | None) -> Dataset:
        return replace(self, X=X, y=y, noise_sd=noise_sd)

    def split(self, *fractions: float, seed: int = 0) -> tuple[Dataset, ...]:
        """Disjoint random parts, one a fraction; ``split(0.8)`` gives two, the rest being the last part.

        Raises:
            SettingError: if the fractions are not in (0, 1], sum past 1, or leave a part without rows.
        """
        total = sum(fractions)
        if not fractions or any(not 0 < f <= 1 for f in fractions) or total > 1 + 1e-9:
            raise SettingError(
                "fractions in (0, 1] with a sum of at most 1",
                f"{fractions}",
                "for example split(0.6, 0.2, 0.2)",
            )
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(self.n, generator=generator).to(self.X.device)
        complete = abs(total - 1) < 1e-9
        edges = [round(self.n * sum(fractions[: i + 1])) for i in range(len(fractions))]
        edges = [0, *edges] if complete else [0, *edges, self.n]
        if any(a == b for a, b in pairwise(edges)):
            raise SettingError(
                "at least one row in every part",
                f"{counted(self.n, 'row')} split as {fractions}",
                "use fewer or larger parts",
            )
        return tuple(self.rows(order[a:b]) for a, b in pairwise(edges))

    def to(self, *where: Any) -> Dataset:
        """The same table on another device or in another float dtype, as ``Tensor.to`` takes them."""
        return self._with(
            self.X.to(*where),
            self.y.to(*where),
            None if self.noise_sd is None else self.noise_sd.to(*where),
        )

    def standardised(self, scale_y: bool = True, scale_X: bool = True) -> tuple[Dataset, Scaler]:
        """Columns with mean 0 and standard deviation 1, and the Scaler that made them. Coordinates are divided by one
        number, the root mean square of their standard deviations.

        A constant column keeps its spread of 0 and is only centred; a warning names it.
        """
        scaler = Scaler.of(self, scale_X=scale_X, scale_y=scale_y)
        return scaler(self), scaler


def in_order(
    X: Any, names: Sequence[str] | None, target: str | None = None, noise: str | None = None
) -> Any:
    """New rows with their columns in the order of ``names``: a frame and a Dataset by name, an array as it stands. Where there are no
    names, a frame whose columns are numbered 0 .. d - 1 is read in that order.

    Raises:
        UnknownName: if a column is missing.
        DataError: if there is one that is not among ``names``, ``target`` and ``noise`` aside.
    """
    if isinstance(X, Dataset):
        own = X.feature_names
        return (
            X.X
            if names is None or own is None or own == tuple(names)
            else X.X[:, positions(own, names)]
        )
    labels = labels_of(X)
    refuse_twice(map(str, labels or ()))
    counted = list(range(len(labels or [])))
    if names is None and labels is not None and labels != counted and set(labels) == set(counted):
        names = tuple(map(str, counted))
    return X if names is None or labels is None else inputs_of(X, names, target, noise)


def noise_of(rows: Any, name: str | None) -> Any:
    """The known noise of new rows: that of a Dataset, or of a frame in the column called so; None where they have none."""
    if isinstance(rows, Dataset):
        return rows.noise_sd
    labels = {str(label): label for label in labels_of(rows) or []}
    return rows[labels[name]].to_numpy() if name in labels else None


def refuse_no_rows(n: int, where: str = "") -> None:
    """Raises DataError where n is 0."""
    if n == 0:
        got = f"no rows in {where}" if where else "no rows"
        raise DataError(
            "at least one row", got, "check the filter, the split or the file that made the table"
        )


def refuse_far(X: Tensor, limit: float) -> None:
    """Raises DataError where standardised rows lie beyond the limit."""
    rows = torch.nonzero(X.abs() > limit)[:, 0].unique().tolist()
    if rows:
        got = f"{listed(rows, 'row')} farther away"
        raise DataError(
            f"rows within {limit:.1g} sds of the training rows", got, "check their units"
        )


def _encode(y: Any, classes: Sequence[Any] | None) -> tuple[Tensor, tuple[Any, ...] | None]:
    """Targets as numbers: labels become codes in the order of ``classes`` (sorted where not given)."""
    if classes is None:
        if isinstance(y, Tensor):
            codes = of_tensor(y, "y")
            return (codes, (False, True)) if y.dtype == torch.bool else (codes, None)
        array = array_of(y, "y")
        if array.dtype.kind not in "OUSb":
            return as_tensor(array, "y"), None
        missing = missing_rows(array) if array.dtype.kind == "O" else []
        if missing:
            raise DataError(
                "a target in every row",
                f"a missing one in y, {listed(missing, 'row')}",
                "drop those rows",
            )
        try:
            labels = sorted(set(array.ravel().tolist()))
        except TypeError:
            kinds = sorted({type(label).__name__ for label in array.ravel().tolist()})
            got = (
                f"{' and '.join(kinds)} mixed"
                if len(kinds) > 1
                else f"{kinds[0]}, which has no order"
            )
            raise DataError("labels of one kind in y", got, "convert them to one kind") from None
        if array.dtype.kind == "O" and all(
            isinstance(v, Number) and not isinstance(v, bool) for v in labels
        ):
            return as_tensor(array, "y"), None
        classes = labels
        codes = {label: i for i, label in enumerate(labels)}
        return torch.tensor(
            [codes[v] for v in array.ravel().tolist()], dtype=torch.float64
        ).reshape(array.shape), tuple(labels)
    codes = as_tensor(y, "y")
    stray = sorted(
        {v for v in codes.flatten().tolist() if not 0 <= v < len(classes) or v != int(v)}
    )
    if stray:
        raise DataError(
            f"labels 0 .. {len(classes) - 1} in y, one for each of classes",
            f"{stray[:5]}",
            "recode them, or leave classes out",
        )
    return codes, tuple(classes)


@dataclass(frozen=True, eq=False)
class Scaler:
    """Standardisation and back: x -> (x - x_mean) / x_sd by column, y -> (y - y_mean) / y_sd. ``x_sd`` is the same for
    all coordinates of the Dataset."""

    x_mean: Tensor
    x_sd: Tensor
    y_mean: Tensor
    y_sd: Tensor

    @classmethod
    def of(cls, data: Dataset, scale_X: bool = True, scale_y: bool = True) -> Scaler:
        X, y = data.X, data.y
        x_mean, x_sd = torch.zeros_like(X[0]), torch.ones_like(X[0])
        y_mean, y_sd = torch.zeros_like(y[0]), torch.ones_like(y[0])
        if scale_X:
            x_mean, x_sd, constant = magnitudes.spread(X)
            if bool(constant.any()):
                which = torch.nonzero(constant).flatten().tolist()
                names = [data.feature_names[i] if data.feature_names else i for i in which]
                warnings.warn(
                    f"{listed(names, 'column')} of X constant: centred, not scaled; it tells the model nothing",
                    DataWarning,
                    stacklevel=3,
                )
            own, x_sd = (
                x_sd,
                torch.where(constant, x_sd.clamp_min(1.0), x_sd),
            )  # beyond 1e15 rounding exceeds 1
            if data.together and not bool(constant[data.together].all()):
                x_sd[data.together] = magnitudes.root_mean_square(own[data.together])
        if scale_y:
            y_mean, y_sd, constant = magnitudes.spread(y)
            if bool(constant):
                warnings.warn(
                    "y is constant: centred, not scaled; every model will predict that constant",
                    DataWarning,
                    stacklevel=3,
                )
                y_sd = y_sd.clamp_min(1.0)
        return cls(x_mean, x_sd, y_mean, y_sd)

    @property
    def identity(self) -> bool:
        """Whether it leaves everything as it is."""
        X = bool((self.x_mean == 0).all() and (self.x_sd == 1).all())
        return X and float(self.y_mean) == 0.0 and float(self.y_sd) == 1.0

    def like(self, other: Scaler) -> bool:
        """Whether both make the same scale, up to rounding."""
        if self.x_mean.shape != other.x_mean.shape:
            return False
        pairs = (
            (self.x_mean, self.x_sd, other.x_mean, other.x_sd),
            (self.y_mean, self.y_sd, other.y_mean, other.y_sd),
        )
        eps = 8 * max(torch.finfo(scaler.y_sd.dtype).eps for scaler in (self, other))
        for mean, sd, mean_there, sd_there in pairs:
            gap = torch.maximum((mean - mean_there).abs(), (sd - sd_there).abs())
            if not bool((gap <= SAME_SCALE * sd + eps * mean.abs()).all()):
                return False
        return True

    def inputs(self, X: Tensor) -> Tensor:
        """X [n, d] on the standardised scale.

        Raises:
            DataError: if X has another number of columns than the training data, or rows so far from them
                that the distance is no float.
        """
        if X.shape[-1] != len(self.x_mean):
            raise DataError(
                f"{counted(len(self.x_mean), 'column')}, as in training",
                f"{X.shape[-1]}",
                "pass the same columns in the same order",
            )
        scaled = magnitudes.standardised(X, self.x_mean, self.x_sd)
        limit = (
            torch.finfo(scaled.dtype).max ** 0.25
        )  # squares of distances in lengthscales stay finite
        if scaled.numel() and not float(torch.linalg.vector_norm(scaled, torch.inf)) <= limit:
            refuse_far(scaled, limit)
        return scaled

    def targets(self, y: Tensor) -> Tensor:
        """y on the standardised scale."""
        return magnitudes.standardised(y, self.y_mean, self.y_sd)

    def __call__(self, data: Dataset) -> Dataset:
        """A table on the standardised scale; known noise is divided by y_sd."""
        known = None if data.noise_sd is None else data.noise_sd / self.y_sd
        return data._with(self.inputs(data.X), self.targets(data.y), known)

    def back(self, data: Dataset) -> Dataset:
        """A standardised table in the units of the data again."""
        known = None if data.noise_sd is None else data.noise_sd * self.y_sd
        return data._with(data.X * self.x_sd + self.x_mean, data.y * self.y_sd + self.y_mean, known)

    def to(self, *where: Any) -> Scaler:
        return replace(
            self, **{k: getattr(self, k).to(*where) for k in ("x_mean", "x_sd", "y_mean", "y_sd")}
        )
