"""``load_posterior``, which reads what ``posterior.save`` wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

from pyro.infer import autoguide
from torch import Tensor, nn

from ..data.scaler import IdentityScaler
from ..data.training_data import TrainingData
from ..errors import StorageError, an
from ..kernels import networks
from ..priors import Param
from . import encoding, storage
from .posterior import Posterior

#: modules of the classes that a file may name; imported by name, as some of them use this module
FAMILIES = (
    "data",
    "inference",
    "kernels",
    "kernels.networks",
    "learners",
    "likelihoods",
    "models",
    "posterior",
    "priors",
)
#: names that earlier versions wrote -> names of today; "Class.field" for fields
RENAMED = {"networks.CNN": "kernels.CNN", "networks.MLP": "kernels.MLP"}
SAME_RECIPE = "pass the recipe that was fitted"


def table() -> dict[str, type]:
    """Return every class that a file may name, by its name in a file."""
    families = [import_module(f"ppgp.{family}") for family in FAMILIES]
    members = [getattr(family, name) for family in families for name in family.__all__]
    return {encoding.class_name(member): member for member in members if isinstance(member, type)}


def load_posterior(path: str | Path, model: Any = None, *, unchecked: bool = False) -> Posterior:
    """Read a Posterior that ``posterior.save`` wrote.

    Args:
        path: The file.
        model: What a file cannot hold: the program, guide or torch module that the posterior was
            fitted with, or the recipe that contains this module or a class of the user's own;
            several as a tuple. (The weights are in the file.)
        unchecked: Whether to open a file of format "ppgp-1", which has no checksum: damage to it
            may go unnoticed. Save it again.

    Returns:
        The Posterior.

    Raises:
        StorageError: If the file is missing, foreign or damaged; if it has no checksum and
            ``unchecked`` is not given; if it needs a program, a module or a user's class and
            ``model`` is not given; or if the module is not the one in the file.
    """
    classes, things = encoding.by_name(model)
    known = {**classes, **table()}
    known |= {before: known[now] for before, now in RENAMED.items()}
    guides = {name: getattr(autoguide, name) for name in autoguide.__all__}
    try:
        posterior = storage.load(path, known, {**guides, **things}, unchecked)
    except encoding.NotSupplied as error:
        if model is None:
            raise
        got = ", ".join(map(repr, things)) or an(type(model).__name__)
        raise encoding.NotSupplied(error.expected, got, error.do) from None
    if not isinstance(posterior, Posterior):
        do = "pass a file written by posterior.save"
        raise StorageError("a Posterior in the file", type(posterior).__name__, do)
    try:
        return _ready(posterior, path, things)
    except StorageError:
        raise
    except Exception as error:  # a recipe may raise anything on numbers that are not its own
        wanted = "a Posterior that fits its model"
        raise StorageError(wanted, storage.first_line(error), SAME_RECIPE) from None


def _ready(posterior: Posterior, path: str | Path, things: Mapping[str, Any]) -> Posterior:
    """Check a posterior that was read, and connect its model with the recipe and the data."""
    _check(posterior)
    if any(isinstance(thing, nn.Module) for thing in things.values()):
        _check_shapes(posterior)
    if storage.has_format_1(path):
        posterior = _marked_as_standardised(posterior)
    if posterior.recipe is not None:
        object.__setattr__(posterior.model, "given", posterior.recipe)
        object.__setattr__(posterior.model, "made_for", (posterior.data, posterior.scaler))
    return posterior


def _marked_as_standardised(posterior: Posterior) -> Posterior:
    """Return a posterior whose recipe states that its numbers are on the standardised scale.

    Recipes in files of format "ppgp-1" do not state it.
    """
    model: Any = posterior.model
    own = getattr(model, "__dataclass_fields__", {})
    if posterior.scaler.is_identity or "standardised" not in own or model.standardised:
        return posterior
    return replace(posterior, model=replace(model, standardised=True))


def _check(posterior: Posterior) -> None:
    """Check that the fields are those of one fit.

    Raises:
        StorageError: naming the first field that is not.
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


def _check_shapes(posterior: Posterior) -> None:
    """Check the names and shapes of the weights of a module against those in the file.

    Raises:
        StorageError: naming the first weight that differs.
    """
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
    strange = [name for name in held if name not in sites]
    if strange:
        wanted = "the weights of this module alone"
        raise StorageError(wanted, f"{strange[0]} too", SAME_RECIPE)
