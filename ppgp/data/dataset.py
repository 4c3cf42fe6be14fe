"""A checked table of inputs and targets, its standardisation, and its rows in a team."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import pairwise
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

import torch
from torch import Tensor

from ..display import tables as html
from ..display.user_warnings import warn
from ..errors import DataError, DataWarning, NotApplicable, SettingError, counted, listed
from ..runtime.seeding import permutation
from ..runtime.team import ALONE, Team
from ..runtime.whole_numbers import check_seed
from ..tables.names import check_columns, check_word, refuse_no_rows, refuse_twice
from .categories import check_codes, check_levels
from .columns import name_of, names_of
from .entries import magnitudes
from .entries.arrays import as_pandas, check_inputs, destination, laid_out
from .entries.row_numbers import chosen_rows
from .frame_parts import parts_of, with_time_first
from .groups import coded_groups
from .roles import ROLES, at_rows, column_laid_out, columns_given, moved, role_names_of, same_column
from .targets import check_targets, in_order_of_texts
from .training_data import Batch, Rows, Tables, TrainingData

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "SAMPLE",
    "Dataset",
    "GivenScaler",
    "IdentityScaler",
    "Scaler",
    "check_alike",
    "joined",
    "of_all_ranks",
    "standardised_mean",
]

MISSING = ("refuse", "keep")
ROUNDING = 16  # machine epsilons by which equal numbers may differ
SAME_SCALE = 1e-5  # relative to an sd: how far means and sds of the same rows differ after rounding
MOST = 30  # columns that a notebook shows
MOST_LABELS = 10  # and labels of one column
GRID_COLUMNS = 4  # the most columns of a grid
SAMPLE = 20_000  # rows of all processes that each of them holds, for pilots and inducing inputs
LABELS = (str, int, float, bool)
IN_UNIT_OF_Y = [role for role in ROLES.values() if role.unit_of_y]  # distances in y
OF_TEAM = ("team", "total_of_team", "counts_of_team")  # attributes of the rows of a rank


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
        time: The column of X that is the time, by name or number. Models of a series read it from
            the first column, where ``from_frame`` puts it.
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
    time: str | int | None = None
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
        time: str | int | None = None,
    ) -> None:
        X = as_pandas(X)
        if feature_names is None:
            feature_names = names_of(X)
        given = {"noise_sd": noise_sd, "right_censored": right_censored, "offset": offset}
        given |= {"trials": trials, "weights": weights, "groups": groups, "ids": ids}
        given = {role: column for role, column in given.items() if column is not None}
        named: dict[str, str] = {}
        if given:
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
        if names:
            refuse_twice(names)
        refuse_no_rows(len(X))
        codes, found = check_targets(y, classes, X)
        levels_of_groups = None
        if "groups" in given:
            given["groups"], levels_of_groups = coded_groups(groups, group_levels)
        columns: dict[str, Any] = dict.fromkeys(ROLES)
        for name, column in given.items():
            if column is not None:
                columns[name] = ROLES[name].check(column, len(X), X)
        if coordinates is not None:
            coordinates = check_columns(coordinates, names, X.shape[1], "coordinates")
        if time is not None:
            (time,) = check_columns([time], names, X.shape[1], "time")
        if categorical is not None:
            categorical = check_columns(categorical, names, X.shape[1], "categorical")
        checked = {
            "X": X,
            "y": codes,
            "feature_names": names,
            "target_name": name_of(y) if target_name is None else target_name,
            "classes": found,
            "noise_name": named.pop("noise_sd", None),
            "coordinates": coordinates,
            "missing": missing,
            "categorical": categorical,
            "levels": None if levels is None else check_levels(levels, categorical),
            "censored_name": named.pop("right_censored", None),
            "group_levels": levels_of_groups,
            "role_names": named or None,
            "time": time,
        }
        vars(self).update(columns | checked, n=X.shape[0], d=X.shape[1])
        labelled = classes is None and found is not None
        vars(self)["alphabetical"] = labelled and in_order_of_texts(y, found)
        places = list(names or ())
        for name, numbered in (("together", self.coordinates), ("coded", self.categorical)):
            numbers = [one if isinstance(one, int) else places.index(one) for one in numbered or ()]
            vars(self)[name] = numbers
        if self.coded:
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
        """Return the table as this rank's part of the rows of a team; see ``Team.share``.

        Raises:
            DataError: If the ranks have other columns or other kinds of targets, or groups whose
                levels differ.
            NotApplicable: If a class is not a text or a number, so that ranks cannot compare it.
        """
        if team.alone:
            return self
        with team.all_or_none():
            _check_labels(self)
        about = team.gathered(_about(self))
        with team.all_or_none():
            check_alike(about)
        table = _with_classes_of_all(self, about)
        return _with_sample(table, team, sum(each["n"] for each in about))

    def share_of(self, team: Team) -> Dataset:
        """Return the part of the table that this rank of a team has; see ``Team.share``."""
        first, last = (self.n * r // team.size for r in (team.rank, team.rank + 1))
        return self.rows(slice(first, last)).in_team(team)

    @property
    def time_column(self) -> int | None:
        """The number of the column of X that is the time; None: no column is named so."""
        if isinstance(self.time, str):
            return (self.feature_names or ()).index(self.time)
        return self.time

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
        if self.time is not None:
            parts += f", time {self.time}"
        if self.categorical:
            parts += f", categorical {', '.join(map(str, self.categorical))}"
        absent = int(self.X.isnan().sum())
        if absent:
            parts += f", {absent} missing"
        return f"<Dataset n={self.n} d={self.d} target={self.target_name or 'y'} ({parts})>"

    def _repr_html_(self) -> str:
        """Return what notebooks show: the size, and a line for each column."""
        about = f"n = {self.n:,}, d = {self.d:,}"
        if not self.team.alone:
            about += f" on this rank of {self.team.size}"
        columns = list(self._lines_of_html())
        shown = columns[:MOST]
        if len(columns) > MOST:  # the target follows the inputs
            shown = [*columns[: MOST - 1], columns[self.d]]
        lines = html.table(("column", "role", "mean", "sd", "values"), shown)
        return html.page("Dataset", about, lines, html.more(len(columns) - len(shown), "column"))

    def _lines_of_html(self) -> Iterator[tuple[Any, ...]]:
        """Yield (name, role, mean, sd, labels) of each column."""
        levels = dict(zip(self.coded, self.levels or (), strict=False))
        for number, name in enumerate(self._names_of_inputs):
            values = self.X[:, number]
            role = "coordinate" if number in self.together else "input"
            if number == self.time_column:
                role = "time"
            if number in self.coded:
                yield name, "categories", "", "", _counts(values, levels.get(number))
            else:
                yield name, role, *_moments(values)
        target = self.target_name or "y"
        if self.classes is None:
            yield target, "target", *_moments(self.y)
        else:
            yield target, "target", "", "", _counts(self.y, self.classes)
        for role, column in self.columns_with_roles.items():
            name = self.names_of_roles.get(role, "")
            words = role.replace("_", " ")
            if role == "groups":
                levels_of = self.group_levels or {}
                for group, codes in column.items():
                    yield group, words, "", "", _counts(codes, levels_of[group])
            elif isinstance(column, Tensor):
                yield name, words, *_moments(column)
            else:
                yield name, words, "", "", ", ".join(map(str, column[:3])) + ", …"

    @property
    def _names_of_inputs(self) -> list[str]:
        return list(self.feature_names or [f"x{j}" for j in range(self.d)])

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
        time: str | None = None,
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
            time: The input column that is the time, which becomes the first of X. Dates in it
                become days unless ``dates`` says another unit.

        Raises:
            UnknownName: If there is no such column; the message offers the nearest name.
            SettingError: If one column has two of these roles, or an option has another value.
            DataError: If an input column holds text, a value is missing, or a name occurs twice.
        """
        roles = {"noise_sd": noise_sd, "right_censored": right_censored, "offset": offset}
        roles |= {"trials": trials, "weights": weights, "ids": ids}
        if time is not None:
            apart = [name for name in (*roles.values(), *(groups or ())) if name == time]
            if apart:
                do = "name a column of its own as time"
                raise SettingError("one role of each column", f"{time!r} as time and another", do)
            frame, dates = with_time_first(frame, time, target, dates)
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
            time=None if time is None else str(found.inputs.columns[0]),
            **found.columns,
        )

    def to_frame(self) -> pd.DataFrame:
        """Return the table as a pandas DataFrame, which ``Dataset.from_frame`` reads again.

        Returns:
            One row per row. The columns are the inputs, with their names or ``x0``, ``x1``, ...;
            the target, with its name or ``y``; and those with roles, with their names or that of
            the role. Labels, categories and groups stand in place of codes.
        """
        import pandas as pd

        columns: dict[str, Any] = {}
        levels = dict(zip(self.coded, self.levels or (), strict=False))
        for number, name in enumerate(self._names_of_inputs):
            values = self.X[:, number]
            columns[name] = _numbers(values)
            if number in levels:
                columns[name] = _labels(values, levels[number])
        target = _free(self.target_name or "y", columns)
        columns[target] = _numbers(self.y)
        if self.classes is not None:
            columns[target] = _labels(self.y, self.classes)
        for role, column in self.columns_with_roles.items():
            name = _free(self.names_of_roles.get(role, role), columns)
            if role == "groups":
                levels_of = self.group_levels or {}
                for group, codes in column.items():
                    columns[_free(group, columns)] = _labels(codes, levels_of[group])
            else:
                columns[name] = _numbers(column) if isinstance(column, Tensor) else list(column)
        return pd.DataFrame(columns)

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
        parts = self._parts
        X, y, others = self.X, self.y, list(parts.values())
        if tables:
            X, y, *others = tables
        # the density is the mean over the ranks, so that the rows of each count for all of them
        named: dict[str, Any] = {"total": self.stands_for}
        for (role, part), column in zip(parts, others, strict=True):
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
        if self is other:
            return True
        if not isinstance(other, Dataset):
            return False
        if self.X.shape != other.X.shape or self.X.device != other.X.device:
            return False
        eps = ROUNDING * max(torch.finfo(table.X.dtype).eps for table in (self, other))
        compared = [name for name, role in ROLES.items() if role.compared]
        if not all(same_column(getattr(self, r), getattr(other, r), eps) for r in compared):
            return False
        if not torch.equal(self.X.isnan(), other.X.isnan()):
            return False
        pairs = ((self.y, other.y), (self.X.nan_to_num(), other.X.nan_to_num()))
        return all(bool(((a - b).abs() <= eps * a.abs().amax(0)).all()) for a, b in pairs)

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
        parts = _parts_of_rows(self.n, fractions, seed)
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
        X, y = scaler.inputs(self.X), _standardised(self.y, scaler.y_mean, scaler.y_sd)
        columns = {
            name: ROLES[name].check(scaler.noise(column), self.n, self.X)
            for name, column in columns_given(self, IN_UNIT_OF_Y).items()
        }
        table = self.with_numbers(X, y, columns)
        return (table if self.team.alone else _scaled_in_team(table, self, scaler)), scaler


