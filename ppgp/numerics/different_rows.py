"""The different rows of a table, and random ones among them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError
from ..runtime.seeding import permutation


def different_rows(X: Tensor) -> Tensor:
    """Return the different rows of X [n, d] in lexicographic order.

    The result is that of ``torch.unique(X, dim=0)``, which makes a tensor per row and needs several
    times the memory of X.
    """
    table = X.detach().cpu().numpy()
    order = np.argsort(table[:, 0], kind="stable")
    # marks the first row of each run of rows that are equal in the columns compared so far
    first = np.ones(len(table), dtype=bool)
    first[1:] = np.diff(table[order, 0]) != 0
    for column in table.T[1:]:
        run = np.cumsum(first)
        tied = np.nonzero(np.bincount(run)[run] > 1)[0]
        if not len(tied):
            break
        order[tied] = order[tied][np.lexsort((column[order[tied]], run[tied]))]
        first[tied[1:]] |= np.diff(column[order[tied]]) != 0
    return torch.from_numpy(table[order[first]]).to(X)


def random_subset(m: int, different: Tensor, generator: torch.Generator) -> Tensor:
    """Return m of the different rows at random."""
    require_different(m, different)
    return different[permutation(generator, len(different))[:m].to(different.device)]


def require_different(m: int, different: Tensor) -> None:
    """Raise DataError if there are fewer than m different rows."""
    if len(different) < m:
        raise DataError(
            f"at least {m} different rows to take inducing inputs from",
            str(len(different)),
            "lower inducing",
        )
