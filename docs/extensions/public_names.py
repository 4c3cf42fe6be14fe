"""The public names of the library, as the reference of the documentation lists them."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import ppgp


def modules() -> list[str]:
    """Return the public modules, without the name of the package."""
    return [name for name in ppgp.__all__ if inspect.ismodule(getattr(ppgp, name))]


def names_of(module: str) -> list[str]:
    """Return the public names of a public module: ``__all__``, or its errors and warnings."""
    found = importlib.import_module(f"ppgp.{module}")
    if hasattr(found, "__all__"):
        return list(found.__all__)
    return [
        name
        for name, kind in vars(found).items()
        if inspect.isclass(kind) and issubclass(kind, Exception) and not name.startswith("_")
    ]


def public_names() -> list[str]:
    """Return every public name in full: ``ppgp.fit``, ``ppgp.kernels``, ``ppgp.kernels.RBF``."""
    own = [f"ppgp.{name}" for name in ppgp.__all__]
    return own + [f"ppgp.{module}.{name}" for module in modules() for name in names_of(module)]


def by_kind() -> dict[str, dict[str, list[str]]]:
    """Return {module: {"classes": names, "functions": names, "constants": names}}."""
    table: dict[str, dict[str, list[str]]] = {}
    for module in modules():
        kinds: dict[str, list[str]] = {"classes": [], "functions": [], "constants": []}
        for name in names_of(module):
            kinds[kind_of(getattr(getattr(ppgp, module), name))].append(name)
        table[f"ppgp.{module}"] = kinds
    return table


def kind_of(found: Any) -> str:
    """Return the heading of the reference below which an object stands."""
    if inspect.isclass(found):
        return "classes"
    return "functions" if callable(found) else "constants"


def aliases() -> dict[str, str]:
    """Return {name in a module: name in ``ppgp``} of objects that have both."""
    own = {id(getattr(ppgp, name)): f"ppgp.{name}" for name in ppgp.__all__}
    return {
        f"ppgp.{module}.{name}": own[id(found)]
        for module in modules()
        for name in names_of(module)
        if id(found := getattr(getattr(ppgp, module), name)) in own
    }