T = TypeVar("T", bound=Dataset)


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
        data: Dataset,
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
            spread = magnitudes.spread
            if data.missing == "keep":
                spread = magnitudes.spread_without_missing
            own = spreads or (spread(X, data.weights),)
            x_mean, own_sd, constant = own[0]
            if not data.team.alone:
                x_mean, own_sd, constant = _over_ranks(data, X, own[0])
            x_mean[data.coded], own_sd[data.coded], constant[data.coded] = 0.0, 1.0, False
            if bool(constant.any()):
                _warn_constant(constant, data.feature_names)
            # beyond 1e15, the rounding errors of a constant column exceed 1
            x_sd = torch.where(constant, own_sd.clamp_min(1.0), own_sd)
            if data.together and not bool(constant[data.together].all()):
                x_sd[data.together] = magnitudes.root_mean_square(own_sd[data.together])
        if scale_y:
            of_y = spreads[1] if spreads else magnitudes.spread(y, data.weights)
            if not data.team.alone:
                of_y = _over_ranks(data, y, of_y)
            y_mean, y_sd, constant = of_y
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
        if X.shape[-1] != self.x_mean.shape[0]:
            raise DataError(
                f"{counted(len(self.x_mean), 'column')}, as in training",
                f"{X.shape[-1]}",
                "pass the same columns in the same order",
            )
        scaled = (X - self.x_mean) / self.x_sd
        # below this limit, squared distances in lengthscales are finite
        limit = torch.finfo(scaled.dtype).max ** 0.25
        if (
            scaled.numel()
            and not float(torch.linalg.vector_norm(scaled.detach(), torch.inf)) <= limit
        ):
            scaled = _standardised(X, self.x_mean, self.x_sd)  # a difference may have overflowed
            _refuse_far(scaled, limit)
        return scaled

    def targets(self, y: Tensor) -> Tensor:
        """Return y on the standardised scale."""
        return _standardised(y, self.y_mean, self.y_sd)

    def noise(self, noise_sd: Tensor) -> Tensor:
        """Return known noise on the standardised scale: divided by y_sd."""
        return noise_sd / self.y_sd

    def columns(self, data: Dataset) -> dict[str, Tensor]:
        """Return ``{role: column}`` of the roles in the unit of y, on the standardised scale."""
        columns = columns_given(data, IN_UNIT_OF_Y)
        return {name: self.noise(column) for name, column in columns.items()}

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
        given = columns_given(data, IN_UNIT_OF_Y)
        columns = {name: column * self.y_sd for name, column in given.items()}
        return replace(data, X=X, y=y, **columns).with_origin_of(data)

    @property
    def location_and_scale(self) -> tuple[float | Tensor, float | Tensor]:
        """The pair (offset, scale) with y = offset + scale * (y on the standardised scale)."""
        return self.y_mean, self.y_sd

    def log_scale(self, data: Dataset) -> float:
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
        if isinstance(data, Dataset):
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


