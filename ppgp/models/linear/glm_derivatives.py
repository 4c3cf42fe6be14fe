"""The log likelihood of a generalised linear model with its derivatives, in all and row by row."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...capabilities import RowScores
from ...data.dataset import Dataset
from ...likelihoods.joint_slopes import JointSlopes, Rows
from ...priors import Prior
from ..sites import Theta
from .glm_curvature import predictor_curvature


def derivatives(
    model: Any, theta: Theta, data: Dataset, expected: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return log p(y given theta), its gradient [p] and its Hessian [p, p].

    Args:
        model: The GLM.
        theta: One draw, {site: [*event]}.
        data: The training rows.
        expected: Whether the Hessian is minus the Fisher information.
    """
    d, K = data.d, model.likelihood.latents
    slopes = JointSlopes(model.likelihood, theta)
    P, with_bias = len(slopes.constants), isinstance(model.intercept, Prior)
    weight, bias = model.predictors(theta, data.X)
    rows = _rows(weight, bias, slopes, data, expected)
    value, gradient, H = predictor_curvature(data.X, rows, K, P, with_bias)
    q = d + with_bias
    order = _order(model, d, K, P)
    by_constant, bend = slopes.by_natural()
    factor = torch.cat([gradient.new_ones(K * q), by_constant.to(gradient)])
    H = factor[:, None] * H * factor
    if not expected:
        H[K * q :, K * q :] += torch.diag(gradient[K * q :] * bend.to(gradient))
    return value, (factor * gradient)[order], H[order][:, order]


def _order(model: Any, d: int, K: int, P: int) -> Tensor:
    """Return the places of the coordinates that have a prior: weights, intercepts, constants."""
    q = d + isinstance(model.intercept, Prior)
    index = torch.arange(K * q).reshape(K, q)
    kept = [index[:, :d].reshape(-1)] if isinstance(model.weight, Prior) else []
    return torch.cat([*kept, index[:, d:].reshape(-1), K * q + torch.arange(P)])


def row_scores(model: Any, theta: Theta, data: Dataset) -> RowScores:
    """Return the derivatives of the rows at one draw, as of ``GeneralisedLinear``.

    The coordinates of positive parameters are their logs.
    """
    d, K, likelihood = data.d, model.likelihood.latents, model.likelihood
    slopes = JointSlopes(likelihood, theta)
    free = slopes.free
    if likelihood.dispersion_parameter() in free:
        free = []
    P, with_bias = len(slopes.constants), isinstance(model.intercept, Prior)
    weight, bias = model.predictors(theta, data.X)
    order = _order(model, d, K, P if free else 0)
    each = _rows(weight, bias, slopes, data, False, weighted=False)(slice(None))[1]
    A = torch.cat([data.X, torch.ones_like(data.X[:, :1])], 1)[:, : d + with_bias]
    by_predictor = [one[:, None] * A for one in each[:K]]
    scores = torch.cat([*by_predictor, each[K:].mT], 1)[:, order]

    def information(expected: bool) -> Tensor:
        rows = _rows(weight, bias, slopes, data, expected)
        return -predictor_curvature(data.X, rows, K, P, with_bias)[2][order][:, order]

    fisher = information(True)
    own = {name: model.sites(d)[name] for name in ("weight", "bias", *free)}
    sites = {name: torch.Size(site.shape) for name, site in own.items() if not site.fixed}
    leverage = None
    if K == 1 and not free and isinstance(model.weight, Prior):
        second = _rows(weight, bias, slopes, data, True, weighted=False)(slice(None))[2][0, 0]
        leverage = -second * (A * torch.linalg.solve(fisher, A.mT).mT).sum(-1)
    return RowScores(sites, scores, partial(information, False), fisher, leverage)


def _rows(
    weight: Tensor,
    bias: Tensor,
    slopes: JointSlopes,
    data: Dataset,
    expected: bool,
    weighted: bool = True,
) -> Callable[[slice], Rows]:
    """Return the function that maps a slice of rows to their derivatives, times their weights."""
    offset, trials = data.offset, data.trials
    weights = data.weights if weighted else None

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
