"""Columns of numbers that a formula makes of a table, through formulaic.

The expressions of a formula are Python, which formulaic evaluates. A design is therefore made from
a formula that the user's code holds, and is never stored in a file.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from ..errors import DataError, NotApplicable, SettingError, UnknownName, listed
from ..runtime.libraries import imported
from .entries.arrays import labels_of

__all__ = ["Design", "design_of"]

INTERCEPT = "Intercept"
NEW = "new rows"
OFFSET = re.compile(r"\boffset\s*\(")
VARYING = re.compile(r"\(([^()|]+)\|{1,2}([^()|]+)\)")  # such as (1 + floor | county)
EVERY = "__formulaic_variables_available__"  # what formulaic puts in the place of "."
COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # that formulaic puts into its messages


@cache
def _formulaic() -> Any:
    """Return formulaic.

    Raises:
        NotApplicable: If it is not installed.
    """
    try:
        return imported("formulaic")
    except ImportError as error:
        raise NotApplicable(
            "formulaic, which reads formulas",
            f"{error}",
            'pip install "ppgp[formula]", or use Dataset.from_frame(table, target, one_hot=True)',
        ) from error


@dataclass(frozen=True, eq=False)
class Design:
    """The right-hand side of a formula, with the levels and constants of the training rows.

    Attributes:
        formula: The formula.
        names: The names of its columns, the intercept left out.
        intercept: Whether it has an intercept.
        kept: The names of further columns that ``frame`` keeps, such as an offset.
    """

    formula: str
    names: tuple[str, ...]
    intercept: bool
    spec: Any = field(repr=False)
    kept: tuple[str, ...] = ()

    def __call__(self, table: Any) -> Any:
        """Return a DataFrame with the columns of the design, and those that are kept.

        Categories have the levels of the training rows, and functions such as ``center`` their
        constants.

        Args:
            table: A DataFrame with the variables of the formula.

        Raises:
            UnknownName: If a variable is missing.
            DataError: If one has missing values, or a level that the training rows do not have.
        """
        found = _evaluated(self.spec, table, NEW)
        found = found[list(self.names)]
        for name in self.kept:
            if name in table:
                found[name] = table[name].to_numpy()
        return found

    def read(self, table: Any) -> Any:
        """Return the same, or a table that has the columns of the design already."""
        labels = labels_of(table)
        if labels is None or not hasattr(table, "columns"):
            return table
        variables = {str(name) for name in self.spec.required_variables}
        known = set(map(str, labels))
        return table if known >= set(self.names) and not known >= variables else self(table)


def _refuse_terms_of_r(formula: str) -> None:
    """Refuse terms of R's formulas that are arguments here.

    Raises:
        SettingError: For an offset, and for coefficients that vary between groups.
    """
    if OFFSET.search(formula):
        do = "pass offset= with the name of its column"
        raise SettingError("an offset beside the formula", repr(formula), do)
    found = VARYING.search(formula)
    if found:
        do = f"pass groups={{{found[2].strip()!r}: Varying({found[1].strip()!r})}}"
        raise SettingError("coefficients of groups beside the formula", repr(found[0]), do)


def design_of(formula: str, table: Any, kept: Collection[str] = ()) -> tuple[Design, Any, Any, str]:
    """Return the design of a formula for the training rows, their columns, and the target.

    Args:
        formula: "target ~ terms"; "." stands for every other column of the table but ``kept``.
        table: A DataFrame.
        kept: As of ``Design``.

    Returns:
        The design, its columns, the target [n], and the name of the target.

    Raises:
        NotApplicable: If formulaic is not installed.
        SettingError: If the formula cannot be read, has not one target, or has no terms.
        UnknownName: If a variable of it is no column of the table.
        DataError: If the table is no DataFrame, or a variable has missing values.
    """
    library = _formulaic()
    _refuse_terms_of_r(formula)
    if not hasattr(table, "columns") or not hasattr(table, "iloc"):
        do = "for example pandas.DataFrame(table)"
        raise DataError("a pandas DataFrame for a formula", type(table).__name__, do)
    inputs = [str(name) for name in table.columns if str(name) not in kept]
    try:
        parsed = library.Formula(formula, _context={EVERY: inputs})
        left, right = list(getattr(parsed, "lhs", ())), getattr(parsed, "rhs", None)
    except (library.errors.FormulaicError, AttributeError, TypeError) as error:
        raise _unreadable(formula, error) from None
    if len(left) != 1 or not hasattr(right, "get_model_matrix"):
        do = "for example 'y ~ x + C(z)'"
        raise SettingError("a formula of one target and terms", repr(formula), do)
    name = str(left[0])
    columns = {str(column): column for column in table.columns}
    if name in columns:
        target = table[columns[name]]  # a Series, whose categories may have an order
    else:
        own = library.Formula(f"{name} - 1")
        found = _evaluated(own, table, formula)
        if found.shape[1] != 1:
            do = "use a column of numbers, or the column itself"
            raise SettingError("one column as the target", f"{found.shape[1]} by {name!r}", do)
        target = found.iloc[:, 0].to_numpy()
    found = _evaluated(right, table, formula)
    spec, every = found.model_spec, [str(column) for column in found.columns]
    names = tuple(column for column in every if column != INTERCEPT)
    if not names:
        do = "add one, for example 'y ~ x'"
        raise SettingError("a formula with terms besides the intercept", repr(formula), do)
    design = Design(formula, names, INTERCEPT in every, spec, tuple(kept))
    return design, found[list(names)], target, name


def _evaluated(spec: Any, table: Any, where: str) -> Any:
    """Return the columns of a formula, or of a spec that knows the levels, as a DataFrame.

    Args:
        spec: A formula or a spec of formulaic.
        table: A DataFrame.
        where: What errors name: the formula, or ``NEW``.
    """
    library = _formulaic()
    _check_variables(spec, table)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", library.errors.DataMismatchWarning)
            texts = _with_plain_texts(table)
            return spec.get_model_matrix(texts, na_action="ignore", output="pandas")
    except library.errors.DataMismatchWarning as error:
        unseen = ", ".join(re.findall(r"\{(.*?)\}", str(error))) or "another"
        do = "drop these rows, or fit to rows with this level"
        raise DataError(
            "levels of the training rows in the columns of the formula", unseen, do
        ) from None
    except (library.errors.FormulaicError, ValueError, TypeError) as error:
        if where == NEW:
            got, do = _said(error), "pass rows like the training rows"
            raise DataError("new rows on which the formula can be evaluated", got, do) from None
        raise _unreadable(where, error) from None


def _check_variables(spec: Any, table: Any) -> None:
    """Check that the variables of a formula are columns without missing values.

    Raises:
        UnknownName: If one is no column.
        DataError: If one has missing values.
    """
    columns = {str(column): column for column in table.columns}
    for name in sorted(map(str, spec.required_variables)):
        if name not in columns:
            raise UnknownName("column of the formula", name, columns)
        rows = np.flatnonzero(table[columns[name]].isna().to_numpy()).tolist()
        if rows:
            got = f"none of {name} in {listed(rows, 'row')}"
            raise DataError("values of every variable of a formula", got, "drop or fill them")


def _unreadable(formula: str, error: Exception) -> SettingError:
    got = f"{formula!r} ({_said(error)})"
    return SettingError("a formula that formulaic can evaluate", got, "see its docs")


def _said(error: Exception) -> str:
    """Return the first line of a message of formulaic, without colours."""
    return COLOUR.sub("", str(error)).partition("\n")[0]


def _with_plain_texts(table: Any) -> Any:
    """Return the table with texts as objects, as formulaic does not know pandas' type of texts."""
    texts = [name for name, kind in table.dtypes.items() if kind.name == "string"]
    return table.astype(dict.fromkeys(texts, object)) if texts else table
