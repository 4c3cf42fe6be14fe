"""Variational inference without noise: a Gaussian guide fitted on draws that are fixed once, by natural gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from ...target.target import Target
from ..progress import bar
from .gaussian_guide import GaussianGuide

DRAWS_A_DIMENSION = 8
FEWEST_DRAWS = 32
MORE = 16  # times as many draws where the guide has learnt the fixed ones by heart
FRESH = 4  # times as many draws to see whether it has
STAGES = 2
OPTIMISM = 0.05  # nats by which the ELBO over the fixed draws may exceed that over fresh ones: twice what it lies below the best
TOLERANCE = 1e-3  # nats: the ELBO has arrived once an iteration raises it by less
FIRST_RATE = 0.7  # of the first steps, from wherever the Laplace approximation is
HALVINGS = 12
STEP = 1e-4  # of the central differences behind the linear response, in units of the guide's own parameters


def draws_for(p: int) -> int:
    """How many draws a guide over R^p begins with; larger sets are evaluated so many at a time."""
    return max(FEWEST_DRAWS, DRAWS_A_DIMENSION * p)


def matched_draws(count: int, p: int, generator: torch.Generator, like: Tensor) -> Tensor:
    """Standard normal draws e [count, p] with mean 0 and covariance I exactly, in pairs e, -e.

    Expectations of quadratic functions over them are exact, so that the fixed draws cost accuracy only where the target
    is not Gaussian.
    """
    half = torch.randn((count + 1) // 2, p, generator=generator, dtype=torch.float64).to(like)
    e = torch.cat([half, -half])
    L = torch.linalg.cholesky(e.mT @ e / len(e))
    return torch.linalg.solve_triangular(L, e.mT, upper=False).mT


def fit_guide(
    guide: GaussianGuide, target: Target, steps: int, generator: torch.Generator, progress: bool
) -> tuple[GaussianGuide, list[float], list[str], bool, Tensor]:
    """The guide at its optimum, the ELBOs on the way, notes, whether Ctrl-C came, and the draws that it was fitted on.

    A guide far from its target bends to the draws that it sees: fresh ones say so, and then there are more.
    """
    count = draws_for(target.dim)
    history: list[float] = []
    for stage in range(STAGES):
        fixed = matched_draws(count * MORE**stage, target.dim, generator, guide.loc)
        guide, more, notes, interrupted = maximise(guide, target, fixed, steps, progress)
        history += more
        if notes or interrupted or stage == STAGES - 1:
            break
        fresh, _ = guide.evaluate(
            target, matched_draws(FRESH * count, target.dim, generator, guide.loc), count
        )
        if not history[-1] - float(fresh.mean()) > OPTIMISM:
            break
    return guide, history, notes, interrupted, fixed


def maximise(
    guide: GaussianGuide, target: Target, e: Tensor, steps: int, progress: bool
) -> tuple[GaussianGuide, list[float], list[str], bool]:
    """Natural-gradient steps of size one, halved while the ELBO over the fixed draws does not rise; the best guide, the ELBOs
    on the way, notes, and whether Ctrl-C came."""
    notes: list[str] = []
    interrupted = False
    history: list[float] = []
    rate = FIRST_RATE
    best = guide.copy()
    try:
        with bar("SVI (deterministic)", steps, progress) as update:
            f, slope = best.evaluate(target, e, draws_for(target.dim))
            history.append(float(f.mean()))
            for step in range(steps):
                found = _raised(best, target, e, slope, rate, history[-1])
                if found is None:
                    break
                best, f, slope, rate = found
                history.append(float(f.mean()))
                update(step + 1, elbo=history[-1])
                if history[-1] - history[-2] < TOLERANCE:
                    break
                rate = min(1.0, 1.5 * rate)
            else:
                notes.append(f"the ELBO was still rising after {steps} steps: raise steps")
    except KeyboardInterrupt:
        interrupted = True
        notes.append(
            f"stopped by Ctrl-C after {len(history)} of {steps} steps; this is the guide reached"
        )
    return best, history, notes, interrupted


def _raised(
    guide: GaussianGuide, target: Target, e: Tensor, slope: Tensor, rate: float, elbo: float
) -> tuple[GaussianGuide, Tensor, Tensor, float] | None:
    """The guide a step further, what it sees, and the rate that raised the ELBO; None where no rate does."""
    for _ in range(HALVINGS):
        trial = guide.copy()
        if trial.natural_step(e, slope, rate):
            f, onward = trial.evaluate(target, e, draws_for(target.dim))
            if float(f.mean()) > elbo - TOLERANCE:
                return trial, f, onward, rate
        rate *= 0.5
    return None


def linear_response(guide: GaussianGuide, target: Target, e: Tensor) -> Tensor:
    """The covariance of z [p, p] that a mean-field guide leaves out: how its means answer to a tilt of the density.

    Minus the inverse of the ELBO's Hessian in the guide's parameters, its block of the means; exact where the target is
    Gaussian. Giordano, Broderick & Jordan (2018), section 3.2; by central differences of the gradient over the fixed draws.
    """
    parameters = guide.parameters()
    size = sum(p.numel() for p in parameters)
    H = torch.empty(size, size).to(guide.loc)
    row = 0
    for p in parameters:
        for j in range(p.numel()):
            sides = []
            for sign in (1.0, -1.0):
                p[j] += sign * STEP
                sides.append(torch.cat(_true_gradient(guide, target, e)))
                p[j] -= sign * STEP
            H[row] = (sides[0] - sides[1]) / (2 * STEP)
            row += 1
    H = 0.5 * (H + H.mT)
    inner = torch.linalg.inv(-H)[: len(guide.loc), : len(guide.loc)]
    return guide.root @ inner @ guide.root.mT


def _true_gradient(guide: GaussianGuide, target: Target, e: Tensor) -> list[Tensor]:
    """Of the ELBO over the fixed draws: the entropy in closed form, no term left out."""
    scale = guide.log_scale.exp()
    _, slope = guide.evaluate(target, e, draws_for(target.dim))
    slope = slope @ guide.root
    return [slope.mean(0), (slope * scale * e).mean(0) + 1.0]
