"""A checked table of inputs and targets."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import DataError, SettingError, counted
from .categories import check_codes, check_levels, coded
from .censoring import check_flags, same_flags
from .columns import check_roles, check_word, indicators, name_of, names_of, numeric, refuse_twice
from .input_checks import check_columns, check_inputs, check_noise
from .scaler import Scaler
from .targets import check_targets
from .training_data import Tables, TrainingData

__all__ = ["Dataset", "Scaler"]

MISSING, CATEGORIES = ("refuse", "keep"), ("refuse", "one-hot", "codes")
ROUNDING = 16  # machine epsilons by which equal numbers may differ


@dataclass(frozen=True, eq=False)
class Dataset(TrainingData):
    """Inputs X [n, d] and targets y [n]: finite numbers of one dtype on one device.

    The dtype is float64 unless X has float32. Labels (strings, booleans) become codes 0 .. K - 1 in
    y, and their names become ``classes``. Names that are not given are those of a frame's columns
    and of a Series; ``predict`` then reads new frames by name.

    Args:
        X: [n, d], the inputs: an array, a tensor, a frame or a list.
        y: [n], the targets: numbers or labels.
        feature_names: The d names of the columns of X.
        target_name: The name of y.
        classes: The names of the codes, if y holds codes 0 .. K - 1.
        noise_sd: [n] or one number, the known standard deviation of each target's error, in the
            units of y. It adds to the noise that a model estimates. ``fit`` refuses it for a model
            that would not use it.
        coordinates: The columns of X that are places in one space and share a unit (metres east and
            north), by name, or by number where columns have no names. ``fit`` scales them by one
            factor, so that distances and directions between rows stay in proportion; every other
            column has its own factor. ``Kriging`` never scales X.
        noise_name: The name of the column of ``noise_sd``; ``predict`` reads the known noise of a
            frame's rows from that column.
        missing: "refuse" or "keep": whether X may hold NaN, a missing value. ``fit`` refuses it for
            a model that does not take missing values.
        categorical: The columns of X that hold codes 0, 1, 2, ... of categories, by name, or by
            number where columns have no names. They are never standardised, and ``fit`` refuses
            them for a model that would read the codes as numbers.
        levels: For each of these columns, the categories that its codes stand for; ``predict``
            then reads frames that hold categories.
        right_censored: [n], which targets are only known to be exceeded (times until an event that
            has not occurred yet): booleans, or 0 and 1. ``fit`` refuses it for a model that would
            not use it.
        censored_name: The name of the column of ``right_censored``, which frames of new rows may
            hold.

    Attributes:
        n: The number of rows.
        d: The number of columns of X.
        together: The numbers of the coordinates, which are scaled by one factor.
        coded: The numbers of the columns that hold codes of categories.

    Raises:
        DataError: For NaN or infinity (the message names rows and columns), one-dimensional X,
            lengths that differ, text, or no rows.
    """

    X: Tensor
    y: Tensor
    feature_names: tuple[str, ...] | None = None
    target_name: str | None = None
    classes: tuple[Any, ...] | None = None
    noise_sd: Tensor | None = None
    coordinates: tuple[str | int, ...] | None = None
    noise_name: str | None = None
    missing: str = "refuse"
    categorical: tuple[str | int, ...] | None = None
    levels: tuple[tuple[str, ...], ...] | None = None
    right_censored: Tensor | None = None
    censored_name: str | None = None
    is_table: ClassVar[bool] = True

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
        missing: str = "refuse",
        categorical: Sequence[str | int] | None = None,
        levels: Sequence[Sequence[Any]] | None = None,
        right_censored: Any = None,
        censored_name: str | None = None,
    ) -> None:
        if feature_names is None:
            feature_names = names_of(X)
        if target_name is None:
            target_name = name_of(y)
        if noise_name is None:
            noise_name = name_of(noise_sd)
        if censored_name is None:
            censored_name = name_of(right_censored)
        check_word("missing", missing, MISSING)
        X = check_inputs(X, feature_names, missing=missing == "keep")
        if feature_names is not None and len(feature_names) != X.shape[1]:
            raise DataError(
                counted(X.shape[1], "feature name"), f"{len(feature_names)}", "give one per column"
            )
        names = None if feature_names is None else tuple(map(str, feature_names))
        refuse_twice(names or ())
        refuse_no_rows(len(X))
        codes, classes = check_targets(y, classes, X)
        if noise_sd is None:
            noise_name = None
        else:
            noise_sd = check_noise(noise_sd, len(X), X)
        if right_censored is None:
            censored_name = None
        else:
            right_censored = check_flags(right_censored, len(X), X)
        checked = {
            "X": X,
            "y": codes,
            "feature_names": names,
            "target_name": target_name,
            "classes": classes,
            "noise_sd": noise_sd,
            "noise_name": None if noise_name is None else str(noise_name),
            "coordinates": check_columns(coordinates, names, X.shape[1], "coordinates"),
            "missing": missing,
            "categorical": check_columns(categorical, names, X.shape[1], "categorical"),
            "levels": check_levels(levels, categorical),
            "right_censored": right_censored,
            "censored_name": None if censored_name is None else str(censored_name),
        }
        vars(self).update(checked, n=X.shape[0], d=X.shape[1])
        places = list(names or ())
        for name, columns in (("together", self.coordinates), ("coded", self.categorical)):
            numbers = [one if isinstance(one, int) else places.index(one) for one in columns or ()]
            vars(self)[name] = numbers
        check_codes(X, self.coded, names)

    def _with(self, X: Tensor, y: Tensor, noise_sd: Tensor | None, flags: Tensor | None) -> Dataset:
        """Return the table with other numbers, which are known to pass the checks."""
        table = copy(self)
        vars(table).update(X=X, y=y, noise_sd=noise_sd, n=X.shape[0], d=X.shape[1])
        vars(table)["right_censored"] = flags
        return table

    @property
    def like(self) -> Tensor:
        """X, as a tensor of the dtype and device of the computation."""
        return self.X

    @property
    def content(self) -> tuple[Tensor | None, ...]:
        """X, y, the known noise, and the flags of censored targets if there are any."""
        numbers = (self.X, self.y, self.noise_sd)
        return numbers if self.right_censored is None else (*numbers, self.right_censored)

    @property
    def levels_by_name(self) -> dict[str, tuple[str, ...]]:
        """The levels of the columns of categories that have names."""
        if not self.levels or not self.feature_names:
            return {}
        return {
            self.feature_names[column]: one
            for column, one in zip(self.coded, self.levels, strict=True)
        }

    def __len__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        parts = "numbers"
        if self.classes:
            parts = f"{len(self.classes)} classes"
        if self.noise_sd is not None:
            parts += ", noise known"
        if self.coordinates:
            parts += f", coordinates {', '.join(map(str, self.coordinates))}"
        if self.categorical:
            parts += f", categorical {', '.join(map(str, self.categorical))}"
        if self.right_censored is not None:
            parts += f", {int(self.right_censored.sum())} right-censored"
        absent = int(self.X.isnan().sum())
        if absent:
            parts += f", {absent} missing"
        return f"<Dataset n={self.n} d={self.d} target={self.target_name or 'y'} ({parts})>"

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        target: str,
        one_hot: bool = False,
        noise_sd: str | None = None,
        coordinates: Sequence[str | int] | None = None,
        missing: str = "refuse",
        categories: str = "refuse",
        right_censored: str | None = None,
    ) -> Dataset:
        """Return a Dataset from a pandas DataFrame.

        Args:
            frame: The DataFrame.
            target: The column that is y. Every other column is an input.
            one_hot: Whether to turn each column of text or categories into one column of 0 and 1
                per level, named ``column=level``.
            noise_sd: The column with the known standard deviation of each target's error, which is
                not an input; its name is kept.
            coordinates: The input columns that are scaled by one factor.
            missing: "refuse" or "keep", as ``Dataset`` takes it.
            categories: "refuse", "one-hot" (as ``one_hot=True``) or "codes": one column of codes
                for each column of text or categories, for models that split them into sets. A
                missing category is a missing value, and one that ``predict`` meets first is a new
                code.
            right_censored: The column with the flags of targets that are only known to be exceeded,
                which is not an input.

        Raises:
            UnknownName: If there is no such column; the message offers the nearest name.
            SettingError: If one column has two of these roles, or an option has another value.
            DataError: If an input column holds text, or two columns share a name.
        """
        roles = {"target": target, "noise_sd": noise_sd, "right_censored": right_censored}
        check_roles(roles, list(frame.columns))
        refuse_twice(map(str, frame.columns))
        refuse_no_rows(len(frame))
        columns = {role: frame[name].to_numpy() for role, name in roles.items() if name is not None}
        inputs = frame.drop(columns=[name for name in roles.values() if name is not None])
        check_word("categories", categories, CATEGORIES)
        levels: dict[str, tuple[str, ...]] = {}
        if one_hot or categories == "one-hot":
            inputs = indicators(inputs)
        elif categories == "codes":
            inputs, levels = coded(inputs)
        return cls(
            numeric(inputs).to_numpy(dtype=float),
            columns["target"],
            [str(c) for c in inputs.columns],
            str(target),
            noise_sd=columns.get("noise_sd"),
            coordinates=coordinates,
            noise_name=noise_sd,
            missing=missing,
            categorical=list(levels) or None,
            levels=list(levels.values()) or None,
            right_censored=columns.get("right_censored"),
            censored_name=right_censored,
        )

    def rows(self, index: Any) -> Dataset:
        """Return the table with some of its rows.

        Args:
            index: Indices, a slice or a mask.
        """
        known = None if self.noise_sd is None else self.noise_sd[index]
        flags = None if self.right_censored is None else self.right_censored[index]
        X, y = self.X[index], self.y[index]
        if X.ndim == 2 and len(X):
            return self._with(X, y, known, flags)
        # no table, which the checks explain
        return replace(self, X=X, y=y, noise_sd=known, right_censored=flags)

    def passed(
        self, tables: Tables = (), observed: bool = True
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        X, y, *others = tables or self._tables
        named = {"total": self.n, **dict(zip(self._named, others, strict=True))}
        if not observed:
            named.pop("right_censored", None)
        return (X, y if observed else None), named

    def tables(self, rows: Tensor | None) -> Tables:
        if rows is None:
            return ()
        return tuple(table[rows] for table in self._tables)

    @property
    def _tables(self) -> Tables:
        return self.X, self.y, *self._named.values()

    @property
    def _named(self) -> dict[str, Tensor]:
        """The columns that a program takes by name."""
        named = {"noise_sd": self.noise_sd, "right_censored": self.right_censored}
        return {name: column for name, column in named.items() if column is not None}

    def same_rows(self, other: Any) -> bool:
        """Return whether the other table has the same numbers in the same order.

        Numbers may differ by the rounding of a standardisation and its inverse.
        """
        if self is other:
            return True
        if not isinstance(other, Dataset):
            return False
        if self.X.shape != other.X.shape or self.X.device != other.X.device:
            return False
        if not same_flags(self.right_censored, other.right_censored):
            return False
        eps = ROUNDING * max(torch.finfo(table.X.dtype).eps for table in (self, other))
        if not torch.equal(self.X.isnan(), other.X.isnan()):
            return False
        pairs = ((self.y, other.y), (self.X.nan_to_num(), other.X.nan_to_num()))
        return all(bool(((one - two).abs() <= eps * one.abs().amax(0)).all()) for one, two in pairs)

    def work(self, model: Any) -> float:
        return model.work(self.n, self.d)

    def split(self, *fractions: float, seed: int = 0) -> tuple[Dataset, ...]:
        """Return disjoint random parts of the rows.

        Args:
            *fractions: The share of each part. If they sum to less than 1, the rest is one more
                part, so that ``split(0.8)`` gives two.
            seed: The seed of the random order.

        Raises:
            SettingError: If the fractions are not in (0, 1], have a sum above 1, or leave a part
                without rows.
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
        edges = [0, *(round(self.n * sum(fractions[: i + 1])) for i in range(len(fractions)))]
        complete = abs(total - 1) < 1e-9
        if not complete:
            edges.append(self.n)
        if any(a == b for a, b in pairwise(edges)):
            raise SettingError(
                "at least one row in every part",
                f"{counted(self.n, 'row')} split as {fractions}",
                "use fewer or larger parts",
            )
        return tuple(self.rows(order[a:b]) for a, b in pairwise(edges))

    def to(self, *where: Any) -> Dataset:
        """Return the table on another device or in another dtype; arguments as of ``Tensor.to``."""
        known = None if self.noise_sd is None else self.noise_sd.to(*where)
        X, y, flags = self.X.to(*where), self.y.to(*where), self.right_censored
        flags = None if flags is None else flags.to(X.device)
        return replace(self, X=X, y=y, noise_sd=known, right_censored=flags)

    def standardised(self, scale_y: bool = True, scale_X: bool = True) -> tuple[Dataset, Scaler]:
        """Return the table with columns of mean 0 and standard deviation 1, and the Scaler used.

        Coordinates are divided by one number, the root mean square of their standard deviations. A
        constant column keeps its standard deviation of 0 and is only centred; a warning names it.

        Args:
            scale_y: Whether to standardise y; codes of labels stay as they are.
            scale_X: Whether to standardise the columns of X.
        """
        scaler = Scaler.of(self, scale_X=scale_X, scale_y=scale_y and self.classes is None)
        known = self.noise_sd
        if known is not None:
            known = check_noise(scaler.noise(known), self.n, self.X)
        X, y = scaler.inputs(self.X), scaler.targets(self.y)
        return self._with(X, y, known, self.right_censored), scaler


def refuse_no_rows(n: int, where: str = "") -> None:
    """Raise DataError if there are no rows.

    Args:
        n: The number of rows.
        where: The name of the file that they come from.
    """
    if n == 0:
        got = "no rows"
        if where:
            got += f" in {where}"
        raise DataError(
            "at least one row", got, "check the filter, the split or the file that made the table"
        )
