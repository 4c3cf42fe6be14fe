"""Steepest ascent with a step size found by backtracking, the optimizer "gd"."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...density.target import Target
from ...runtime.progress import bar
from .first_order import rate_vector, stats_of, stopped_by_the_user
from .schedules import scheduled
from .search import SearchOptions, SearchResult, is_steep

ARMIJO = 1e-4  # share of the rise promised by the gradient that a step must deliver
GROWTH = 2.0  # factor on the step size that is tried after a step was accepted
HALVINGS = 60  # of the step size before the search gives up


def gd(options: SearchOptions, target: Target, z0: Tensor, seed: int) -> SearchResult:
    """Maximise the log density by steepest ascent. ``seed`` is not used.

    The step size follows from backtracking, unless the options fix the learning rate.
    """
    rate = rate_vector(target, options, z0) / (target.data.total or 1)
    z = z0.clone()
    value, gradient = _evaluated(options, target, z)
    losses = [-float(value)]
    notes: list[str] = []
    interrupted, converged = False, False
    size = 1.0
    try:
        with bar("MAP (gd)", options.steps, options.progress) as update:
            for step in range(options.steps):
                direction = rate * gradient
                rise = float(direction @ gradient)
                if rise * size <= 1e-13 * (1 + abs(float(value))):
                    converged = True
                    break
                if options.learning_rate is not None:
                    size = scheduled(options.schedule or "constant", step, options.steps)
                    new = z + size * direction
                    trial = _evaluated(options, target, new)
                    if _diverged(trial[0], losses[0]):
                        notes.append(
                            f"gradient descent diverged at step {step + 1}: "
                            "lower the learning rate, or leave it out"
                        )
                        break
                else:
                    trial, new, size = _backtracked(
                        options, target, z, value, direction, rise, size
                    )
                    if new is z:
                        converged = True
                        break
                z, (value, gradient) = new, trial
                losses.append(-float(value))
                update(step + 1, loss=losses[-1])
    except KeyboardInterrupt:
        interrupted = True
        notes.append(stopped_by_the_user(len(losses) - 1, options.steps))
    slope = float(gradient.abs().max())
    steep = is_steep(slope, float(value), z0.dtype)
    if not (converged or interrupted or notes) and steep:
        notes.append(
            f"gradient descent had a gradient of {slope:.2g} left after {options.steps} steps: "
            "raise steps, or use lbfgs"
        )
    return SearchResult(z, stats_of(value, gradient, len(losses) - 1, losses), notes, interrupted)


def _diverged(value: Tensor, first_loss: float) -> bool:
    """Whether a log density is not finite, or far below the one at the start."""
    if not bool(torch.isfinite(value)):
        return True
    return float(value) < -first_loss - 1e6 * (1 + abs(first_loss))


def _evaluated(options: SearchOptions, target: Target, z: Tensor) -> Sequence[Tensor]:
    """Return the log density and its gradient at z [p], from the record if they are there."""

    def compute() -> tuple[Tensor, Tensor]:
        return target.value_and_grad(z, jacobian=options.jacobian)

    return options.record.evaluated(z, (0, 1), compute)


def _backtracked(
    options: SearchOptions,
    target: Target,
    z: Tensor,
    value: Tensor,
    direction: Tensor,
    rise: float,
    size: float,
) -> tuple[Sequence[Tensor], Tensor, float]:
    """Halve the step until the density rises enough (Armijo 1966).

    Returns:
        Value and gradient at the new point, the point and the step size. If no step raises the
        density enough, the point is z itself, and the first entry has no meaning.
    """
    size *= GROWTH
    for _ in range(HALVINGS):
        new = z + size * direction
        if torch.equal(new, z):  # the step is less than the rounding of z
            break
        trial = _evaluated(options, target, new)
        finite = bool(torch.isfinite(trial[1]).all())
        if finite and float(trial[0]) >= float(value) + ARMIJO * size * rise:
            return trial, new, size
        size *= 0.5
    return (value, direction), z, size
