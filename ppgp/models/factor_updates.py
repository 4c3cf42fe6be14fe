"""Further rows of a model with a Cholesky factor of its rows: the factor grows, in O(n^2 k)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ..capabilities import Updates
from ..data.dataset import Dataset
from ..errors import NumericalError
from ..runtime.result_cache import ResultCache
from .base import Model
from .sites import Theta, number_of_draws, split_params

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


def slice_of(root: Tensor, draws: slice) -> Tensor:
    """Return the factors of some draws; a factor without an axis of draws is that of each."""
    return root[draws] if root.ndim == 3 else root


def later_rows(old: Dataset, new: Dataset) -> Dataset:
    """Return the rows of ``new`` that follow those of ``old``."""
    return new.rows(slice(old.n, None))


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


class FactorUpdates(Model, Updates):
    """A model whose predictions share the root L of the covariance of its training rows."""

    @abstractmethod
    def factored(
        self, theta: Theta, train: Dataset, kept: ResultCache | None, width: int
    ) -> Iterator[tuple[slice, dict[str, Tensor], tuple[Tensor, ...]]]:
        """Yield the slice of the draws, theta there, and what predictions share, first of all L.

        Args:
            theta: {site: [draw, *event]}.
            train: The training rows.
            kept: Where these are kept between predictions.
            width: Number of new rows at once.
        """

    @abstractmethod
    def covariances(self, theta: Theta, old: Dataset, new: Dataset) -> tuple[Tensor, Tensor]:
        """Return the covariances of y of old and new rows, [.., n, k], and of new, [.., k, k]."""

    def extended(self, theta: Theta, L: Tensor, old: Dataset, new: Dataset) -> Extension:
        """Return the rows by which L grows with the rows of ``new``."""
        return extension(L, *self.covariances(theta, old, new))

    def carry_over(
        self, theta: Theta, old: Dataset, new: Dataset, kept: ResultCache, into: ResultCache
    ) -> None:
        """Keep the root of all rows, unless it exceeds the limit of ``into``.

        Where it does, or where the new rows make the covariance singular, the next prediction
        factors all rows.
        """
        drawn, _ = split_params(self.sites_at(old.d), theta)
        size = number_of_draws(drawn) * new.n**2 * new.X.element_size()
        if new.n == old.n or size > into.limit:
            return
        roots, rows = [], later_rows(old, new)
        for draws, part, shared in self.factored(theta, old, kept, rows.n):
            grown = self.extended(part, shared[0], old, rows)
            if not grown.definite:
                return
            root = grown.factor()
            count = len(range(*draws.indices(number_of_draws(drawn))))
            roots.append(root if root.ndim == 3 else root.expand(count, -1, -1))
        whole = torch.cat(roots) if len(roots) > 1 else roots[0]
        into.get(ROOT, lambda: (whole,), theta)
