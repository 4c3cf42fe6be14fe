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


with settings_unchanged():
    import numpy  # noqa: F401
    import pyro  # noqa: F401
    import scipy.sparse
    import scipy.special  # noqa: F401
    import torch  # noqa: F401
