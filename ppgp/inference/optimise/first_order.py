"""Optimisers that use the gradient alone: gradient descent, stochastic gradient descent, Adam."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...data.training_data import Rows
from ...kernels.networks import drops_out, training
from ...numerics.seeding import seeded
from ...target.capabilities import Reselects
from ...target.target import Target
from ..base import draw_batch, numbers_of
from ..progress import bar
from .held_out_rows import EarlyStopping
from .schedules import scheduled
from .search import SearchOptions, SearchResult

SGD_BATCH = 32
ARMIJO = 1e-4  # share of the rise promised by the gradient that a step must deliver
GROWTH = 2.0  # factor on the step size that is tried after a step was accepted
HALVINGS = 60  # of the step size before the search gives up

Step = Callable[[Tensor, float], None]


def gd(options: SearchOptions, target: Target, z0: Tensor, seed: int) -> SearchResult:
    """Maximise the log density by steepest ascent. ``seed`` is not used.

    The step size follows from backtracking, unless the options fix the learning rate.
    """
    rate = _rate_vector(target, options, z0) / (target.data.n or 1)
    z = z0.clone()
    value, gradient = target.value_and_grad(z, jacobian=options.jacobian)
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
                    trial = target.value_and_grad(new, jacobian=options.jacobian)
                    if _diverged(trial[0], losses[0]):
                        notes.append(
                            f"gradient descent diverged at step {step + 1}: "
                            "lower the learning rate, or leave it out"
                        )
                        break
                else:
                    trial, new, size = _backtracked(
                        target, z, value, direction, rise, size, options.jacobian
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
    steep = slope > 1e-3 * max(1.0, abs(float(value)) ** 0.5)
    if not (converged or interrupted or notes) and steep:
        notes.append(
            f"gradient descent had a gradient of {slope:.2g} left after {options.steps} steps: "
            "raise steps, or use lbfgs"
        )
    return SearchResult(z, _stats(value, gradient, len(losses) - 1, losses), notes, interrupted)


def _diverged(value: Tensor, first_loss: float) -> bool:
    """Whether a log density is not finite, or far below the one at the start."""
    if not bool(torch.isfinite(value)):
        return True
    return float(value) < -first_loss - 1e6 * (1 + abs(first_loss))


def _backtracked(
    target: Target,
    z: Tensor,
    value: Tensor,
    direction: Tensor,
    rise: float,
    size: float,
    jacobian: bool,
) -> tuple[tuple[Tensor, Tensor], Tensor, float]:
    """Halve the step until the density rises enough (Armijo 1966).

    Returns:
        Value and gradient at the new point, the point and the step size. If no step raises the
        density enough, the point is z itself, and the first entry has no meaning.
    """
    size *= GROWTH
    for _ in range(HALVINGS):
        new = z + size * direction
        trial = target.value_and_grad(new, jacobian=jacobian)
        finite = bool(torch.isfinite(trial[1]).all())
        if finite and float(trial[0]) >= float(value) + ARMIJO * size * rise:
            return trial, new, size
        size *= 0.5
    return (value, direction), z, size


def sgd(
    options: SearchOptions,
    target: Target,
    z0: Tensor,
    seed: int,
    early_stopping: EarlyStopping | None = None,
) -> SearchResult:
    """Maximise the log density by steps along the gradient of a mini-batch."""
    n = target.data.total or 1
    rate = _rate_vector(target, options, z0) / n
    z = z0.clone()

    def step(gradient: Tensor, factor: float) -> None:
        z.add_(factor * rate * gradient)

    batch_size = min(options.batch_size or SGD_BATCH, n)
    gradients = Gradients(options, target, z, batch_size, seed)
    schedule = options.schedule or "inverse"
    return ascend(options, target, z, gradients, step, schedule, early_stopping)


def adam(
    options: SearchOptions,
    target: Target,
    z0: Tensor,
    seed: int,
    early_stopping: EarlyStopping | None = None,
) -> SearchResult:
    """Maximise the log density by Adam. Kingma & Ba (2015)."""
    z = z0.clone()
    pieces = {name: z[s.start : s.stop] for name, s in target.slices.items()}
    rates = options.rates(target)
    optimizer = torch.optim.Adam(
        [{"params": [piece], "lr": rates[name]} for name, piece in pieces.items()]
    )

    def step(gradient: Tensor, factor: float) -> None:
        for (name, s), group in zip(target.slices.items(), optimizer.param_groups, strict=True):
            pieces[name].grad = -gradient[s.start : s.stop]
            group["lr"] = factor * rates[name]
        optimizer.step()

    batch_size = options.batch_size or target.data.own_batch
    gradients = Gradients(options, target, z, batch_size, seed)
    schedule = options.schedule or "constant"
    return ascend(options, target, z, gradients, step, schedule, early_stopping)


class Gradients:
    """Log densities and gradients at successive steps, from mini-batches and with dropout if asked.

    Attributes:
        exact: whether every step uses all rows, no dropout and no adversarial step.
        dropout: whether units are left out.
        rows: the last mini-batch; None for all rows.
    """

    def __init__(
        self, options: SearchOptions, target: Target, z: Tensor, batch_size: int | None, seed: int
    ) -> None:
        self.target, self.jacobian, self.reach = target, options.jacobian, options.reach
        self.generator = torch.Generator().manual_seed(seed)
        self.batch_size = batch_size if target.data.is_table else None
        self.dropout = drops_out(target.model)
        self.exact = self.batch_size is None and not self.dropout and self.reach is None
        self.rows: Rows | None = None
        self.reselect_every: int | None = None
        if isinstance(target.model, Reselects):
            self.reselect_every = target.model.reselect
        self.reselected = torch.zeros_like(z, dtype=torch.bool)

    def at(self, z: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """Return the log density and its gradient; reselected params are first written into z."""
        rows = self.rows = draw_batch(self.target, self.batch_size, self.generator)
        if self.reselect_every and step % self.reselect_every == 0:
            self.reselected = _reselect(self.target, z)
        if self.dropout:
            seed = dropout_seed(self.generator)
            return with_dropout(self.target, z, rows, self.jacobian, seed, self.reach)
        if self.reach is not None:
            return self.target.value_and_grad_of_rows(
                z, numbers_of(rows), jacobian=self.jacobian, reach=self.reach
            )
        return self.target.value_and_grad(z, rows, jacobian=self.jacobian)

    def without_reselected(self, gradient: Tensor) -> Tensor:
        """Return the gradient with zeros for the params that the model itself selects."""
        if not self.reselect_every:
            return gradient
        return torch.where(self.reselected, 0.0, gradient)


def ascend(
    options: SearchOptions,
    target: Target,
    z: Tensor,
    gradients: Gradients,
    step: Step,
    schedule: str,
    early_stopping: EarlyStopping | None,
) -> SearchResult:
    """Run the loop of a stochastic optimiser; ``step(gradient, factor)`` moves z in place."""
    losses: list[float] = []
    notes: list[str] = []
    best, best_z, last_finite, interrupted = -math.inf, z.clone(), z.clone(), False
    try:
        with bar(f"MAP ({options.optimizer})", options.steps, options.progress) as update:
            for t in range(options.steps):
                value, gradient = gradients.at(z, t)
                if not bool(torch.isfinite(gradient).all()):
                    notes.append(not_finite(t + 1))
                    z = best_z if gradients.exact else last_finite
                    break
                if not gradients.exact:
                    last_finite = z.clone()
                elif float(value) > best:
                    best, best_z = float(value), z.clone()
                factor = scheduled(schedule, t, options.steps)
                step(gradients.without_reselected(gradient), factor)
                losses.append(-float(value))
                update(t + 1, loss=losses[-1])
                if early_stopping is not None and early_stopping.should_stop(t + 1, z):
                    break
    except KeyboardInterrupt:
        interrupted = True
        notes.append(stopped_by_the_user(len(losses), options.steps))
    if gradients.exact:
        return ended(options, target, z, losses, notes, interrupted, best, best_z)
    return ended(options, target, z, losses, notes, interrupted)


def ended(
    options: SearchOptions,
    target: Target,
    z: Tensor,
    losses: list[float],
    notes: list[str],
    interrupted: bool,
    best: float = -math.inf,
    best_z: Tensor | None = None,
) -> SearchResult:
    """Return the result of a search by sgd or Adam that ended at z [p].

    Args:
        options: those of the search.
        target: the density.
        z: the last point.
        losses: minus the log density at each step.
        notes: reasons to doubt the result.
        interrupted: whether Ctrl-C ended the search.
        best: the highest log density on the way, where it is known.
        best_z: its place, which is the result if it is higher than z.
    """
    value, gradient = target.value_and_grad(z, jacobian=options.jacobian)
    if best_z is not None and not float(value) >= best:
        z = best_z
        value, gradient = target.value_and_grad(z, jacobian=options.jacobian)
    # NaN counts as a divergence
    if losses and not float(value) > -losses[0] - 1e6 * (1 + abs(losses[0])):
        notes.append(
            f"the weights diverge (the loss went from {losses[0]:.3g} to {-float(value):.3g}): "
            "lower the learning rate"
        )
    stats = _stats(value, gradient, len(losses), losses)
    return SearchResult(z.detach(), stats, notes, interrupted)


def stopped_by_the_user(taken: int, steps: int) -> str:
    """Return the note of a search that Ctrl-C ended."""
    return f"stopped by Ctrl-C after {taken} of {steps} steps; this is the point reached"


def not_finite(step: int) -> str:
    """Return the note of a search that ended at a step without a finite gradient."""
    return (
        f"the gradient was not finite at step {step}; this is the last or the best point before "
        "it: lower the learning rate"
    )


def _reselect(target: Target, z: Tensor) -> Tensor:
    """Write the params that the model selects by itself into z; return a mask [p] of them."""
    mask = torch.zeros_like(z, dtype=torch.bool)
    theta = {name: s.transform(s.of(z)) for name, s in target.slices.items()}
    selected = target.model.reselected_inducing({**target.params, **theta}, target.data)
    for name, value in selected.items():
        s = target.slices[name]
        z[s.start : s.stop] = s.transform.inv(value).reshape(-1)
        mask[s.start : s.stop] = True
    return mask


def dropout_seed(generator: torch.Generator) -> int:
    """Return a seed for the choice of the units that drop out in one step."""
    return int(torch.randint(2**31, (1,), generator=generator))


def with_dropout(
    target: Target,
    z: Tensor,
    rows: Rows | None,
    jacobian: bool,
    seed: int,
    reach: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the log density and its gradient with units dropped out at random.

    The density is run eagerly, because a compiled graph would keep one set of units for ever.
    """
    if reach is not None:
        with seeded(seed, z.device), training():
            return target.value_and_grad_of_rows(
                z, numbers_of(rows), jacobian=jacobian, reach=reach, compile=False
            )
    with torch.enable_grad(), seeded(seed, z.device), training():
        point = z.detach().clone().requires_grad_(True)
        value = target.log_density(point, rows, jacobian=jacobian)
        (gradient,) = torch.autograd.grad(value, point, materialize_grads=True)
    return value.detach(), gradient


def _rate_vector(target: Target, options: SearchOptions, like: Tensor) -> Tensor:
    """Return the learning rate of each entry of z, [p]."""
    rates = options.rates(target)
    out = torch.empty_like(like)
    for name, s in target.slices.items():
        out[s.start : s.stop] = rates[name]
    return out


def _stats(value: Tensor, gradient: Tensor, steps: int, losses: list[float]) -> dict[str, Any]:
    return {
        "log_density": float(value),
        "gradient": float(gradient.abs().max()),
        "steps": steps,
        "losses": torch.tensor(losses, dtype=torch.float64),
    }
