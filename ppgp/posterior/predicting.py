"""Predictions of a fit at new rows: of a model on a table, and of a user's own program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from ..data.argument_mistakes import explained, not_finite
from ..data.arguments import Arguments, in_usable_dtypes, with_tensors
from ..data.roles import ROLES
from ..distributions.univariate import parameters
from ..errors import DataError, NotApplicable
from ..provenance.provenance import of_table
from ..runtime.threads import PREDICTIONS_PAY_FROM, limited
from .fitted import Fitted, evaluated_at, with_params
from .model_inputs import inputs_and_roles
from .origin import Origin, of_program
from .prediction import Prediction
from .program_rows import ProgramRows


def in_data_units(
    fit: Fitted, distribution: Distribution, rows: Tensor, method: str = "predict"
) -> Prediction:
    """Return the Prediction of a distribution of y on the scale of the model.

    Args:
        fit: The posterior.
        distribution: Batch [draw, m], or batch [draw] and event [m].
        rows: The new rows [m, d], on the scale of the model.
        method: The method of the posterior that found it, in words.
    """
    offset, scale = fit.scaler.location_and_scale
    provenance = of_table(rows, fit.data, fit.scaler, fit.also_seen)
    origin = Origin(fit, method)
    return Prediction(distribution, offset, scale, fit.data.classes, provenance, origin)


def terms_in_data_units(
    fit: Fitted, terms: Mapping[str, Distribution], rows: Tensor
) -> dict[str, Prediction]:
    """Return the Prediction of each term of an additive model, which has no offset."""
    _, scale = fit.scaler.location_and_scale
    provenance = of_table(rows, fit.data, fit.scaler, fit.also_seen)
    predictions = {}
    for name, term in terms.items():
        origin = Origin(fit, f"the term {name!r}")
        predictions[name] = Prediction(term, 0.0, scale, None, provenance, origin)
    return predictions


def kept_by(fit: Fitted) -> dict[str, Any]:
    """Return the keyword by which predictions of one fit share a factor, if its model has one."""
    if fit.model.keeps_factor:
        return {"kept": fit.kept}
    return {}


def kept_for_loo(fit: Fitted) -> dict[str, Any]:
    """Return the keyword by which leave-one-out shares that factor, if its model can."""
    if fit.data.is_table and fit.model.loo_keeps_factor:
        return {"kept": fit.kept}
    return {}


def predict_table(fit: Fitted, X: Any, joint: Any, arguments: Mapping[str, Any]) -> Prediction:
    """Return the prediction of a model on a table; see ``Posterior.predict``.

    Raises:
        NotApplicable: If there are arguments which only a program takes.
    """
    roles = [name for name, role in ROLES.items() if role.predicts]
    others = [name for name in arguments if name not in roles]
    if others:
        wanted = f"X, joint, {', '.join(roles[:-1])} and {roles[-1]}"
        do = "a program alone has arguments of its own"
        if "return_std" in others:
            do = "leave it out: the result has .mean, .std and .interval(0.9)"
        elif "level" in others:
            do = "leave it out: the result has .interval(level)"
        elif "return_cov" in others:
            do = "write predict(X, joint=True), whose .sample(100) has draws of all rows together"
        raise NotApplicable(wanted, ", ".join(others), do)
    rows, known = inputs_and_roles(fit, X, arguments)
    with evaluated_at(fit, len(rows)):
        distribution = fit.model.predict(
            fit.theta, rows, fit.data, joint=bool(joint), **known, **kept_by(fit)
        )
    method = "predict with known noise" if "noise_sd" in known else "predict"
    return in_data_units(fit, distribution, rows, method)


def predict_program(
    fit: Fitted, named: Mapping[str, Any], arguments: dict[str, Any]
) -> Prediction | dict[str, Prediction]:
    """Return the prediction of a user's own program; see ``Posterior.predict``.

    Args:
        fit: The posterior.
        named: X, joint and seed as the caller gave them. A program may have arguments of these
            names, which then receive the values.
        arguments: The other arguments of the program.

    Raises:
        NotApplicable: If X is given and the program has no argument of that name.
        DataError: If the program fails because of the kinds, dtypes or sizes of its arguments, or
            NaN among them gives no prediction.
    """
    own = fit.model.arguments(fit.data)
    if named["X"] is not None and "X" not in own:
        do = "call predict(name=value, ...)"
        raise NotApplicable("the program's own arguments by name", "one table", do)
    taken = {name: v for name, v in named.items() if name in own and v is not None}
    arguments = in_usable_dtypes(with_tensors({**arguments, **taken}), beside=fit.data)
    seed = named["seed"]
    if "seed" in own or seed is None:  # an argument ``seed`` of the program is its own affair
        seed = 0
    theta = with_params(fit, fit.theta)
    first = {name: value[0] for name, value in theta.items()}
    predictions = {}
    with limited(Arguments({**fit.data, **arguments}).work(fit.model), PREDICTIONS_PAY_FROM):
        left_out = [n for n in fit.model.required if n in own and n not in arguments]
        sites = {name: str(v.dtype).removeprefix("torch.") for name, v in first.items()}
        with explained(arguments, fit.data, left_out, lambda: sites):
            distributions = fit.model.predict(theta, arguments, fit.data, seed)
        rows = ProgramRows(fit.model.function, first, fit.data, arguments, fit.also_seen)
        for name, distribution in distributions.items():
            prediction = Prediction(distribution)
            _check_numbers(name, distribution, arguments)
            n = len(prediction)
            unknown = partial(rows.unknown, name)
            origin = of_program(fit, name, arguments, n, seed, unknown)
            predictions[name] = replace(prediction, in_training=rows.at(name, n), origin=origin)
    if len(predictions) > 1:
        return predictions
    return next(iter(predictions.values()))


def _check_numbers(site: str, distribution: Distribution, arguments: Mapping[str, Any]) -> None:
    """Raise DataError if NaN or infinity among the arguments leaves a site without a prediction."""
    lost = any(bool(torch.isnan(v).any()) for v in parameters(distribution).values())
    holes = not_finite(arguments) if lost else ""
    if holes:
        wanted = f"numbers in the arguments of the program, for predictions of {site!r}"
        raise DataError(wanted, holes, "drop those rows, or fill them")
