"""Options that several commands of the command line share."""

from __future__ import annotations

from typing import Annotated

import typer

from . import completion

Likelihood = Annotated[
    str | None,
    typer.Option(
        help="poisson, negative-binomial, ... or a recipe, of a model that takes one",
        autocompletion=completion.likelihoods,
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
