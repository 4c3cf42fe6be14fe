"""Checks of a posterior that was read from a file: its fields, and the shapes of its weights."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import prod
from typing import Any

from torch import Tensor

from ..data.scaler import IdentityScaler
from ..data.stream.streamed_rows import SUMS as OF_STREAM
from ..data.training_data import TrainingData
from ..errors import StorageError
from ..kernels.linearised_networks import LINEARISED_AT
from ..networks import networks
from ..priors import Param
from .posterior import Posterior

SAME_RECIPE = "pass the recipe that was fitted"


def check_fields(posterior: Posterior) -> None:
    """Check that the fields are those of one fit.

    Raises:
        StorageError: Naming the first field that is not.
    """
    for name, holds in _facts(posterior):
        if not holds:
            do = "it is damaged or foreign; save again"
            raise StorageError(f"{name} in the file", "something else", do)


def _facts(posterior: Posterior) -> Iterator[tuple[str, bool]]:
    """Yield (what a field has to be, whether it is)."""
    draws, data, recipe = posterior.draws, posterior.data, posterior.recipe
    tensors = {**posterior.params, **draws}
    shapes = {tuple(value.shape[:2]) for value in draws.values()}
    weights = sum(value.numel() for value in tensors.values())
    complete = all(len(shape) == 2 and min(shape) > 0 for shape in shapes)
    encoders = networks.instances_in((posterior.model, recipe), networks.Network)
    yield "tensors by site", all(isinstance(v, Tensor) for v in tensors.values())
    yield "draws [chain, draw, ...]", len(shapes) < 2 and complete
    yield "a Dataset or arguments", isinstance(data, TrainingData)
    yield "stats by name", all(isinstance(name, str) for name in posterior.stats)
    yield "seconds", isinstance(posterior.seconds, float | int)
    yield "sentences of warning", _is_tuple_of(posterior.warnings, str)
    yield "a Scaler of these columns", _scaler_fits(posterior)
    yield "all the weights of a network", all(_largest(e) <= weights for e in encoders)
    also_seen = _is_tuple_of(posterior.also_seen, TrainingData)
    yield "tables that the fit has seen besides", also_seen
    yield "a recipe of this model", recipe is None or type(recipe) is type(posterior.model)


def _is_tuple_of(value: object, kind: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(part, kind) for part in value)


def _scaler_fits(posterior: Posterior) -> bool:
    scaler, data = posterior.scaler, posterior.data
    if isinstance(scaler, IdentityScaler):
        return True
    if not data.is_table:
        return False
    parts = (scaler.x_mean, scaler.x_sd, scaler.y_mean, scaler.y_sd)
    return [part.shape for part in parts] == [(data.d,), (data.d,), (), ()]


def _largest(network: networks.Network) -> int:
    """Return a lower bound on the weights of the largest layer, without building the network."""
    sizes = [*getattr(network, "hidden", ()), *getattr(network, "channels", ())]
    sizes.append(getattr(network, "out", 1))
    return max((prod(pair) for pair in pairwise(sizes)), default=0)


def check_shapes(posterior: Posterior) -> None:
    """Check the names and shapes of the weights of a module against those in the file.

    Raises:
        StorageError: Naming the first weight that differs.
    """
    if not posterior.data.is_table:  # the sites of a program are not known without a run
        return
    sites = posterior.model.sites(posterior.data.d)
    held = {name: tuple(value.shape) for name, value in posterior.params.items()}
    held |= {name: tuple(value.shape[2:]) for name, value in posterior.draws.items()}
    for name, site in sites.items():
        if site.fixed and not isinstance(site, Param):
            continue
        if held.get(name) != tuple(site.shape):
            got = "nothing of that name"
            if name in held:
                got = str(list(held[name]))
            wanted = f"{name} of shape {list(site.shape)} in the file"
            raise StorageError(wanted, got, SAME_RECIPE)
    around = {f"{LINEARISED_AT}.{name}" for name in sites}
    around |= {name for name in posterior.params if name.startswith(f"{OF_STREAM}.")}
    strange = [name for name in held if name not in sites and name not in around]
    if strange:
        wanted = "the weights of this module alone"
        raise StorageError(wanted, f"{strange[0]} too", SAME_RECIPE)
