"""Optimisers that see the gradient alone: gradient descent, stochastic gradient descent, Adam."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...data.dataset import Dataset
from ...kernels.networks import drops_out, training
from ...numerics.seeding import seeded
from ...target.capabilities import Reselects
from ...target.target import Target
from ..base import draw_batch
from ..progress import bar
from .schedules import scheduled

if TYPE_CHECKING:
    from .early_stopping import Watch
    from .map import MAP

Found = tuple[Tensor, dict[str, Any], list[str]]

RATES = {"adam": 0.05, "sgd": 0.1, "gd": 1.0}
SGD_BATCH = 32
ARMIJO = 1e-4  # share of the rise promised by the gradient that a step must deliver
GROWTH = 2.0  # of the step tried next, after one that was taken


def rows_of(target: Target) -> int:
    return target.data.n if isinstance(target.data, Dataset) else 1


def gd(how: MAP, target: Target, z0: Tensor, seed: int, progress: bool, jacobian: bool) -> Found:
    """Steepest ascent of the log density."""
    n = rows_of(target)
    fixed = how.learning_rate is not None
    rate = _vector(target, how.rates(target), z0) / n
    z = z0.clone()
    value, gradient = target.value_and_grad(z, jacobian=jacobian)
    losses, notes, interrupted, converged = [-float(value)], [], False, False
    size = 1.0
    schedule = how.schedule or "constant"
    try:
        with bar("MAP (gd)", how.steps, progress) as update:
            for step in range(how.steps):
                direction = rate * gradient
                rise = float(direction @ gradient)
                if rise * size <= 1e-13 * (1 + abs(float(value))):
                    converged = True
                    break
                if fixed:
                    size = scheduled(schedule, step, how.steps)
                    new = z + size * direction
                    found = target.value_and_grad(new, jacobian=jacobian)
                    if not bool(torch.isfinite(found[0])) or float(found[0]) < losses[
                        0
                    ] * -1 - 1e6 * (1 + abs(losses[0])):
                        notes.append(
                            f"gradient descent diverged at step {step + 1}: lower the learning rate, or leave it out"
                        )
                        break
                else:
                    found, new, size = _backtracked(
                        target, z, value, direction, rise, size, jacobian
                    )
                    if new is z:
                        converged = True
                        break
                z, (value, gradient) = new, found
                losses.append(-float(value))
                update(step + 1, loss=losses[-1])
    except KeyboardInterrupt:
        interrupted = True
        notes.append(
            f"stopped by Ctrl-C after {len(losses) - 1} of {how.steps} steps; this is the point reached"
        )
    slope = float(gradient.abs().max())
    if not (converged or interrupted or notes) and slope > 1e-3 * max(
        1.0, abs(float(value)) ** 0.5
    ):
        notes.append(
            f"gradient descent had a gradient of {slope:.2g} left after {how.steps} steps: raise steps, or use lbfgs"
        )
    return z, _stats(float(value), slope, len(losses) - 1, interrupted, losses), notes


def _backtracked(
    target: Target,
    z: Tensor,
    value: Tensor,
    direction: Tensor,
    rise: float,
    size: float,
    jacobian: bool,
) -> tuple[tuple[Tensor, Tensor], Tensor, float]:
    """The first of a falling sequence of steps that rises enough; the same z where none does."""
    size *= GROWTH
    for _ in range(60):
        new = z + size * direction
        found = target.value_and_grad(new, jacobian=jacobian)
        if (
            bool(torch.isfinite(found[1]).all())
            and float(found[0]) >= float(value) + ARMIJO * size * rise
        ):
            return found, new, size
        size *= 0.5
    return (value, direction), z, size


def sgd(
    how: MAP,
    target: Target,
    z0: Tensor,
    seed: int,
    progress: bool,
    jacobian: bool,
    watch: Watch | None = None,
) -> Found:
    """Steps along the gradient from a few rows."""
    n = rows_of(target)
    rate = _vector(target, how.rates(target), z0) / n
    z = z0.clone()

    def step(t: int, gradient: Tensor, factor: float) -> None:
        z.add_(factor * rate * gradient)

    batch = min(how.batch_size or SGD_BATCH, n)
    return _stochastic(
        how, target, z, seed, progress, jacobian, step, batch, how.schedule or "inverse", watch
    )


def adam(
    how: MAP,
    target: Target,
    z0: Tensor,
    seed: int,
    progress: bool,
    jacobian: bool,
    watch: Watch | None = None,
) -> Found:
    """Kingma & Ba (2015)."""
    z = z0.clone()
    pieces = {name: z[s.start : s.stop] for name, s in target.slices.items()}
    rates = how.rates(target)
    optimizer = torch.optim.Adam(
        [{"params": [piece], "lr": rates[name]} for name, piece in pieces.items()]
    )

    def step(t: int, gradient: Tensor, factor: float) -> None:
        for (name, s), group in zip(target.slices.items(), optimizer.param_groups, strict=True):
            pieces[name].grad = -gradient[s.start : s.stop]
            group["lr"] = factor * rates[name]
        optimizer.step()

    return _stochastic(
        how,
        target,
        z,
        seed,
        progress,
        jacobian,
        step,
        how.batch_size,
        how.schedule or "constant",
        watch,
    )


def _stochastic(
    how: MAP,
    target: Target,
    z: Tensor,
    seed: int,
    progress: bool,
    jacobian: bool,
    step: Any,
    batch: int | None,
    schedule: str,
    watch: Watch | None,
) -> Found:
    """The loop of sgd and Adam: ``step(t, gradient, factor)`` moves z in place."""
    generator = torch.Generator().manual_seed(seed)
    if not isinstance(target.data, Dataset):
        batch = None
    losses: list[float] = []
    best, best_z, interrupted = -math.inf, z.clone(), False
    placed = torch.zeros_like(z, dtype=torch.bool)
    noisy = drops_out(target.model)
    every = target.model.reselect if isinstance(target.model, Reselects) else None
    notes: list[str] = []
    try:
        with bar(f"MAP ({how.optimizer})", how.steps, progress) as update:
            for t in range(how.steps):
                rows = draw_batch(target, batch, generator)
                if every and t % every == 0:
                    placed = _reselected(target, z)
                if noisy:
                    value, gradient = with_dropout(target, z, rows, jacobian, units(generator))
                else:
                    value, gradient = target.value_and_grad(z, rows, jacobian=jacobian)
                if not bool(torch.isfinite(gradient).all()):
                    notes.append(
                        f"the gradient was not finite at step {t + 1}; this is the point before it: lower the learning rate"
                    )
                    z = best_z
                    break
                if every:
                    gradient = torch.where(placed, 0.0, gradient)
                exact = batch is None and not noisy
                if exact and float(value) > best:
                    best, best_z = float(value), z.clone()
                elif not exact:
                    best_z = z.clone()
                step(t, gradient, scheduled(schedule, t, how.steps))
                losses.append(-float(value))
                update(t + 1, loss=losses[-1])
                if watch is not None and watch.over(t + 1, z):
                    break
    except KeyboardInterrupt:
        interrupted = True
        notes.append(
            f"stopped by Ctrl-C after {len(losses)} of {how.steps} steps; this is the point reached"
        )
    value, gradient = target.value_and_grad(z, jacobian=jacobian)
    if not float(value) >= best and batch is None and not noisy:
        z, (value, gradient) = best_z, target.value_and_grad(best_z, jacobian=jacobian)
    if losses and not float(value) > -losses[0] - 1e6 * (1 + abs(losses[0])):
        notes.append(
            f"the weights diverge (the loss went from {losses[0]:.3g} to {-float(value):.3g}): lower the learning rate"
        )
    return (
        z.detach(),
        _stats(float(value), float(gradient.abs().max()), len(losses), interrupted, losses),
        notes,
    )


def _reselected(target: Target, z: Tensor) -> Tensor:
    """Params that the model places by itself, written into z; the mask [p] of where they are."""
    mask = torch.zeros_like(z, dtype=torch.bool)
    theta = {name: s.transform(s.of(z)) for name, s in target.slices.items()}
    for name, value in target.model.reselected_inducing(
        {**target.params, **theta}, target.data
    ).items():
        s = target.slices[name]
        z[s.start : s.stop] = s.transform.inv(value).reshape(-1)
        mask[s.start : s.stop] = True
    return mask


def units(generator: torch.Generator) -> int:
    """A seed of the units that drop out in a step."""
    return int(torch.randint(2**31, (1,), generator=generator))


def with_dropout(
    target: Target, z: Tensor, rows: Tensor | None, jacobian: bool, seed: int
) -> tuple[Tensor, Tensor]:
    """Log density and gradient with units dropped out at random: run eagerly, as a graph would keep one set of units for good."""
    with torch.enable_grad(), seeded(seed, z.device), training():
        point = z.detach().clone().requires_grad_(True)
        value = target.log_density(point, rows, jacobian=jacobian)
        (gradient,) = torch.autograd.grad(value, point, materialize_grads=True)
    return value.detach(), gradient


def _vector(target: Target, rates: dict[str, float], like: Tensor) -> Tensor:
    out = torch.empty_like(like)
    for name, s in target.slices.items():
        out[s.start : s.stop] = rates[name]
    return out


def _stats(
    value: float, slope: float, steps: int, interrupted: bool, losses: list[float]
) -> dict[str, Any]:
    return {
        "log_density": value,
        "gradient": slope,
        "steps": steps,
        "interrupted": interrupted,
        "losses": torch.tensor(losses, dtype=torch.float64),
    }
