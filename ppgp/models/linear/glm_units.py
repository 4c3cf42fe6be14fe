"""Units of the coefficients of a generalised linear model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ...data.dataset import Scaler
from ...errors import SettingError
from ...likelihoods import Ordinal
from ...priors import Flat, Prior, in_units_of_data, rescaled
from ..units import coefficients_in_units


def recipe_in_units(model: Any, scaler: Scaler) -> Any:
    """Return the recipe on the scale that the Scaler gives the data.

    Raises:
        SettingError: If a number or prior has no equivalent on that scale.
    """
    y_sd = float(scaler.y_sd)
    likelihood: Any = model.likelihood.in_units(y_sd)
    given = [p for p in (model.weight, model.bias) if in_units_of_data(p)]
    if likelihood.predicted and given and y_sd != 1.0:
        raise SettingError(
            "priors on the standardised scale for several functions, which differ in their units",
            repr(given[0]),
            "pass standardise=False to fit, or use other priors",
        )
    if isinstance(likelihood, Ordinal):
        likelihood = _cutpoints_in_units(model, likelihood, scaler)
    if isinstance(likelihood, Ordinal) or model.bias is None:
        weight, _ = coefficients_in_units(model.weight, Flat(), scaler)
        return replace(model, likelihood=likelihood, weight=weight)
    weight, bias = coefficients_in_units(model.weight, model.bias, scaler)
    return replace(model, likelihood=likelihood, weight=weight, bias=bias)


def _cutpoints_in_units(model: Any, likelihood: Ordinal, scaler: Scaler) -> Ordinal:
    """Return the likelihood with its numbers, if it has them, at the mean of X."""
    x_mean, cutpoints = scaler.x_mean.tolist(), likelihood.cutpoints
    if isinstance(cutpoints, Prior) or not any(x_mean):
        return likelihood
    weight: Any = model.weight
    if isinstance(weight, Prior):
        raise SettingError(
            "cutpoints in the units of the data beside fixed weights alone",
            repr(cutpoints),
            "pass standardise=False to fit, or give the cutpoints a prior",
        )
    each = weight if isinstance(weight, tuple) else (weight,) * len(x_mean)
    shift = -sum(w * m for w, m in zip(each, x_mean, strict=True))
    return replace(likelihood, cutpoints=rescaled(cutpoints, 1.0, shift, "cutpoints"))


def coefficients_in_data_units(
    model: Any, draws: Mapping[str, Tensor], scaler: Scaler, d: int | None = None
) -> dict[str, Tensor]:
    """Return weights, and intercepts or cutpoints, in the units of the data.

    Args:
        model: The recipe on the scale of the model.
        draws: {site: [chain, draw, *event]} on the scale of the model.
        scaler: The Scaler that standardised the data.
        d: The number of columns of X; None: that of the Scaler.

    Returns:
        {name: [chain, draw, *event]}, or [1, 1, *event] where all that it depends on is fixed.
    """
    likelihood, like = model.likelihood, scaler.x_mean
    d = len(like) if d is None else d
    weight, bias = model.predictors(draws, like.new_zeros(1, d))
    if weight.ndim == 2:
        weight = weight[None, None]
    if bias.ndim == 1:
        bias = bias[None, None]
    factor, shift = _of_functions(likelihood, scaler)
    weight = weight * factor[:, None] / scaler.x_sd
    at_mean = weight @ scaler.x_mean.expand(d)
    if isinstance(likelihood, Ordinal):
        cutpoints: Any = likelihood.value(draws, "cutpoints", like)[..., 0]
        if cutpoints.ndim == 1:
            cutpoints = cutpoints[None, None]
        return {"weight": weight[..., 0, :], "cutpoints": cutpoints + at_mean}
    bias = bias * factor + shift - at_mean
    if likelihood.latents == 1:
        return {"weight": weight[..., 0, :], "bias": bias[..., 0]}
    return {"weight": weight, "bias": bias}


def _of_functions(likelihood: Any, scaler: Scaler) -> tuple[Tensor, Tensor]:
    """Return factor and shift [K] from the functions on the scale of the model to data units."""
    K = likelihood.latents
    factor, shift = torch.ones(K).to(scaler.x_mean), torch.zeros(K).to(scaler.x_mean)
    if "y" not in likelihood.scales:
        return factor, shift
    factor[0], shift[0] = scaler.y_sd, scaler.y_mean
    for k, name in enumerate(likelihood.predicted, 1):
        shift[k] = likelihood.dimensions.get(name, 0) * math.log(float(scaler.y_sd))
    return factor, shift
