"""Optimisers that use the gradient alone: gradient descent, Adam and AdaGrad on mini-batches.

``gd`` is steepest ascent on all rows, with a step size found by backtracking.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ...capabilities import Reselects
from ...data.training_data import Rows
from ...density.target import Target
from ...networks.networks import drops_out, training
from ...runtime.process_group import at_step
from ...runtime.progress import bar
from ...runtime.seeding import seeded
from ...runtime.torch_optimisers import Adagrad, Adam
from ..base import continue_batches, draw_batch, numbers_of, order_of_batches
from .held_out_rows import EarlyStopping
from .schedules import scheduled
from .search import SearchOptions, SearchResult, is_steep

#: ``{name: class}`` of the optimisers that MAP and SVI name. A step in one entry depends on the
#: gradients of that entry alone, so several searches can share one optimiser.
OF_TORCH: dict[str, type[torch.optim.Adam | torch.optim.Adagrad]] = {
    "adam": Adam,  # Kingma & Ba (2015)
    "adagrad": Adagrad,  # Duchi, Hazan & Singer (2011)
}

PREFIX = "adam"  # of both, as in the checkpoints of earlier versions


def class_of(name: str) -> type[torch.optim.Adam | torch.optim.Adagrad]:
    """Return the class of an optimiser; Adam for others, which move some of the sites by it."""
    return OF_TORCH.get(name, Adam)


def memory_of(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return copies of the moments and step counts of each parameter; none before a step."""
    return {
        f"{PREFIX}.{j}.{name}": value.clone()
        for j, memory in optimizer.state_dict()["state"].items()
        for name, value in memory.items()
    }


def restore_memory(optimizer: torch.optim.Optimizer, saved: Mapping[str, Tensor]) -> None:
    """Put what ``memory_of`` returned into an optimizer of the same parameters."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in saved.items():
        if key.startswith(f"{PREFIX}."):
            _, j, name = key.split(".")
            state.setdefault(int(j), {})[name] = value.clone()
    optimizer.load_state_dict(
        {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}
    )


SGD_BATCH = 32


class Steps(ABC):
    """The rule by which a stochastic optimiser moves z in place."""

    @abstractmethod
    def __call__(self, gradient: Tensor, factor: float) -> None:
        """Take a step along a gradient [p], with a factor on the learning rates."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Return what the next step depends on besides z, as tensors that no step changes."""

    @abstractmethod
    def restore(self, saved: Mapping[str, Tensor]) -> None:
        """Take back what ``tensors`` returned."""


def sgd(
    options: SearchOptions,
    target: Target,
    z0: Tensor,
    seed: int,
    early_stopping: EarlyStopping | None = None,
) -> SearchResult:
    """Maximise the log density by steps along the gradient of a mini-batch."""
    n = target.data.total or 1
    z = z0.clone()
    steps = _SgdSteps(z, rate_vector(target, options, z0) / n)
    batch_size = min(options.batch_size or SGD_BATCH, n)
    gradients = Gradients(options, target, z, batch_size, seed)
    schedule = options.schedule or "inverse"
    return ascend(options, target, z, gradients, steps, schedule, early_stopping)


def by_entry(
    options: SearchOptions,
    target: Target,
    z0: Tensor,
    seed: int,
    early_stopping: EarlyStopping | None = None,
) -> SearchResult:
    """Maximise the log density by Adam or AdaGrad, as ``options.optimizer`` says."""
    z = z0.clone()
    steps = _StepsByEntry(z, options, target)
    batch_size = options.batch_size
    if batch_size is None and not target.model.sums_over_team:
        batch_size = target.data.own_batch
    gradients = Gradients(options, target, z, batch_size, seed)
    schedule = options.schedule or "constant"
    return ascend(options, target, z, gradients, steps, schedule, early_stopping)


class _SgdSteps(Steps):
    """Steps of z in place along the gradient, at a rate [p]."""

    def __init__(self, z: Tensor, rate: Tensor) -> None:
        self.z, self.rate = z, rate

    def __call__(self, gradient: Tensor, factor: float) -> None:
        self.z.add_(factor * self.rate * gradient)

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def restore(self, saved: Mapping[str, Tensor]) -> None:
        pass


class _StepsByEntry(Steps):
    """Steps of z in place by Adam or AdaGrad, at the rates of its sites."""

    def __init__(self, z: Tensor, options: SearchOptions, target: Target) -> None:
        self.slices, self.rates = target.slices, options.rates(target)
        self.pieces = {name: z[s.start : s.stop] for name, s in self.slices.items()}
        self.optimizer = OF_TORCH[options.optimizer](
            [{"params": [piece], "lr": self.rates[name]} for name, piece in self.pieces.items()]
        )

    def __call__(self, gradient: Tensor, factor: float) -> None:
        groups = self.optimizer.param_groups
        for (name, s), group in zip(self.slices.items(), groups, strict=True):
            self.pieces[name].grad = -gradient[s.start : s.stop]
            group["lr"] = factor * self.rates[name]
        self.optimizer.step()

    def tensors(self) -> dict[str, Tensor]:
        return memory_of(self.optimizer)

    def restore(self, saved: Mapping[str, Tensor]) -> None:
        restore_memory(self.optimizer, saved)


