"""How the threads of OpenMP wait for one another: asleep, or in a busy loop.

GNU's OpenMP reads ``OMP_WAIT_POLICY`` once, when it is loaded. Threads that wait in a busy loop
hold a core that the thread they wait for may need: beside other processes, an operation on two
threads then takes ten to thirty times as long as on one. This module imports neither torch nor
NumPy, so that ``import ppgp`` can load the library before torch does.
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
    """Load torch's OpenMP library with threads that sleep while they wait.

    Nothing happens if torch is already imported or the user has set a policy. The environment is
    restored afterwards.
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
    """Return how threads wait.

    Returns:
        "passive" for asleep, "active" for a busy loop that the user has asked for, None if unknown.
    """
    return _policy


def set_own_threads(number: int) -> bool:
    """Set the number of OpenMP threads for the current Python thread alone.

    Returns:
        False if the OpenMP library is not GNU's, and True otherwise.
    """
    library = _gomp()
    if library is None:
        return False
    library.omp_set_num_threads(number)
    return True


@functools.lru_cache(maxsize=1)
def _gomp() -> ctypes.CDLL | None:
    """Return GNU's OpenMP library, loading it if needed; None where there is none."""
    path = _library()
    if path is None:
        return None
    try:
        return ctypes.CDLL(str(path))
    except OSError:  # torch reports the problem when it is imported
        return None


def _library() -> Path | None:
    """Return the file of GNU's OpenMP in torch's wheel; None if the wheel has another OpenMP."""
    torch_spec = find_spec("torch")
    if torch_spec is None:
        return None
    for folder in torch_spec.submodule_search_locations or ():
        files = sorted(Path(folder, "lib").glob("libgomp*.so*"))
        if files:
            return files[0]
    return None
