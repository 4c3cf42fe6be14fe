"""Whether the fixed values in a recipe depend on the rows that a conformal method ranks.

A recipe is a model before it meets data. It may hold numbers, inducing inputs and torch modules in
place of priors. No refit estimates them again, so that a guarantee needs them to be independent of
the ranked rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..data.dataset import Dataset
from ..errors import an
from ..inference.fitting.fit import depends_on_rows, found_on
from ..models import Model
from ..models.means import UserMean, WithMean
from ..networks.networks import modules_in
from ..priors import Param
from ..provenance.provenance import common_columns, numbers, same_rows

UNDECLARED = (
    "heuristic: no finite-sample guarantee, as {given} may depend on these rows; "
    "pass fixed_beforehand=True if not"
)
FOUND = (
    "heuristic: no finite-sample guarantee, "
    "as something in the recipe was estimated from {count} of the {n} ranked rows"
)
PREPARED = (
    "heuristic: no finite-sample guarantee, as priors, the mean or inducing inputs were "
    "chosen from the ranked rows; fix them too"
)
NAMED = 3  # fixed values that a sentence names


def fixed_values(recipe: Model, d: int) -> list[str]:
    """Return the fixed values of a recipe for d columns, in words.

    These are numbers other than 0, functions as means, inducing inputs and torch modules.
    """
    values = []
    for name, site in _with_classes(recipe).sites(d).items():
        if not isinstance(site, Param) and site.fixed and site.prior not in (0, None):
            values.append(f"{name} = {site.prior}")
    if isinstance(recipe, WithMean) and isinstance(recipe.mean_function, UserMean):
        values.append("the function of the mean")
    if getattr(recipe, "Z", None) is not None:
        values.append("inducing inputs")
    return values + [f"the weights of {an(type(module).__name__)}" for module in modules_in(recipe)]


def _with_classes(recipe: Model) -> Model:
    """Return the recipe with a number of classes, itself and in its likelihood.

    One that counts the classes of its rows has no sites before. Which of them are fixed is the same
    for any number.
    """
    of_classes: Any = recipe
    if getattr(of_classes, "classes", 0) is None:
        of_classes = replace(of_classes, classes=3)
    likelihood: Any = getattr(of_classes, "likelihood", None)
    if getattr(likelihood, "classes", 0) is None:
        of_classes = replace(of_classes, likelihood=replace(likelihood, classes=3))
    return of_classes


def guarantee_if_estimated_from(recipe: Model, data: Dataset) -> str | None:
    """Return the "heuristic: ..." guarantee if part of the recipe was estimated from rows of data.

    Else the result is None. The guarantee applies whatever the caller declares. Rows are compared
    in the units of ``data``.
    """
    X, y = numbers(data.X), numbers(data.y)
    matches = []
    for table in found_on(recipe):
        there, here = common_columns(table, data)
        used = np.column_stack([numbers(table.X)[:, there], numbers(table.y)])
        matches.append(same_rows(used, np.column_stack([X[:, here], y])))
    if not matches:
        return None
    count = int(np.any(matches, axis=0).sum())
    if not count:
        return None
    return FOUND.format(count=count, n=data.n)


def guarantee_of_prepared(model: Model, data: Dataset, fixed_beforehand: bool) -> str | None:
    """Return the "heuristic: ..." guarantee if settings of a fitted model may depend on its rows.

    Else the result is None.

    Args:
        model: The model of a posterior, prepared for its rows.
        data: These rows, in the units of the user.
        fixed_beforehand: Whether the caller declares that the fixed values do not depend on them.
    """
    recipe = model.given or model
    sentence = guarantee_if_estimated_from(recipe, data)
    given = fixed_values(recipe, data.d)
    if sentence is None and given and not fixed_beforehand:
        sentence = undeclared(given)
    if sentence is None and depends_on_rows(model):
        sentence = PREPARED
    return sentence


def searches(recipe: Model, d: int) -> bool:
    """Return whether a fit of the recipe has anything to estimate."""
    for site in _with_classes(recipe).sites(d).values():
        estimated = not site.fixed
        if isinstance(site, Param):
            estimated = site.trained
        if estimated:
            return True
    return False


def undeclared(given: list[str]) -> str:
    """Return the "heuristic: ..." guarantee of sets that rest on values of undeclared origin."""
    names = ", ".join(given[:NAMED])
    if len(given) > NAMED:
        names += f" and {len(given) - NAMED} more"
    return UNDECLARED.format(given=names)
