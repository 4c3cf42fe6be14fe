"""New rows of a table and their columns with roles, on the scale of the model."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torch import Tensor

from ..data.categories import check_codes
from ..data.entries.arrays import check_inputs
from ..data.new_rows import checked_roles, read
from ..data.roles import ROLES, refuse_role
from ..kernels.places import check_places
from .fitted import Fitted


def model_inputs(fit: Fitted, X: Any) -> Tensor:
    """Return the rows of X as a tensor [m, d], on the scale of the model.

    Columns with names are put in the order of the training columns.

    Raises:
        DataError: If X has NaN, another number of columns or a column that the fit does not know.
        UnknownName: If a column is missing.
    """
    table, _ = read(X, fit.data)
    return _on_scale(fit, table)


def inputs_and_roles(
    fit: Fitted, X: Any, given: Mapping[str, Any] = MappingProxyType({})
) -> tuple[Tensor, dict[str, Any]]:
    """Return the rows of X and their columns with roles, on the scale of the model.

    Args:
        fit: The posterior.
        X: The new rows.
        given: ``{role: column}``, in the units of the data; they replace those that X itself holds.

    Returns:
        ``model_inputs``, and ``{role: column}`` of the roles that ``predict`` of the model takes.

    Raises:
        NotApplicable: If the model does not take such a column.
        DataError: If the fit used an offset, trials or groups and the new rows have none.
    """
    table, own = read(X, fit.data)
    rows = _on_scale(fit, table)
    columns = {**own, **{name: value for name, value in given.items() if value is not None}}
    for name in columns:
        refuse_role(fit.model, name, f"leave {name} out")
    columns = checked_roles(columns, fit.data, rows)
    for name, column in columns.items():
        if ROLES[name].unit_of_y:
            columns[name] = fit.scaler.noise(column)
    return rows, columns


def _on_scale(fit: Fitted, table: Any) -> Tensor:
    """Return rows whose columns are in order as a checked tensor, on the scale of the model."""
    data, names = fit.data, fit.data.feature_names
    if not names or len(names) != getattr(table, "shape", (0, 0))[-1]:
        names = None
    missing = data.missing == "keep" and fit.model.takes_missing
    rows = fit.scaler.inputs(check_inputs(table, names, missing=missing).to(data.X))
    if data.coded:
        check_codes(rows, data.coded, data.feature_names)
    check_places(fit.model.covariance, rows)
    return rows
