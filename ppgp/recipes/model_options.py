"""Options that change a model after it is built: its likelihood and what varies between groups."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

from ..errors import NotApplicable
from . import parsing as recipes

__all__ = ["with_groups", "with_likelihood"]


def with_likelihood(model: Any, likelihood: Any, called: str) -> Any:
    """Return the model with another likelihood.

    Args:
        model: A model.
        likelihood: A name that ``ppgp list`` prints, a recipe, or a likelihood; None: the model's
            own.
        called: What the user called the model.

    Raises:
        NotApplicable: If the model has no likelihood to change.
        UnknownName: If there is no likelihood of that name.
        SettingError: If the recipe cannot be read, or the model refuses the likelihood.
    """
    if likelihood is None:
        return model
    if not any(field.name == "likelihood" for field in fields(model)):
        do = "use glm, gp, svgp, vecchia, state_space, or leave the likelihood out"
        raise NotApplicable("a model that takes a likelihood", called, do)
    if isinstance(likelihood, str):
        likelihood = recipes.build_likelihood(likelihood)
    return replace(model, likelihood=likelihood)


def with_groups(model: Any, names: Iterable[str]) -> Any:
    """Return a GLM with an intercept that varies between the groups of each grouping.

    Any other model, and one whose recipe has groups, is returned as it is.

    Args:
        model: A model.
        names: The groupings of the table.
    """
    from ..models import GLM, Varying

    names = list(names)
    if type(model) is not GLM or not names:
        return model
    return replace(model, groups={name: Varying("1") for name in names})
