"""SVI of a model that knows its own bound.

Collapsed sites move along their natural gradient, all other sites by Adam, AdaGrad or L-BFGS.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ...capabilities import SubsetModel
from ...data.training_data import Rows
from ...density.handlers import quietly
from ...density.target import Target
from ...networks.networks import drops_out, training
from ...posterior.posterior import Posterior
from ...runtime.seeding import permutation, seeded
from ..base import (
    Inference,
    continue_batches,
    draw_batch,
    finish,
    order_of_batches,
    starting_point,
)
from ..checkpoint import Checkpoint
from ..optimise.first_order import class_of, dropout_seed, memory_of, restore_memory, with_dropout
from ..optimise.map import MAP
from ..optimise.scipy_search import find_mode
from ..optimise.search import Loop, Record, site_rates
from .training_loop import SVIOptions, Training, train

#: Rate of a natural-gradient step on some of the rows; Salimbeni, Eleftheriadis & Hensman (2018).
NATURAL_RATE = 0.1
MOST_STEPS = 50
CONVERGED = 1e-6  # relative change of q at which steps on all rows end
START_ROWS = 20_000  # rows that the first natural-gradient steps use at most
SUBSET_SEARCH = MAP(steps=200)


def fit_collapsed_elbo(
    how: Inference,
    options: SVIOptions,
    target: Target,
    seed: int,
    progress: bool,
    init: Posterior | Tensor | None,
    started: float,
    checkpoint: Checkpoint,
) -> Posterior:
    """Maximise log p(theta) + ELBO over the hyperparameters and the params of the collapsed sites.

    Args:
        how: The method, recorded in the posterior.
        options: Its numbers.
        target: The collapsed bound, or the full density, from which the bound is then built.
        seed: Every random number follows from it.
        progress: Whether to show a progress bar.
        init: Where the search starts.
        started: When the fit began, as ``time.perf_counter()``.
        checkpoint: A file that keeps the state of the fit.

    Returns:
        A Posterior with one draw of the hyperparameters. Stats: ``elbo``, a lower bound of
        log p(y given theta) whatever the objective; ``objective``, what was maximised, log p(theta)
        included; and ``objective_history`` [steps].
    """
    model, data = target.model, target.data
    bound = target
    if not target.collapsed_elbo:
        bound = Target(model, data, optimise_params=True, collapsed_elbo=True)
    generator = torch.Generator().manual_seed(seed)
    with quietly():  # once around all steps, each of which runs code of the model
        record = Record(checkpoint)
        loop = record.loop()
        if loop.saved:
            z = loop.saved["z"].clone().to(bound.origin())
            natural = NaturalSteps(bound, model, data, z)
            natural.rate = float(loop.saved["natural_rate"])
        else:
            z = _start(bound, model, data, init, seed)
            natural = NaturalSteps(bound, model, data, z)
            natural.fit(z)
        if options.method == "deterministic":
            z, result = _deterministic(options, bound, natural, z, progress, record, loop)
        else:
            step = JointSteps(options, bound, natural, z, generator)
            if loop.saved:
                step.restore(loop.saved)
            result = train(
                options,
                step,
                progress,
                history=loop.history,
                after_step=lambda history: loop.keep(step.tensors, history),
            )
        record.save()
        with torch.no_grad():
            objective, elbo = _heights(bound, model, data, z)
    stats = {
        "elbo": elbo,
        "objective": objective,
        "objective_history": torch.tensor(result.history, dtype=torch.float64),
    }
    if options.batch_size is not None:
        stats["batch_size"] = options.batch_size
    posterior = finish(
        how,
        bound,
        z[None, None],
        started,
        stats,
        result.notes,
        interrupted=result.interrupted,
    )
    posterior.draws.update(
        {name: posterior.params[f"{name}_loc"][None, None] for name in model.collapsed}
    )
    return posterior


def _deterministic(
    options: SVIOptions,
    bound: Target,
    natural: NaturalSteps,
    z: Tensor,
    progress: bool,
    record: Record,
    loop: Loop,
) -> tuple[Tensor, Training]:
    """Search for the highest bound from z [p]; return its place and what happened on the way."""
    loop.keep(lambda: _state(z, natural), [])
    mode = find_mode(bound, z, progress, jacobian=False, steps=options.steps, record=record)
    history = [-loss for loss in mode.stats["losses"].tolist()]
    return mode.z, Training(history, [*mode.notes, *record.notes()], mode.interrupted)


def _state(z: Tensor, natural: NaturalSteps) -> dict[str, Tensor]:
    """Return the point and the rate of natural-gradient steps, for a checkpoint."""
    return {"z": z.clone(), "natural_rate": torch.tensor(natural.rate, dtype=torch.float64)}


def _heights(bound: Target, model: Any, data: Any, z: Tensor) -> tuple[float, float]:
    """Return the objective of all rows at z, and the ELBO without log p(theta)."""
    objective = elbo = 0.0
    log_prior: float | None = None
    for _, rows, share in data.portions():
        bounded = _elbo(bound, model, data, z, rows)
        if log_prior is None:
            here = float(bound.joint(z, bound.tables(rows), jacobian=False))
        else:
            here = bounded + log_prior
        if getattr(model, "objective", "elbo") == "elbo":
            log_prior = here - bounded  # no row enters it
        objective, elbo = objective + share * here, elbo + share * bounded
    # once for all portions, whose number differs between the ranks
    return bound.team.mean(objective), bound.team.mean(elbo)


def _elbo(bound: Target, model: Any, data: Any, z: Tensor, rows: Rows | None) -> float:
    """Return the ELBO of this rank at z, without log p(theta), whatever the model's objective."""
    if getattr(model, "objective", "elbo") != "elbo":
        model = replace(model, objective="elbo")
    theta = {**bound.params, **bound.constrain(z)}
    some, named = data.passed(data.tables(rows))
    return float(model.elbo(theta, *some, **named))


