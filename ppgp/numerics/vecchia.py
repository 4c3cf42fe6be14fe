"""Vecchia's approximation: each row of a Gaussian vector given the nearest rows before it.

Vecchia (1988); Datta et al. (2016); Katzfuss & Guinness (2021). The approximation is the density of
a Gaussian vector itself, whose precision U'U has one sparse row of U for each row of the data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from scipy import sparse
from scipy.sparse.linalg import spsolve_triangular
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .cholesky import LOG_2PI
from .conditional_weights import conditional_weights, pairs_below

__all__ = ["ROWS_AT_ONCE", "Covariance", "Sets", "Whitened", "solve_earlier", "weights", "whitened"]

ROWS_AT_ONCE = 512  # their covariances stay in the cache of a core
ROWS_IN_ONE_PASS = 8192  # up to here nothing is computed a second time for the gradient

#: (A [p, 1, d], B [p, 1, d]) -> the covariance [p, 1, 1] of each pair of rows
Covariance = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Sets:
    """The rows, and the rows that each depends on.

    Attributes:
        members: [n, k], in the order of the rows: the neighbours of each row and last the row
            itself; -1 where a row has fewer neighbours.
    """

    members: Tensor

    @property
    def order(self) -> Tensor:
        """The rows in their order, [n]."""
        return self.members[:, -1].long()


@dataclass(frozen=True)
class Whitened:
    """Rows after multiplication by U, the root of the precision.

    Attributes:
        values: [n, q], in the order of the rows.
        log_weights: [n], twice the log of the diagonal of U.
    """

    values: Tensor
    log_weights: Tensor

    def log_density(self) -> Tensor:
        """Return the log density of the first column, the others being a trend to integrate out.

        It is that of y ~ N(F beta, (U'U)^-1) without beta, which has a flat prior (REML):
        -((n - p) log 2 pi - log|U'U| + log|F'U'UF| + |Uy - UF beta|^2) / 2 at the least-squares
        beta. Harville (1974), equation 3.
        """
        r, F = self.values[:, 0], self.values[:, 1:]
        half_log_det = 0.5 * self.log_weights.sum()
        if F.shape[1]:
            Q, R = torch.linalg.qr(F)
            r = r - Q @ (Q.mT @ r)
            half_log_det = half_log_det - R.diagonal().abs().log().sum()
        constant = 0.5 * (len(F) - F.shape[1]) * LOG_2PI
        return half_log_det - 0.5 * r.square().sum() - constant


def weights(
    covariance: Covariance, variance: Tensor, X: Tensor, members: Tensor
) -> Float[Tensor, "k rows"]:
    """Return the last column of the inverse covariance of each set of rows.

    Args:
        covariance: Of pairs of rows.
        variance: [n], of each row, the noise included.
        X: [n, d], all rows.
        members: [rows, k], the sets; -1 for none, whose weight is 0.
    """
    rows = members.T.clamp_min(0).long()
    i, j = (pair.to(X.device) for pair in pairs_below(len(rows)))
    there = X[rows]
    A, B = (there.index_select(0, pair).flatten(0, 1)[:, None] for pair in (i, j))
    K = covariance(A, B)
    K, diagonal = K.reshape(len(i), -1), variance[rows]
    if bool((members < 0).any()):
        exist = members.T >= 0
        K = torch.where(exist[i] & exist[j], K, torch.zeros_like(K))
        diagonal = torch.where(exist, diagonal, torch.ones_like(diagonal))
    return conditional_weights(K, diagonal)


def whitened(
    covariance: Covariance, variance: Tensor, X: Tensor, Z: Tensor, sets: Sets
) -> Whitened:
    """Multiply the columns of Z [n, q] by U, ``ROWS_AT_ONCE`` rows at a time.

    Past ``ROWS_IN_ONE_PASS`` rows the gradient computes the covariances of each part once more, so
    that they are never in memory together.
    """

    def part(members: Tensor) -> tuple[Tensor, Tensor]:
        w = weights(covariance, variance, X, members)
        products = (w.unsqueeze(-1) * Z[members.T.clamp_min(0).long()]).sum(0)
        return products / w[-1].sqrt()[:, None], w[-1].log()

    parts = sets.members.split(ROWS_AT_ONCE)
    if len(sets.members) > ROWS_IN_ONE_PASS and torch.is_grad_enabled():
        computed = [
            checkpoint(part, members, use_reentrant=False, preserve_rng_state=False)
            for members in parts
        ]
    else:
        computed = [part(members) for members in parts]
    values, logs = zip(*computed, strict=True)
    return Whitened(torch.cat(values), torch.cat(logs))


def root_of_precision(w: Tensor, sets: Sets) -> sparse.csr_array:
    """Return U [n, n], whose rows come in the order of the rows, and whose columns are the rows.

    Args:
        w: [k, n], the ``weights`` of all sets.
        sets: The sets.
    """
    k, n = w.shape
    entries = (w / w[-1].sqrt()).T.detach().cpu().numpy()
    members = sets.members.cpu().numpy()
    there = members >= 0
    rows = np.repeat(np.arange(n), k).reshape(n, k)
    return sparse.csr_array((entries[there], (rows[there], members[there])), shape=(n, n))


def solve_earlier(w: Tensor, sets: Sets, e: Tensor) -> Tensor:
    """Return U^-1 e [n, q], the rows of N(0, (U'U)^-1) for a standard normal e [n, q]."""
    U = root_of_precision(w, sets)
    order = sets.order.cpu().numpy()
    lower = sparse.csr_array(U[:, order])
    solved = spsolve_triangular(lower, e.detach().cpu().numpy(), lower=True)
    result = np.empty_like(solved)
    result[order] = solved
    return torch.as_tensor(result).to(e)
