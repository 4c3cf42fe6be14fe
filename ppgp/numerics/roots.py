"""Where an increasing function of one number per row is 0: Newton's steps, and a bracket that is sure for rows that need one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.distributions import Distribution

from . import univariate
from .float_search import between, number, place

FREE = 10  # steps before every row left has a bracket
STEPS = 200
WORTH_IT = 0.5  # rows that are done are dropped once those left are no more than this share

#: the function's value at x, that over its slope, and the length of a step that ends the search
Newton = tuple[Tensor, Tensor, Tensor]
#: (the law at ``rows``, x, rows, target at rows) -> Newton
Figures = Callable[[Distribution, Tensor, Tensor, Tensor], Newton]


def root(
    law: Distribution,
    figures: Figures,
    start: Tensor,
    target: Tensor,
    centre: Tensor,
    spread: Tensor,
    roundings: int,
) -> Tensor:
    """[..., n]: the x at which the value of ``figures`` is 0.

    Rows that are done are dropped. A step that leaves the numbers known to enclose the root gives all rows a bracket, by doubling
    from ``centre`` in units of ``spread`` [n]; inside it every third step is a bisection, every sixth of the floating-point numbers.

    Args:
        target: handed to ``figures``, at the rows in question.
        roundings: of x, to which a bracket ends the search.
    """
    shape = torch.broadcast_shapes(start.shape, target.shape)
    x, target, found = start.expand(shape), target.expand(shape), start.expand(shape).clone()
    rows, part, eps = (
        torch.arange(shape[-1], device=start.device),
        law,
        torch.finfo(start.dtype).eps,
    )
    low, high = (torch.full_like(x, end) for end in (-torch.inf, torch.inf))
    droppable, bracketed = bool(univariate.parameters(law)), False
    for iteration in range(STEPS):
        value, move, reach = figures(part, x, rows, target)
        low, high = torch.where(value < 0, x, low), torch.where(value >= 0, x, high)
        step = x - move
        fine = torch.isfinite(step) & (step > low) & (step < high)
        done = (
            (value == 0)
            | (fine & (move.abs() <= reach))
            | (high - low <= roundings * eps * x.abs())
        )
        done |= torch.isnan(value) & torch.isnan(centre[rows])
        found[..., rows] = torch.where(fine, step, x)
        if bool(done.all()):
            break
        if not bracketed and (iteration == FREE or not bool((fine | done).all())):
            beyond = partial(_beyond, figures, part, rows, target)
            a, b = _bracket(beyond, centre[rows], spread[rows])
            low, high = torch.maximum(low, a), torch.minimum(high, b)
            bracketed = True
        if bracketed:
            half = (
                number(between(place(low), place(high)), x.dtype)
                if iteration % 6 == 5
                else 0.5 * low + 0.5 * high
            )
            fine = (
                torch.isfinite(step) & (step > low) & (step < high)
                if iteration % 3 != 2
                else torch.zeros_like(fine)
            )
            step = torch.where(fine, step, half)
        x = torch.where(done, x, step)
        left = torch.nonzero(~done.reshape(-1, len(rows)).all(0)).flatten()
        if droppable and len(left) <= WORTH_IT * len(rows):
            x, low, high, target, rows = (
                x[..., left],
                low[..., left],
                high[..., left],
                target[..., left],
                rows[left],
            )
            part = univariate.take(part, left)
    return found


def _bracket(
    beyond: Callable[[Tensor], Tensor], centre: Tensor, spread: Tensor
) -> tuple[Tensor, Tensor]:
    """Ends with the root between them, by doubling; ``beyond``: whether a point lies at or above the root."""
    most = torch.finfo(centre.dtype).max
    ends = []
    for sign in (-1.0, 1.0):
        step, end = sign * spread, (centre + sign * spread).clamp(-most, most)
        for _ in range(2200):  # from the least number to the largest
            wrong = (beyond(end) == (sign < 0)) & (end.abs() < most)
            if not bool(wrong.any()):
                break
            step = torch.where(wrong, 2 * step, step)
            end = torch.where(wrong, (centre + step).clamp(-most, most), end)
        ends.append(end)
    return ends[0], ends[1]


def _beyond(figures: Figures, law: Distribution, rows: Tensor, target: Tensor, x: Tensor) -> Tensor:
    return figures(law, x, rows, target)[0] >= 0
