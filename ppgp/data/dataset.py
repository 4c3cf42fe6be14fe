"""A checked table of inputs and targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch import Tensor

from ..errors import DataError, counted
from ..runtime.team import ALONE, Team
from . import table_frame
from .categories import check_codes, check_levels
from .columns import check_columns, check_word, name_of, names_of, refuse_twice
from .entries.arrays import as_pandas, check_inputs, destination, laid_out
from .entries.row_numbers import chosen_rows
from .frame_parts import parts_of, refuse_no_rows
from .groups import coded_groups
from .parts import parts_of_rows
from .roles import ROLES, at_rows, column_laid_out, columns_given, moved, role_names_of
from .same_numbers import same_numbers
from .scaler import Scaler
from .targets import check_targets, in_order_of_texts
from .team_rows import in_team, scaled_in_team
from .training_data import Batch, Rows, Tables, TrainingData

__all__ = ["Dataset", "Scaler"]

MISSING = ("refuse", "keep")


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
        offset: [n] or one number, a known part of the linear predictor, in its own units (for
            counts the log of the exposure). It is never standardised.
        trials: [n] or one number, how many trials each target counts the successes of.
        weights: [n], how often each row occurs: numbers >= 0. A weight of 2 equals the row twice,
            and 0 the row absent.
        groups: Groupings of the rows, ``{name: labels [n]}`` or a frame. They become codes
            0 .. K - 1; a level of new rows that the training rows do not have has the code -1.
        ids: [n], names of the rows.
        group_levels: ``{name: levels}``, if ``groups`` holds codes already.
        role_names: ``{role: column}``, the names of the columns of offset, trials, weights and ids;
            ``predict`` reads them from frames of new rows by these names.

    ``fit`` refuses an offset, trials, weights and groups for a model that would not use them, and
    ``predict`` requires the offset, trials and groups that the fit used.

    Attributes:
        n: The number of rows.
        d: The number of columns of X.
        team: The processes among which the rows are divided (``Team.share``).
        together: The numbers of the coordinates, which are scaled by one factor.
        coded: The numbers of the columns that hold codes of categories.

    Raises:
        DataError: For NaN or infinity (the message names rows and columns), one-dimensional X,
            lengths that differ, text, no rows, or a number that its role does not allow.
        SettingError: If ``missing`` has another value, or a numbered column does not exist.
        UnknownName: If a named column does not exist; the message offers the nearest name.

    Examples:
        >>> import ppgp
        >>> data = ppgp.Dataset([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], ["no", "yes", "no"])
        >>> data
        <Dataset n=3 d=2 target=y (2 classes)>
        >>> data.y, data.classes
        (tensor([0., 1., 0.], dtype=torch.float64), ('no', 'yes'))

        From a frame, in two parts, and with columns of mean 0 and standard deviation 1:

        >>> import pandas as pd
        >>> frame = pd.DataFrame({"depth": [1.0, 2.0, 3.0, 4.0], "age": [10.0, 30.0, 20.0, 40.0]})
        >>> data = ppgp.Dataset.from_frame(frame, target="age")
        >>> data.feature_names
        ('depth',)
        >>> train, test = data.split(0.75)
        >>> train.n, test.n
        (3, 1)
        >>> table, scaler = data.standardised()
        >>> table.y.mean().item(), round(table.y.std(correction=0).item(), 6)
        (0.0, 1.0)
        >>> scaler.targets_back(table.y).round(decimals=6)
        tensor([10., 30., 20., 40.], dtype=torch.float64)
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
    offset: Tensor | None = None
    trials: Tensor | None = None
    weights: Tensor | None = None
    groups: dict[str, Tensor] | None = None
    ids: tuple[str, ...] | None = None
    group_levels: dict[str, tuple[str, ...]] | None = None
    role_names: dict[str, str] | None = None
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
        offset: Any = None,
        trials: Any = None,
        weights: Any = None,
        groups: Any = None,
        ids: Any = None,
        group_levels: Mapping[str, Sequence[Any]] | None = None,
        role_names: Mapping[str, str] | None = None,
    ) -> None:
        X = as_pandas(X)
        if feature_names is None:
            feature_names = names_of(X)
        given = {"noise_sd": noise_sd, "right_censored": right_censored, "offset": offset}
        given |= {"trials": trials, "weights": weights, "groups": groups, "ids": ids}
        own = {**(role_names or {}), "noise_sd": noise_name, "right_censored": censored_name}
        named = role_names_of(given, own)
        check_word("missing", missing, MISSING)
        if isinstance(feature_names, str):
            do = f"write [{feature_names!r}]"
            raise DataError("a list of names as feature_names", repr(feature_names), do)
        X = check_inputs(X, feature_names, missing=missing == "keep")
        if feature_names is not None and len(feature_names) != X.shape[1]:
            raise DataError(
                counted(X.shape[1], "feature name"), f"{len(feature_names)}", "give one per column"
            )
        names = None if feature_names is None else tuple(map(str, feature_names))
        refuse_twice(names or ())
        refuse_no_rows(len(X))
        codes, found = check_targets(y, classes, X)
        given["groups"], levels_of_groups = coded_groups(groups, group_levels)
        columns = {
            name: None if given[name] is None else role.check(given[name], len(X), X)
            for name, role in ROLES.items()
        }
        checked = {
            "X": X,
            "y": codes,
            "feature_names": names,
            "target_name": name_of(y) if target_name is None else target_name,
            "classes": found,
            "noise_name": named.pop("noise_sd", None),
            "coordinates": check_columns(coordinates, names, X.shape[1], "coordinates"),
            "missing": missing,
            "categorical": check_columns(categorical, names, X.shape[1], "categorical"),
            "levels": check_levels(levels, categorical),
            "censored_name": named.pop("right_censored", None),
            "group_levels": levels_of_groups,
            "role_names": named or None,
        }
        vars(self).update(columns | checked, n=X.shape[0], d=X.shape[1])
        vars(self)["alphabetical"] = classes is None and in_order_of_texts(y, found)
        places = list(names or ())
        for name, numbered in (("together", self.coordinates), ("coded", self.categorical)):
            numbers = [one if isinstance(one, int) else places.index(one) for one in numbered or ()]
            vars(self)[name] = numbers
        check_codes(X, self.coded, names, self.levels)

    def with_numbers(self, X: Tensor, y: Tensor, columns: Mapping[str, Any]) -> Dataset:
        """Return a table of other rows, of one process, which are known to pass the checks."""
        table = copy(self)
        columns = {name: column_laid_out(column) for name, column in columns.items()}
        X, y = laid_out(X), laid_out(y)
        vars(table).update(columns, X=X, y=y, n=X.shape[0], d=X.shape[1])
        vars(table).update(team=ALONE, workers=ALONE, target_mean=None)
        return table

    def in_team(self, team: Team) -> Dataset:
        """Return the table as this rank's part of the rows of a team; see ``Team.share``."""
        return self if team.alone else in_team(self, team)

    def share_of(self, team: Team) -> Dataset:
        """Return the part of the table that this rank of a team has; see ``Team.share``."""
        first, last = (self.n * r // team.size for r in (team.rank, team.rank + 1))
        return self.rows(slice(first, last)).in_team(team)

    @property
    def total(self) -> int:
        """The number of rows of the whole team; n of a process by itself."""
        return self.n if self.team.alone else vars(self)["total_of_team"]

    @property
    def stands_for(self) -> int:
        """The number of rows that ``model`` is told, whose mean over the ranks is that of all."""
        return self.n * self.team.size

    @property
    def rows_of_ranks(self) -> list[int]:
        """The number of rows of each rank of the team, or of each that divides the work."""
        if self.team.alone:
            return [self.n // self.workers.size] * self.workers.size
        return vars(self)["counts_of_team"]

    @property
    def shared(self) -> Dataset:
        """Rows that all ranks have alike: the table of a process by itself, a sample in a team."""
        return self if self.team.alone else vars(self)["sample_of_team"]

    @property
    def columns_with_roles(self) -> dict[str, Any]:
        """``{role: column}`` of the roles of ``ppgp.data.roles`` that the table has."""
        return columns_given(self)

    @property
    def for_prediction(self) -> dict[str, Any]:
        """``{role: column}`` of what ``predict`` of a model takes of these rows."""
        return columns_given(self, [role for role in ROLES.values() if role.predicts])

    @property
    def names_of_roles(self) -> dict[str, str]:
        """``{role: the name of its column}``, of those that have a name."""
        named = {"noise_sd": self.noise_name, "right_censored": self.censored_name}
        return {role: name for role, name in named.items() if name} | (self.role_names or {})

    @property
    def like(self) -> Tensor:
        """X, as a tensor of the dtype and device of the computation."""
        return self.X

    @property
    def content(self) -> tuple[Any, ...]:
        """X, y, the known noise, the flags of censored targets, and the columns of other roles."""
        flags = () if self.right_censored is None else (self.right_censored,)
        others = [name for name in self._parts if name[0] not in ("noise_sd", "right_censored")]
        rest = ((name, self._parts[name]) for name in others)
        return (self.X, self.y, self.noise_sd, *flags, *rest)

    @property
    def levels_by_name(self) -> dict[str, tuple[str, ...]]:
        """The levels of the columns of categories that have names."""
        if not self.levels or not self.feature_names:
            return {}
        names = (self.feature_names[column] for column in self.coded)
        return dict(zip(names, self.levels, strict=True))

    to_frame = table_frame.to_frame  # defined beside its code
    _repr_html_ = table_frame.as_html

    def __len__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        parts = "numbers"
        if self.classes:
            parts = f"{len(self.classes)} classes"
        for name, column in self.columns_with_roles.items():
            parts += f", {ROLES[name].words(column)}"
        if self.coordinates:
            parts += f", coordinates {', '.join(map(str, self.coordinates))}"
        if self.categorical:
            parts += f", categorical {', '.join(map(str, self.categorical))}"
        absent = int(self.X.isnan().sum())
        if absent:
            parts += f", {absent} missing"
        return f"<Dataset n={self.n} d={self.d} target={self.target_name or 'y'} ({parts})>"

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        target: str,
        *,
        one_hot: bool | Sequence[str] = False,
        noise_sd: str | None = None,
        coordinates: Sequence[str | int] | None = None,
        missing: str = "refuse",
        categories: str = "refuse",
        right_censored: str | None = None,
        offset: str | None = None,
        trials: str | None = None,
        weights: str | None = None,
        groups: Sequence[str] | None = None,
        ids: str | None = None,
        dates: str = "refuse",
    ) -> Dataset:
        """Return a Dataset from a frame.

        Args:
            frame: A DataFrame of pandas or polars, or a table of Arrow.
            target: The column that is y. Every other column is an input.
            one_hot: Whether to turn each column of text or categories into one column of 0 and 1
                per level, named ``column=level``; or the columns to turn, also of numbers.
            noise_sd: The column with the known standard deviation of each target's error.
            coordinates: The input columns that are scaled by one factor.
            missing: "refuse" or "keep", as ``Dataset`` takes it, or "drop" rows with empty cells.
            categories: "refuse", "one-hot" (as ``one_hot=True``) or "codes": one column of codes
                for each column of text or categories, for models that split them into sets. A
                missing category is a missing value, and one that ``predict`` meets first is a new
                code.
            right_censored: The column with the flags of targets that are only known to be exceeded.
            offset: The column of the offset of the linear predictor.
            trials: The column of the numbers of trials.
            weights: The column of the frequency weights.
            groups: The columns of groupings; their names are those of the groupings.
            ids: The column with the names of the rows.
            dates: "refuse", "years": a column of dates becomes 2000 + days since 1 January 2000 /
                365.25, named ``date (years)``; or "days", "hours", "minutes" or "seconds" since
                then. ``predict`` takes the column of dates itself.

        Raises:
            UnknownName: If there is no such column; the message offers the nearest name.
            SettingError: If one column has two of these roles, or an option has another value.
            DataError: If an input column holds text, a value is missing, or a name occurs twice.
        """
        roles = {"noise_sd": noise_sd, "right_censored": right_censored, "offset": offset}
        roles |= {"trials": trials, "weights": weights, "ids": ids}
        found = parts_of(frame, target, roles, groups, categories, dates, missing, one_hot)
        return found.built(
            cls,
            found.inputs.to_numpy(dtype=float),
            found.target,
            [str(c) for c in found.inputs.columns],
            str(target),
            coordinates=coordinates,
            missing="keep" if missing == "keep" else "refuse",
            categorical=list(found.levels) or None,
            levels=list(found.levels.values()) or None,
            noise_name=noise_sd,
            censored_name=right_censored,
            role_names={role: str(name) for role, name in roles.items() if name is not None},
            **found.columns,
        )

    def rows(self, index: Any) -> Dataset:
        """Return the table with some of its rows, of this process alone.

        Args:
            index: Indices, a slice, or a mask [n] of booleans: a list, an array, a tensor or a
                column of pandas.

        Raises:
            DataError: If it is none of these, or there is no such row.
        """
        backwards = isinstance(index, slice) and isinstance(index.step, int) and index.step < 0
        if backwards or not isinstance(index, slice | int):
            index = chosen_rows(index, self.n).to(self.X.device)
        columns = {name: at_rows(getattr(self, name), index) for name in ROLES}
        X, y = self.X[index], self.y[index]
        if X.ndim == 2 and len(X):
            return self.with_numbers(X, y, columns)
        return replace(self, X=X, y=y, **columns)  # no table, which the checks explain

    def passed(
        self, tables: Tables = (), observed: bool = True
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        X, y, *others = tables or self._tables
        # the density is the mean over the ranks, so that the rows of each count for all of them
        named: dict[str, Any] = {"total": self.stands_for}
        for (role, part), column in zip(self._parts, others, strict=True):
            if ROLES[role].of_target and not observed:
                continue
            if part is None:
                named[role] = column
            else:
                named.setdefault(role, {})[part] = column
        return (X, y if observed else None), named

    def tables(self, rows: Rows | None) -> Tables:
        if rows is None or isinstance(rows, Batch):
            return () if rows is None else rows.tables
        return tuple(table[rows] for table in self._tables)

    @property
    def _tables(self) -> Tables:
        return self.X, self.y, *self._parts.values()

    @property
    def _parts(self) -> dict[tuple[str, str | None], Tensor]:
        """The columns that a program takes by name: ``{(role, grouping or None): [n]}``."""
        parts: dict[tuple[str, str | None], Tensor] = {}
        for role, column in columns_given(self, [r for r in ROLES.values() if r.passed]).items():
            if isinstance(column, Tensor):
                parts[role, None] = column
            else:
                parts |= {(role, name): codes for name, codes in column.items()}
        return parts

    def same_rows(self, other: Any) -> bool:
        """Return whether the other table has the same numbers in the same order.

        Numbers may differ by the rounding of a standardisation and its inverse.
        """
        return self is other or (isinstance(other, Dataset) and same_numbers(self, other))

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
        parts = parts_of_rows(self.n, fractions, seed)
        return tuple(self.rows(part.to(self.X.device)) for part in parts)

    def to(self, *where: Any, device: Any = None, dtype: Any = None) -> Dataset:
        """Return the table on another device or in another dtype.

        Args:
            *where: As of ``Tensor.to``: a device, a dtype, both, or a tensor that has them.
            device: The device.
            dtype: ``torch.float32`` or ``torch.float64``.

        Raises:
            SettingError: For a device that is not there, and for another dtype.
        """
        place = destination(where, device, dtype)
        X, y = self.X.to(*place), self.y.to(*place)
        columns = {name: moved(getattr(self, name), X.device, X.dtype) for name in ROLES}
        return replace(self, X=X, y=y, **columns).with_origin_of(self)

    def standardised(self, scale_y: bool = True, scale_X: bool = True) -> tuple[Dataset, Scaler]:
        """Return the table with columns of mean 0 and standard deviation 1, and the Scaler used.

        Coordinates are divided by one number, the root mean square of their standard deviations. A
        constant column keeps its standard deviation of 0 and is only centred; a warning names it.

        Args:
            scale_y: Whether to standardise y; codes of labels stay as they are.
            scale_X: Whether to standardise the columns of X.
        """
        scaler = Scaler.of(self, scale_X=scale_X, scale_y=scale_y and self.classes is None)
        X, y = scaler.inputs(self.X), scaler.targets(self.y)
        columns = {
            name: ROLES[name].check(column, self.n, self.X)
            for name, column in scaler.columns(self).items()
        }
        table = self.with_numbers(X, y, columns)
        return (table if self.team.alone else scaled_in_team(table, self, scaler)), scaler