def _start(
    bound: Target, model: Any, data: Any, init: Posterior | Tensor | None, seed: int
) -> Tensor:
    """Return z from ``init``, else from the mode of the subset model, else from the priors."""
    if init is not None:
        return starting_point(bound, init, seed, jacobian=False).clone()
    known: dict[str, Tensor] = {}
    subset = model.subset_model(data.shared) if isinstance(model, SubsetModel) else None
    if subset is not None:
        small = Target(*subset, optimise_params=True, empty=True)
        if small.dim:  # else all its hyperparameters are numbers
            mode = SUBSET_SEARCH.mode(small, seed)
            if mode.interrupted:
                raise KeyboardInterrupt("a fit was stopped before its end")
            with torch.no_grad():
                known = small.constrain(mode.z)
    return bound.placed(
        {
            name: value
            for name, value in known.items()
            if name in bound.slices and value.shape == bound.slices[name].event
        }
    )


class NaturalSteps:
    """Natural-gradient steps of the collapsed part of z, if the model has one.

    Attributes:
        names: The sites that the steps move.
        rate: The rate of steps on all rows. It is halved if a step lowers the bound, which
            likelihoods far from normal do at rate 1.
    """

    def __init__(self, bound: Target, model: Any, data: Any, z: Tensor) -> None:
        self.bound, self.model, self.data, self.rate = bound, model, data, 1.0
        moved = self._moved(z, torch.zeros(1, dtype=torch.long), 0.0)
        self.names: set[str] = set()
        if moved is not None:
            self.names = set(moved[0])

    def _moved(
        self, z: Tensor, rows: Rows | None, rate: float
    ) -> tuple[dict[str, Tensor], float] | None:
        """Return the unconstrained params after a step, and the bound before it."""
        some, named = self.data.passed(self.data.tables(rows))
        values = {**self.bound.params, **self.bound.constrain(z)}
        if not self.bound.team.alone:
            named["team"] = self.bound.team
        moved = self.model.natural(values, *some, rate=rate, **named)
        if moved is None:
            return None
        params, value = moved
        slices = self.bound.slices
        free = {name: slices[name].transform.inv(v).reshape(-1) for name, v in params.items()}
        return free, float(value)

    def step(self, z: Tensor, rows: Rows | None, rate: float) -> float:
        """Move z in place and return the bound before; a step to values not finite is left out."""
        if not self.names:
            return math.nan
        moved = self._moved(z, rows, rate)
        if moved is None:
            return math.nan
        params, value = moved
        if all(bool(torch.isfinite(free).all()) for free in params.values()):
            for name, free in params.items():
                s = self.bound.slices[name]
                z[s.start : s.stop] = free
        return value

    def fit(self, z: Tensor) -> None:
        """Step to convergence on all rows, or on a random part of very many."""
        if not self.names:
            return
        n = self.data.n
        rows = None
        if n > START_ROWS:
            rows = permutation(torch.Generator().manual_seed(0), n)[:START_ROWS]
        self.rate = min(1.0, 2 * self.rate)
        best, kept = -math.inf, z.clone()
        for _ in range(MOST_STEPS):
            before = z.clone()
            value = self.step(z, rows, self.rate)
            if not value >= best - CONVERGED * abs(best):
                z.copy_(kept)
                self.rate *= 0.5
                best = -math.inf  # the next step starts from where this one did
                continue
            best, kept = value, before
            if torch.allclose(before, z, rtol=CONVERGED, atol=CONVERGED):
                return


