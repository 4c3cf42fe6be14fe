"""How the threads of OpenMP wait for one another: asleep rather than in a busy loop.

GNU's OpenMP reads ``OMP_WAIT_POLICY`` once, when it is loaded. Threads that wait in a busy loop hold a
core that the thread they wait for may need: beside other processes, an operation on two threads then
takes ten to thirty times as long as on one. This module imports neither torch nor NumPy, so that
``import ppgp`` can load the library before torch does.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from importlib.util import find_spec
from pathlib import Path

POLICY = "OMP_WAIT_POLICY"
_policy: str | None = None


def load_passively() -> None:
    """Load torch's OpenMP with threads that sleep while they wait, unless torch or the user was first.

    The environment is afterwards as it was. A policy that the user has set is left alone.
    """
    global _policy
    chosen = os.environ.get(POLICY)
    spins = os.environ.get("GOMP_SPINCOUNT")
    if chosen is not None or spins is not None:
        sleeps = (chosen or "").strip().lower() == "passive" or (spins or "").strip() == "0"
        _policy = "passive" if sleeps else "active"
        return
    if "torch" in sys.modules:
        return
    os.environ[POLICY] = "PASSIVE"
    try:
        if _gomp() is not None:
            _policy = "passive"
    finally:
        del os.environ[POLICY]


def wait_policy() -> str | None:
    """How threads wait: "passive", asleep; "active", in a busy loop that the user has asked for; None: not known."""
    return _policy


def set_own_threads(number: int) -> bool:
    """Set how many threads OpenMP has for this thread of Python alone; False where its library is not GNU's."""
    library = _gomp()
    if library is None:
        return False
    library.omp_set_num_threads(number)
    return True


@functools.lru_cache(maxsize=1)
def _gomp() -> ctypes.CDLL | None:
    """GNU's OpenMP, loaded if torch has not; None where there is none."""
    path = _library()
    try:
        return None if path is None else ctypes.CDLL(str(path))
    except OSError:  # torch says what is wrong with it when it is imported
        return None


def _library() -> Path | None:
    """The file of GNU's OpenMP that torch's wheel brings along; None where it has another one."""
    found = find_spec("torch")
    for folder in (found.submodule_search_locations or ()) if found else ():
        files = sorted(Path(folder, "lib").glob("libgomp*.so*"))
        if files:
            return files[0]
    return None
