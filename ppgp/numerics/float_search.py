"""Search over the floating-point numbers in their order.

It finds the last number at which a condition holds, exactly and whatever the units.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .finite import all_finite

#: ``holds(y, rows)`` returns [k] bool for candidates y [k] at the rows ``rows`` [k]. Once it is
#: false, it is false for every number further out.
Condition = Callable[[Tensor, Tensor | slice], Tensor]

LONGEST = 1 << 61  # the largest step, so that sums of two positions stay below 2^63
GROWTH = 8  # factor of the step while the last number that holds is not enclosed
ALL = slice(None)


def place(x: Tensor) -> Tensor:
    """Return the position of each finite float in the order of floats; both zeros are 0."""
    if x.dtype == torch.float64:
        integers, mask = torch.int64, 2**63 - 1
    else:
        integers, mask = torch.int32, 2**31 - 1
    magnitude = x.view(integers).to(torch.int64) & mask
    return torch.where(torch.signbit(x), -magnitude, magnitude)


def number(places: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the float at each position; the inverse of ``place``."""
    integers = torch.int64 if dtype == torch.float64 else torch.int32
    size = places.abs().to(integers).view(dtype)
    return torch.where(places < 0, -size, size)


def between(low: Tensor, high: Tensor) -> Tensor:
    """Return the position half-way between two, without overflow of their sum."""
    return (low >> 1) + (high >> 1) + (low & high & 1)


def last_inside(holds: Condition, guess: Tensor, outward: int) -> Tensor:
    """Find the number furthest out at which ``holds`` is true.

    Args:
        holds: True up to some number and false beyond it, in the direction ``outward``.
        guess: [n], numbers near the result. Only the number of calls depends on them. NaN stays
            NaN.
        outward: 1 for upwards, -1 for downwards.

    Returns:
        [n]; infinite where ``holds`` never becomes false, and infinite with the opposite sign where
        it is never true.
    """
    most = torch.finfo(guess.dtype).max
    if all_finite(guess):
        return _from_finite(holds, guess, outward)
    unknown = torch.isnan(guess)
    x = torch.where(unknown, torch.zeros_like(guess), guess).clamp(-most, most)
    return torch.where(unknown, guess, _from_finite(holds, x, outward, unknown))


def _from_finite(
    holds: Condition, x: Tensor, outward: int, unknown: Tensor | None = None
) -> Tensor:
    """Return ``last_inside`` for finite guesses; rows that are ``unknown`` may have any result."""
    out = torch.full((), outward * torch.inf, dtype=x.dtype, device=x.device)
    following = torch.nextafter(x, out)
    inside, also = holds(x, ALL), holds(following, ALL)
    if unknown is None and all_finite(following):
        found = inside > also
        if bool(found.all()):
            return x
        result, rows = x.clone(), torch.nonzero(~found).flatten()
    else:
        unfinished = inside == also
        if unknown is not None:
            unfinished = unfinished & ~unknown
        last = torch.isinf(following)  # x is the largest number
        result = torch.where(inside & last, out, x)
        rows = torch.nonzero(torch.where(last, ~inside, unfinished)).flatten()
    x, following, inside = x[rows], following[rows], inside[rows]
    # a guess that rounding has moved out by one number
    preceding = torch.nextafter(x, -out)
    one_in = ~inside & torch.isfinite(preceding) & holds(preceding, rows)
    result[rows] = torch.where(one_in, preceding, x)
    if bool(one_in.all()):
        return result
    start, far = torch.where(inside, following, x)[~one_in], rows[~one_in]
    result[far] = _searched(holds, far, start, inside[~one_in], outward)
    return result


def _searched(
    holds: Condition, rows: Tensor, start: Tensor, inside: Tensor, outward: int
) -> Tensor:
    """Enclose the last number that holds by growing steps, then bisect over the positions between.

    Args:
        holds: As in ``last_inside``.
        rows: [k], the rows to search for.
        start: [k], where the search starts.
        inside: [k] bool, whether ``holds`` is true there.
        outward: 1 for upwards, -1 for downwards.
    """
    dtype = start.dtype
    furthest = int(place(torch.tensor([torch.finfo(dtype).max], dtype=dtype)))
    where = outward * place(start)  # larger is further out
    # low holds for rows that start inside, high does not for rows that start outside
    low = where.clone()
    high = where.clone()
    step = 1
    active = torch.arange(len(rows), device=rows.device)
    while len(active):
        out = inside[active]
        # mirrored where the search goes inwards
        base = torch.where(out, low[active], -high[active])
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
    """Bisect until low, where the condition holds, and high, where it does not, are adjacent."""
    while True:
        active = torch.nonzero(between(low, high) > low).flatten()
        if not len(active):
            return low, high
        middle = between(low[active], high[active])
        true = holds(number(outward * middle, dtype), rows[active])
        low[active] = torch.where(true, middle, low[active])
        high[active] = torch.where(true, high[active], middle)
