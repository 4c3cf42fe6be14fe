"""Models whose rows are independent given theta, and count by their weights."""

from __future__ import annotations

from torch import Tensor

from .base import Model
from .independent_rows import observed
from .sites import draw


class WeightedRows(Model):
    """A model whose program takes how often each row counts, by the name ``weights``."""

    roles = ("weights",)
    takes_stream = True

    def model(
        self,
        X: Tensor,
        y: Tensor | None = None,
        *,
        total: int | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Run the Pyro program of the model.

        Args:
            X: Inputs [n, d].
            y: Targets [n]; None: they are drawn.
            total: Number of rows that a mini-batch was taken from; None: these are all the rows.
            weights: How many rows each row counts as, [n]; None: one.

        Returns:
            The targets [n].
        """
        theta = draw(self.sites_at(X.shape[-1]), X)
        return observed(self.distribution(theta, X), X, y, total, weights)
