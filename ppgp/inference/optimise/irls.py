"""Newton's method on the model's own curvature, for generalised linear models.

The method is also known as iteratively reweighted least squares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ...density.target import Target
from ...errors import NumericalError, counted
from ...numerics.newton import at_rounding, too_small_to_see
from ...runtime.process_group import at_step
from ...runtime.progress import bar
from .search import SearchOptions, SearchResult

#: The search ends at this half of the squared Newton decrement, which is the rise that is left: in
#: float64 relative to the density, in float32 in nats. The last step squares the rest of the error.
TOLERANCE, TOLERANCE_IN_SINGLE = 1e-11, 1e-8
HALVINGS = 40


def irls(options: SearchOptions, target: Target, z0: Tensor, seed: int) -> SearchResult:
    """Iterate w + (X'RX + S0^-1)^-1 [X'(y - p) - S0^-1 (w - m0)]. Bishop (2006), section 4.3.3.

    A step is halved while the density does not rise, or is not defined. In float32 the rounding of
    the density can exceed its rise: a step is also taken if the gradients at both of its ends say
    that the density rises on average, and the search also ends where the rise that is left is that
    of rounding errors. It has not converged if it ends because no step rises, unless the rise that
    is left may be lost in the rounding of the density.

    Each step takes one pass over the rows, which gives value, gradient and Hessian together, and a
    second one for the Fisher information where the density does not curve down. ``seed`` is not
    used: the search is deterministic.

    Raises:
        NumericalError: If the density is not defined at the start.
    """
    z = z0.clone()
    notes: list[str] = []
    losses: list[float] = []
    interrupted, converged, iteration = False, False, 0
    value, gradient, H = _curvature(options, target, z)
    if not bool(torch.isfinite(value) & torch.isfinite(H).all()):
        raise NumericalError(
            "a start where the density is finite",
            "one where it is not, such as eta <= 0 with the inverse link",
            "pass another init, or use another link",
        )
    single = value.dtype != torch.float64
    rise, steps = math.inf, options.most_steps(float(value))
    try:
        taken = at_step(lambda: len(losses))
        with bar("MAP (newton)", steps, options.progress) as update, taken:
            for iteration in range(1, steps + 1):
                losses.append(-float(value))
                step = _step(options, target, z, gradient, H)
                promised = 0.5 * float(gradient @ step)
                before, rise = rise, promised
                update(iteration, loss=losses[-1])
                least = TOLERANCE_IN_SINGLE if single else TOLERANCE * (1 + abs(float(value)))
                if rise <= least or at_rounding(rise, before, value):
                    z = z + step
                    if single:  # the last step changes them by more than rounding
                        value, gradient, H = _curvature(options, target, z)
                    converged = True
                    break
                for _ in range(HALVINGS):
                    new = z + step
                    trial = _curvature(options, target, new)
                    rises = float(trial[0]) >= float(value)
                    if single and not rises and math.isfinite(float(trial[0])):
                        rises = float((gradient + trial[1]) @ step) >= 0
                    if rises and bool(torch.isfinite(trial[2]).all()):
                        break
                    step, rise = 0.5 * step, math.inf  # the next gain may be as large
                else:
                    converged = too_small_to_see(promised, float(value), value.dtype)
                    if not converged:
                        notes.append(
                            "Newton's method had not converged after "
                            f"{counted(iteration, 'iteration')}: no step raised the density, but "
                            f"its gradient promises a rise of {promised:.2g} nats: check the "
                            "derivatives of the likelihood, or use another optimizer if the "
                            "density has a kink"
                        )
                    break
                z, (value, gradient, H) = new, trial
    except KeyboardInterrupt:
        interrupted = True
        notes.append(
            f"stopped by Ctrl-C after {len(losses)} iterations; this is the best point so far"
        )
    if not (converged or notes):
        notes.append(
            f"Newton's method had not converged after {steps} iterations: "
            "raise steps, or check the priors"
        )
    stats = {
        "log_density": float(value),
        "gradient": float(gradient.abs().max()),
        "steps": iteration,
        "losses": torch.tensor(losses, dtype=torch.float64),
    }
    return SearchResult(z, stats, notes, interrupted)


def _step(options: SearchOptions, target: Target, z: Tensor, gradient: Tensor, H: Tensor) -> Tensor:
    """Return Newton's step, or that of Fisher scoring where the density does not curve down."""
    L, failed = torch.linalg.cholesky_ex(-H)
    if int(failed) == 0:
        return torch.cholesky_solve(gradient[:, None], L)[:, 0]
    return _solve(-_curvature(options, target, z, expected=True)[2], gradient)


def _curvature(
    options: SearchOptions, target: Target, z: Tensor, expected: bool = False
) -> Sequence[Tensor]:
    """Return value, gradient [p] and Hessian [p, p], from the record if they are there."""

    def compute() -> tuple[Tensor, Tensor, Tensor]:
        return target.curvature(z, jacobian=options.jacobian, expected=expected)

    return options.record.evaluated(z, (0, 1, 2), compute)


def _solve(A: Tensor, b: Tensor) -> Tensor:
    """Return A^-1 b for positive semi-definite A, with a ridge if rounding made A indefinite."""
    scale = float(A.diagonal().abs().max()) or 1.0
    ridge = 0.0
    for _ in range(30):
        L, failed = torch.linalg.cholesky_ex(
            A + ridge * scale * torch.eye(len(b), dtype=A.dtype, device=A.device)
        )
        if int(failed) == 0:
            return torch.cholesky_solve(b[:, None], L)[:, 0]
        ridge = max(10 * ridge, 1e-15)
    return b / scale
