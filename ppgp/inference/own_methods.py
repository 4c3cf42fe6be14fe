"""The methods that models name as their own, which ``fit`` uses without ``how``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import UnknownName
from .base import Inference
from .boosting.natural_gradient import NaturalGradientBoosting
from .ensemble import Ensemble
from .optimise.map import MAP

__all__ = ["OWN_METHODS", "own_method"]


def deep_ensemble() -> Inference:
    """Return the method of Lakshminarayanan, Pritzel & Blundell (2017)."""
    return Ensemble(MAP("adam", adversarial=0.01))


#: ``Model.own_method`` -> the method; the command line knows the methods by the same names
OWN_METHODS: dict[str, Callable[[], Inference]] = {
    "deep-ensemble": deep_ensemble,
    "ngb": NaturalGradientBoosting,
}


def own_method(model: Any) -> Inference | None:
    """Return the method that a model names as its own; None if it names none.

    Raises:
        UnknownName: If there is no such method.
    """
    name = model.own_method
    if not name:
        return None
    if name not in OWN_METHODS:
        raise UnknownName("method of a model", name, OWN_METHODS)
    return OWN_METHODS[name]()
