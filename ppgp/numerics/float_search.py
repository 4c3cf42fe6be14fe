"""The floating-point numbers in their order: the last one at which a condition still holds, found exactly and in any units."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

#: ``holds(y, rows)``: [k] bool for candidates y [k] at the rows ``rows`` [k]; once false, false for every number further out
Condition = Callable[[Tensor, Tensor | slice], Tensor]

LONGEST = 1 << 61  # no step is longer, so that sums of two places stay below 2^63
GROWTH = 8  # of the step, while the last number that holds is not yet enclosed
ALL = slice(None)


def place(x: Tensor) -> Tensor:
    """The number of each finite float in their order; both zeros are 0."""
    bits = x.view(torch.int64 if x.dtype == torch.float64 else torch.int32).to(torch.int64)
    sign = torch.signbit(x)
    magnitude = bits & (2**63 - 1 if x.dtype == torch.float64 else 2**31 - 1)
    return torch.where(sign, -magnitude, magnitude)


def number(places: Tensor, dtype: torch.dtype) -> Tensor:
    """The float at each place: the inverse of ``place``."""
    bits = places.abs().to(torch.int64 if dtype == torch.float64 else torch.int32)
    size = bits.view(dtype)
    return torch.where(places < 0, -size, size)


def between(low: Tensor, high: Tensor) -> Tensor:
    """The place half way, without the overflow of their sum."""
    return (low >> 1) + (high >> 1) + (low & high & 1)


def last_inside(holds: Condition, guess: Tensor, outward: int) -> Tensor:
    """[n]: the number furthest out at which ``holds`` is true: infinite where it never ends, and on the other side where none is.

    Args:
        holds: true up to some number and false beyond it, in the direction ``outward`` (1: upwards, -1: downwards).
        guess: [n], near that number; how near decides the number of calls alone. NaN stays NaN.
    """
    dtype, most = guess.dtype, torch.finfo(guess.dtype).max
    unknown = torch.isnan(guess)
    x = torch.where(unknown, torch.zeros_like(guess), guess).clamp(-most, most)
    inside = holds(x, ALL)
    out = torch.full_like(x, outward * torch.inf)
    following = torch.nextafter(x, out)
    also = holds(following, ALL) & torch.isfinite(following)
    result = torch.where(inside & ~torch.isfinite(following), out, x)
    open_rows = torch.nonzero(
        (inside == also) & ~(inside & ~torch.isfinite(following)) & ~unknown
    ).flatten()
    if len(open_rows):
        start = torch.where(inside, following, x)[open_rows]
        result[open_rows] = _searched(holds, open_rows, start, inside[open_rows], outward)
    return torch.where(unknown, guess, result).to(dtype)


def _searched(
    holds: Condition, rows: Tensor, start: Tensor, inside: Tensor, outward: int
) -> Tensor:
    """Steps that grow until the last number that holds is enclosed, then bisection over the places between."""
    dtype = start.dtype
    furthest = int(place(torch.tensor([torch.finfo(dtype).max], dtype=dtype)))
    where = outward * place(start)  # larger is further out
    low, high = (
        where.clone(),
        where.clone(),
    )  # low holds where it began inside, high does not where it began outside
    step, active = 1, torch.arange(len(rows), device=rows.device)
    while len(active):
        out = inside[active]
        base = torch.where(
            out, low[active], -high[active]
        )  # mirrored where the search goes inwards
        trial = torch.where(base > furthest - step, torch.full_like(base, furthest), base + step)
        at = torch.where(out, trial, -trial)
        true = holds(number(outward * at, dtype), rows[active])
        low[active] = torch.where(true, at, low[active])
        high[active] = torch.where(true, high[active], at)
        edge = trial == furthest
        never = torch.where(out, edge & true, edge & ~true)
        low[active] = torch.where(never & ~out, torch.full_like(at, -furthest - 1), low[active])
        high[active] = torch.where(never & out, torch.full_like(at, furthest + 1), high[active])
        low[active] = torch.where(never & out, torch.full_like(at, furthest), low[active])
        high[active] = torch.where(never & ~out, torch.full_like(at, -furthest), high[active])
        active = active[(true == out) & ~never]
        step = min(step * GROWTH, LONGEST)
    low, high = _bisected(holds, rows, low, high, furthest, outward, dtype)
    value = number((outward * low).clamp(-furthest, furthest), dtype)
    infinite = torch.full_like(value, outward * torch.inf)
    return torch.where(low < -furthest, -infinite, torch.where(high > furthest, infinite, value))


def _bisected(
    holds: Condition,
    rows: Tensor,
    low: Tensor,
    high: Tensor,
    furthest: int,
    outward: int,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """Until low, which holds, and high, which does not, are neighbours."""
    while True:
        active = torch.nonzero(between(low, high) > low).flatten()
        if not len(active):
            return low, high
        middle = between(low[active], high[active])
        true = holds(number(outward * middle, dtype), rows[active])
        low[active] = torch.where(true, middle, low[active])
        high[active] = torch.where(true, high[active], middle)
