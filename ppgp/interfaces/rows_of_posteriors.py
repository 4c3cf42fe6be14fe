"""Rows of a file with their target, as one Dataset that several saved posteriors predict from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DataError, NotApplicable, SettingError

if TYPE_CHECKING:
    from ..data.dataset import Dataset
    from ..posterior.posterior import Posterior

__all__ = ["check_fits", "rows_for_all"]


def check_fits(posteriors: Mapping[str, Posterior]) -> None:
    """Check that rows of one table can be new rows of all posteriors.

    Raises:
        NotApplicable: If one is the fit of a user's program.
        SettingError: If the posteriors are fits of other targets, or have other classes.
        DataError: If the training columns of some have names and those of others have none.
    """
    for name, posterior in posteriors.items():
        if not getattr(posterior.data, "is_table", False):
            do = "leave it out, and call ppgp.compare in Python"
            raise NotApplicable("fits to a table", f"a program in {name}", do)
    _same("one target", {name: fit.data.target_name for name, fit in posteriors.items()})
    _same("the same classes", {name: fit.data.classes for name, fit in posteriors.items()})
    unnamed = [name for name, fit in posteriors.items() if not fit.data.feature_names]
    if unnamed and len(unnamed) < len(posteriors):
        do = "fit it with ppgp fit, or report it by itself"
        raise DataError("names of the training columns", f"none in {unnamed[0]}", do)


def _same(what: str, found: Mapping[str, Any]) -> None:
    """Raise SettingError where the posteriors differ."""
    if len(set(found.values())) > 1:
        first, *others = found
        other = next(name for name in others if found[name] != found[first])
        got = f"{found[first]!r} of {first} and {found[other]!r} of {other}"
        raise SettingError(f"posteriors of {what}", got, "report them in two calls")


def rows_for_all(
    path: Path,
    posteriors: Mapping[str, Posterior],
    target: str | None,
    drop_missing: bool,
    sep: str | None = None,
) -> Dataset:
    """Return the rows of a file that every posterior can predict, with their targets.

    It holds each column that one of the posteriors reads, once.

    Args:
        path: The file.
        posteriors: The posteriors by name, for which ``check_fits`` has passed.
        target: The target column; None: that of the fits.
        drop_missing: Whether to drop rows with a missing value.
        sep: What separates the columns of a text file; None: that of its suffix.

    Raises:
        SettingError: If the file is the standard input, or a column is read in two ways.
        UnknownName: If a column is not in the file.
        DataError: If a row has a missing value and is not dropped, or no row is left.
    """
    from .posterior_tables import known_rows

    if str(path) == "-":
        got = "the standard input"
        raise SettingError("a file of rows with their target", got, "write them to a file")
    fits = list(posteriors.values())
    name = str(target or fits[0].data.target_name)
    known = [known_rows(path, fit, (name, None), drop_missing, sep) for fit in fits]
    index = known[0].index
    for frame in known[1:]:
        index = index.intersection(frame.index)
    if not len(index):
        do = "pass rows in which no column has an empty cell"
        raise DataError("rows that all posteriors can predict", f"none in {path.name}", do)
    return _joined([frame.loc[index] for frame in known], fits, name)


def _joined(frames: list[Any], fits: list[Posterior], target: str) -> Dataset:
    """Return one table with the columns that each posterior reads."""
    from ..data.dataset import Dataset
    from ..data.new_rows import read
    from ..data.row_numbers import numbered
    from .posterior_tables import inputs_for, known_targets

    first = fits[0].data
    inputs: dict[str, np.ndarray] = {}
    roles: dict[str, Any] = {}
    levels: dict[str, tuple[str, ...]] = {}
    for frame, fit in zip(frames, fits, strict=True):
        with numbered(frame.index.tolist()):
            rows, found = read(inputs_for(frame, fit, target), fit.data)
        names = fit.data.feature_names or tuple(map(str, range(np.shape(rows)[1])))
        _add_columns(inputs, names, np.asarray(rows, dtype=float))
        groups = {**roles.get("groups", {}), **found.pop("groups", {})}
        roles |= found | ({"groups": groups} if groups else {})
        levels |= fit.data.levels_by_name
    with numbered(frames[0].index.tolist()):
        y = known_targets(frames[0], target, fits[0])
        return Dataset(
            np.column_stack(list(inputs.values())),
            y,
            feature_names=list(inputs) if first.feature_names else None,
            target_name=first.target_name,
            classes=first.classes,
            missing="keep" if any(fit.data.missing == "keep" for fit in fits) else "refuse",
            categorical=list(levels) or None,
            levels=list(levels.values()) or None,
            **roles,
        )


def _add_columns(inputs: dict[str, np.ndarray], names: tuple[str, ...], rows: np.ndarray) -> None:
    """Add the columns of a table to those of others.

    Raises:
        SettingError: If a column of this name has other numbers, as codes of other levels do.
    """
    for name, column in zip(names, rows.T, strict=True):
        if name in inputs and not np.array_equal(inputs[name], column, equal_nan=True):
            got = f"column {name} with other codes in two of them"
            raise SettingError(
                "posteriors that read columns alike", got, "report them in two calls"
            )
        inputs[name] = column
