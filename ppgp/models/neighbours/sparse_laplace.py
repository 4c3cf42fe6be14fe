"""Laplace's approximation of a latent Gaussian vector whose precision has a sparse root.

f = mean + h, h ~ N(0, (U'U)^-1). Few rows are computed exactly by dense algebra; more by the
iterations and the estimated determinant of ``sparse_prior``. Kuendig & Sigrist (2025).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ...numerics.known_slopes import with_known_slopes
from ...numerics.laplace_evidence import laplace_log_evidence_under
from ...numerics.latent_laplace import DensePrior, laplace_log_evidence, root_of
from ...numerics.latent_mode import Parameters, RowDensity, require_mode
from .sparse_prior import Precision, SparsePrior

__all__ = ["MOST_DENSE", "MOST_DENSE_COVARIANCE", "SparseLaplace"]

MOST_DENSE = 500  # rows whose determinant is exact: beyond, the estimate is faster and very close
MOST_DENSE_COVARIANCE = 2000  # rows whose posterior covariance is exact, computed once
DRAWS = 200  # from which that of more rows is estimated, beside an exact part


@dataclass(frozen=True)
class SparseLaplace:
    """Rows of y whose f = mean + h, in the order of the rows of U.

    Attributes:
        entries: [k, n], those of the rows of U, the diagonal last.
        members: [n, k], their columns; -1 for none.
        mean: [n], of f.
        rows: The log densities of the rows.
        parameters: Those of ``rows``.
        seed: That of the probes and of the draws.
    """

    entries: Tensor
    members: Tensor
    mean: Tensor
    rows: RowDensity
    parameters: Parameters = ()
    seed: int = 0

    @property
    def n(self) -> int:
        """The number of rows."""
        return len(self.members)

    @property
    def exact(self) -> bool:
        """Whether nothing but Laplace's method approximates."""
        return self.n <= MOST_DENSE

    def log_evidence(self) -> Tensor:
        """Return Laplace's approximation of the log density of all rows; see ``laplace_evidence``.

        It is differentiable twice. Past ``MOST_DENSE`` rows log|I + K W| is estimated from fixed
        probes, the slopes are those of the estimate, and second derivatives are differences of
        slopes. It is NaN where U is not finite.
        """
        inputs = (self.entries, self.mean, *self.parameters)
        if not bool(torch.isfinite(self.entries).all()):
            return math.nan * torch.stack([x.sum() for x in inputs]).sum()
        if self.exact:
            inverse = self._inverse()
            K = inverse @ inverse.mT
            return laplace_log_evidence(K, self.mean, self.rows, self.parameters)
        make: Callable[..., SparsePrior] = partial(
            SparsePrior, members=self.members, seed=self.seed
        )

        def value(entries: Tensor, mean: Tensor, *parameters: Tensor) -> Tensor:
            return laplace_log_evidence_under(make, (entries,), mean, self.rows, parameters)

        def evaluate(*inputs: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
            leaves = [x.detach().requires_grad_() for x in inputs]
            with torch.enable_grad():
                found = value(*leaves)
            return found.detach(), torch.autograd.grad(found, leaves)

        if not (torch.is_grad_enabled() and any(x.requires_grad for x in inputs)):
            return value(*inputs)
        return with_known_slopes(evaluate, *inputs)

    def error(self) -> float:
        """Return the standard error of ``log_evidence``; 0 where it is exact."""
        if self.exact:
            return 0.0
        prior = SparsePrior(self.entries, self.members, self.seed)
        _, _, W = require_mode(prior, self.mean, self.rows, self.parameters)
        return float(0.5 * Precision(prior, W).log_det.error)

    def posterior(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return Laplace's approximation of h given the rows.

        Returns:
            Its mean h [n]; U'U h [n]; the precision W [n] of a Gaussian row in the place of each;
            and C [n, q], where C C' is its covariance, or past ``MOST_DENSE_COVARIANCE`` rows an
            estimate. What is estimated of a variance has a relative standard error of
            sqrt(2 / DRAWS).

        Raises:
            NumericalError: If there is no finite mode.
        """
        given = self.mean, self.rows, self.parameters
        if self.n > MOST_DENSE_COVARIANCE:
            prior = SparsePrior(self.entries, self.members, self.seed)
            a, h, W = require_mode(prior, *given)
            return h, a, W, Precision(prior, W).covariance_root(DRAWS, self.seed)
        inverse = self._inverse()
        a, h, W = require_mode(DensePrior(inverse @ inverse.mT), *given)
        A = inverse.mT @ (W[:, None] * inverse)
        A.diagonal().add_(1.0)
        return h, a, W, torch.linalg.solve_triangular(root_of(A), inverse.mT, upper=False).mT

    def _inverse(self) -> Tensor:
        """Return U^-1 [n, n]."""
        there = self.members >= 0
        row = torch.arange(self.n, device=there.device)[:, None].expand_as(there)
        at = row[there], self.members[there].long()
        U = self.entries.new_zeros(self.n, self.n).index_put(at, self.entries.T[there])
        return torch.linalg.solve_triangular(U, torch.eye(self.n).to(U), upper=False)
