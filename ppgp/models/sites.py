"""Sites that several models have, and helpers that take theta apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..priors import Param, Prior, Site
from ..priors.sites import draw as draw
from ..runtime.seeding import seeded

Theta = Mapping[str, Tensor]


def medians(sites: Mapping[str, Site | Param], X: Tensor, seed: int) -> dict[str, Tensor]:
    """Return {site: the median of 101 draws from its prior}.

    A selection of inducing inputs uses these values before there is a fit. Sites without a prior
    are left out.
    """
    with seeded(seed):
        values = {}
        for name, one in sites.items():
            if isinstance(one, Site) and isinstance(one.prior, Prior):
                prior = one.distribution(X)
                draws = torch.stack([prior.sample() for _ in range(101)])
                values[name] = draws.median(0).values
        return values


def starting_values(sites: Mapping[str, Site | Param]) -> dict[str, Tensor]:
    """Return {name: value} of the sites that define where a search starts."""
    return {
        name: s.start for name, s in sites.items() if isinstance(s, Site) and s.start is not None
    }


def split_params(
    sites: Mapping[str, Site | Param], theta: Theta
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Split theta into its draws, which have a draw axis, and its params, which have none."""
    names = [name for name, s in sites.items() if isinstance(s, Param)]
    if not names:
        return dict(theta), {}
    draws = {name: value for name, value in theta.items() if name not in names}
    params = {name: value for name, value in theta.items() if name in names}
    return draws, params


def first_draw(sites: Mapping[str, Site | Param], theta: Theta) -> dict[str, Tensor]:
    """Return the first draw of theta, without the draw axis."""
    draws, params = split_params(sites, theta)
    return {**params, **{name: value[0] for name, value in draws.items()}}


def one_by_one(sites: Mapping[str, Site | Param], theta: Theta) -> list[dict[str, Tensor]]:
    """Return theta of each draw, {site: [*event]}, with the params."""
    draws, params = split_params(sites, theta)
    return [
        {**params, **{name: value[i] for name, value in draws.items()}}
        for i in range(number_of_draws(draws))
    ]


def number_of_draws(theta: Theta) -> int:
    """Return the length of the draw axis; 1 if theta is empty."""
    if theta:
        return next(iter(theta.values())).shape[0]
    return 1


def with_fixed(
    model: Any, draws: Theta, shapes: Mapping[str, tuple[int, ...]], like: Tensor
) -> list[Tensor]:
    """Return the sites of ``shapes`` as [chain, draw, *shape].

    A site that the recipe fixes to a number has that number in every draw.
    """
    every = next((v.shape[:2] for v in draws.values()), torch.Size([1, 1]))
    values = []
    for name, shape in shapes.items():
        value = model.value(draws, name, like)
        if name not in draws:
            value = value.expand(*every, *shape)
        values.append(value)
    return values
