"""SVI of a model that knows its own bound: collapsed sites moved along their natural gradient, the rest by Adam or L-BFGS."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...kernels.networks import drops_out, training
from ...numerics.seeding import seeded
from ...posterior.posterior import Posterior
from ...target.capabilities import SubsetModel
from ...target.handlers import quietly
from ...target.target import Target
from ..base import draw_batch, finish, starting_point
from ..interrupts import whole
from ..optimise.first_order import units, with_dropout
from ..optimise.map import MAP, find_mode
from ..optimise.schedules import site_rates

if TYPE_CHECKING:
    from .svi import SVI

NATURAL_RATE = 0.1  # of a step on some of the rows; Salimbeni, Eleftheriadis & Hensman (2018)
MOST_STEPS = 50
SETTLED = 1e-6  # relative change of q at which steps on all rows end
START_ROWS = 20_000
SUBSET_STEPS = 200


def fit_collapsed_elbo(
    how: SVI,
    target: Target,
    seed: int,
    progress: bool,
    init: Posterior | Tensor | None,
    started: float,
    train: Callable[..., Any],
) -> Posterior:
    """One draw of the hyperparameters, at the maximum of log p(theta) + elbo, and the params of the collapsed sites.

    Stats: ``elbo``, a lower bound of log p(y given theta) whatever was climbed; ``objective``, what was climbed, log p(theta)
    included, and ``objective_history`` [steps].
    """
    model, data = target.model, target.data
    bound = Target(model, data, optimise_params=True, collapsed_elbo=True)
    generator = torch.Generator().manual_seed(seed)
    with quietly():
        z = _begin(bound, model, data, init, seed)
    q = _Natural(bound, model, data, z)
    q.fit(z)
    if how.method == "deterministic":
        z, found, notes = find_mode(bound, z, progress, jacobian=False, steps=how.steps)
        interrupted = found["interrupted"]
        history = [-loss for loss in found["losses"].tolist()]
    else:
        history, notes, interrupted = train(_stepper(how, bound, q, z, generator), progress)
    with torch.no_grad():
        objective = float(bound.log_density(z, jacobian=False))
        elbo = _elbo(bound, model, data, z)
    stats = {
        "elbo": elbo,
        "objective": objective,
        "objective_history": torch.tensor(history, dtype=torch.float64),
    }
    posterior = finish(how, bound, z[None, None], started, stats, notes, interrupted=interrupted)
    posterior.draws.update(
        {name: posterior.params[f"{name}_loc"][None, None] for name in model.collapsed}
    )
    return posterior


def _elbo(bound: Target, model: Any, data: Any, z: Tensor) -> float:
    """The ELBO of all rows at z, without log p(theta); a model with another objective has it too."""
    honest = (
        replace(model, objective="elbo") if getattr(model, "objective", "elbo") != "elbo" else model
    )
    theta = {**bound.params, **{name: s.transform(s.of(z)) for name, s in bound.slices.items()}}
    with quietly():
        return float(honest.elbo(theta, data.X, data.y, total=data.n))


def _begin(
    bound: Target, model: Any, data: Any, init: Posterior | Tensor | None, seed: int
) -> Tensor:
    """z from ``init``, else from the mode of the subset model, else from the middle of the priors."""
    if init is not None:
        return starting_point(bound, init, seed, jacobian=False).clone()
    known: dict[str, Tensor] = {}
    small = model.subset_model(data) if isinstance(model, SubsetModel) else None
    if small is not None:
        smaller = Target(*small, optimise_params=True, empty=True)
        if smaller.dim:  # numbers alone are known already
            mode = whole(MAP(steps=SUBSET_STEPS)(smaller, seed=seed))
            known = {**mode.params, **{name: value[0, 0] for name, value in mode.draws.items()}}
    return bound.placed(
        {
            name: value
            for name, value in known.items()
            if name in bound.slices and value.shape == bound.slices[name].event
        }
    )


class _Natural:
    """The part of z that natural-gradient steps move, if the model has one.

    ``rate`` is that of steps on all rows: halved where one lowers the bound, which likelihoods far from normal do at rate 1.
    """

    def __init__(self, bound: Target, model: Any, data: Any, z: Tensor) -> None:
        self.bound, self.model, self.data, self.rate = bound, model, data, 1.0
        found = self._moved(z, torch.zeros(1, dtype=torch.long), 0.0)
        self.names = set(found[0]) if found is not None else set()

    def _moved(
        self, z: Tensor, rows: Tensor | None, rate: float
    ) -> tuple[dict[str, Tensor], float] | None:
        """The params after a step, unconstrained, and the bound before it."""
        X, y = (
            (self.data.X, self.data.y) if rows is None else (self.data.X[rows], self.data.y[rows])
        )
        theta = {name: s.transform(s.of(z)) for name, s in self.bound.slices.items()}
        with quietly():
            found = self.model.natural(
                {**self.bound.params, **theta}, X, y, total=self.data.n, rate=rate
            )
        if found is None:
            return None
        return {
            name: self.bound.slices[name].transform.inv(value).reshape(-1)
            for name, value in found[0].items()
        }, float(found[1])

    def step(self, z: Tensor, rows: Tensor | None, rate: float) -> float:
        """Move z in place, and say what the bound was before; a step whose end is not finite is not taken."""
        found = self._moved(z, rows, rate) if self.names else None
        if found is None:
            return math.nan
        moved, value = found
        if all(bool(torch.isfinite(free).all()) for free in moved.values()):
            for name, free in moved.items():
                s = self.bound.slices[name]
                z[s.start : s.stop] = free
        return value

    def fit(self, z: Tensor) -> None:
        """Steps on all rows, or on as many as are quick to go over, to where they end."""
        n = self.data.n
        some = (
            None
            if n <= START_ROWS
            else torch.randperm(n, generator=torch.Generator().manual_seed(0))[:START_ROWS]
        )
        self.rate = min(1.0, 2 * self.rate)
        best, kept = -math.inf, z.clone()
        for _ in range(MOST_STEPS if self.names else 0):
            before = z.clone()
            value = self.step(z, some, self.rate)
            if not value >= best - SETTLED * abs(best):
                z.copy_(kept)
                self.rate *= 0.5
                best = -math.inf  # the next step begins from where this one did
                continue
            best, kept = value, before
            if torch.allclose(before, z, rtol=SETTLED, atol=SETTLED):
                return


def _stepper(
    how: SVI, bound: Target, q: _Natural, z: Tensor, generator: torch.Generator
) -> Callable[[float], float]:
    """One step: q along its natural gradient, then the rest by Adam, from the same rows."""
    rates = site_rates(how.learning_rate, bound)
    mine = {name: s for name, s in bound.slices.items() if name not in q.names}
    pieces = {name: z[s.start : s.stop] for name, s in mine.items()}
    groups: list[dict[str, Any]] = [
        {"params": [piece], "lr": rates[name]} for name, piece in pieces.items()
    ]
    # with numbers for hyperparameters and inducing inputs that stay, natural steps move all there is
    optimizer = torch.optim.Adam(groups, maximize=True, fused=True) if groups else None
    noisy = drops_out(bound.model)
    first = max(rates.values())

    def step(rate: float) -> float:
        rows = draw_batch(bound, how.batch_size, generator)
        natural_rate = q.rate if rows is None else NATURAL_RATE * min(1.0, rate / first)
        if noisy:  # both halves of a step climb one bound: that of the units left
            seed = units(generator)
            with seeded(seed, z.device), training():
                q.step(z, rows, natural_rate)
            value, gradient = with_dropout(bound, z, rows, False, seed)
        else:
            q.step(z, rows, natural_rate)
            value, gradient = bound.value_and_grad(z, rows, jacobian=False)
        if not math.isfinite(float(gradient.sum())):
            return math.nan  # the step is left out, and the note on the ELBO says so
        if optimizer is not None:
            for (name, s), group in zip(mine.items(), optimizer.param_groups, strict=True):
                pieces[name].grad = gradient[s.start : s.stop]
                group["lr"] = rates[name] * rate / first
            optimizer.step()
        return float(value)

    return step
