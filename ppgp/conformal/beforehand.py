"""What a recipe was given in place of a prior: no fit to other rows finds it anew."""

from __future__ import annotations

from ..kernels.networks import modules_in
from ..models import Model
from ..priors import Param

UNDECLARED = (
    "heuristic: no finite-sample guarantee, as {given} may have been found on these rows; pass fixed_beforehand=True if not"
)


def given_by_hand(recipe: Model, d: int) -> list[str]:
    """Numbers other than 0, inducing inputs and torch modules, with which a recipe for d columns was made."""
    fixed = {name: s.prior for name, s in recipe.sites(d).items() if not isinstance(s, Param) and s.fixed}
    found = [f"{name} = {number}" for name, number in fixed.items() if number not in (0, None)]
    if getattr(recipe, "Z", None) is not None:
        found.append("inducing inputs")
    return found + [f"the weights of a {type(module).__name__}" for module in modules_in(recipe)]


def searches(recipe: Model, d: int) -> bool:
    """Whether a fit of the recipe has anything to find."""
    return any(s.trained if isinstance(s, Param) else not s.fixed for s in recipe.sites(d).values())


def undeclared(given: list[str]) -> str:
    """The sentence of sets that rest on what was given and may owe something to the rows that are ranked."""
    more = f" and {len(given) - 3} more" if len(given) > 3 else ""
    return UNDECLARED.format(given=", ".join(given[:3]) + more)
