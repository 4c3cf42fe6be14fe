"""Gradient and Hessian of the log likelihood of logistic and softmax regression."""

from __future__ import annotations

import torch
from torch import Tensor

CHUNK = 8192  # rows per chunk, which stay in the processor's cache between their three uses


def binary_curvature(
    X: Tensor, y: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return log p(y) of logistic regression with gradient and Hessian in (weight, bias).

    X' R X is summed over chunks of rows, and R is never formed.

    Args:
        X: [n, d], the inputs.
        y: [n], labels 0 or 1.
        weight: [d].
        bias: [].

    Returns:
        The log likelihood [], its gradient [d + 1] and its Hessian [d + 1, d + 1].
    """
    d = X.shape[1]
    value = X.new_zeros(())
    gradient, H = X.new_zeros(d + 1), X.new_zeros(d + 1, d + 1)
    for start in range(0, len(X), CHUNK):
        rows, labels = X[start : start + CHUNK], y[start : start + CHUNK]
        logits = torch.addmv(bias, rows, weight)
        p = torch.sigmoid(logits)
        r = p * (1 - p)
        value += (labels * logits).sum() - torch.nn.functional.softplus(logits).sum()
        residual = labels - p
        gradient[:d].addmv_(rows.mT, residual)
        gradient[d] += residual.sum()
        H[:d, :d].addmm_(rows.mT, rows * r[:, None], alpha=-1)
        H[:d, d] -= rows.mT @ r
        H[d, d] -= r.sum()
    H[d, :d] = H[:d, d]
    return value, gradient, H


def softmax_curvature(
    X: Tensor, y: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return log p(y) of softmax regression with gradient and Hessian in (weight, bias).

    The sums run over chunks of rows.

    Args:
        X: [n, d], the inputs.
        y: [n], labels 0 .. K - 1.
        weight: [K, d].
        bias: [K].

    Returns:
        The log likelihood [], its gradient [K, d + 1] and its Hessian [K, d + 1, K, d + 1].
    """
    K, d = weight.shape
    value = X.new_zeros(())
    gradient, H = X.new_zeros(K, d + 1), X.new_zeros(K, d + 1, K, d + 1)
    for start in range(0, len(X), CHUNK):
        rows, labels = X[start : start + CHUNK], y[start : start + CHUNK].long()
        rows = torch.cat([rows, torch.ones_like(rows[:, :1])], 1)
        logits = rows[:, :d] @ weight.mT + bias
        p = torch.softmax(logits, -1)
        value += torch.log_softmax(logits, -1).gather(1, labels[:, None]).sum()
        gradient += (torch.nn.functional.one_hot(labels, K).to(p) - p).mT @ rows
        for a in range(K):
            for b in range(a, K):
                r = p[:, a] * (float(a == b) - p[:, b])
                block = rows.mT @ (rows * r[:, None])
                H[a, :, b] -= block
                if a != b:
                    H[b, :, a] -= block
    return value, gradient, H
