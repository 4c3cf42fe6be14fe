"""load_posterior: what posterior.save wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

from pyro.infer import autoguide
from torch import Tensor, nn

from ..data import Dataset
from ..errors import StorageError, an
from ..kernels import networks
from ..priors import Param
from . import encoding, storage
from .posterior import Posterior

#: where the classes that a file may name live; looked up by name, because some of them stand above this module
FAMILIES = (
    "data",
    "inference",
    "kernels",
    "kernels.networks",
    "likelihoods",
    "models",
    "posterior",
    "priors",
)
#: names that earlier versions wrote -> names of today; "Class.field" for fields
RENAMED = {"networks.CNN": "kernels.CNN", "networks.MLP": "kernels.MLP"}


def table() -> dict[str, type]:
    """Every class that a file may name: the members of the families, and the nouns."""
    families = [import_module(f"ppgp.{family}") for family in FAMILIES]
    members = [getattr(family, name) for family in families for name in family.__all__]
    return {encoding.class_name(member): member for member in members if isinstance(member, type)}


def load_posterior(path: str | Path, model: Any = None, *, unchecked: bool = False) -> Posterior:
    """Read a Posterior that ``posterior.save`` wrote.

    Args:
        model: what a file cannot hold: the program, guide or torch module that the posterior was fitted with, or the recipe
            with that module in it, or with a class of one's own; several as a tuple. (The weights are in the file.)
        unchecked: open a file of format "ppgp-1", which has no checksum: damage to it may go unnoticed. Save it again.

    Raises:
        StorageError: if the file is missing, foreign or damaged, has no checksum and ``unchecked`` is not given, holds a program,
            a module or a user's class and ``model`` is not given, or the module is not the one of the file.
    """
    classes, things = encoding.by_name(model)
    known = {**classes, **table()}
    known |= {before: known[now] for before, now in RENAMED.items()}
    guides = {name: getattr(autoguide, name) for name in autoguide.__all__}
    try:
        found = storage.load(path, known, {**guides, **things}, unchecked)
    except encoding.NotSupplied as error:
        if model is None:
            raise
        got = ", ".join(map(repr, things)) or an(type(model).__name__)
        raise encoding.NotSupplied(error.expected, got, error.do) from None
    if not isinstance(found, Posterior):
        raise StorageError(
            "a Posterior in the file", type(found).__name__, "pass a file written by posterior.save"
        )
    try:
        _check(found)
        if any(isinstance(thing, nn.Module) for thing in things.values()):
            _same_shapes(found)
        if storage.is_of_the_format_before(path):
            found = _marked(found)
        if found.recipe is not None:
            object.__setattr__(found.model, "given", found.recipe)
            object.__setattr__(found.model, "made_for", (found.data, found.scaler))
        return found
    except StorageError:
        raise
    except Exception as error:  # a recipe may raise anything where its numbers are not its own
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise StorageError(
            "a Posterior that fits its model", reason, "pass the recipe that was fitted"
        ) from None


def _marked(found: Posterior) -> Posterior:
    """With a recipe that says that its numbers are on the standardised scale; those of "ppgp-1" do not say so."""
    model: Any = found.model
    own = getattr(model, "__dataclass_fields__", {})
    if found.scaler is None or "standardised" not in own or model.standardised:
        return found
    return replace(found, model=replace(model, standardised=True))


def _check(found: Posterior) -> None:
    """Refuse fields that are not those of one fit."""
    tensors = {**found.params, **found.draws}
    counts = {tuple(value.shape[:2]) for value in found.draws.values()}
    weights = sum(value.numel() for value in tensors.values())
    scaler, data = found.scaler, found.data
    means = [] if scaler is None else [scaler.x_mean, scaler.x_sd, scaler.y_mean, scaler.y_sd]
    rows = isinstance(data, Dataset)
    facts = {
        "tensors by site": all(isinstance(v, Tensor) for v in tensors.values()),
        "draws [chain, draw, ...]": len(counts) < 2
        and all(len(c) == 2 and min(c) > 0 for c in counts),
        "a Dataset or arguments": rows or isinstance(data, Mapping),
        "stats by name": all(isinstance(name, str) for name in found.stats),
        "seconds": isinstance(found.seconds, float | int),
        "sentences of warning": isinstance(found.warnings, tuple)
        and all(isinstance(s, str) for s in found.warnings),
        "a Scaler of these columns": scaler is None
        or (rows and [v.shape for v in means] == [(data.d,), (data.d,), (), ()]),
        "all the weights of a network": all(
            _largest(network) <= weights
            for network in networks.instances_in((found.model, found.recipe), networks.Network)
        ),
        "tables that the fit has seen besides": isinstance(found.also_seen, tuple)
        and all(isinstance(table, Dataset | Mapping) for table in found.also_seen),
        "a recipe of this model": found.recipe is None or type(found.recipe) is type(found.model),
    }
    wrong = [name for name, holds in facts.items() if not holds]
    if wrong:
        raise StorageError(
            f"{wrong[0]} in the file", "something else", "it is damaged or foreign; save again"
        )


def _largest(network: networks.Network) -> int:
    """A lower bound on the weights of its largest layer, computed without building it."""
    sizes = [
        *getattr(network, "hidden", ()),
        *getattr(network, "channels", ()),
        getattr(network, "out", 1),
    ]
    return max((prod(pair) for pair in pairwise(sizes)), default=0)


def _same_shapes(found: Posterior) -> None:
    """Refuse a module whose weights have other names or shapes than those in the file."""
    sites = found.model.sites(found.data.d)
    held = {name: v.shape for name, v in found.params.items()} | {
        name: v.shape[2:] for name, v in found.draws.items()
    }
    for name, s in sites.items():
        if not s.fixed or isinstance(s, Param):
            got = tuple(held.get(name, ()))
            if name not in held or got != tuple(s.shape):
                stored = str(list(got)) if name in held else "nothing of that name"
                raise StorageError(
                    f"{name} of shape {list(s.shape)} in the file",
                    stored,
                    "pass the recipe that was fitted",
                )
    strange = [name for name in held if name not in sites]
    if strange:
        raise StorageError(
            "the weights of this module alone",
            f"{strange[0]} too",
            "pass the recipe that was fitted",
        )
