"""A density that is a function of sums over rows, for rows that are read as they are needed.

An evaluation takes two passes: the first adds up the sums, and the second carries their slopes
through each row. All of it is in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from .density import Density

__all__ = ["bound_of_stream", "of_stream"]

ROWS = 2_048  # whose covariances with the inducing inputs have a gradient at once


def of_stream(target: Density, z: Tensor, jacobian: bool) -> tuple[Tensor, Tensor]:
    """Return the log density at z [p] and its gradient [p], from two passes."""
    z = z.detach().double()
    model, team, like = target.model, target.team, target.survey.like
    one = target.data.X[:1].double()
    with torch.no_grad():
        theta, sums = _theta(target, z), _sums(target, z)
        value = model.bound_of_sums(theta, one, sums)
        slopes = model.slopes_of_sums(theta, one, sums)
    gradient = torch.zeros_like(z)
    if bool(torch.isfinite(value)):
        for X, y in _blocks(target.data):
            free = z.clone().requires_grad_(True)
            with torch.enable_grad():
                term = model.term_of_rows(_theta(target, free), X, y, slopes)
                gradient += torch.autograd.grad(term, free, materialize_grads=True)[0]
    gradient = team.sum(gradient)
    free = z.clone().requires_grad_(True)
    with torch.enable_grad():
        term = model.term_of_shared(_theta(target, free), one, slopes)
        # flat priors do not depend on z
        prior = target.joint(free.to(like), (), jacobian, likelihood=False) + 0.0 * free.sum()
        gradient = gradient + torch.autograd.grad(term + prior, free, materialize_grads=True)[0]
    return (value + prior.detach()).to(like), gradient.to(like)


def bound_of_stream(target: Density, z: Tensor) -> tuple[float, int]:
    """Return log p(y given theta), or its bound, at z [p], and the number of rows."""
    z = z.detach().double()
    with torch.no_grad():
        sums = _sums(target, z)
        one = target.data.X[:1].double()
        value = target.model.bound_of_sums(_theta(target, z), one, sums)
    return float(value), round(float(sums.n))


def _sums(target: Density, z: Tensor) -> Any:
    """Return the sums over all rows at z [p]."""
    theta = _theta(target, z)
    parts = (
        target.model.sums_of_rows(theta, table.X.double(), table.y.double())
        for table, *_ in target.data.portions()
    )
    return reduce(lambda a, b: a.plus(b), parts).over_ranks(target.team)


def _theta(target: Density, z: Tensor) -> dict[str, Tensor]:
    """Return {site: [*event]} at z [p], with the params that are held, in float64."""
    held = {name: value.double() for name, value in target.params.items()}
    return held | {name: s.transform(s.of(z)) for name, s in target.slices.items()}


def _blocks(data: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield X [rows, d] and y [rows] of all rows of this rank."""
    for table, *_ in data.portions():
        for start in range(0, table.n, ROWS):
            rows = slice(start, start + ROWS)
            yield table.X[rows].double(), table.y[rows].double()
