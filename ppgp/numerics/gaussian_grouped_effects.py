"""Gaussian coefficients of groups, integrated out of Gaussian rows, with the gradient by formula.

Autograd would follow the factorisations and solves, at several times the cost. The formulas are
those of a maximum: at the most probable coefficients the slope by them is 0.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .group_blocks import Blocks, inverses, solved

__all__ = ["log_integral"]


def log_integral(blocks: Blocks, sd: Tensor, r: Tensor, precision: Tensor) -> Tensor:
    """Return the log of the integral of exp(-(r - Z S e)' W (r - Z S e) / 2) over e ~ N(0, I).

    It is -q / 2 - log|B| / 2 with B = I + S Z' W Z S and q the least of (r - Z S e)' W (r - Z S e)
    + e'e. It is differentiable twice, and NaN where B is not finite.

    Args:
        blocks: The matrix Z.
        sd: The diagonal of S, [B, m] or [1, m].
        r: [n].
        precision: The diagonal of W, [n], or [1] if all are equal.
    """
    found: Any = _LogIntegral.apply(blocks, sd, r, precision)
    return found[0]


def _least(
    blocks: Blocks, sd: Tensor, r: Tensor, precision: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the Cholesky factors of B, the e of the least q, and r - Z S e."""
    root = blocks.root(sd, precision)
    e = solved(root, sd * blocks.sums(precision * r))
    return root, e, r - blocks.of_rows(sd * e)


class _LogIntegral(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        blocks, sd, r, precision = args
        root, e, rest = _least(blocks, sd, r, precision)
        least = (precision * rest.square()).sum() + e.square().sum()
        half_log_det = root.diagonal(dim1=-2, dim2=-1).log().sum()
        return -0.5 * least - half_log_det, root, e, rest

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        blocks, *tensors = inputs
        ctx.blocks = blocks
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*tensors, *output[1:])

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        grad, blocks = grad_outputs[0], ctx.blocks
        sd, r, precision, root, e, rest = ctx.saved_tensors
        if torch.is_grad_enabled():  # for second derivatives
            root, e, rest = _least(blocks, sd, r, precision)
        pull = precision * rest
        inverse = inverses(root)
        # the diagonals of Z' W Z S B^-1, of which the sum is half the slope of log|B| by log S
        bent = (blocks.gram(precision) * sd[:, None, :] * inverse).sum(-1)
        of_sd = e * blocks.sums(pull) - bent
        if len(sd) < len(of_sd):
            of_sd = of_sd.sum(0, keepdim=True)
        if len(precision) < len(r):
            spread = (sd * bent).sum() / precision
            of_precision = -0.5 * (rest.square().sum() + spread)
        else:
            scaled = sd[:, :, None] * inverse * sd[:, None, :]
            z = blocks.features
            spread = (z * (scaled[blocks.block] @ z[:, :, None])[:, :, 0]).sum(-1)
            of_precision = -0.5 * (rest.square() + spread)
        return None, grad * of_sd, -grad * pull, grad * of_precision
