"""Imports of libraries that would otherwise change Python's warning filters or the environment.

Every package of ``ppgp`` that needs NumPy, SciPy, torch or Pyro imports this module before any
other, so that these libraries are imported here first. ``ppgp.runtime.__init__`` imports nothing,
so that ``import ppgp`` does not load torch.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any


@contextmanager
def settings_unchanged() -> Iterator[None]:
    """Restore the warning filters and the environment after imports inside the block."""
    environment = dict(os.environ)
    with warnings.catch_warnings():
        try:
            yield
        finally:
            for name in os.environ.keys() - environment.keys():
                del os.environ[name]
            for name, value in environment.items():
                if os.environ.get(name) != value:
                    os.environ[name] = value


def imported(name: str) -> ModuleType:
    """Import a library without its deprecation notices (FutureWarning) and return it."""
    if name not in sys.modules:
        with settings_unchanged():
            warnings.simplefilter("ignore", FutureWarning)
            return import_module(name)
    return import_module(name)


class _Later(ModuleType):
    """Stands for ArviZ while nutpie is imported, and reads attributes of ArviZ afterwards."""

    def __getattr__(self, name: str) -> Any:
        if name == "InferenceData" and sys.modules.get(self.__name__) is self:
            return Any  # nutpie annotates its functions with it
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(imported(self.__name__), name)


def nutpie() -> ModuleType:
    """Return the module nutpie, without importing ArviZ, which would take a second.

    nutpie imports ArviZ for a conversion of draws that the library does not use. It is imported
    once an attribute of it is read.
    """
    if "nutpie" in sys.modules or "arviz" in sys.modules:
        return imported("nutpie")
    later = _Later("arviz")
    sys.modules["arviz"] = later
    try:
        return imported("nutpie")
    finally:
        if sys.modules.get("arviz") is later:
            del sys.modules["arviz"]


with settings_unchanged():
    import numpy  # noqa: F401
    import pyro  # noqa: F401
    import scipy.sparse
    import scipy.special  # noqa: F401
    import torch  # noqa: F401
