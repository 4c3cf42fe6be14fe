"""Where a Gaussian guide starts, and the coordinates it moves in: the best of what is known before the first step."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...errors import ImproperPosterior, NumericalError
from ...numerics.cholesky import LOG_2PI
from ...target.target import Target
from ..optimise.laplace import expand
from .deterministic import draws_for, matched_draws, maximise
from .gaussian_guide import GaussianGuide
from .pathfinder import best_on_path, log_densities

CLIMB = 500  # iterations of L-BFGS before the guide starts
CLIMB_STEPS = 100  # along the natural gradient
START_SCALE = 0.1  # of the guide where nothing is known
DRAWS = 20  # behind the ELBO of each candidate
SHRINK = (1.0, 0.5, 0.25)  # a Gaussian of the right shape may reach too far into light tails
POOR = 2.0  # nats between the evidence that a Laplace approximation claims and its ELBO: from here on, look further


def starting_frame(
    target: Target, correlated: bool, start: Tensor, seed: int
) -> tuple[Tensor, Tensor, bool]:
    """origin [p] and root [p, p] (diagonal unless ``correlated``) of highest ELBO, and whether Ctrl-C came on the way.

    The Laplace approximation, where it is a good one; else the best of it, of a path towards the mode (which a mode at
    infinity does not mislead) and of a small ball at the start, and from there some natural-gradient steps over fixed draws:
    where the shape of the posterior is not that of its mode, an optimiser of rate 0.02 would crawl.
    """
    generator = torch.Generator().manual_seed(seed)
    e = torch.randn(DRAWS, target.dim, generator=generator, dtype=torch.float64).to(start)
    candidates: list[tuple[Tensor, Tensor]] = []
    try:
        peak = expand(target, start, False, CLIMB)
    except ImproperPosterior:
        raise
    except NumericalError:
        peak = None
    if peak is not None:
        laplace = _fitting(peak.mode, peak.root, correlated)
        evidence = peak.log_density + 0.5 * target.dim * LOG_2PI + peak.half_log_det_covariance
        gap = evidence - _elbo(target, *laplace, e) - _mean_field_loss(peak.root, correlated)
        if peak.interrupted or (peak.definite and gap < POOR):
            return *laplace, peak.interrupted
        candidates.append(laplace)
    path = best_on_path(target, start, seed, CLIMB)
    if path is not None:
        candidates.append(_fitting(path.mean, path.root(), correlated))
    candidates = [(origin, factor * root) for origin, root in candidates for factor in SHRINK]
    ball = start, START_SCALE * torch.eye(target.dim).to(start)
    best = max([ball, *candidates], key=lambda frame: _elbo(target, *frame, e))
    guide = GaussianGuide(*best, correlated)
    fixed = matched_draws(draws_for(target.dim), target.dim, generator, start)
    guide, _, _, interrupted = maximise(guide, target, fixed, CLIMB_STEPS, False)
    eye = torch.eye(target.dim).to(start)
    centre = guide.draw(torch.zeros_like(start))
    return centre, (guide.draw(eye) - centre).mT.contiguous(), interrupted


def _fitting(origin: Tensor, root: Tensor, correlated: bool) -> tuple[Tensor, Tensor]:
    """For a mean-field guide the diagonal Gaussian nearest to N(origin, root root'): variances 1 / precision_ii."""
    if correlated:
        return origin, root
    precision = torch.linalg.inv(root @ root.mT).diagonal()
    return origin, torch.diag(precision.rsqrt())


def _mean_field_loss(root: Tensor, correlated: bool) -> float:
    """KL from the nearest diagonal Gaussian to N(0, root root'): what leaving the correlations out costs, and no fault of Laplace's."""
    if correlated:
        return 0.0
    covariance = root @ root.mT
    precision = torch.linalg.inv(covariance).diagonal()
    return 0.5 * float(torch.linalg.slogdet(covariance).logabsdet + precision.log().sum())


def _elbo(target: Target, origin: Tensor, root: Tensor, e: Tensor) -> float:
    log_q = (
        -0.5 * e.square().sum(-1)
        - torch.linalg.slogdet(root).logabsdet
        - 0.5 * e.shape[-1] * LOG_2PI
    )
    elbo = float((log_densities(target, origin + e @ root.mT) - log_q).mean())
    return elbo if math.isfinite(elbo) else -math.inf
