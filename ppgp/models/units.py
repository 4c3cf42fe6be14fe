"""Conversion of recipes and draws between the units of the data and the scale of the model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from ..data.dataset import Scaler
from ..errors import SettingError
from ..kernels.units import Factor
from ..priors import (
    Flat,
    InUnitsOfData,
    Normal,
    Prior,
    PriorLike,
    affine,
    bare,
    in_units_of_data,
    rescaled,
    tensor_of,
)
from ..priors.units import power as power


def coefficients_in_units(
    weight: PriorLike, bias: PriorLike, scaler: Scaler, conjugate: bool = False
) -> tuple[PriorLike, PriorLike]:
    """Return the weight and the bias of a linear model on the scale of the model.

    A weight w_j becomes w_j x_sd_j / y_sd. The bias becomes the value of the model at the mean
    of X.

    Args:
        weight: Prior or number of the weights.
        bias: Prior or number of the intercept.
        scaler: The Scaler that standardised the data.
        conjugate: Whether the sds of normal priors are in units of the noise sd, which is itself
            divided by y_sd.

    Raises:
        SettingError: For a bias in the units of the data beside weights that are not fixed. A
            flat bias is accepted: it is also flat at the mean of X.
    """
    x_sd = tuple(scaler.x_sd.tolist())
    y_mean, y_sd = float(scaler.y_mean), float(scaler.y_sd)
    new_weight = rescaled(weight, tuple(s / y_sd for s in x_sd), what="weight")
    new_bias = bias
    if in_units_of_data(bias):
        shift = _shift_of_bias(weight, bias, tuple(scaler.x_mean.tolist()))
        new_bias = rescaled(bias, 1 / y_sd, (shift - y_mean) / y_sd, "bias")
    if conjugate:
        new_weight = _in_noise_sds(weight, new_weight, y_sd)
        new_bias = _in_noise_sds(bias, new_bias, y_sd)
    return new_weight, new_bias


def _shift_of_bias(weight: PriorLike, bias: PriorLike, x_mean: tuple[float, ...]) -> float:
    """Return the part of the mean of X in the bias: sum_j weight_j x_mean_j, 0 if it is flat."""
    if not any(x_mean) or (isinstance(weight, Prior) and isinstance(bare(bias), Flat)):
        return 0.0
    if isinstance(weight, Prior):
        raise SettingError(
            "a bias in the units of the data beside fixed weights alone",
            f"bias={bias!r}",
            "pass standardise=False to fit, or give the bias a prior on the standardised scale",
        )
    if not isinstance(weight, tuple):
        weight = (weight,) * len(x_mean)
    return sum(w * m for w, m in zip(weight, x_mean, strict=True))


def _in_noise_sds(before: PriorLike, now: PriorLike, y_sd: float) -> PriorLike:
    """Return a converted normal prior with its sd in units of the noise sd again."""
    if isinstance(before, InUnitsOfData) and isinstance(now, Normal):
        return replace(now, scale=affine(now.scale, y_sd))
    return now


def coefficients_of_data(
    draws: Mapping[str, Tensor], weight: Tensor, scaler: Scaler
) -> dict[str, Tensor | None]:
    """Return the drawn coefficients in the units of the data.

    Args:
        draws: {site: [chain, draw, *event]} on the scale of the model.
        weight: The weights on that scale, drawn or fixed: [chain, draw, d] or [].
        scaler: The Scaler that standardised the data.

    Returns:
        "weight" [chain, draw, d] and "bias" [chain, draw], whichever of them are in ``draws``.
    """
    weight_of_data = weight * (scaler.y_sd / scaler.x_sd)
    converted: dict[str, Tensor | None] = {}
    if "weight" in draws:
        converted["weight"] = weight_of_data
    if "bias" in draws:
        bias = scaler.y_mean + scaler.y_sd * draws["bias"]
        converted["bias"] = bias - weight_of_data @ scaler.x_mean
    return converted


def times(draws: Mapping[str, Tensor], factors: Mapping[str, Factor]) -> dict[str, Tensor | None]:
    """Multiply draws by factors.

    Args:
        draws: {site: [chain, draw, *event]}.
        factors: {site: a number, or a tuple of one number per column, or NaN}.

    Returns:
        {site: [chain, draw, *event]}, or [chain, draw, d] for a scalar with one factor per column;
        None for a site without a factor.
    """
    products: dict[str, Tensor | None] = {}
    for name, value in draws.items():
        factor = factors.get(name, math.nan)
        if isinstance(factor, tuple):
            if value.ndim == 2:
                value = value[..., None]
            products[name] = value * tensor_of(factor, value)
        elif math.isnan(factor):
            products[name] = None
        else:
            products[name] = value * factor
    return products
