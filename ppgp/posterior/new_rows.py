"""New rows of a table, checked against the training table and put on the scale of the model."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..data.categories import check_codes
from ..data.input_checks import check_inputs, check_noise
from ..data.new_rows import in_order
from ..errors import NotApplicable
from .fitted import Fitted


def model_inputs(fit: Fitted, X: Any) -> Tensor:
    """Return the rows of X as a tensor [m, d], on the scale of the model.

    Columns with names are put in the order of the training columns.

    Raises:
        DataError: if X has NaN, another number of columns or a column that the fit does not know.
        UnknownName: if a column is missing.
    """
    data, names = fit.data, fit.data.feature_names
    X = in_order(
        X, names, data.target_name, data.noise_name, data.levels_by_name, data.censored_name
    )
    if not names or len(names) != getattr(X, "shape", (0, 0))[-1]:
        names = None
    kept = data.missing == "keep" and fit.model.takes_missing
    X = check_inputs(X, names, missing=kept).to(data.X)
    rows = fit.scaler.inputs(X)
    if data.coded:
        check_codes(rows, data.coded, data.feature_names)
    return rows


def known_noise(fit: Fitted, noise_sd: Any, rows: Tensor) -> dict[str, Tensor]:
    """Return ``{"noise_sd": [m]}`` on the scale of the model, or {} where no noise is known.

    Args:
        fit: the posterior.
        noise_sd: a number or [m], in the units of y; None if the noise is not known.
        rows: the new rows [m, d].

    Raises:
        NotApplicable: if the model does not take known noise.
    """
    if noise_sd is None:
        return {}
    if not fit.model.known_noise:
        name = type(fit.model).__name__
        do = "use GP or Kriging, or leave noise_sd out"
        raise NotApplicable("a model that takes known noise", name, do)
    return {"noise_sd": fit.scaler.noise(check_noise(noise_sd, len(rows), rows))}
