"""Further rows of a model with a Cholesky factor of its rows: the factor grows, in O(n^2 k)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from ...errors import NumericalError

ROOT = "root of all draws"  # the name of what an update keeps


class Extension(NamedTuple):
    """The last k rows of the factor of [[C, C12], [C12', C22]], where C = L L'.

    They take O(n^2 k). Golub & Van Loan (2013), section 6.5.4. Leading axes are batches.

    Attributes:
        L: The factor of C, [*batch, n, n].
        V: L^-1 C12, [*batch, n, k].
        root: The factor of C22 - V' V, [*batch, k, k].
        definite: Whether the whole matrix is positive definite in the numbers of the machine.
    """

    L: Tensor
    V: Tensor
    root: Tensor
    definite: bool

    def factor(self) -> Tensor:
        """Return the factor of the whole matrix, [*batch, n + k, n + k]."""
        n, k = self.V.shape[-2:]
        whole = self.root.new_zeros(*self.root.shape[:-2], n + k, n + k)
        whole[..., :n, :n] = self.L
        whole[..., n:, :n] = self.V.mT
        whole[..., n:, n:] = self.root
        return whole

    def checked(self) -> Extension:
        """Return this, if the whole matrix is positive definite.

        Raises:
            NumericalError: If it is not.
        """
        if self.definite:
            return self
        raise NumericalError(
            "a positive definite covariance of old and new rows",
            "one that is not",
            "give the model some noise, or leave out new rows that repeat others",
        )

    def onward(self, whitened: Tensor, new: Tensor) -> Tensor:
        """Return the last k rows of the solution of ``factor() @ x = [old, new]``.

        Args:
            whitened: L^-1 old, [*batch, n, p].
            new: [*batch, k, p].
        """
        return torch.linalg.solve_triangular(self.root, new - self.V.mT @ whitened, upper=False)


def extension(L: Tensor, C12: Tensor, C22: Tensor) -> Extension:
    """Return the rows by which the factor L grows.

    Args:
        L: The factor of the matrix so far, [*batch, n, n].
        C12: The covariance of the rows so far with the new rows, [..., n, k].
        C22: The covariance of the new rows, [..., k, k].
    """
    V = torch.linalg.solve_triangular(L, C12, upper=False)
    root, info = torch.linalg.cholesky_ex(C22 - V.mT @ V)
    return Extension(L, V, root, not bool(info.any()))


def grown_root(chunks: Iterable[tuple[slice, Extension]]) -> Tensor | None:
    """Return the factor of the whole matrix at every draw, [draw, n + k, n + k].

    Args:
        chunks: The slice of the draws of each chunk, and how the factor grows there, with an axis
            of draws or, where it is that of each draw, without.

    Returns:
        The factor; None if a matrix is not positive definite in the numbers of the machine.
    """
    factors = []
    for draws, grown in chunks:
        if not grown.definite:
            return None
        factor = grown.factor()
        if factor.ndim == 2:
            factor = factor.expand(draws.stop - draws.start, -1, -1)
        factors.append(factor)
    return torch.cat(factors) if len(factors) > 1 else factors[0]
