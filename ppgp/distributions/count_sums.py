"""Sums of smooth functions over long ranges of whole numbers, from few values each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.polynomial import legendre
from torch import Tensor

NODES = 25
#: Ranges have a power of 2 of numbers; one of up to EXACT is summed term by term.
SHORTEST, EXACT, LONGEST = 16, 64, 2**18
#: The sum of a range is that of the polynomial through all nodes. It is used if that through every
#: second node differs by less, in units of the sum so far. The error of all nodes is about the
#: square of that of every second.
AGREE = 1e-9


@dataclass(frozen=True)
class Rule:
    """The sum of f(0) to f(length - 1) is about ``weights`` @ f(``nodes``), [node] each.

    ``coarse`` are the weights of the rule with every second node, zero at the others.
    """

    nodes: np.ndarray
    weights: np.ndarray
    coarse: np.ndarray


@lru_cache(maxsize=32)
def rule(length: int) -> Rule:
    """Return the rule that is exact for polynomials of a degree below the number of its nodes."""
    if length <= EXACT:
        every = np.arange(length)
        return Rule(every, np.ones(length), np.ones(length))
    share = 0.5 - 0.5 * np.cos(np.pi * np.arange(NODES) / (NODES - 1))
    nodes = np.round(share * (length - 1)).astype(int)
    for i in range(1, NODES // 2 + 1):  # close to the ends, the nodes round to the same numbers
        nodes[i] = max(nodes[i], nodes[i - 1] + 1)
        nodes[-1 - i] = min(nodes[-1 - i], nodes[-i] - 1)
    moments = _moments(length)
    weights = np.linalg.solve(_polynomials(nodes, length, NODES).T, moments)
    half = len(nodes[::2])
    coarse = np.zeros(NODES)
    coarse[::2] = np.linalg.solve(_polynomials(nodes[::2], length, half).T, moments[:half])
    return Rule(nodes, weights, coarse)


def _polynomials(k: np.ndarray, length: int, count: int) -> np.ndarray:
    """Return the Legendre polynomials [k, degree] of the range at numbers k."""
    return legendre.legvander(2 * k / (length - 1) - 1, count - 1)


def _moments(length: int) -> np.ndarray:
    """Return the sums [degree] of the Legendre polynomials over the range."""
    step = 2**14
    starts = range(0, length, step)
    parts = [np.arange(start, min(start + step, length)) for start in starts]
    return np.sum([_polynomials(k, length, NODES).sum(0) for k in parts], axis=0)


def sum_over_counts(f: Callable[[Tensor, Tensor], Tensor], low: Tensor, high: Tensor) -> Tensor:
    """Return the sums of a monotone f(k) over the whole numbers k from low to high, [row].

    Ranges grow as long as f is a polynomial over them, to rounding; a function that is not smooth
    is summed term by term. The relative error is about 1e-10, or that of rounding. Between two
    nodes, a monotone function hides neither a peak nor a jump.

    Args:
        f: ``f(k, rows)`` maps numbers k [node, m] and the index of m rows to values [node, m],
            none of them negative; monotone in k.
        low: The first number of each row.
        high: The last; less than ``low``: the sum is 0.
    """
    total = torch.zeros_like(low)
    start = low.clone()
    agree = max(AGREE, 4 * torch.finfo(low.dtype).eps)
    length = torch.full_like(low, SHORTEST, dtype=torch.long)
    while True:
        rows = torch.nonzero(start <= high).flatten()
        if not len(rows):
            return total
        for size in length[rows].unique().tolist():
            some = rows[length[rows] == size]
            part = rule(size)
            nodes, weights, coarse = (
                torch.as_tensor(each).to(low) for each in (part.nodes, part.weights, part.coarse)
            )
            k = start[some] + nodes[:, None]
            values = f(k, some)
            if size <= EXACT:
                sums = torch.where(k <= high[some], values, 0.0).sum(0)
                done = torch.ones_like(some, dtype=torch.bool)
            else:
                sums = weights @ values
                error = (sums - coarse @ values).detach().abs()
                done = error <= agree * (total[some] + sums).detach()
            total = total.index_add(0, some[done], sums[done])
            start[some[done]] += size
            # a range that ends beyond the last number is not tried
            rest = high[some] - start[some] + 1
            longer = torch.where(done, 2 * size, size // 2).clamp(max=LONGEST)
            fits = 2 ** rest.clamp_min(1).log2().floor().long()
            length[some] = torch.minimum(longer, fits).clamp_min(SHORTEST)
