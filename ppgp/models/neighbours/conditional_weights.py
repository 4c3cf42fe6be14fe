"""The distribution of the last of several Gaussian variables given the others, for many sets."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ...numerics.cholesky import factor_or_nan

__all__ = ["conditional_weights", "pairs_below"]


@cache
def pairs_below(k: int) -> tuple[Tensor, Tensor]:
    """Return the pairs i > j of k variables: the i and the j, each [k (k - 1) / 2]."""
    below = torch.tril_indices(k, k, -1, device="cpu")
    return below[0], below[1]


def _matrices(covariances: Tensor, variances: Tensor) -> Tensor:
    """Return the matrices [sets, k, k], whose upper triangles are 0."""
    k, sets = variances.shape
    i, j = pairs_below(k)
    diagonal = torch.arange(k, device=i.device) * (k + 1)
    places = torch.cat([i * k + j, diagonal]).to(variances.device)
    entries = torch.cat([covariances, variances])
    # the sets are the last axis, so that each row is copied as one piece
    flat = entries.new_zeros(k * k, sets).index_copy(0, places, entries)
    return flat.T.contiguous().reshape(sets, k, k)


class _ConditionalWeights(torch.autograd.Function):
    """C^-1 e with e = (0, ..., 0, 1), and its derivative -C^-1 dC C^-1 e.

    One Cholesky factorisation serves both; differentiating through the factorisation costs several
    times as much. Where second derivatives are requested, the backward pass recomputes everything
    from C, so that they are right.
    """

    @staticmethod
    def forward(covariances: Tensor, variances: Tensor) -> Any:
        L, info = torch.linalg.cholesky_ex(_matrices(covariances, variances))
        L.diagonal(dim1=-2, dim2=-1).mul_(torch.where(info == 0, 1.0, math.nan)[:, None].to(L))
        # L^-1 e is e over the last diagonal entry
        e = torch.zeros_like(L[:, :, :1])
        e[:, -1, 0] = 1.0 / L[:, -1, -1]
        weights = torch.linalg.solve_triangular(L.mT, e, upper=True).squeeze(-1)
        return weights.T.contiguous(), L

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        weights, L = output
        ctx.mark_non_differentiable(L)
        ctx.save_for_backward(*inputs, weights, L)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        covariances, variances, weights, L = ctx.saved_tensors
        if torch.is_grad_enabled():
            lower = _matrices(covariances, variances)
            L = factor_or_nan(lower + lower.tril(-1).mT)
            weights = conditional_weights(covariances, variances)
        solved = (
            -torch.cholesky_solve(grad_outputs[0].T.unsqueeze(-1), L).squeeze(-1).T.contiguous()
        )
        i, j = (rows.to(L.device) for rows in pairs_below(len(variances)))
        of_pairs = solved.index_select(0, i) * weights.index_select(0, j)
        of_pairs = of_pairs.addcmul(solved.index_select(0, j), weights.index_select(0, i))
        return of_pairs, solved * weights


def conditional_weights(
    covariances: Float[Tensor, "pairs sets"], variances: Float[Tensor, "k sets"]
) -> Float[Tensor, "k sets"]:
    """Return the last column of the inverse of each covariance matrix C.

    With weights w and variables z ~ N(0, C), the last variable given the others has the variance
    1 / w_k, and (w' z) / w_k is the last variable minus its conditional mean. Its standardised
    residual is (w' z) / sqrt(w_k). Vecchia (1988); Rue & Held (2005), theorem 2.3.

    Args:
        covariances: [k (k - 1) / 2, sets], those of the pairs that ``pairs_below`` lists.
        variances: [k, sets].

    Returns:
        [k, sets], with first and second derivatives; NaN where C is not positive definite.
    """
    outputs: Any = _ConditionalWeights.apply(covariances, variances)
    return outputs[0]
