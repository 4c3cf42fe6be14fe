"""Options that several commands of the command line share, and what the shell offers for names.

Names are completed without torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from ..recipes import parsing as recipes


def _names(known: Mapping[str, Any]) -> Callable[[str], list[str]]:
    """Return a function that completes the last name of a comma-separated list."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in known if name.startswith(last)]

    return complete


complete_models = _names(recipes.MODELS)
complete_methods = _names(recipes.HOWS)
complete_likelihoods = _names(recipes.LIKELIHOODS)
complete_scores = _names(recipes.SCORES)

Likelihood = Annotated[
    str | None,
    typer.Option(
        help="poisson, negative-binomial, ... or a recipe, of a model that takes one",
        autocompletion=complete_likelihoods,
    ),
]
Level = Annotated[float, typer.Option(help="level of the intervals, in (0, 1)")]
Seed = Annotated[int, typer.Option(help="seed of every random number")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="an option of a model or method, numbers in the units of the data: "
        "kernel.lengthscale=2, nuts.draws=200, noise='LogNormal(0, 1)'",
    ),
]
Workers = Annotated[
    int | None, typer.Option(help="how many processes fit, each on one thread; default: 1")
]
Progress = Annotated[bool, typer.Option(help="show progress bars")]
