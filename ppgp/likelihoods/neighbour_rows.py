"""The joint distribution of y at many rows, where f follows Vecchia's approximation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from ..numerics.sparse_laplace import SparseLaplace
from ..numerics.univariate import JointRows
from ..numerics.vecchia import Law, Sets, solve_earlier
from .base import Likelihood, Theta
from .joint_rows import LikelihoodRows

__all__ = ["LatentNeighbourMarginal", "RowsGivenNeighbours"]


class RowsGivenNeighbours(NamedTuple):
    """f - mean at the rows of the data, each given the nearest rows before it.

    Attributes:
        law: the covariances of f.
        sets: the rows that each depends on.
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


class LatentNeighbourMarginal(JointRows):
    """y at n rows where f is Gaussian by Vecchia's approximation, and y_i depends on f_i alone.

    ``log_prob`` is Laplace's approximation of the log density; samples are exact.

    Args:
        likelihood: A likelihood of one function of x, with slopes.
        theta: {site: []} of the likelihood.
        mean: [n], the mean of f.
        f: f - mean at the rows.
        seed: That of the probes of an estimated determinant.
    """

    arg_constraints: Any = {}
    support: Any = constraints.real_vector

    def __init__(
        self,
        likelihood: Likelihood,
        theta: Theta,
        mean: Tensor,
        f: RowsGivenNeighbours,
        seed: int = 0,
    ) -> None:
        self.likelihood, self.theta, self.f, self.seed = likelihood, theta, f, seed
        self.latent_mean = mean
        super().__init__(torch.Size(), mean.shape, validate_args=False)
        self.support = constraints.independent(likelihood.distribution(theta, mean).support, 1)

    def expand(
        self, batch_shape: Sequence[int], _instance: object = None
    ) -> LatentNeighbourMarginal:
        if len(tuple(batch_shape)):
            raise NotImplementedError("a distribution of one draw of the hyperparameters")
        return self

    def by_row(self) -> Distribution:
        return self.likelihood.marginal(self.theta, self.latent_mean, self.f.law.variance)

    @property
    def mean(self) -> Tensor:
        """The mean of each row, [n]."""
        return self.by_row().mean

    @property
    def variance(self) -> Tensor:
        """The variance of each row, [n]."""
        return self.by_row().variance

    def log_prob(self, value: Tensor) -> Tensor:
        if value.ndim > 1:
            return torch.stack([self.log_prob(one) for one in value])
        return self.given(value).log_evidence()

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

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draw f, then y given f."""
        with torch.no_grad():
            shape = torch.Size(sample_shape) + self.latent_mean.shape
            e = torch.randn(shape, dtype=self.latent_mean.dtype, device=self.latent_mean.device)
            w = self.f.law.weights(self.f.sets)
            drawn = solve_earlier(w, self.f.sets, e.reshape(-1, shape[-1]).T).T.reshape(shape)
            f = self.latent_mean + drawn
            return self.likelihood.distribution(self.theta, f).sample().to(f)
