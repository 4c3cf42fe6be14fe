"""A posterior that is conditional on more rows, under the same hyperparameters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import torch

from ..data.targets import check_targets
from ..errors import DataError
from ..target.capabilities import Updates, require
from .fitted import Fitted, evaluated_at
from .model_inputs import inputs_and_roles

P = TypeVar("P", bound=Any)

#: statistics of the density of the rows of the fit
OF_THE_ROWS = ("log_density", "log_evidence", "elbo")


def update(self: P, X: Any, y: Any, *, noise_sd: Any = None) -> P:
    """Return the posterior of the function given further rows too.

    The draws of the hyperparameters stay those of the fit, and so does the scale of the model:
    this is the next step of a filter, and no fit. It agrees with conditioning on all rows at once
    under the same draws. Rows that are later than all others cost O(new), and so do predictions
    after them; others cost a pass over all rows at the next prediction.

    Args:
        self: The posterior.
        X: The new rows [m, d], as in ``predict``.
        y: Their targets [m], in the units of the data.
        noise_sd: Their known noise [m] or one number, if the rows of the fit have it.

    Returns:
        A Posterior. Its rows, old and new, count as training rows.

    Raises:
        NotApplicable: If the model cannot be updated.
        DataError: If the rows do not suit the fit: numbers that are not finite, another number of
            columns, or known noise on one side alone.
    """
    fit: Fitted = self
    model, old = require(fit.model, Updates), fit.data
    rows, roles = inputs_and_roles(fit, X, {"noise_sd": noise_sd})
    targets, _ = check_targets(y, None, rows)
    known = roles.get("noise_sd")
    if (known is None) != (old.noise_sd is None):
        wanted, got = "rows without noise_sd, as in the fit", "some"
        if known is None:
            wanted, got = "noise_sd of the new rows, as in the fit", "none"
        raise DataError(wanted, got, "give known noise to all rows or to none")
    both = None if known is None else torch.cat([old.noise_sd, known])
    X_all, y_all = torch.cat([old.X, rows]), torch.cat([old.y, fit.scaler.targets(targets)])
    data = replace(old, X=X_all, y=y_all, noise_sd=both, ids=None).with_origin_of(old)
    stats = {name: value for name, value in fit.stats.items() if name not in OF_THE_ROWS}
    found: P = replace(self, data=data, stats=stats)
    with evaluated_at(fit, len(rows)):
        model.carry_over(fit.theta, old, data, fit.kept, found.kept)
    return found
