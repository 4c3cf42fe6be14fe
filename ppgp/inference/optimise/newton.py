"""Newton's method on the model's own curvature: iteratively reweighted least squares, for logistic and softmax regression."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...target.target import Target
from ..progress import bar

if TYPE_CHECKING:
    from .map import MAP

TOLERANCE = 1e-11  # of half the squared Newton decrement, the rise that is left; the step after it squares the error
HALVINGS = 40


def irls(
    how: MAP, target: Target, z0: Tensor, seed: int, progress: bool, jacobian: bool
) -> tuple[Tensor, dict[str, Any], list[str]]:
    """w + (X'RX + S0^-1)^-1 [X'(y - p) - S0^-1 (w - m0)], halved while it does not ascend. Bishop (2006), section 4.3.3.

    One pass over the rows a step gives value, gradient and Hessian together.
    """
    z, notes, losses = z0.clone(), [], []
    interrupted, converged, iteration = False, False, 0
    value, gradient, H = target.curvature(z, jacobian=jacobian)
    try:
        with bar("MAP (newton)", how.steps, progress) as update:
            for iteration in range(1, how.steps + 1):
                losses.append(-float(value))
                step = _solve(-H, gradient)
                rise = 0.5 * float(gradient @ step)
                update(iteration, loss=losses[-1])
                if rise <= TOLERANCE * (1 + abs(float(value))):
                    z = z + step
                    converged = True
                    break
                for _ in range(HALVINGS):
                    new = z + step
                    found = target.curvature(new, jacobian=jacobian)
                    if float(found[0]) >= float(value) and bool(torch.isfinite(found[2]).all()):
                        break
                    step = 0.5 * step
                else:
                    converged = (
                        True  # no step of a concave density rises: this is the top, to rounding
                    )
                    break
                z, (value, gradient, H) = new, found
    except KeyboardInterrupt:
        interrupted = True
        notes.append(
            f"stopped by Ctrl-C after {len(losses)} iterations; this is the best point so far"
        )
    if not converged and not interrupted:
        notes.append(
            f"Newton's method had not converged after {how.steps} iterations: raise steps, or check the priors"
        )
    stats = {
        "log_density": float(value),
        "gradient": float(gradient.abs().max()),
        "steps": iteration,
        "interrupted": interrupted,
        "losses": torch.tensor(losses, dtype=torch.float64),
    }
    return z, stats, notes


def _solve(A: Tensor, b: Tensor) -> Tensor:
    """A^-1 b for A positive semi-definite; a ridge is added where rounding leaves it indefinite."""
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
