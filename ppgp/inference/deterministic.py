"""Variational inference without noise: a Gaussian guide fitted on draws that are fixed once, by natural gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from ..progress import bar
from ..target import Target
from .gaussian_guide import GaussianGuide

DRAWS_A_DIMENSION = 8
FEWEST_DRAWS = 32
TOLERANCE = 1e-3  # nats: the ELBO has arrived once an iteration raises it by less
FIRST_RATE = 0.7  # of the first steps, from wherever the Laplace approximation is
HALVINGS = 12
STEP = 1e-4  # of the central differences behind the linear response, in units of the guide's own parameters


def matched_draws(count: int, p: int, generator: torch.Generator, like: Tensor) -> Tensor:
    """Standard normal draws e [count, p] with mean 0 and covariance I exactly, in pairs e, -e.

    Expectations of quadratic functions over them are exact, so that the fixed draws cost accuracy only where the target
    is not Gaussian.
    """
    half = torch.randn((count + 1) // 2, p, generator=generator, dtype=torch.float64).to(like)
    e = torch.cat([half, -half])
    L = torch.linalg.cholesky(e.mT @ e / len(e))
    return torch.linalg.solve_triangular(L, e.mT, upper=False).mT


def climb(
    guide: GaussianGuide, target: Target, e: Tensor, steps: int, progress: bool
) -> tuple[GaussianGuide, list[float], list[str]]:
    """Natural-gradient steps of size one, halved while the ELBO over the fixed draws does not rise; the best guide."""
    notes: list[str] = []
    history: list[float] = []
    rate = FIRST_RATE
    best = guide.copy()
    try:
        with bar("SVI (deterministic)", steps, progress) as update:
            for step in range(steps):
                trial = best.copy()
                elbo = float(trial.natural_step(target, e, rate).mean())  # of the guide before the step
                if history and not elbo > history[-1] - TOLERANCE:
                    break
                history.append(elbo)
                update(step + 1, elbo=elbo)
                moved = None
                for _ in range(HALVINGS):
                    here = float(trial.estimates(target, e)[0].mean())
                    if here > elbo - TOLERANCE:
                        moved = here
                        break
                    rate *= 0.5
                    trial = best.copy()
                    trial.natural_step(target, e, rate)
                if moved is None:
                    break
                best = trial
                if moved - elbo < TOLERANCE:
                    history.append(moved)
                    break
                rate = min(1.0, 1.5 * rate)
            else:
                notes.append(f"the ELBO was still rising after {steps} steps: raise steps")
    except KeyboardInterrupt:
        notes.append(f"stopped by Ctrl-C after {len(history)} of {steps} steps; this is the guide reached")
    return best, history, notes


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
    _, slope = target.side_by_side(guide.draw(e))
    slope = slope @ guide.root
    return [slope.mean(0), (slope * scale * e).mean(0) + 1.0]
