"""Further rows of a model with a Cholesky factor of its rows: the factor grows, in O(n^2 k)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from ..capabilities import Updates
from ..data.dataset import Dataset
from ..numerics.extended_factor import Extension, extension
from ..runtime.result_cache import ResultCache
from .base import Model
from .sites import Theta, number_of_draws, split_params

ROOT = "root of all draws"  # the name of what an update keeps


def slice_of(root: Tensor, draws: slice) -> Tensor:
    """Return the factors of some draws; a factor without an axis of draws is that of each."""
    return root[draws] if root.ndim == 3 else root


def later_rows(old: Dataset, new: Dataset) -> Dataset:
    """Return the rows of ``new`` that follow those of ``old``."""
    return new.rows(slice(old.n, None))


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
