"""Gradient and Hessian of the log likelihood of linear predictors."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

CHUNK = 8192  # rows per chunk, which stay in the processor's cache between their three uses


def binary_curvature(
    X: Tensor, y: Tensor, weight: Tensor, bias: Tensor, counts: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return log p(y) of logistic regression with gradient and Hessian in (weight, bias).

    X' R X is summed over chunks of rows, and R is never formed.

    Args:
        X: [n, d], the inputs.
        y: [n], labels 0 or 1.
        weight: [d].
        bias: [].
        counts: [n], how often each row occurs; None: once.

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
        residual = labels - p
        if counts is None:
            value += (labels * logits).sum() - torch.nn.functional.softplus(logits).sum()
        else:
            w = counts[start : start + CHUNK]
            value += (w * (labels * logits - torch.nn.functional.softplus(logits))).sum()
            residual, r = w * residual, w * r
        gradient[:d].addmv_(rows.mT, residual)
        gradient[d] += residual.sum()
        H[:d, :d].addmm_(rows.mT, rows * r[:, None], alpha=-1)
        H[:d, d] -= rows.mT @ r
        H[d, d] -= r.sum()
    H[d, :d] = H[:d, d]
    return value, gradient, H


def softmax_curvature(
    X: Tensor, y: Tensor, weight: Tensor, bias: Tensor, counts: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return log p(y) of softmax regression with gradient and Hessian in (weight, bias).

    The sums run over chunks of rows.

    Args:
        X: [n, d], the inputs.
        y: [n], labels 0 .. K - 1.
        weight: [K, d].
        bias: [K].
        counts: [n], how often each row occurs; None: once.

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
        w = 1.0 if counts is None else counts[start : start + CHUNK, None]
        value += (w * torch.log_softmax(logits, -1).gather(1, labels[:, None])).sum()
        gradient += (w * (torch.nn.functional.one_hot(labels, K).to(p) - p)).mT @ rows
        counted = w * rows
        for a in range(K):
            for b in range(a, K):
                r = p[:, a] * (float(a == b) - p[:, b])
                block = rows.mT @ (counted * r[:, None])
                H[a, :, b] -= block
                if a != b:
                    H[b, :, a] -= block
    return value, gradient, H


def predictor_curvature(
    X: Tensor,
    rows: Callable[[slice], tuple[Tensor, Tensor, Tensor]],
    predictors: int,
    constants: int,
    intercept: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return a log likelihood with gradient and Hessian, given the derivatives of its rows.

    A row depends on linear predictors, all of the same columns, and on constants. The sums run
    over chunks of rows.

    Args:
        X: [n, d], the inputs.
        rows: Maps the slice of m rows to their log densities [m], and the gradients [J, m] and
            Hessians [J, J, m] of these by the J = predictors + constants arguments.
        predictors: The number of linear predictors.
        constants: The number of constants.
        intercept: Whether each predictor has an intercept.

    Returns:
        The log likelihood [], its gradient [p] and its Hessian [p, p]. The p coordinates are the d
        weights of each predictor, with its intercept after them, and then the constants.
    """
    d, q = X.shape[1], X.shape[1] + intercept
    p = predictors * q + constants
    value, gradient, H = X.new_zeros(()), X.new_zeros(p), X.new_zeros(p, p)
    for start in range(0, len(X), CHUNK):
        some, chunk = X[start : start + CHUNK], slice(start, start + CHUNK)
        log_density, first, second = rows(chunk)
        value += log_density.sum()
        sums = _Sums(some.mT, d, q, intercept)
        for j in range(predictors):
            sums.add_vector(gradient[j * q : (j + 1) * q], first[j])
            for k in range(j, predictors):
                block = H[j * q : (j + 1) * q, k * q : (k + 1) * q]
                sums.add_matrix(block, second[j, k])
            for k in range(constants):
                at = predictors * q + k
                sums.add_vector(H[j * q : (j + 1) * q, at], second[j, predictors + k])
        gradient[predictors * q :] += first[predictors:].sum(-1)
        H[predictors * q :, predictors * q :] += second[predictors:, predictors:].sum(-1)
    upper = H.triu()
    return value, gradient, upper + H.triu(1).mT


class _Sums:
    """Sums over rows A = (X, 1) of a chunk; the column of ones is that of the intercept."""

    def __init__(self, transposed: Tensor, d: int, q: int, intercept: bool) -> None:
        self.transposed, self.d, self.q, self.intercept = transposed, d, q, intercept

    def add_vector(self, total: Tensor, r: Tensor) -> None:
        """Add A' r to ``total`` [q]."""
        total[: self.d].addmv_(self.transposed, r)
        if self.intercept:
            total[self.d] += r.sum()

    def add_matrix(self, total: Tensor, r: Tensor) -> None:
        """Add A' diag(r) A to ``total`` [q, q]."""
        d, rows = self.d, self.transposed.mT
        total[:d, :d].addmm_(self.transposed, rows * r[:, None])
        if self.intercept:
            column = self.transposed @ r
            total[:d, d] += column
            total[d, :d] += column
            total[d, d] += r.sum()