def _standardised(values: Tensor, mean: Tensor, sd: Tensor) -> Tensor:
    """Return (values - mean) / sd.

    Both are halved first where the difference may exceed the largest float.
    """
    limit = torch.finfo(mean.dtype)
    if bool((mean.abs() > limit.max * limit.eps / 4).any()):
        return (values / 2 - mean / 2) / (sd / 2)
    return (values - mean) / sd


def _over_ranks(data: Dataset, values: Tensor, own: magnitudes.Spread) -> magnitudes.Spread:
    """Return the statistics of columns over the rows of a team, from those of this rank's rows."""
    counts = torch.ones_like(data.y) if data.weights is None else data.weights
    known = ~values.isnan()
    if values.ndim == 2:
        counts = counts[:, None]
    return magnitudes.over_ranks(data.team, own, (known * counts).sum(0))


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


def _parts_of_rows(n: int, fractions: Sequence[float], seed: int) -> list[Tensor]:
    """Return the rows of each part of ``Dataset.split``.

    Args:
        n: The number of rows.
        fractions: The share of each part; if they sum to less than 1, the rest is one more part.
        seed: The seed of the random order.

    Raises:
        SettingError: If the fractions are not in (0, 1], have a sum above 1, or leave a part
            without rows.
    """
    do = "for example split(0.6, 0.2, 0.2)"
    numbers = [f for f in fractions if isinstance(f, Real) and not isinstance(f, bool)]
    if len(numbers) < len(fractions):
        given = ", ".join(repr(f)[:40] for f in fractions)
        raise SettingError("numbers as fractions", given, do)
    seed = check_seed(seed)
    total = sum(fractions)
    if not fractions or any(not 0 < f <= 1 for f in fractions) or total > 1 + 1e-9:
        raise SettingError("fractions in (0, 1] with a sum of at most 1", f"{fractions}", do)
    order = permutation(torch.Generator().manual_seed(seed), n)
    edges = [0, *(round(n * sum(fractions[: i + 1])) for i in range(len(fractions)))]
    complete = abs(total - 1) < 1e-9
    if not complete:
        edges.append(n)
    if any(a == b for a, b in pairwise(edges)):
        raise SettingError(
            "at least one row in every part",
            f"{counted(n, 'row')} split as {fractions}",
            "use fewer or larger parts",
        )
    return [order[a:b] for a, b in pairwise(edges)]


