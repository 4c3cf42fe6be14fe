"""Which Gaussian process suits which data: one rule per model.

The rules are facts about the models, each with where it comes from. Nothing here imports a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["EVERY", "EXACT", "MOST_ROWS", "RULES", "TAKE", "Facts"]

MOST_ROWS = 5_000  # of an exact GP, which takes minutes from there on
MOST_ROWS_OF_LATENT = 2_000  # of a GP with a search for f in each evaluation
MOST_ROWS_OF_LATENT_VECCHIA = 100_000  # of Vecchia with such a search, which holds 20 kB a row
MOST_ROWS_AT_ONCE = 1_000_000  # of SGPR
MOST_LEVELS = 5_000  # along an axis of a grid, whose eigenvectors cost their cube
MOST_PLACES = 10  # columns in which the nearest rows tell most: Katzfuss & Guinness (2021)
MOST_OF_GRID = 4  # columns of a SKI, as nodes multiply
SMOOTH = 2.5  # nu from which few nodes or few inducing inputs follow the function
ROUGH = 1.5  # nu below which 100 inducing inputs are too few
EVERY = ("StateSpaceGP", "GridGP", "GP", "Vecchia", "SKI", "SGPR", "SVGP")
EXACT = ("StateSpaceGP", "GridGP", "GP")
#: a role of a column -> the models that take it; no model takes another role
TAKE = {"noise_sd": ("StateSpaceGP", "GP", "Vecchia"), "weights": ("SVGP",), "ids": EVERY}


@dataclass(frozen=True)
class Facts:
    """What the rules depend on.

    Attributes:
        n: The number of rows.
        d: The number of columns.
        gaussian: Whether y is f with Gaussian noise.
        several: Whether the likelihood has several functions of x.
        grid: The shape of the complete grid that the rows form; None: they form none, or it is not
            known.
        roles: The roles of columns beside X and y, and "missing values" and "codes of categories"
            if X has such.
        features: The number of columns that the kernel reads; None: d.
        smoothness: The order nu of the Matern kernel as rough as the function; None: not known.
        lacks_states: The kernel, if it has no state space.
    """

    n: int
    d: int
    gaussian: bool
    several: bool
    grid: tuple[int, ...] | None = None
    roles: tuple[str, ...] = ()
    features: int | None = None
    smoothness: float | None = None
    lacks_states: str | None = None

    @property
    def columns(self) -> int:
        """The number of columns that the kernel reads."""
        return self.d if self.features is None else self.features


def _state_space(facts: Facts) -> tuple[bool, str]:
    if facts.d != 1:
        return False, "takes one column, the time"
    if facts.several:
        return False, "has one function of x, and this likelihood several"
    if facts.lacks_states is not None:
        return False, f"{facts.lacks_states} has no state space; Matern(2.5) has"
    if facts.smoothness is not None and facts.smoothness > SMOOTH:
        return False, f"kernels smoother than Matern({SMOOTH}) have no state space"
    return True, "exact in O(n)" if facts.gaussian else "all rows at once in O(n)"


def _grid(facts: Facts) -> tuple[bool, str]:
    if not facts.gaussian:
        return False, "has Gaussian noise alone"
    if facts.grid is None or facts.d == 1:
        return False, "takes rows that form a complete grid of two or more columns"
    shape = " x ".join(map(str, facts.grid))
    if max(facts.grid) > MOST_LEVELS:
        return False, f"an axis of the {shape} grid has more than {MOST_LEVELS:,} levels"
    return True, f"exact on the {shape} grid, for a product of kernels"


def _exact(facts: Facts) -> tuple[bool, str]:
    if facts.several:
        return False, "has one function of x, and this likelihood several"
    most = MOST_ROWS if facts.gaussian else MOST_ROWS_OF_LATENT
    if facts.n > most:
        return False, f"costs O(n^3): for up to {most:,} rows"
    return True, "exact" if facts.gaussian else "all rows at once"


def _vecchia(facts: Facts) -> tuple[bool, str]:
    if facts.several:
        return False, "has one function of x, and this likelihood several"
    if not facts.gaussian and facts.n > MOST_ROWS_OF_LATENT_VECCHIA:
        most = MOST_ROWS_OF_LATENT_VECCHIA
        return False, f"takes all rows at once, with a search for f: for up to {most:,}"
    if facts.d > MOST_PLACES:
        return False, f"is for up to {MOST_PLACES} columns, where near rows tell most"
    if facts.smoothness is not None and facts.smoothness > SMOOTH:
        return False, f"30 neighbours tell too little of functions smoother than Matern({SMOOTH})"
    return True, "each row given its 30 nearest: for rough functions, O(n)"


def _ski(facts: Facts) -> tuple[bool, str]:
    if not facts.gaussian:
        return False, "has Gaussian noise alone"
    if facts.columns > MOST_OF_GRID:
        return False, f"is for up to {MOST_OF_GRID} columns, as the nodes of a grid multiply"
    smoothness = facts.smoothness
    if facts.columns > 2 and (smoothness is None or smoothness <= SMOOTH):
        return False, "takes smooth kernels alone in three or four columns"
    if smoothness is not None and smoothness < SMOOTH:
        return False, f"takes smooth kernels, Matern({SMOOTH}) or smoother"
    return True, "nodes on a grid: for functions that are smooth over a few nodes"


def _sgpr(facts: Facts) -> tuple[bool, str]:
    if not facts.gaussian:
        return False, "has Gaussian noise alone"
    if facts.n > MOST_ROWS_AT_ONCE:
        return False, f"takes all rows at once: for up to {MOST_ROWS_AT_ONCE:,}"
    if facts.smoothness is not None and facts.smoothness < ROUGH:
        return False, "100 inducing inputs follow smooth functions alone"
    return True, "100 inducing inputs: for smooth functions of any number of columns"


def _svgp(facts: Facts) -> tuple[bool, str]:
    return True, "100 inducing inputs, in mini-batches: for any likelihood and number of rows"


RULES: Mapping[str, Callable[[Facts], tuple[bool, str]]] = {
    "StateSpaceGP": _state_space,
    "GridGP": _grid,
    "GP": _exact,
    "Vecchia": _vecchia,
    "SKI": _ski,
    "SGPR": _sgpr,
    "SVGP": _svgp,
}
