"""Distributions of many rows whose parameters are computed anew where they are needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution


class RowsOnDemand(dist.TorchDistribution):
    """Distributions of many rows, batch [draw, n], whose parameters are not kept in memory.

    ``univariate.take`` computes those of some rows. All else that needs the parameters computes
    those of all rows, which are not kept either.

    Args:
        some: Maps an index of rows to their distribution, batch [draw, m].
        first: The distribution of the first row, batch [draw, 1]: the family.
        n: The number of rows.
        whole: Returns the distribution with the parameters of all rows. It raises NotEnoughMemory
            where they do not fit in memory.
    """

    arg_constraints: Any = {}

    def __init__(
        self,
        some: Callable[[Any], Distribution],
        first: Distribution,
        n: int,
        whole: Callable[[], Distribution],
    ) -> None:
        self.some, self.first, self.whole = some, first, whole
        batch = torch.Size([first.batch_shape[0], n])
        super().__init__(batch, torch.Size(), validate_args=False)

    @property
    def support(self) -> Any:
        return self.first.support

    @property
    def mean(self) -> Tensor:
        return self.whole().mean

    @property
    def variance(self) -> Tensor:
        return self.whole().variance

    def log_prob(self, *args: Any, **options: Any) -> Tensor:
        return self.whole().log_prob(*args, **options)

    def cdf(self, *args: Any, **options: Any) -> Tensor:
        return self.whole().cdf(*args, **options)

    def sample(self, *args: Any, **options: Any) -> Tensor:
        return self.whole().sample(*args, **options)

    def rsample(self, *args: Any, **options: Any) -> Tensor:
        return self.whole().rsample(*args, **options)

    def icdf(self, *args: Any, **options: Any) -> Tensor:
        return self.whole().icdf(*args, **options)

    def entropy(self) -> Tensor:
        return self.whole().entropy()

    def expand(self, *args: Any, **options: Any) -> Any:
        return self.whole().expand(*args, **options)

    def __getattr__(self, name: str) -> Any:
        if "whole" in vars(self) and name in self.first.arg_constraints:
            return getattr(self.whole(), name)
        raise AttributeError(name)