def _free(name: str, taken: dict[str, Any]) -> str:
    """Return the name, with underscores behind it until no other column has it."""
    while name in taken:
        name = f"{name}_"
    return name


def _numbers(column: Tensor) -> Any:
    return column.detach().cpu().numpy()


def _labels(codes: Tensor, labels: Sequence[Any]) -> list[Any]:
    """Return the labels of codes [n]; None for NaN and for codes without a label."""
    known = torch.nan_to_num(codes, nan=-1.0).long().tolist()
    return [labels[code] if 0 <= code < len(labels) else None for code in known]


def _moments(column: Tensor) -> tuple[Any, Any, str]:
    """Return mean and sd of the values that are known, and how many are missing."""
    values = column.detach().double()
    known = values[~values.isnan()]
    missing = len(values) - len(known)
    words = f"{missing:,} missing" if missing else ""
    if not len(known):
        return "", "", words
    return float(known.mean()), float(known.std()) if len(known) > 1 else "", words


def _counts(codes: Tensor, labels: Sequence[Any] | None) -> str:
    """Return how often each label occurs, such as "no: 3, yes: 7"."""
    known = codes[~codes.isnan()] if codes.is_floating_point() else codes
    values, counts = torch.unique(known.long(), return_counts=True)
    words = []
    for code, count in zip(values.tolist()[:MOST_LABELS], counts.tolist(), strict=False):
        label = labels[code] if labels is not None and 0 <= code < len(labels) else code
        words.append(f"{label}: {count:,}")
    if len(values) > MOST_LABELS:
        words.append(f"and {len(values) - MOST_LABELS:,} more")
    return ", ".join(words)


