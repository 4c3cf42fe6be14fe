"""Rows of a file with their target, as one Dataset that several saved posteriors predict from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import NotApplicable, SettingError

if TYPE_CHECKING:
    from ..data.dataset import Dataset
    from ..posterior.posterior import Posterior

__all__ = ["check_fits", "rows_for_all"]


def check_fits(posteriors: Mapping[str, Posterior]) -> None:
    """Check that rows of one table can be new rows of all posteriors.

    Raises:
        NotApplicable: If one is the fit of a user's program.
        SettingError: If the posteriors are fits of other targets, classes or input columns.
    """
    for name, posterior in posteriors.items():
        if not getattr(posterior.data, "is_table", False):
            do = "leave it out, and call ppgp.compare in Python"
            raise NotApplicable("fits to a table", f"a program in {name}", do)
    _same("one target", {name: fit.data.target_name for name, fit in posteriors.items()})
    _same("the same classes", {name: fit.data.classes for name, fit in posteriors.items()})
    columns = {
        name: tuple(sorted(fit.data.feature_names or ())) for name, fit in posteriors.items()
    }
    _same("the same input columns", columns)


def _same(what: str, found: Mapping[str, Any]) -> None:
    """Raise SettingError where the posteriors differ."""
    first, *others = found
    for other in others:
        if found[other] != found[first]:
            got = f"{_words(found[first])} of {first} and {_words(found[other])} of {other}"
            raise SettingError(f"posteriors of {what}", got, "report them in two calls")


def _words(found: Any) -> str:
    """Return what a posterior has, in words."""
    if isinstance(found, tuple):
        return ", ".join(map(str, found)) or "none"
    return repr(found)


def rows_for_all(
    path: Path,
    posteriors: Mapping[str, Posterior],
    target: str | None,
    drop_missing: bool,
    sep: str | None = None,
) -> Dataset:
    """Return the rows of a file that posteriors predict, with their targets.

    Args:
        path: The file.
        posteriors: The posteriors by name, for which ``check_fits`` has passed.
        target: The target column; None: that of the fits.
        drop_missing: Whether to drop rows with a missing value.
        sep: What separates the columns of a text file; None: that of its suffix.

    Raises:
        SettingError: If the file is the standard input, or the target is an input.
        UnknownName: If a column is not in the file.
        DataError: If a row has a missing value and is not dropped.
    """
    from ..data.dataset import Dataset
    from ..data.entries.row_numbers import numbered
    from ..data.new_rows import read
    from .posterior_tables import inputs_for, known_rows, known_targets

    if str(path) == "-":
        got = "the standard input"
        raise SettingError("a file of rows with their target", got, "write them to a file")
    first, *others = posteriors.values()
    name = str(target or first.data.target_name)
    frame = known_rows(path, first, (name, None), drop_missing, sep)
    with numbered(frame.index.tolist()):
        rows, roles = read(inputs_for(frame, first, name), first.data)
        for other in others:  # such as known noise, which the first fit need not have
            roles = read(inputs_for(frame, other, name), other.data)[1] | roles
        return Dataset(
            rows,
            known_targets(frame, name, first),
            feature_names=first.data.feature_names,
            target_name=first.data.target_name,
            classes=first.data.classes,
            missing=first.data.missing,
            categorical=first.data.categorical,
            levels=first.data.levels,
            **roles,
        )
