"""Disjoint random parts of the rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from numbers import Real

import torch
from torch import Tensor

from ..errors import SettingError, counted
from ..runtime.seeding import permutation
from ..runtime.whole_numbers import check_seed


def parts_of_rows(n: int, fractions: Sequence[float], seed: int) -> list[Tensor]:
    """Return the rows of each part of ``Dataset.split``.

    Args:
        n: The number of rows.
        fractions: The share of each part; if they sum to less than 1, the rest is one more part.
        seed: The seed of the random order.

    Raises:
        SettingError: If the fractions are not in (0, 1], have a sum above 1, or leave a part
            without rows.
    """
    do = "for example split(0.6, 0.2, 0.2)"
    numbers = [f for f in fractions if isinstance(f, Real) and not isinstance(f, bool)]
    if len(numbers) < len(fractions):
        given = ", ".join(repr(f)[:40] for f in fractions)
        raise SettingError("numbers as fractions", given, do)
    check_seed(seed)
    total = sum(fractions)
    if not fractions or any(not 0 < f <= 1 for f in fractions) or total > 1 + 1e-9:
        raise SettingError("fractions in (0, 1] with a sum of at most 1", f"{fractions}", do)
    order = permutation(torch.Generator().manual_seed(seed), n)
    edges = [0, *(round(n * sum(fractions[: i + 1])) for i in range(len(fractions)))]
    complete = abs(total - 1) < 1e-9
    if not complete:
        edges.append(n)
    if any(a == b for a, b in pairwise(edges)):
        raise SettingError(
            "at least one row in every part",
            f"{counted(n, 'row')} split as {fractions}",
            "use fewer or larger parts",
        )
    return [order[a:b] for a, b in pairwise(edges)]
