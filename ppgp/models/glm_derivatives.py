"""The log likelihood of a generalised linear model, with its gradient and its Hessian."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..data.dataset import Dataset
from ..likelihoods.joint_slopes import JointSlopes, Rows
from ..numerics.glm_curvature import predictor_curvature
from ..priors import Prior
from .sites import Theta


def derivatives(
    model: Any, theta: Theta, data: Dataset, expected: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return log p(y given theta), its gradient [p] and its Hessian [p, p].

    Args:
        model: the GLM.
        theta: one draw, {site: [*event]}.
        data: the training rows.
        expected: whether the Hessian is minus the Fisher information.
    """
    d, K = data.d, model.likelihood.latents
    slopes = JointSlopes(model.likelihood, theta)
    P, with_bias = len(slopes.constants), isinstance(model.intercept, Prior)
    weight, bias = model.predictors(theta, data.X)
    rows = _rows(weight, bias, slopes, data, expected)
    value, gradient, H = predictor_curvature(data.X, rows, K, P, with_bias)
    q = d + with_bias
    index = torch.arange(K * q).reshape(K, q)
    kept = [index[:, :d].reshape(-1)] if isinstance(model.weight, Prior) else []
    order = torch.cat([*kept, index[:, d:].reshape(-1), K * q + torch.arange(P)])
    by_constant, bend = slopes.by_natural()
    factor = torch.cat([gradient.new_ones(K * q), by_constant.to(gradient)])
    H = factor[:, None] * H * factor
    if not expected:
        H[K * q :, K * q :] += torch.diag(gradient[K * q :] * bend.to(gradient))
    return value, (factor * gradient)[order], H[order][:, order]


def _rows(
    weight: Tensor, bias: Tensor, slopes: JointSlopes, data: Dataset, expected: bool
) -> Callable[[slice], Rows]:
    """Return the function that maps a slice of rows to their derivatives."""
    offset, trials, weights = data.offset, data.trials, data.weights

    def rows(chunk: slice) -> Rows:
        f = torch.addmm(bias[:, None], weight, data.X[chunk].mT)
        if offset is not None:
            f[0] += offset[chunk]
        own = trials if trials is None else trials[chunk]
        found = slopes.rows(f, data.y[chunk], own, expected)
        if weights is None:
            return found
        w = weights[chunk]
        value, first, second = (torch.where(w > 0, w * one, 0.0) for one in found)
        return value, first, second

    return rows
