"""The distribution of rows under Vecchia's approximation: of all, and of some given theirs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import constraints

from ...runtime.team import ALONE, Team
from .weights import Law, Sets, Whitened, solve_earlier

__all__ = ["ConditionalOnNeighbours", "NeighbourMarginal"]


class NeighbourMarginal(dist.TorchDistribution):
    """loc + F beta + N(0, C), where each row depends on the nearest rows before it alone.

    The prior of beta is flat, and beta is integrated out. The distribution is improper along the
    columns of F; a sample has beta = 0.

    Args:
        loc: [n], the mean without the trend.
        law: The covariances of the rows.
        sets: The rows that each depends on.
        F: [n, p], the functions of the trend.
        team: The processes that have the same rows, each of which computes a part of a density.
        validate_args: Whether to check arguments, as in torch.
    """

    arg_constraints: Any = {"loc": constraints.real_vector}
    support: Any = constraints.real_vector

    def __init__(
        self,
        loc: Tensor,
        law: Law,
        sets: Sets,
        F: Tensor,
        team: Team = ALONE,
        validate_args: bool | None = None,
    ) -> None:
        self.loc, self.law, self.sets, self.F, self.team = loc, law, sets, F, team
        super().__init__(torch.Size(), loc.shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> NeighbourMarginal:
        if len(batch_shape):
            raise NotImplementedError("a distribution of one draw of the hyperparameters")
        return self

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self.law.variance

    def weights(self) -> Tensor:
        """Return the weights of each row and of those that it depends on, [k, n]."""
        return self.law.weights(self.sets)

    def whitened(self, Z: Tensor) -> Whitened:
        """Return columns Z [n, q] multiplied by the root U of the precision."""
        return self.law.whitened(Z, self.sets)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(torch.Size(sample_shape))
        noise = torch.randn(shape, dtype=self.loc.dtype, device=self.loc.device)
        with torch.no_grad():
            drawn = solve_earlier(self.weights(), self.sets, noise.reshape(-1, shape[-1]).T)
        return self.loc + drawn.T.reshape(shape)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        if value.ndim > 1:
            return torch.stack([self.log_prob(one) for one in value])
        r, own = value - self.loc, self.sets.share_of(self.team)
        if not self.F.shape[1]:
            return self.team.differentiable_sum(self.law.log_density(r, own))
        whitened = self.law.whitened(torch.cat([r[:, None], self.F], 1), own)
        return whitened.log_density(self.team)


class ConditionalOnNeighbours(dist.TorchDistribution):
    """The last of each k rows given the others, as the distribution of k values of each.

    Args:
        loc: The mean of every row.
        law: The covariances of b k rows, the k of each of b rows one after another.
        batch: The batch shape b.
        validate_args: Whether to check arguments, as in torch.
    """

    arg_constraints: Any = {"loc": constraints.real}
    support: Any = constraints.real_vector

    def __init__(
        self, loc: Tensor, law: Law, batch: int, validate_args: bool | None = None
    ) -> None:
        self.loc, self.law = loc, law
        event = torch.Size([len(law.X) // batch])
        super().__init__(torch.Size([batch]), event, validate_args=validate_args)

    def expand(
        self, batch_shape: Sequence[int], _instance: object = None
    ) -> ConditionalOnNeighbours:
        if tuple(batch_shape) != tuple(self.batch_shape):
            raise NotImplementedError("a distribution of the rows of one batch")
        return self

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log densities [b] of values [b, k]; inf: the row is absent."""
        return self.law.log_density_of_batch(value - self.loc)
