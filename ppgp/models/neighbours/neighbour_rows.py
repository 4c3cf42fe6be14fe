"""The joint distribution of y at many rows, where f follows Vecchia's approximation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...likelihoods.base import Likelihood, Theta
from ...likelihoods.joint_rows import LatentRows, LikelihoodRows
from .sparse_laplace import SparseLaplace
from .weights import Law, Sets, solve_earlier

__all__ = ["LatentNeighbourMarginal", "RowsGivenNeighbours"]


class RowsGivenNeighbours(NamedTuple):
    """f - mean at the rows of the data, each given the nearest rows before it.

    Attributes:
        law: The covariances of f.
        sets: The rows that each depends on.
    """

    law: Law
    sets: Sets

    def root(self) -> tuple[Tensor, Tensor]:
        """Return the root U of the precision in the order of the rows: entries, members."""
        w, order = self.law.weights(self.sets), self.sets.order
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order), device=order.device)
        members = self.sets.members
        at = torch.where(members < 0, -1, place[members.clamp_min(0).long()])
        return w / w[-1].sqrt(), at


class LatentNeighbourMarginal(LatentRows):
    """y at n rows where f is Gaussian by Vecchia's approximation, and y_i depends on f_i alone.

    ``log_prob`` is Laplace's approximation of the log density; samples are exact.

    Args:
        likelihood: As in LatentRows.
        theta: {site: []} of the likelihood.
        mean: [n], the mean of f.
        f: The difference f - mean at the rows.
        seed: That of the probes of an estimated determinant.
    """

    def __init__(
        self,
        likelihood: Likelihood,
        theta: Theta,
        mean: Tensor,
        f: RowsGivenNeighbours,
        seed: int = 0,
    ) -> None:
        self.f, self.seed = f, seed
        super().__init__(likelihood, theta, mean, torch.Size())

    def expand(
        self, batch_shape: Sequence[int], _instance: object = None
    ) -> LatentNeighbourMarginal:
        if len(tuple(batch_shape)):
            raise NotImplementedError("a distribution of one draw of the hyperparameters")
        return self

    def one_by_one(self) -> list[LatentNeighbourMarginal]:
        return [self]

    def latent_variance(self) -> Tensor:
        return self.f.law.variance

    def log_prob(self, value: Tensor) -> Tensor:
        if value.ndim > 1:
            return torch.stack([self.log_prob(one) for one in value])
        return self.log_evidence(value)

    def log_evidence(self, y: Tensor) -> Tensor:
        return self.given(y).log_evidence()

    def given(self, y: Tensor) -> SparseLaplace:
        """Return the problem of f given y, in the order of the rows."""
        order = self.f.sets.order
        rows = LikelihoodRows(self.likelihood, tuple(self.theta), y[order])
        parameters = tuple(self.theta.values())
        return SparseLaplace(*self.f.root(), self.latent_mean[order], rows, parameters, self.seed)

    def posterior(self, y: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return ``SparseLaplace.posterior`` given y, in the order of the rows of the data."""
        h, a, W, C = self.given(y).posterior()
        back = torch.argsort(self.f.sets.order)
        return h[back], a[back], W[back], C[back]

    def drawn(self, shape: torch.Size) -> Tensor:
        e = torch.randn(
            shape + self.event_shape, dtype=self.latent_mean.dtype, device=self.latent_mean.device
        )
        w = self.f.law.weights(self.f.sets)
        return solve_earlier(w, self.f.sets, e.reshape(-1, e.shape[-1]).T).T.reshape(e.shape)
