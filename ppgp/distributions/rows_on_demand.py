"""Distributions of many rows whose parameters take much memory, and are computed when needed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution


class RowsOnDemand(dist.TorchDistribution):
    """Distributions of many rows, batch [draw, n], whose parameters are not in memory.

    ``univariate.take`` computes those of some rows, which the figures of a prediction need. All
    else computes those of all rows, once, and keeps them from then on.

    Args:
        some: Maps an index of rows to their distribution, batch [draw, m].
        first: The distribution of the first row, batch [draw, 1]: the family.
        n: The number of rows.
        of_all_rows: Returns the distribution with the parameters of all rows. It raises
            NotEnoughMemory where they do not fit in memory.
    """

    arg_constraints: Any = {}

    def __init__(
        self,
        some: Callable[[Any], Distribution],
        first: Distribution,
        n: int,
        of_all_rows: Callable[[], Distribution],
    ) -> None:
        self.some, self.first, self.of_all_rows = some, first, of_all_rows
        batch = torch.Size([first.batch_shape[0], n])
        super().__init__(batch, torch.Size(), validate_args=False)

    @cached_property
    def whole(self) -> Distribution:
        """The distribution with the parameters of all rows."""
        return self.of_all_rows()

    def __repr__(self) -> str:
        family = type(self.first).__name__
        return f"{family}(batch_shape: {self.batch_shape}, computed when needed)"

    @property
    def support(self) -> Any:
        return self.first.support

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return self.first.has_rsample

    @property
    def has_enumerate_support(self) -> bool:  # type: ignore[override]
        return self.first.has_enumerate_support

    @property
    def mean(self) -> Tensor:
        return self.whole.mean

    @property
    def mode(self) -> Tensor:
        return self.whole.mode

    @property
    def variance(self) -> Tensor:
        return self.whole.variance

    def log_prob(self, *args: Any, **options: Any) -> Tensor:
        return self.whole.log_prob(*args, **options)

    def cdf(self, *args: Any, **options: Any) -> Tensor:
        return self.whole.cdf(*args, **options)

    def icdf(self, *args: Any, **options: Any) -> Tensor:
        return self.whole.icdf(*args, **options)

    def sample(self, *args: Any, **options: Any) -> Tensor:
        return self.whole.sample(*args, **options)

    def rsample(self, *args: Any, **options: Any) -> Tensor:
        return self.whole.rsample(*args, **options)

    def entropy(self) -> Tensor:
        return self.whole.entropy()

    def enumerate_support(self, *args: Any, **options: Any) -> Tensor:
        return self.whole.enumerate_support(*args, **options)

    def expand(self, *args: Any, **options: Any) -> Any:
        return self.whole.expand(*args, **options)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and "first" in vars(self) and hasattr(self.first, name):
            return getattr(self.whole, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
