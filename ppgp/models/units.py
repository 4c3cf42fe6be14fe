"""Recipes and draws between the units of the data and the scale that a model sees."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from ..data.dataset import Dataset, Scaler
from ..errors import SettingError
from ..kernels.units import Factor, Units
from ..priors import (
    Flat,
    InUnitsOfData,
    Normal,
    Prior,
    PriorLike,
    affine,
    bare,
    in_units_of_data,
    moved,
    tensor_of,
)
from ..priors.units import power


def units_of(scaler: Scaler) -> Units:
    """What a kernel needs to know of the scaler."""
    return Units.of(scaler.x_mean, scaler.x_sd, scaler.y_sd)


def level(mean: PriorLike | None, scaler: Scaler) -> PriorLike | None:
    """A constant mean on the scale of the model; None, the mean of the rows, is 0 where y was standardised."""
    y_mean, y_sd = float(scaler.y_mean), float(scaler.y_sd)
    if mean is None:
        return None if (y_mean, y_sd) == (0.0, 1.0) else 0.0
    return moved(mean, 1 / y_sd, -y_mean / y_sd, "the mean")


def filled(mean: PriorLike | None, data: Dataset, numbers: bool = True) -> PriorLike:
    """The mean of the rows in place of None; 0 where y is no number (``numbers`` False)."""
    if mean is not None:
        return mean
    return float(data.y.mean()) if numbers else 0.0


def coefficients_in_units(
    weight: PriorLike, bias: PriorLike, scaler: Scaler, conjugate: bool = False
) -> tuple[PriorLike, PriorLike]:
    """Weight and bias of a linear model on the scale of the model: w_j x_sd_j / y_sd, and the value at the mean of X.

    ``conjugate``: the sds of normal priors are in units of the noise sd, which is divided by y_sd itself.

    Raises:
        SettingError: for a bias in the units of the data beside weights that are not fixed, unless it is flat: then it is flat at
            the mean of X too.
    """
    x_mean, x_sd = tuple(scaler.x_mean.tolist()), tuple(scaler.x_sd.tolist())
    y_mean, y_sd = float(scaler.y_mean), float(scaler.y_sd)
    found = [moved(weight, tuple(s / y_sd for s in x_sd), what="weight"), bias]
    if in_units_of_data(bias):
        at_mean = 0.0
        if any(x_mean) and not (isinstance(weight, Prior) and isinstance(bare(bias), Flat)):
            if isinstance(weight, Prior):
                do = "pass standardise=False to fit, or give the bias a prior on the standardised scale"
                raise SettingError(
                    "a bias in the units of the data beside fixed weights alone",
                    f"bias={bias!r}",
                    do,
                )
            each = weight if isinstance(weight, tuple) else (weight,) * len(x_mean)
            at_mean = sum(w * m for w, m in zip(each, x_mean, strict=True))
        found[1] = moved(bias, 1 / y_sd, (at_mean - y_mean) / y_sd, "bias")
    if conjugate:
        for i, before in enumerate((weight, bias)):
            now = found[i]
            if isinstance(before, InUnitsOfData) and isinstance(now, Normal):
                found[i] = replace(now, scale=affine(now.scale, y_sd))
    return found[0], found[1]


def coefficients_of_data(
    draws: Mapping[str, Tensor], weight: Tensor, scaler: Scaler
) -> dict[str, Tensor | None]:
    """Weight [chain, draw, d] and bias [chain, draw] in the units of the data, those of them that are drawn."""
    whole = weight * (scaler.y_sd / scaler.x_sd)
    found: dict[str, Tensor | None] = {"weight": whole} if "weight" in draws else {}
    if "bias" in draws:
        found["bias"] = scaler.y_mean + scaler.y_sd * draws["bias"] - whole @ scaler.x_mean
    return found


def of_gp(
    draws: Mapping[str, Tensor], factors: Mapping[str, Factor], scaler: Scaler
) -> dict[str, Tensor | None]:
    """Draws of a model with a kernel, a noise and a constant mean, in the units of the data."""
    found = times(draws, {**factors, "noise": power(float(scaler.y_sd), 2)})
    return (
        found | {"mean": scaler.y_mean + scaler.y_sd * draws["mean"]} if "mean" in draws else found
    )


def times(draws: Mapping[str, Tensor], factors: Mapping[str, Factor]) -> dict[str, Tensor | None]:
    """Draws {site: [chain, draw, *event]} times the factors; None where there is no factor.

    A scalar with one factor a column becomes [chain, draw, d].
    """
    found: dict[str, Tensor | None] = {}
    for name, value in draws.items():
        factor = factors.get(name, math.nan)
        if isinstance(factor, tuple):
            each = value[..., None] if value.ndim == 2 else value
            found[name] = each * tensor_of(factor, value)
        else:
            found[name] = None if math.isnan(factor) else value * factor
    return found