class Gradients:
    """Log densities and gradients at successive steps, from mini-batches and with dropout if asked.

    Attributes:
        exact: Whether every step uses all rows, no dropout and no adversarial step.
        dropout: Whether units are left out.
        rows: The last mini-batch; None for all rows.
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

    def tensors(self) -> dict[str, Tensor]:
        """Return what the next gradient depends on besides z."""
        order = order_of_batches(self.target, self.generator)
        return {**order, "reselected": self.reselected}

    def restore(self, saved: Mapping[str, Tensor]) -> None:
        """Take back what ``tensors`` returned."""
        continue_batches(self.target, self.generator, saved)
        self.reselected = saved["reselected"].to(self.reselected.device)


class _Ascent:
    """The points of a loop, and its way into a checkpoint and back.

    Attributes:
        z: The point, which the steps move in place, [p].
        best: The highest log density, where every step has that of all rows.
        best_z: Its place, [p].
        last_finite: The last point with a finite gradient, where steps have a part of the rows.
        stopped: Whether early stopping has ended the loop.
    """

    def __init__(
        self,
        z: Tensor,
        gradients: Gradients,
        steps: Steps,
        early_stopping: EarlyStopping | None,
        saved: Mapping[str, Tensor],
    ) -> None:
        self.z, self.gradients, self.steps = z, gradients, steps
        self.early_stopping = early_stopping
        self.best, self.best_z, self.last_finite = -math.inf, z.clone(), z.clone()
        self.stopped = False
        if not saved:
            return
        z.copy_(saved["z"])
        self.best, self.stopped = float(saved["best"]), bool(saved["stopped"])
        self.best_z, self.last_finite = saved["best_z"].to(z), saved["last_finite"].to(z)
        gradients.restore(saved)
        steps.restore(saved)
        if early_stopping is not None:
            early_stopping.restore(saved)

    def before_step(self, value: Tensor) -> None:
        """Remember the point, whose log density is ``value``."""
        if not self.gradients.exact:
            self.last_finite = self.z.clone()
        elif float(value) > self.best:
            self.best, self.best_z = float(value), self.z.clone()

    def after_step(self, step: int) -> None:
        """Ask the rows that are held out, if there are any, whether to stop."""
        if self.early_stopping is not None:
            self.stopped = self.early_stopping.should_stop(step, self.z)

    def tensors(self) -> dict[str, Tensor]:
        """Return all that the next step depends on."""
        held_out = {} if self.early_stopping is None else self.early_stopping.tensors()
        return {
            "z": self.z.clone(),
            "best": torch.tensor(self.best, dtype=torch.float64),
            "best_z": self.best_z,
            "last_finite": self.last_finite,
            "stopped": torch.tensor(self.stopped),
            **self.gradients.tensors(),
            **self.steps.tensors(),
            **held_out,
        }


def ascend(
    options: SearchOptions,
    target: Target,
    z: Tensor,
    gradients: Gradients,
    steps: Steps,
    schedule: str,
    early_stopping: EarlyStopping | None,
) -> SearchResult:
    """Run the loop of a stochastic optimiser, from where the record has it."""
    loop = options.record.loop()
    losses = loop.history
    notes: list[str] = []
    interrupted = False
    run = _Ascent(z, gradients, steps, early_stopping, loop.saved)
    try:
        title, taken = f"MAP ({options.optimizer})", at_step(lambda: len(losses))
        with bar(title, options.steps, options.progress) as update, taken:
            while len(losses) < options.steps and not run.stopped:
                t = len(losses)
                value, gradient = gradients.at(z, t)
                if not bool(torch.isfinite(gradient).all()):
                    notes.append(not_finite(t + 1))
                    z = run.best_z if gradients.exact else run.last_finite
                    break
                run.before_step(value)
                steps(gradients.without_reselected(gradient), scheduled(schedule, t, options.steps))
                losses.append(-float(value))
                update(t + 1, loss=losses[-1])
                run.after_step(t + 1)
                loop.keep(run.tensors, losses)
    except KeyboardInterrupt:
        interrupted = True
        notes.append(stopped_by_the_user(len(losses), options.steps))
    if gradients.exact:
        return ended(options, target, z, losses, notes, interrupted, run.best, run.best_z)
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
    """Return the result of a search by sgd, Adam or AdaGrad that ended at z [p].

    Args:
        options: Those of the search.
        target: The density.
        z: The last point.
        losses: Minus the log density at each step.
        notes: Reasons to doubt the result.
        interrupted: Whether Ctrl-C ended the search.
        best: The highest log density on the way, where it is known.
        best_z: Its place, which is the result if it is higher than z.
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
    stats = stats_of(value, gradient, len(losses), losses)
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
    selected = target.model.reselected_inducing({**target.params, **theta}, target.data.shared)
    for name, value in selected.items():
        s = target.slices[name]
        z[s.start : s.stop] = s.transform.inv(value).reshape(-1)
        mask[s.start : s.stop] = True
    return mask


def dropout_seed(generator: torch.Generator) -> int:
    """Return a seed for the choice of the units that drop out in one step."""
    return int(torch.randint(2**31, (1,), generator=generator, device="cpu"))


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
    (gradient,) = target.team.means(gradient)
    return value.detach(), gradient


def rate_vector(target: Target, options: SearchOptions, like: Tensor) -> Tensor:
    """Return the learning rate of each entry of z, [p]."""
    rates = options.rates(target)
    out = torch.empty_like(like)
    for name, s in target.slices.items():
        out[s.start : s.stop] = rates[name]
    return out


def stats_of(value: Tensor, gradient: Tensor, steps: int, losses: list[float]) -> dict[str, Any]:
    """Return the stats of a search that ended with this log density and gradient [p]."""
    return {
        "log_density": float(value),
        "gradient": float(gradient.abs().max()),
        "steps": steps,
        "losses": torch.tensor(losses, dtype=torch.float64),
    }


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
            for step in range(options.most_steps(float(value))):
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
            f"gradient descent had a gradient of {slope:.2g} left after {len(losses) - 1} steps: "
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
