"""The public names of the library, as the reference of the documentation lists them."""

from __future__ import annotations

import importlib
import inspect

import ppgp

#: module without ``__all__`` -> the class whose subclasses are its public names
OF_ERRORS = {"errors": (Exception, Warning)}


def modules() -> list[str]:
    """Return the public modules, without the name of the package."""
    return [name for name in ppgp.__all__ if inspect.ismodule(getattr(ppgp, name))]


def names_of(module: str) -> list[str]:
    """Return the public names of a public module."""
    found = importlib.import_module(f"ppgp.{module}")
    if module in OF_ERRORS:
        kinds = OF_ERRORS[module]
        return [
            name
            for name, kind in vars(found).items()
            if inspect.isclass(kind) and issubclass(kind, kinds) and not name.startswith("_")
        ]
    return list(found.__all__)


def public_names() -> list[str]:
    """Return every public name in full: ``ppgp.fit``, ``ppgp.kernels``, ``ppgp.kernels.RBF``."""
    own = [f"ppgp.{name}" for name in ppgp.__all__]
    return own + [f"ppgp.{module}.{name}" for module in modules() for name in names_of(module)]


def aliases() -> dict[str, str]:
    """Return {name in a module: name in ``ppgp``} of objects that have both."""
    own = {id(getattr(ppgp, name)): f"ppgp.{name}" for name in ppgp.__all__}
    return {
        f"ppgp.{module}.{name}": own[id(found)]
        for module in modules()
        for name in names_of(module)
        if id(found := getattr(importlib.import_module(f"ppgp.{module}"), name)) in own
    }
