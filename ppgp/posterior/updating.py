"""Further rows of a fit: a posterior that is conditional on them, and predictions on the way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import torch

from ..capabilities import Updates, require
from ..data.dataset import Dataset
from ..data.roles import refuse_role
from ..data.targets import check_targets
from ..errors import DataError
from .fitted import Fitted, evaluated_at
from .model_inputs import inputs_and_roles
from .predicting import in_data_units
from .prediction import Prediction

P = TypeVar("P", bound=Any)

#: statistics of the density of the rows of the fit
OF_THE_ROWS = (
    *("log_density", "log_evidence", "elbo", "lp", "log_q"),
    *("log_likelihood", "observations"),
)


def update(self: P, X: Any, y: Any = None, *, noise_sd: Any = None) -> P:
    """Return the posterior of the function given further rows too.

    The draws of the hyperparameters stay those of the fit, and so do the scale of the model and
    the inducing inputs: this is no fit. It agrees with conditioning on all rows at once under the
    same draws. The cost of k rows after n is:

    - GP and Kriging: O(n^2 k) per draw, by k further rows of the Cholesky factor;
    - SGPR with m inducing inputs: O(m^2 k) per draw;
    - StateSpaceGP: O(k) for rows that are later than all others. Other rows cost a pass over all
      rows at the next prediction.

    The first update of a posterior that has made no prediction also factors the n rows.

    Args:
        self: The posterior.
        X: The new rows [m, d], as in ``predict``, or a Dataset.
        y: Their targets [m], in the units of the data; None: those of the Dataset.
        noise_sd: Their known noise [m] or one number, if the rows of the fit have it.

    Returns:
        A Posterior. Its rows, old and new, count as training rows. ``stats["updated"]`` is the
        number of rows of the fit, to which its draws belong: importance sampling of left-out rows,
        AIC and BIC need a new fit.

    Raises:
        NotApplicable: If the model cannot be updated, or the Dataset has a column that it does not
            use, such as weights.
        DataError: If the rows do not suit the fit: numbers that are not finite, another number of
            columns, known noise on one side alone, or duplicates under a noise of exactly 0.
    """
    fit: Fitted = self
    model, old = require(fit.model, Updates), fit.data
    new = _further_rows(fit, X, y, noise_sd)
    both = None
    if old.noise_sd is not None and new.noise_sd is not None:
        both = torch.cat([old.noise_sd, new.noise_sd])
    X_all, y_all = torch.cat([old.X, new.X]), torch.cat([old.y, new.y])
    data = replace(old, X=X_all, y=y_all, noise_sd=both, ids=None).with_origin_of(old)
    stats = {name: value for name, value in fit.stats.items() if name not in OF_THE_ROWS}
    stats.setdefault("updated", old.n)
    found: P = replace(self, data=data, stats=stats)
    fit.model.prepare(data)  # for its checks, such as of duplicate rows without noise
    with evaluated_at(fit, new.n):
        model.carry_over(fit.theta, old, data, fit.kept, found.kept)
    return found


def one_step_ahead(self: Any, X: Any, y: Any = None, *, noise_sd: Any = None) -> Prediction:
    """Return the prediction of each further row given the fit and all rows before it.

    It is that of ``update`` and ``predict`` in turn, row by row, at the cost of one update. A model
    of time takes the rows in the order of time (Durbin & Koopman 2012, section 4.3), any other
    model in the order given. The draws of the hyperparameters stay those of the fit.

    Args:
        self: The posterior.
        X: The new rows [m, d], or a Dataset. For a model of time they are in any order, none before
            the last row of the fit.
        y: Their targets [m], in the units of the data; None: those of the Dataset. Each enters the
            predictions after its own.
        noise_sd: Their known noise [m] or one number, if the rows of the fit have it.

    Returns:
        A Prediction of the m rows.

    Raises:
        NotApplicable: If the model cannot be updated.
        DataError: If the rows do not suit the fit, as in ``update``, or for a model of time one is
            earlier than the last row of the fit.
    """
    fit: Fitted = self
    model = require(fit.model, Updates)
    new = _further_rows(fit, X, y, noise_sd)
    with evaluated_at(fit, new.n):
        found = model.one_step_ahead(fit.theta, fit.data, new, fit.kept)
    return in_data_units(fit, found, new.X, "one_step_ahead")


def _further_rows(fit: Fitted, X: Any, y: Any, noise_sd: Any) -> Dataset:
    """Return rows with targets on the scale of the model, with known noise where the fit has it."""
    old: Dataset = fit.data
    if y is None:
        if not isinstance(X, Dataset):
            raise DataError("a Dataset, or X and y", "no y", "pass the targets of the new rows")
        y = X.y
    if isinstance(X, Dataset):
        for name in X.columns_with_roles:
            refuse_role(fit.model, name, f"a Dataset without {name}")
    rows, roles = inputs_and_roles(fit, X, {"noise_sd": noise_sd})
    targets, _ = check_targets(y, None, rows)
    known = roles.get("noise_sd")
    if (known is None) != (old.noise_sd is None):
        wanted, got = "rows without noise_sd, as in the fit", "some"
        if known is None:
            wanted, got = "noise_sd of the new rows, as in the fit", "none"
        raise DataError(wanted, got, "give known noise to all rows or to none")
    scaled = fit.scaler.targets(targets)
    return replace(old, X=rows, y=scaled, noise_sd=known, ids=None).with_origin_of(old)
