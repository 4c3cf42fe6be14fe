"""Covariances of maximum likelihood estimates that hold under wrong variances or in clusters."""

from __future__ import annotations

import torch
from torch import Tensor


def robust(bread: Tensor, scores: Tensor, weights: Tensor, leverage: Tensor | None) -> Tensor:
    """Return B (sum_i w_i s_i s_i') B, the sandwich of Huber (1967) and White (1980), [p, p].

    Args:
        bread: B [p, p], the inverse of minus the Hessian of the log likelihood.
        scores: The scores s [n, p], the gradient of each row's log density.
        weights: The weights w [n], how many equal rows each row counts as.
        leverage: The leverages h [n]; the scores are divided by 1 - h, as in HC3 of MacKinnon &
            White (1985). None: HC0.
    """
    if leverage is not None:
        scores = scores / (1 - leverage[:, None])
    return bread @ (scores.mT @ (weights[:, None] * scores)) @ bread


def clustered(bread: Tensor, scores: Tensor, weights: Tensor, codes: Tensor) -> Tensor:
    """Return the sandwich with the sums of the scores within clusters. Liang & Zeger (1986).

    It is multiplied by G / (G - 1) (n - 1) / (n - p) for G clusters of n rows.

    Args:
        bread: As of ``robust``.
        scores: As of ``robust``.
        weights: As of ``robust``.
        codes: The cluster of each row, [n], 0 ... G - 1.
    """
    p, count, n = scores.shape[1], int(codes.max()) + 1, float(weights.sum())
    sums = scores.new_zeros(count, p).index_add(0, codes, weights[:, None] * scores)
    factor = count / (count - 1) * (n - 1) / (n - p)
    return factor * bread @ (sums.mT @ sums) @ bread


def two_sided(z: Tensor) -> Tensor:
    """Return P(|Z| > |z|) of a standard normal Z."""
    return torch.special.erfc(z.abs() / 2**0.5)
