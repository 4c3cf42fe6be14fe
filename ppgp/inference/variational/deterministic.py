"""Variational inference without noise: natural gradients over draws that are fixed once."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...density.target import Target
from ...runtime.progress import bar
from ...runtime.seeding import standard_normal
from .gaussian_guide import GaussianGuide

DRAWS_PER_DIMENSION = 8
FEWEST_DRAWS = 32
MORE = 8  # largest factor on the number of draws if the first are too few
#: Nats of the ELBO that fixed draws may cost, before the fit goes on over more of them; and that
#: those may cost.
LOSS, WANTED_LOSS = 0.005, 0.004
TOLERANCE = 1e-3  # nats: the fit ends once an iteration raises the ELBO by less
#: Of the first step from a guide that was not fitted, such as the Laplace approximation.
FIRST_RATE = 0.7
HALVINGS = 12
#: Of the central differences behind the linear response, in units of the guide's parameters:
#: about the cube root of the rounding error.
STEP, STEP_IN_SINGLE = 1e-4, 1e-2


@dataclass(frozen=True, eq=False)
class GuideFit:
    """A guide fitted over fixed draws.

    Attributes:
        guide: The best guide.
        history: The ELBO over the fixed draws at each step.
        notes: Reasons to doubt that the fit converged.
        interrupted: Whether Ctrl-C ended the fit.
        e: The fixed draws, [k, p].
        loss: About how many nats the guide is from the best ELBO, because the draws are so few.
    """

    guide: GaussianGuide
    history: list[float]
    notes: list[str]
    interrupted: bool
    e: Tensor
    loss: float


def draws_for(p: int) -> int:
    """Return the number of draws that a fit of a guide over R^p starts with.

    Larger sets of draws are evaluated so many at a time.
    """
    return max(FEWEST_DRAWS, DRAWS_PER_DIMENSION * p)


def matched_draws(count: int, p: int, generator: torch.Generator, like: Tensor) -> Tensor:
    """Return standard normal draws e [count, p] with mean 0 and covariance I exactly.

    They come in pairs e, -e. Expectations of quadratic functions over them are exact, so that fixed
    draws cost accuracy only if the target is not Gaussian.
    """
    half = standard_normal(generator, (count + 1) // 2, p).to(like)
    e = torch.cat([half, -half])
    L = torch.linalg.cholesky(e.mT @ e / len(e))
    return torch.linalg.solve_triangular(L, e.mT, upper=False).mT


def fit_guide(
    guide: GaussianGuide, target: Target, steps: int, generator: torch.Generator, progress: bool
) -> GuideFit:
    """Maximise the ELBO of a guide over fixed draws, and over more if those cost too much of it.

    A guide adapts to the very draws that it is fitted on, the more so the less its target is
    Gaussian.
    """
    count, most = draws_for(target.dim), MORE * draws_for(target.dim)
    history: list[float] = []
    rate = FIRST_RATE
    while True:
        fixed = matched_draws(count, target.dim, generator, guide.loc)
        fit = maximise(guide, target, fixed, steps, progress, rate)
        guide, rate = fit.guide, 1.0
        history += fit.history
        if fit.notes or fit.interrupted or count >= most or not fit.loss > LOSS:
            return replace(fit, history=history)
        count = min(most, count * math.ceil(fit.loss / WANTED_LOSS))


def maximise(
    guide: GaussianGuide,
    target: Target,
    e: Tensor,
    steps: int,
    progress: bool,
    rate: float = FIRST_RATE,
) -> GuideFit:
    """Maximise the ELBO over fixed draws e [k, p] by natural-gradient steps.

    Steps have size one, and are halved while the ELBO does not rise. The last, of which the natural
    gradient of a full covariance promises next to nothing, is taken without a look at the ELBO.
    """
    notes: list[str] = []
    interrupted = False
    history: list[float] = []
    best, slope = guide.copy(), torch.zeros_like(e)
    try:
        with bar("SVI (deterministic)", steps, progress) as update:
            f, slope = best.evaluate(target, e, draws_for(target.dim))
            history.append(float(f.mean()))
            for step in range(steps):
                if best.correlated and best.rise(e, slope) < TOLERANCE:
                    best.natural_step(e, slope, rate)
                    break
                raised = _raised(best, target, e, slope, rate, history[-1])
                if raised is None:
                    break
                best, f, slope, rate = raised
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
    return GuideFit(best, history, notes, interrupted, e, best.loss_of_draws(e, slope))


def _raised(
    guide: GaussianGuide, target: Target, e: Tensor, slope: Tensor, rate: float, elbo: float
) -> tuple[GaussianGuide, Tensor, Tensor, float] | None:
    """Return the guide after a step, its ELBOs and gradients, and the rate; None if none helps."""
    for _ in range(HALVINGS):
        trial = guide.copy()
        if trial.natural_step(e, slope, rate):
            f, onward = trial.evaluate(target, e, draws_for(target.dim))
            if float(f.mean()) > elbo - TOLERANCE:
                return trial, f, onward, rate
        rate *= 0.5
    return None


def linear_response(guide: GaussianGuide, target: Target, e: Tensor) -> Tensor:
    """Return the covariance of z [p, p] that a mean-field guide leaves out, by linear response.

    It is the response of the guide's means to a tilt of the density: the block of the means in
    minus the inverse of the ELBO's Hessian in the guide's parameters. It is exact if the target is
    Gaussian. Giordano, Broderick & Jordan (2018), section 3.2. The Hessian comes from central
    differences of the gradient over the fixed draws e [k, p].
    """
    parameters = guide.parameters()
    size = sum(p.numel() for p in parameters)
    H = torch.empty(size, size).to(guide.loc)
    step = STEP if H.dtype == torch.float64 else STEP_IN_SINGLE
    row = 0
    for p in parameters:
        for j in range(p.numel()):
            sides = []
            for sign in (1.0, -1.0):
                p[j] += sign * step
                sides.append(torch.cat(_true_gradient(guide, target, e)))
                p[j] -= sign * step
            H[row] = (sides[0] - sides[1]) / (2 * step)
            row += 1
    H = 0.5 * (H + H.mT)
    inner = torch.linalg.inv(-H)[: len(guide.loc), : len(guide.loc)]
    return guide.root @ inner @ guide.root.mT


def _true_gradient(guide: GaussianGuide, target: Target, e: Tensor) -> list[Tensor]:
    """Return the gradient of the ELBO over fixed draws, with the entropy in closed form."""
    scale = guide.log_scale.exp()
    _, slope = guide.evaluate(target, e, draws_for(target.dim))
    slope = slope @ guide.root
    return [slope.mean(0), (slope * scale * e).mean(0) + 1.0]
