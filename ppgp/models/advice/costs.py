"""About how many seconds and bytes a fit of each Gaussian process takes.

The seconds are measured by ``python tests/tools/costs.py --write``, on one thread of one machine:
fits by MAP, and of SVGP by SVI in mini-batches. They are right within a factor of a few.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

COSTS = Path(__file__).with_name("costs.json")
MATRICES = 5.0  # n by n matrices that a density or a prediction holds, whatever the kernel
MATRICES_A_TERM = 4.0  # and the density for the gradient of each term of the kernel
INDUCING = 100  # of SGPR and SVGP
NEIGHBOURS = 30  # of Vecchia
NODES = 1024  # of SKI
NUMBER = 8.0  # bytes

Term = Callable[[float, int], float]


def _longest(n: float, d: int) -> float:
    """Return the number of levels along each axis of a grid of n rows."""
    return n ** (1 / d)


#: model -> {name: what the seconds grow with, from the numbers of rows and of columns}
TERMS: Mapping[str, Mapping[str, Term]] = {
    "GP": {"n^3": lambda n, d: n**3, "1": lambda n, d: 1.0},
    "LatentGP": {"n^3": lambda n, d: n**3, "1": lambda n, d: 1.0},
    "StateSpaceGP": {"n": lambda n, d: n, "1": lambda n, d: 1.0},
    "LatentStateSpaceGP": {"n": lambda n, d: n, "1": lambda n, d: 1.0},
    "GridGP": {"n (n_1 + ... + n_d)": lambda n, d: n * d * _longest(n, d), "1": lambda n, d: 1.0},
    "Vecchia": {"n": lambda n, d: n, "1": lambda n, d: 1.0},
    "LatentVecchia": {"n": lambda n, d: n, "1": lambda n, d: 1.0},
    "SKI": {"n 4^d": lambda n, d: n * 4.0**d, "1": lambda n, d: 1.0},
    "SGPR": {"n": lambda n, d: n, "1": lambda n, d: 1.0},
    "SVGP": {"n": lambda n, d: n, "1": lambda n, d: 1.0},
}

#: model -> the numbers that a fit holds
_NUMBERS: Mapping[str, Term] = {
    "GP": lambda n, d: (MATRICES + MATRICES_A_TERM) * n * n,
    "LatentGP": lambda n, d: (MATRICES + MATRICES_A_TERM) * n * n,
    "StateSpaceGP": lambda n, d: 168.0 * n,  # three states: 12 s^2 + 20 s
    "LatentStateSpaceGP": lambda n, d: 168.0 * n,
    "GridGP": lambda n, d: 8.0 * n + 6.0 * d * _longest(n, d) ** 2,
    "Vecchia": lambda n, d: (2.0 * NEIGHBOURS + d) * n,
    "LatentVecchia": lambda n, d: 2_500.0 * n,  # see ``latent_vecchia``
    "SKI": lambda n, d: 16.0 * NODES**2 + (d + 1.0) * n,
    "SGPR": lambda n, d: 10.0 * INDUCING**2 + (d + 1.0) * n,
    "SVGP": lambda n, d: 10.0 * INDUCING**2 + (d + 1.0) * n,
}


@cache
def _factors() -> dict[str, dict[str, float]]:
    return json.loads(COSTS.read_text(encoding="utf-8"))


def seconds(model: str, n: float, d: int) -> float:
    """Return about how many seconds a fit to n rows of d columns takes."""
    factors = _factors()[model]
    return sum(factors[name] * term(n, d) for name, term in TERMS[model].items())


def by_method(seconds_of_map: float, model: str, d: int, times: float) -> float:
    """Return about how many seconds a fit by another method takes.

    Args:
        seconds_of_map: The seconds of MAP.
        model: The model, a key of ``TERMS``.
        d: The number of columns.
        times: How many times as long as those of MAP its evaluations of the density take. What
            does not grow with the rows, such as compiling, is the same for all methods.
    """
    fixed = min(seconds_of_map, seconds(model, 0.0, d))
    return fixed + times * (seconds_of_map - fixed)


def memory(model: str, n: float, d: int) -> float:
    """Return about how many bytes a fit to n rows of d columns holds."""
    return NUMBER * _NUMBERS[model](n, d)
