"""How the sites of a model become Pyro statements, and theta its parts."""

from __future__ import annotations

from collections.abc import Mapping

import pyro
from torch import Tensor

from ..priors import Param, Site

Theta = Mapping[str, Tensor]


def draw(sites: Mapping[str, Site | Param], like: Tensor) -> dict[str, Tensor]:
    """One pyro.sample a site that has a prior, one pyro.param a Param; the fixed ones are left to the recipe."""
    return {
        name: _param(name, s, like)
        if isinstance(s, Param)
        else pyro.sample(name, s.distribution(like))
        for name, s in sites.items()
        if isinstance(s, Param) or not s.fixed
    }


def _param(name: str, p: Param, like: Tensor) -> Tensor:
    """Its value in the param store, a copy of the recipe's at first."""
    value = pyro.param(name, p.value.detach().clone().to(like), constraint=p.constraint)
    return value if p.trained else value.detach()


def begun(sites: Mapping[str, Site | Param]) -> dict[str, Tensor]:
    """{name: value} of the sites that say where a search begins."""
    return {
        name: s.start for name, s in sites.items() if isinstance(s, Site) and s.start is not None
    }


def split_params(
    sites: Mapping[str, Site | Param], theta: Theta
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """theta as draws (with a draw axis) and params (without)."""
    params = {name for name, s in sites.items() if isinstance(s, Param)}
    return {k: v for k, v in theta.items() if k not in params}, {
        k: v for k, v in theta.items() if k in params
    }


def first_draw(sites: Mapping[str, Site | Param], theta: Theta) -> dict[str, Tensor]:
    """theta at its first draw, without the draw axis."""
    drawn, params = split_params(sites, theta)
    return {**params, **{name: value[0] for name, value in drawn.items()}}


def number_of_draws(theta: Theta) -> int:
    return next(iter(theta.values())).shape[0] if theta else 1
