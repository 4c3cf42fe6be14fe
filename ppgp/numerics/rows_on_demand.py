"""Distributions of more rows than memory holds the parameters of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from ..errors import NotEnoughMemory


class RowsOnDemand(dist.TorchDistribution):
    """Distributions of many rows, batch [draw, n], whose parameters do not fit in memory.

    ``univariate.take`` computes those of some rows. All else that needs the parameters is refused.

    Args:
        some: Maps an index of rows to their distribution, batch [draw, m].
        first: The distribution of the first row, batch [draw, 1]: the family.
        n: The number of rows.
        refusal: The error for what needs the parameters of all rows.
    """

    arg_constraints: Any = {}

    def __init__(
        self,
        some: Callable[[Any], Distribution],
        first: Distribution,
        n: int,
        refusal: NotEnoughMemory,
    ) -> None:
        self.some, self.first, self.refusal = some, first, refusal
        batch = torch.Size([first.batch_shape[0], n])
        super().__init__(batch, torch.Size(), validate_args=False)

    @property
    def support(self) -> Any:
        return self.first.support

    @property
    def mean(self) -> Tensor:
        raise self.refusal

    @property
    def variance(self) -> Tensor:
        raise self.refusal

    def log_prob(self, *_: Any, **__: Any) -> Tensor:
        raise self.refusal

    def cdf(self, *_: Any, **__: Any) -> Tensor:
        raise self.refusal

    def sample(self, *_: Any, **__: Any) -> Tensor:
        raise self.refusal

    def __getattr__(self, name: str) -> Any:
        if "refusal" in vars(self) and name in self.first.arg_constraints:
            raise self.refusal
        raise AttributeError(name)