def of_all_ranks(table: Dataset) -> Dataset:
    """Return the rows of all ranks of the table's team, in the order of the ranks."""
    return table if table.team.alone else joined(table, table.team)


def joined(table: Dataset, team: Team) -> Dataset:
    """Return the rows that all ranks pass, one after the other."""
    columns = {name: _of_all(team, column) for name, column in columns_given(table).items()}
    columns = {**dict.fromkeys(ROLES), **columns}
    return table.with_numbers(team.rows_of_all(table.X), team.rows_of_all(table.y), columns)


def standardised_mean(mean: float, scaler: Scaler) -> float:
    """Return a mean of targets on the scale of a Scaler, with the digits of float64."""
    offset, scale = scaler.location_and_scale
    return (mean - float(offset)) / float(scale)


def check_alike(about: list[dict[str, Any]]) -> None:
    """Raise DataError where tables of ranks cannot be parts of one."""
    for name in about[0]:
        if name in ("n", "classes"):
            continue
        others = [rank for rank, each in enumerate(about) if each[name] != about[0][name]]
        if others:
            rank = others[0]
            raise DataError(
                f"the same {name} on all ranks ({about[0][name]} on rank 0)",
                f"{about[rank][name]} on rank {rank}",
                "read the same columns on every rank, with the same codes",
            )


