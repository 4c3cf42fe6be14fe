"""What ``ppgp list`` prints: names of models, methods and scores, and the parts of recipes."""

from __future__ import annotations

from typing import Any

from ..recipes import parsing as recipes
from ..recipes.members import members

PARTS = {
    "kernels": "kernels, in the recipe of a model",
    "networks": "networks, in Deep(network, kernel)",
    "means": "means, in GP(mean=)",
    "likelihoods": "likelihoods, in GLM(likelihood=)",
    "learners": "learners, in Boosted(learner=)",
    "experiments": "experiments (ppgp reproduce)",
}


def named_members() -> list[tuple[str, list[dict[str, Any]]]]:
    """Return (title, flat records) of each table."""
    named = {
        "models": recipes.MODELS,
        "methods (--how)": recipes.HOWS,
        "likelihoods (--likelihood)": recipes.LIKELIHOODS,
        "scores (--scores)": recipes.SCORES,
    }
    tables = [
        (
            title,
            [
                {"name": name, "recipe": recipe, "what it is": meaning}
                for name, (recipe, meaning) in of_family.items()
            ],
        )
        for title, of_family in named.items()
    ]
    for family, title in PARTS.items():
        calls = members()[family].values()
        tables.append((title, [{"name": call, "what it is": what} for call, what in calls]))
    return tables
