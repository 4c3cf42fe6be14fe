"""load_posterior: what posterior.save wrote."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from ..errors import StorageError
from ..kernels import networks
from ..priors import Param
from . import storage
from .posterior import Posterior

#: where the classes that a file may name live; looked up by name, because some of them stand above this module
FAMILIES = ("data", "inference", "kernels", "kernels.networks", "likelihoods", "models", "posterior", "priors")
#: names that earlier versions wrote -> names of today
RENAMED = {"networks.CNN": "kernels.CNN", "networks.MLP": "kernels.MLP"}


def _table() -> dict[str, type]:
    """Every class that a file may name: the members of the families, and the nouns."""
    families = [import_module(f"ppgp.{family}") for family in FAMILIES]
    members = [getattr(family, name) for family in families for name in family.__all__]
    return {storage.class_name(member): member for member in members if isinstance(member, type)}


def load_posterior(path: str | Path, model: Any = None) -> Posterior:
    """Read a Posterior that ``posterior.save`` wrote.

    Args:
        model: what a file cannot hold: the program, guide or torch module that the posterior was fitted with, or the recipe
            with that module in it. (The weights are in the file.)

    Raises:
        StorageError: if the file is missing, foreign or damaged, holds a program or a module and ``model`` is not given, or the
            module is not the one of the file.
    """
    function = getattr(model, "function", model)
    given = {} if function is None else {getattr(function, "__name__", type(function).__name__): function}
    modules = list(networks.modules_in(function))
    given |= {type(module).__name__: module for module in modules}
    table = _table()
    table |= {before: table[now] for before, now in RENAMED.items()}
    found = storage.load(path, table, given)
    if not isinstance(found, Posterior):
        raise StorageError("a Posterior in the file", type(found).__name__, "pass a file written by posterior.save")
    if modules:
        _same_shapes(found)
    return found


def _same_shapes(found: Posterior) -> None:
    """Refuse a module whose weights have other names or shapes than those in the file."""
    sites = found.model.sites(found.data.d)
    held = {name: v.shape for name, v in found.params.items()} | {name: v.shape[2:] for name, v in found.draws.items()}
    for name, s in sites.items():
        if not s.fixed or isinstance(s, Param):
            got = tuple(held.get(name, ()))
            if name not in held or got != tuple(s.shape):
                stored = str(list(got)) if name in held else "nothing of that name"
                raise StorageError(f"{name} of shape {list(s.shape)} in the file", stored, "pass the recipe that was fitted")
    strange = [name for name in held if name not in sites]
    if strange:
        raise StorageError("the weights of this module alone", f"{strange[0]} too", "pass the recipe that was fitted")
