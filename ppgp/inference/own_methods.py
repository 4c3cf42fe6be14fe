"""The methods that ``fit`` uses without ``how``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import UnknownName
from .base import Inference
from .boosting.natural_gradient import NaturalGradientBoosting
from .ensemble import Ensemble
from .mcmc.nuts import NUTS
from .optimise.laplace import Laplace
from .optimise.map import MAP

__all__ = ["OWN_METHODS", "default_name", "own_method"]


def deep_ensemble() -> Inference:
    """Return the method of Lakshminarayanan, Pritzel & Blundell (2017)."""
    return Ensemble(MAP("adam", adversarial=0.01))


#: ``Model.own_method`` -> the method; the command line knows the methods by the same names
OWN_METHODS: dict[str, Callable[[], Inference]] = {
    "deep-ensemble": deep_ensemble,
    "ngb": NaturalGradientBoosting,
    "laplace": Laplace,
}
USUAL = "nuts"


def default_name(model: Any, n: int) -> str:
    """Return the name of the method of a fit to n rows without ``how``.

    It is the model's own, or else NUTS, which for a model of many rows would take hours: past
    ``Model.sampled_rows`` it is Laplace.
    """
    if model.own_method:
        return model.own_method
    if model.sampled_rows is not None and n > model.sampled_rows:
        return "laplace"
    return USUAL


def own_method(model: Any, n: int) -> Inference:
    """Return the method of a fit to n rows without ``how``.

    Raises:
        UnknownName: If the model names a method as its own that does not exist.
    """
    name = default_name(model, n)
    if name == USUAL:
        return NUTS()
    if name not in OWN_METHODS:
        raise UnknownName("method of a model", name, OWN_METHODS)
    return OWN_METHODS[name]()
