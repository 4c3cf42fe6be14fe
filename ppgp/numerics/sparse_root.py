"""A lower triangular matrix with few entries a row, and systems of equations with it."""

from __future__ import annotations

import numpy as np
import torch
from scipy import sparse
from scipy.sparse.linalg import splu
from torch import Tensor

__all__ = ["SparseRoot"]

ROWS_AT_ONCE = 512  # whose products stay in the cache of a core


class SparseRoot:
    """U [n, n], lower triangular. All numbers are finite, and those on the diagonal positive.

    Args:
        entries: [k, n], those of each row, the diagonal last.
        members: [n, k], their columns; -1 for none, whose entry does not count.
    """

    def __init__(self, entries: Tensor, members: Tensor) -> None:
        k, n = entries.shape
        self.entries, self.members = entries, members
        columns = members.cpu().numpy()
        there = columns >= 0
        values = entries.detach().double().T.cpu().numpy()
        rows = np.repeat(np.arange(n), k).reshape(n, k)
        parts = (values[there], (rows[there], columns[there]))
        self._matrix = sparse.csr_array(parts, shape=(n, n))
        # of a triangular matrix in its own order, the factors are itself and a diagonal
        options = {"SymmetricMode": True, "Equil": False}
        self._factor = splu(
            sparse.csc_array(self._matrix),
            permc_spec="NATURAL",
            diag_pivot_thresh=0.0,
            options=options,
        )

    @property
    def diagonal(self) -> Tensor:
        """The diagonal, [n]."""
        return self.entries[-1]

    def times(self, V: Tensor) -> Tensor:
        """Return U V for V [n, q]."""
        return torch.from_numpy(self._matrix @ _array(V)).to(V)

    def solved(self, V: Tensor) -> Tensor:
        """Return U^-1 V for V [n, q]."""
        return torch.from_numpy(self._factor.solve(_array(V))).to(V)

    def solved_transposed(self, V: Tensor) -> Tensor:
        """Return U^-T V for V [n, q]."""
        return torch.from_numpy(self._factor.solve(_array(V), "T")).to(V)

    def at_entries(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the entries [k, n] of left right' at those of U, for left and right [n, q]."""
        found = torch.zeros_like(self.members, dtype=left.dtype)
        for row in range(0, len(left), ROWS_AT_ONCE):
            part = slice(row, row + ROWS_AT_ONCE)
            columns = self.members[part].clamp_min(0).long()
            found[part] = (right[columns] @ left[part, :, None])[..., 0]
        return torch.where(self.members >= 0, found, 0.0).T


def _array(V: Tensor) -> np.ndarray:
    return V.detach().double().cpu().numpy()
