"""Libraries that change Python's warning filters or the environment when they are imported, imported without that.

Every room of the package imports this module before any other, so that NumPy, SciPy and torch are first imported here.
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
def unchanged() -> Iterator[None]:
    """Imports inside leave the warning filters and the environment as they were."""
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
    """A library, imported without its notices of what is to come."""
    if name not in sys.modules:
        with unchanged():
            warnings.simplefilter("ignore", FutureWarning)
            return import_module(name)
    return import_module(name)


with unchanged():
    import numpy  # noqa: F401
    import pyro  # noqa: F401
    import scipy.sparse
    import scipy.special  # noqa: F401
    import torch  # noqa: F401