def _with_sample(table: Dataset, team: Team, total: int) -> Dataset:
    """Return the table with its team, the number of rows of all ranks, and a sample of them.

    The rows of the extreme targets are part of the sample, for the checks of a model, and those
    of the extremes of up to four columns, around which a grid is laid.
    """
    part = copy(table)
    counts = team.gathered(table.n)
    own = torch.arange(table.n)
    if total > SAMPLE:
        generator = torch.Generator().manual_seed(team.rank)
        take = max(1, table.n * SAMPLE // total)
        own = permutation(generator, table.n)[:take]
        y = table.y.cpu()
        extremes = torch.stack([y.argmin(), y.argmax(), (y - y.round()).abs().argmax()])
        X = table.X[:, :GRID_COLUMNS].cpu() if table.d <= GRID_COLUMNS else table.X[:, :0].cpu()
        own = torch.cat([extremes, X.argmin(0), X.argmax(0), own]).unique()
    sample = table.rows(own.to(table.X.device))
    whole = joined(sample, team)
    vars(whole)["target_mean"] = _mean_of_targets(table, team)
    vars(part).update(team=team, total_of_team=total, counts_of_team=counts)
    vars(part).update(sample_of_team=whole)
    return part


def _scaled_in_team(scaled: Dataset, table: Dataset, scaler: Scaler) -> Dataset:
    """Return the standardised rows of a rank, with the standardised sample of all ranks.

    Args:
        scaled: The rows on the scale of the scaler.
        table: The same rows on their own scale, in their team.
        scaler: What standardised them.
    """
    sample = scaler(table.shared)
    mean: Any = table.shared.target_mean
    vars(sample)["target_mean"] = standardised_mean(mean, scaler)
    about = {name: vars(table)[name] for name in OF_TEAM}
    vars(scaled).update(about, sample_of_team=sample)
    return scaled


def _of_all(team: Team, column: Any) -> Any:
    """Return a column of the rows of all ranks."""
    if isinstance(column, Tensor):
        return team.rows_of_all(column)
    if isinstance(column, dict):
        return {name: team.rows_of_all(part) for name, part in column.items()}
    return tuple(one for part in team.gathered(list(column)) for one in part)


def _mean_of_targets(table: Dataset, team: Team) -> float:
    """Return the mean of the targets of all ranks, each row counted by its weight."""
    weights = torch.ones_like(table.y) if table.weights is None else table.weights
    weights = weights.double()
    pair = torch.stack([(weights * table.y.double()).sum(), weights.sum()])
    total, count = team.sum(pair)
    return float(total / count)


def _about(table: Dataset) -> dict[str, Any]:
    """Return what ranks compare of their tables."""
    groups = {name: list(map(str, levels)) for name, levels in (table.group_levels or {}).items()}
    return {
        "n": table.n,
        "columns": list(table.feature_names or ()) or table.d,
        "target": table.target_name,
        "roles": sorted(table.columns_with_roles),
        "dtype": str(table.X.dtype),
        "coordinates": list(map(str, table.coordinates or ())),
        "categories": [list(map(str, levels)) for levels in table.levels or ()],
        "groups": groups,
        "kind of target": "labels" if table.classes else "numbers",
        "classes": list(table.classes or ()),
    }


def _check_labels(table: Dataset) -> None:
    """Raise NotApplicable for classes that cannot be compared between processes."""
    odd = [one for one in table.classes or () if not isinstance(one, LABELS)]
    if odd:
        raise NotApplicable(
            "classes that are texts or numbers, for a team",
            f"{odd[0]!r} of type {type(odd[0]).__name__}",
            "name the classes by texts",
        )


def _with_classes_of_all(table: Dataset, about: list[dict[str, Any]]) -> Dataset:
    """Return the table with codes of the classes of all ranks."""
    if table.classes is None or all(each["classes"] == about[0]["classes"] for each in about):
        return table
    found = {one for each in about for one in each["classes"]}
    classes = tuple(sorted(found, key=lambda one: (isinstance(one, str), one)))
    place = torch.tensor([classes.index(one) for one in table.classes]).to(table.y)
    recoded = copy(table)
    vars(recoded).update(y=place[table.y.long()], classes=classes)
    return recoded
