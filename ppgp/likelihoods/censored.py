"""The distribution of targets of which some are only known to be exceeded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from ..distributions.tails import log_tail


class Censored(dist.TorchDistribution):
    """A distribution whose ``log_prob`` at a right-censored row is its log survival.

    Args:
        base: The distribution of the targets, batch [*draw, n].
        flags: Which targets are only known to be exceeded, [n].
        validate_args: Whether to check arguments, as in torch.
    """

    arg_constraints: Any = {"flags": constraints.boolean}

    def __init__(
        self, base: Distribution, flags: Tensor, validate_args: bool | None = None
    ) -> None:
        self.base, self.flags = base, flags
        super().__init__(base.batch_shape, torch.Size(), validate_args=False)

    @property
    def support(self) -> Any:
        """The support of y."""
        return self.base.support

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> Censored:
        return Censored(self.base.expand(torch.Size(batch_shape)), self.flags)

    def log_prob(self, value: Tensor) -> Tensor:
        density = self.base.log_prob(value)
        return torch.where(self.flags, log_tail(self.base, value, True), density)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Return draws of the targets as they are before censoring."""
        return self.base.sample(torch.Size(sample_shape))
