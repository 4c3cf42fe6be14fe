"""New rows of a table and their known noise, on the scale of the model."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..data.categories import check_codes
from ..data.input_checks import check_inputs, check_noise
from ..data.new_rows import read
from ..errors import NotApplicable
from .fitted import Fitted


def model_inputs(fit: Fitted, X: Any) -> Tensor:
    """Return the rows of X as a tensor [m, d], on the scale of the model.

    Columns with names are put in the order of the training columns.

    Raises:
        DataError: if X has NaN, another number of columns or a column that the fit does not know.
        UnknownName: if a column is missing.
    """
    table, _ = read(X, fit.data)
    return _on_scale(fit, table)


def inputs_and_noise(fit: Fitted, X: Any, noise_sd: Any) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the rows of X and their known noise, on the scale of the model.

    Args:
        fit: the posterior.
        X: the new rows.
        noise_sd: a number or [m], in the units of y; None: the noise that X itself holds.

    Returns:
        ``model_inputs``, and ``{"noise_sd": [m]}`` or, where no noise is known, {}.

    Raises:
        NotApplicable: if the model does not take known noise.
    """
    table, own_noise = read(X, fit.data)
    rows = _on_scale(fit, table)
    if noise_sd is None:
        noise_sd = own_noise
    if noise_sd is None:
        return rows, {}
    if not fit.model.known_noise:
        name = type(fit.model).__name__
        do = "use GP or Kriging, or leave noise_sd out"
        raise NotApplicable("a model that takes known noise", name, do)
    return rows, {"noise_sd": fit.scaler.noise(check_noise(noise_sd, len(rows), rows))}


def _on_scale(fit: Fitted, table: Any) -> Tensor:
    """Return rows whose columns are in order as a checked tensor, on the scale of the model."""
    data, names = fit.data, fit.data.feature_names
    if not names or len(names) != getattr(table, "shape", (0, 0))[-1]:
        names = None
    missing = data.missing == "keep" and fit.model.takes_missing
    rows = fit.scaler.inputs(check_inputs(table, names, missing=missing).to(data.X))
    if data.coded:
        check_codes(rows, data.coded, data.feature_names)
    return rows
