"""Sites that several models have, and helpers that take theta apart."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from ..priors import Param, PriorLike, Site, site
from ..priors.sites import draw as draw

Theta = Mapping[str, Tensor]


def mean_site(mean: PriorLike | None) -> Site:
    """Return the site of a constant mean; None stands for 0 until ``prepare`` fills it in."""
    if mean is None:
        mean = 0.0
    return site("mean", mean)


def starting_values(sites: Mapping[str, Site | Param]) -> dict[str, Tensor]:
    """Return {name: value} of the sites that define where a search starts."""
    return {
        name: s.start for name, s in sites.items() if isinstance(s, Site) and s.start is not None
    }


def split_params(
    sites: Mapping[str, Site | Param], theta: Theta
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Split theta into its draws, which have a draw axis, and its params, which have none."""
    names = {name for name, s in sites.items() if isinstance(s, Param)}
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
