"""What a recipe was given in place of a prior: no fit to other rows finds it anew."""

from __future__ import annotations

import numpy as np

from ..data.dataset import Dataset
from ..errors import an
from ..inference.training_tables import found_on
from ..kernels.networks import modules_in
from ..models import Model
from ..numerics.same_rows import same_rows
from ..posterior.provenance import common_columns, numbers
from ..priors import Param

UNDECLARED = "heuristic: no finite-sample guarantee, as {given} may have been found on these rows; pass fixed_beforehand=True if not"
FOUND = "heuristic: no finite-sample guarantee, as something in the recipe was found on {count} of the {n} ranked rows"


def given_by_hand(recipe: Model, d: int) -> list[str]:
    """Numbers other than 0, inducing inputs and torch modules, with which a recipe for d columns was made."""
    fixed = {
        name: s.prior for name, s in recipe.sites(d).items() if not isinstance(s, Param) and s.fixed
    }
    found = [f"{name} = {number}" for name, number in fixed.items() if number not in (0, None)]
    if getattr(recipe, "Z", None) is not None:
        found.append("inducing inputs")
    return found + [f"the weights of {an(type(module).__name__)}" for module in modules_in(recipe)]


def found_among(recipe: Model, data: Dataset) -> str | None:
    """The sentence of sets whose recipe is known to hold what was found on rows of ``data`` (in their units), whatever the caller's
    word; None where none is known."""
    X, y = numbers(data.X), numbers(data.y)
    hits = []
    for table in found_on(recipe):
        there, here = common_columns(table, data)
        known = np.column_stack([numbers(table.X)[:, there], numbers(table.y)])
        hits.append(same_rows(known, np.column_stack([X[:, here], y])))
    count = int(np.any(hits, axis=0).sum()) if hits else 0
    return FOUND.format(count=count, n=data.n) if count else None


def searches(recipe: Model, d: int) -> bool:
    """Whether a fit of the recipe has anything to find."""
    return any(s.trained if isinstance(s, Param) else not s.fixed for s in recipe.sites(d).values())


def undeclared(given: list[str]) -> str:
    """The sentence of sets that rest on what was given and may owe something to the rows that are ranked."""
    more = f" and {len(given) - 3} more" if len(given) > 3 else ""
    return UNDECLARED.format(given=", ".join(given[:3]) + more)
