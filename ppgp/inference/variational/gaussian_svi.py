"""SVI with a Gaussian guide, on the compiled gradient of a Target."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...density.target import Target
from ...posterior.posterior import Posterior
from ...runtime.seeding import standard_normal
from ..base import Inference, attempted, draw_batch, finish, starting_point, weighed
from ..checkpoint import Checkpoint
from ..optimise.first_order import class_of, memory_of, restore_memory
from .deterministic import fit_guide, linear_response
from .gaussian_guide import GaussianGuide
from .guide_start import START_SCALE, initial_gaussian
from .pathfinder import log_densities
from .training_loop import SVIOptions, train

#: Decay of the running mean of the guide's parameters, which takes out the optimiser's jitter.
AVERAGING = 0.99
#: Draws that tell whether the first guide is the posterior: a few first, which mostly say no.
A_FEW, ENOUGH = 10, 100
MATCHED = 1e-4  # nats, the standard deviation of log p - log q over these


def fit_gaussian_guide(
    how: Inference,
    options: SVIOptions,
    target: Target,
    correlated: bool,
    seed: int,
    progress: bool,
    init: Posterior | Tensor | None,
    started: float,
    checkpoint: Checkpoint,
) -> Posterior:
    """Fit a Gaussian guide to a density, and draw from it.

    Args:
        how: The method, recorded in the posterior.
        options: Its numbers.
        target: The density.
        correlated: Whether the guide has a full covariance; else it is mean field.
        seed: Every random number follows from it.
        progress: Whether to show a progress bar.
        init: Where the guide starts.
        started: When the fit began, as ``time.perf_counter()``.
        checkpoint: A file that keeps guide, optimiser and random numbers.

    Returns:
        The Posterior, with the stats that ``SVI`` lists for Gaussian guides.
    """
    saved = checkpoint.found()
    if saved is None:
        origin, root, interrupted = _initial(options, target, correlated, init, seed)
    else:
        origin, root, interrupted = saved["origin"], saved["root"], False
    fit = _StochasticFit(options, target, origin, root, correlated, seed)
    history = [] if saved is None else fit.restore(saved)
    extra: dict[str, Any] = {}
    if not (history or interrupted):
        try:
            history = fit.elbos_of_posterior()
        except KeyboardInterrupt:  # the first guide is what there is
            interrupted = True
    if len(history) == ENOUGH and _alike(torch.tensor(history, dtype=torch.float64)):
        guide, notes = fit.guide, []
        checkpoint.save(_with_history(fit.tensors(), ENOUGH, history))
    elif options.method == "deterministic" and not interrupted:
        result = fit_guide(fit.guide, target, options.steps, fit.generator, progress)
        guide, history, notes = result.guide, result.history, result.notes
        interrupted = result.interrupted
        if not correlated and not interrupted:
            what = "the covariance by linear response"
            covariance = attempted(
                target, notes, what, lambda: linear_response(guide, target, result.e), None
            )
            extra = {} if covariance is None else {"covariance": covariance}
    else:
        whole: tuple[dict[str, Tensor], int] | None = None  # the state after the last whole step

        def after_step(history: list[float]) -> None:
            nonlocal whole
            if checkpoint.path is None:
                return
            whole = fit.tensors(), len(history)
            if checkpoint.due():
                checkpoint.save(_with_history(*whole, history))

        training = train(
            options,
            fit.step,
            progress,
            interrupted=interrupted,
            history=history,
            after_step=after_step,
        )
        guide, history, notes = fit.averaged, training.history, training.notes
        interrupted = training.interrupted
        if whole is not None:
            checkpoint.save(_with_history(*whole, history))
    e = fit.noise(options.draws)
    z = guide.draw(e)
    lp, stopped = weighed(target, notes, lambda: log_densities(target, z))
    interrupted = interrupted or stopped
    log_q = guide.log_prob(e)
    stats = {"elbo_history": torch.tensor(history, dtype=torch.float64), **extra}
    if lp is not None:
        stats["elbo"] = float((lp - log_q).mean())
    # of a random density, lp is only an estimate of the density of a draw
    if lp is not None and target.random is None:
        stats |= {"lp": lp[None], "log_q": log_q[None]}
    return finish(how, target, z[None], started, stats, notes, interrupted=interrupted)


def _alike(elbos: Tensor) -> bool:
    """Return whether estimates of the ELBO have next to no spread; not if one is NaN."""
    return float(elbos.double().std()) <= MATCHED


def _with_history(state: dict[str, Tensor], taken: int, history: list[float]) -> dict[str, Tensor]:
    """Return a state for a checkpoint, with the ELBOs of the steps that led to it."""
    return {**state, "history": torch.tensor(history[:taken], dtype=torch.float64)}


def _initial(
    options: SVIOptions,
    target: Target,
    correlated: bool,
    init: Posterior | Tensor | None,
    seed: int,
) -> tuple[Tensor, Tensor, bool]:
    """Return origin [p] and root [p, p] of the first guide, and whether Ctrl-C came."""
    start = starting_point(target, init, seed)
    if options.batch_size is not None:
        return start, START_SCALE * torch.eye(target.dim).to(start), False
    with target.same_noise(seed):
        origin, root, interrupted = initial_gaussian(target, correlated, start, seed)
    # contiguous as in a checkpoint: another layout may be summed in another order
    return origin, root.contiguous(), interrupted


class _StochasticFit:
    """The guide, the running mean of its parameters, the optimiser and the random numbers."""

    def __init__(
        self,
        options: SVIOptions,
        target: Target,
        origin: Tensor,
        root: Tensor,
        correlated: bool,
        seed: int,
    ) -> None:
        self.options, self.target = options, target
        self.origin, self.root = origin, root
        self.guide = GaussianGuide(origin, root, correlated)
        self.averaged = GaussianGuide(origin, root, correlated)
        loc, log_scale, *lower = self.guide.parameters()
        groups: list[dict[str, Any]] = [{"params": [loc, log_scale], "factor": 1.0}]
        if lower:
            # p^2 / 2 covariances that all move at once would overshoot at the rate of the p means
            groups.append({"params": lower, "factor": target.dim**-0.5})
        # one operation a group in place of ten a parameter, which is much of a step
        self.optimizer = class_of(options.optimizer)(groups, fused=origin.device.type == "cpu")
        self.generator = torch.Generator().manual_seed(seed)
        self.taken = 0

    def noise(self, count: int) -> Tensor:
        """Return standard normal draws e [count, p]."""
        e = standard_normal(self.generator, count, self.target.dim)
        return e.to(self.guide.loc)

    def elbos_of_posterior(self) -> list[float]:
        """Return log p - log q at draws of the first guide if it is the posterior; else none.

        It is the same at all draws then. Near there, KL(q || p) is half its variance, some 1e-8
        nats. No step is needed, and those of Adam, which do not shrink with the gradient, would
        leave that guide.
        """
        options, target = self.options, self.target
        if options.method != "stochastic" or options.batch_size is not None or target.random:
            return []
        before = self.generator.get_state()
        elbos = torch.zeros(0).to(self.origin)
        for count in (A_FEW, ENOUGH - A_FEW):
            e = self.noise(count)
            drawn = log_densities(target, self.guide.draw(e)) - self.guide.log_prob(e)
            elbos = torch.cat([elbos, drawn])
            if not _alike(elbos):
                self.generator.set_state(before)
                return []
        return elbos.tolist()

    def step(self, rate: float) -> float:
        """Take one step, and return the ELBO before it."""
        self.taken += 1
        e = self.noise(self.options.particles)
        if self.options.optimizer == "natural":
            elbos = self._natural_step(e, rate)
        else:
            elbos = self._step_by_entry(e, rate)
        keep = min(AVERAGING, 1 - 1 / self.taken)
        for mean, now in zip(self.averaged.parameters(), self.guide.parameters(), strict=True):
            mean.lerp_(now, 1 - keep)
        return float(elbos.mean())

    def _natural_step(self, e: Tensor, rate: float) -> Tensor:
        """Step along the natural gradient; return the ELBO at each draw."""
        rows = draw_batch(self.target, self.options.batch_size, self.generator)
        elbos, slope = self.guide.evaluate(self.target, e, batch=rows)
        self.guide.natural_step(e, slope, rate)
        return elbos

    def _step_by_entry(self, e: Tensor, rate: float) -> Tensor:
        """Step by Adam or AdaGrad; return the ELBO at each draw."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["factor"]
        rows = draw_batch(self.target, self.options.batch_size, self.generator)
        elbos, gradients = self.guide.estimates(self.target, e, self.options.gradient, rows)
        for parameter, gradient in zip(self.guide.parameters(), gradients, strict=True):
            parameter.grad = torch.nan_to_num(-gradient.mean(0), nan=0.0, posinf=0.0, neginf=0.0)
        self.optimizer.step()
        return elbos

    def tensors(self) -> dict[str, Tensor]:
        """Return all that the next step depends on, as tensors that no step changes."""
        out = {"origin": self.origin, "root": self.root, "generator": self.generator.get_state()}
        for name, guide in (("guide", self.guide), ("averaged", self.averaged)):
            out |= {f"{name}.{j}": p.clone() for j, p in enumerate(guide.parameters())}
        return out | memory_of(self.optimizer)

    def restore(self, saved: dict[str, Tensor]) -> list[float]:
        """Take everything back from a checkpoint; return the ELBOs of the steps so far."""
        self.generator.set_state(saved["generator"])
        for name, guide in (("guide", self.guide), ("averaged", self.averaged)):
            for j, p in enumerate(guide.parameters()):
                p.copy_(saved[f"{name}.{j}"])
        restore_memory(self.optimizer, saved)
        history = saved["history"].tolist()
        self.taken = len(history)
        return history
