"""Draws on the scale of the model, or in the units of the data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ..data.dataset import Scaler
from ..errors import UnknownName

UNITS = ("model", "data")


def draws_in(
    units: str, draws: Mapping[str, Tensor], model: Any, scaler: Scaler
) -> tuple[dict[str, Tensor], list[str]]:
    """Return draws on the scale of the model, or in the units of the data.

    Args:
        units: "model" or "data".
        draws: ``{site: [chain, draw, *event]}`` on the scale of the model.
        model: The prepared model.
        scaler: The standardisation of the data.

    Returns:
        The draws, and the sites that stay on the scale of the model for want of an equivalent.

    Raises:
        UnknownName: If ``units`` is neither "model" nor "data".
    """
    if units not in UNITS:
        raise UnknownName("system of units", units, UNITS)
    draws = quantities(draws, model)
    if units == "model" or scaler.is_identity or not draws:
        return dict(draws), []
    converted = model.data_units(draws, scaler)
    left = [name for name in draws if converted.get(name) is None]
    every = {**converted, **{name: draws[name] for name in left}}
    return {name: every[name] for name in draws}, left


def quantities(draws: Mapping[str, Tensor], model: Any) -> dict[str, Tensor]:
    """Return the draws without the sites that describe the structure of a fit, such as trees."""
    structural = tuple(getattr(model, "structural", ()))
    return {
        name: v for name, v in draws.items() if not structural or not name.startswith(structural)
    }


def scale_of(units: str, scaler: Scaler) -> str:
    """Return the scale of the draws in words."""
    if units == "data" or scaler.is_identity:
        return "units of the data"
    return "standardised scale"
