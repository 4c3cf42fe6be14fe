"""Laplace's approximation of the log density of rows, with its gradient, for any prior of f."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .derivatives import derivatives_of_sum
from .latent_mode import Conditioned, LatentPrior, Parameters, RowDensity, mode_of

__all__ = ["laplace_log_evidence_under"]


def laplace_log_evidence_under(
    prior: Callable[..., LatentPrior],
    tensors: tuple[Tensor, ...],
    mean: Tensor,
    rows: RowDensity,
    parameters: Parameters = (),
) -> Tensor:
    """Return Laplace's approximation of the log density of all rows.

    Rasmussen & Williams (2006), equation 3.32: log p(rows given f) - a'h / 2 - log|I + K W| / 2 at
    the mode f = mean + h, where W is minus the second derivatives there, also those below 0. It is
    differentiable twice in the tensors, the mean and the parameters: the gradient is that of
    algorithm 5.1, which counts how the mode moves. It is NaN where the prior is not finite, or
    where the second derivatives at the end of the search are not those of a mode.

    Args:
        prior: Makes the prior of f - mean from the tensors.
        tensors: What the prior depends on.
        mean: [n], the mean of f.
        rows: The log densities of the rows.
        parameters: Those of ``rows``.
    """
    value: Any = _LogEvidence.apply(prior, rows, len(tensors), mean, *tensors, *parameters)
    return value


class _LogEvidence(torch.autograd.Function):
    """log q(rows) at the mode, with its gradient by implicit differentiation."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Any:
        make, rows, count, mean, *others = arguments
        parameters = tuple(others[count:])
        prior = make(*others[:count])
        a, h = mode_of(prior, mean, rows, parameters)
        ctx.make, ctx.rows, ctx.count, ctx.given = make, rows, count, None
        ctx.save_for_backward(mean, h, *others)
        if not bool(torch.isfinite(h).all()):
            return h.sum()
        first, second = rows.slopes(mean + h, parameters)
        ctx.given = prior.given(-second, first - second * h)
        fit = rows.log_prob(mean + h, parameters).sum()
        return fit - 0.5 * a @ h - ctx.given.half_log_det()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        grad = grad_outputs[0]
        mean, h, *others = ctx.saved_tensors
        rows, given = ctx.rows, ctx.given
        tensors, parameters = tuple(others[: ctx.count]), tuple(others[ctx.count :])
        if given is None:
            none = [torch.full_like(x, math.nan) for x in (mean, *others)]
            return None, None, None, *none
        if torch.is_grad_enabled():
            # a step from the mode stays there, and moves as the mode does
            prior, h = ctx.make(*tensors), h.detach()
            h = _conditioned(prior, mean, h, rows, parameters).h
            given = _conditioned(prior, mean, h, rows, parameters)
        by_mean, by_tensors, by_parameters = _gradient(given, mean + h, rows, parameters)
        each = (by_mean, *by_tensors, *by_parameters)
        return None, None, None, *(grad * g for g in each)


def _conditioned(
    prior: LatentPrior, mean: Tensor, h: Tensor, rows: RowDensity, parameters: Parameters
) -> Conditioned:
    """Return h given the Gaussian rows that touch the log densities at h."""
    first, second = rows.slopes(mean + h, parameters)
    return prior.given(-second, first - second * h, differentiable=True)


def _gradient(
    given: Conditioned, f: Tensor, rows: RowDensity, parameters: Parameters
) -> tuple[Tensor, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return the slopes at the mode f in the mean, the tensors of the prior and the parameters."""
    first, _ = rows.slopes(f, parameters)
    variance = given.variance()
    (third,) = derivatives_of_sum(lambda f: rows.slopes(f, parameters)[1], (f,), parameters)
    by_log_det = 0.5 * variance * third  # the slope of -log|I + K W| / 2 in f
    weights, moved, by_tensors = given.slopes(by_log_det)
    of_parameters: tuple[Tensor, ...] = ()
    if parameters:

        def explicit(*parameters: Tensor) -> Tensor:
            slope, curvature = rows.slopes(f, parameters)
            fit = rows.log_prob(f, parameters).sum()
            return fit + 0.5 * variance @ curvature + moved @ slope

        of_parameters = derivatives_of_sum(explicit, parameters, (f, variance, moved))
    return first + weights, by_tensors, of_parameters
