"""The Gaussian that a guide starts from, which also gives the coordinates it is fitted in."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...density.target import Target
from ...errors import ImproperPosterior, NumericalError
from ...numerics.cholesky import LOG_2PI
from ...runtime.seeding import standard_normal
from ..optimise.expansion import expand_at_mode
from .deterministic import draws_for, matched_draws, maximise
from .gaussian_guide import GaussianGuide
from .pathfinder import best_on_path, log_densities

SEARCH_STEPS = 500  # iterations of L-BFGS before the guide starts
GUIDE_STEPS = 100  # along the natural gradient
START_SCALE = 0.1  # sd of the guide if nothing is known
WIDER = (3.0, 10.0)  # balls of so many times this sd are tried too
DRAWS = 20  # behind the ELBO of each candidate
SHRINK = (1.0, 0.5, 0.25)  # a Gaussian of the right shape may reach too far into light tails
#: Nats by which the evidence of a Laplace approximation may exceed its ELBO before other candidates
#: are tried.
POOR = 2.0


def initial_gaussian(
    target: Target, correlated: bool, start: Tensor, seed: int
) -> tuple[Tensor, Tensor, bool]:
    """Return the Gaussian of highest ELBO among several cheap ones.

    The first candidate is the Laplace approximation, which is returned if it is good. The others
    are the best Gaussian on a path towards the mode (which a mode at infinity does not mislead) and
    balls at the start. The best of all is then improved by some natural-gradient steps over
    fixed draws: if the shape of the posterior differs from that at its mode, an optimiser of
    rate 0.02 would be slow.

    Returns:
        origin [p], root [p, p] (diagonal unless ``correlated``), and whether Ctrl-C came.

    Raises:
        ImproperPosterior: If the density is constant along a line.
    """
    generator = torch.Generator().manual_seed(seed)
    e = standard_normal(generator, DRAWS, target.dim).to(start)
    try:
        peak = expand_at_mode(target, start, False, SEARCH_STEPS)
    except ImproperPosterior:
        raise
    except NumericalError:
        peak = None
    ball = START_SCALE * torch.eye(target.dim).to(start)
    candidates: list[tuple[Tensor, Tensor]] = []
    try:
        if peak is not None:
            laplace = _of_guide(peak.mode, peak.root, correlated)
            candidates.append(laplace)
            evidence = peak.log_density + 0.5 * target.dim * LOG_2PI + peak.half_log_det_covariance
            gap = evidence - _elbo(target, *laplace, e) - _mean_field_loss(peak.root, correlated)
            if peak.interrupted or (peak.definite and gap < POOR):
                return *laplace, peak.interrupted
        path = best_on_path(target, start, seed, SEARCH_STEPS)
        if path is not None:
            candidates.append(_of_guide(path.mean, path.root(), correlated))
        shrunk = [(z, factor * root) for z, root in candidates for factor in SHRINK]
        balls = [(start, factor * ball) for factor in (1.0, *WIDER)]
        begun = [
            max(each, key=lambda candidate: _elbo(target, *candidate, e))
            for each in (shrunk, balls)
            if each
        ]
    except KeyboardInterrupt:
        return *(candidates or [(start, ball)])[0], True
    fixed = matched_draws(draws_for(target.dim), target.dim, generator, start)
    fits = [
        maximise(GaussianGuide(*one, correlated), target, fixed, GUIDE_STEPS, False)
        for one in begun
    ]
    fit = max(fits, key=lambda each: _last(each.history))
    eye = torch.eye(target.dim).to(start)
    centre = fit.guide.draw(torch.zeros_like(start))
    return centre, (fit.guide.draw(eye) - centre).mT.contiguous(), fit.interrupted


def _of_guide(origin: Tensor, root: Tensor, correlated: bool) -> tuple[Tensor, Tensor]:
    """Return the Gaussian, or for a mean-field guide the nearest diagonal one.

    The variances of the latter are 1 / precision_ii.
    """
    if correlated:
        return origin, root
    precision = torch.linalg.inv(root @ root.mT).diagonal()
    return origin, torch.diag(precision.rsqrt())


def _last(elbos: list[float]) -> float:
    """Return the last ELBO; minus infinity if it is none, or Ctrl-C came before the first."""
    if elbos and math.isfinite(elbos[-1]):
        return elbos[-1]
    return -math.inf


def _mean_field_loss(root: Tensor, correlated: bool) -> float:
    """Return the KL divergence from the nearest diagonal Gaussian to N(0, root root').

    It is the price of leaving the correlations out, and says nothing against the Laplace
    approximation. It is 0 for a guide with a full covariance.
    """
    if correlated:
        return 0.0
    covariance = root @ root.mT
    precision = torch.linalg.inv(covariance).diagonal()
    return 0.5 * float(torch.linalg.slogdet(covariance).logabsdet + precision.log().sum())


def _elbo(target: Target, origin: Tensor, root: Tensor, e: Tensor) -> float:
    """Return the ELBO of N(origin, root root') from standard normal draws e [k, p]."""
    log_q = (
        -0.5 * e.square().sum(-1)
        - torch.linalg.slogdet(root).logabsdet
        - 0.5 * e.shape[-1] * LOG_2PI
    )
    elbo = float((log_densities(target, origin + e @ root.mT) - log_q).mean())
    return elbo if math.isfinite(elbo) else -math.inf