class JointSteps:
    """Steps of z in place, ``steps(rate)``, which return the objective.

    A step moves the collapsed sites along their natural gradient, and then the others by Adam or
    AdaGrad, from the same rows.

    Args:
        options: The learning rates and the rows per step.
        bound: The objective.
        natural: The natural-gradient steps.
        z: The point [p], which the steps move.
        generator: Of mini-batches and dropout.
    """

    def __init__(
        self,
        options: SVIOptions,
        bound: Target,
        natural: NaturalSteps,
        z: Tensor,
        generator: torch.Generator,
    ) -> None:
        self.options, self.bound, self.natural = options, bound, natural
        self.z, self.generator = z, generator
        self.rates = site_rates(options.learning_rate, bound)
        self.others = {name: s for name, s in bound.slices.items() if name not in natural.names}
        self.pieces = {name: z[s.start : s.stop] for name, s in self.others.items()}
        groups: list[dict[str, Any]] = [
            {"params": [piece], "lr": self.rates[name]} for name, piece in self.pieces.items()
        ]
        # with numbers for hyperparameters and fixed inducing inputs, natural steps move everything
        self.optimizer: torch.optim.Optimizer | None = None
        if groups:
            self.optimizer = class_of(options.optimizer)(groups, maximize=True, fused=True)
        self.dropout = drops_out(bound.model)
        self.first = max(self.rates.values())

    def __call__(self, rate: float) -> float:
        rows, natural_rate = None, self.natural.rate
        if self.options.batch_size is not None:
            rows = draw_batch(self.bound, self.options.batch_size, self.generator)
            natural_rate = NATURAL_RATE * min(1.0, rate / self.first)
        value, gradient = self._natural_step(rows, natural_rate)
        if not math.isfinite(float(gradient.sum())):
            return math.nan  # the step is left out, and a warning about the ELBO reports it
        if self.optimizer is not None:
            groups = self.optimizer.param_groups
            for (name, s), group in zip(self.others.items(), groups, strict=True):
                self.pieces[name].grad = gradient[s.start : s.stop]
                group["lr"] = self.rates[name] * rate / self.first
            self.optimizer.step()
        return float(value)

    def _natural_step(self, rows: Rows | None, rate: float) -> tuple[Tensor, Tensor]:
        """Move the collapsed sites; return the objective after that, and its gradient [p]."""
        z = self.z
        if self.dropout:  # both halves of the step drop the same units out
            seed = dropout_seed(self.generator)
            with seeded(seed, z.device), training():
                self.natural.step(z, rows, rate)
            return with_dropout(self.bound, z, rows, False, seed)
        self.natural.step(z, rows, rate)
        return self.bound.value_and_grad(z, rows, jacobian=False)

    def tensors(self) -> dict[str, Tensor]:
        """Return all that the next step depends on, as tensors that no step changes."""
        out = {**_state(self.z, self.natural), **order_of_batches(self.bound, self.generator)}
        return out if self.optimizer is None else {**out, **memory_of(self.optimizer)}

    def restore(self, saved: Mapping[str, Tensor]) -> None:
        """Take back what ``tensors`` returned."""
        self.z.copy_(saved["z"])
        continue_batches(self.bound, self.generator, saved)
        if self.optimizer is not None:
            restore_memory(self.optimizer, saved)
