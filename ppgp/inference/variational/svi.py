"""Stochastic variational inference: Gaussian guides on the compiled target, any other guide through Pyro."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, cast

import pyro
import torch
from pyro.distributions import transforms
from pyro.infer import SVI as PyroSVI
from pyro.infer import Predictive, Trace_ELBO, autoguide
from pyro.optim import Adam  # type: ignore[attr-defined]
from torch import Tensor

from ...data.dataset import Dataset
from ...errors import NotApplicable, SettingError
from ...kernels.networks import training
from ...numerics.seeding import seeded
from ...posterior.posterior import Posterior
from ...target.capabilities import CollapsedBound, OwnGuide, supports
from ...target.checks import check_flat
from ...target.target import Target
from ..base import Inference, check_batch, draw_batch, finish, from_draws, starting_point
from ..checkpoint import Checkpoint
from ..optimise.schedules import SCHEDULES, scheduled
from ..options import Count, OneOf, Positive
from ..progress import bar
from .collapsed_svi import fit_collapsed_elbo
from .deterministic import fit_guide, linear_response
from .gaussian_baseline import below_a_gaussian
from .gaussian_guide import GRADIENTS, GaussianGuide
from .initialisation import START_SCALE, starting_frame
from .pathfinder import log_densities

GUIDES = ("normal", "multivariate_normal", "lowrank", "iaf")
FEWEST = {
    "pathwise": 1,
    "score": 1,
    "score_baseline": 2,
}  # particles that each estimate of the gradient needs
LOOKS = 100  # draws behind the ELBO of a guide that Pyro trains
AVERAGING = 0.99  # of the guide's parameters over the steps: takes the optimiser's jitter out


@dataclass(frozen=True)
class SVI(Inference):
    """Maximises the ELBO, E_q[log p(z, y) - log q(z)], over a guide q; Hoffman et al. (2013), Kucukelbir et al. (2017).

    Args:
        guide: "normal" (mean field), "multivariate_normal" (full covariance), "lowrank", "iaf", a Pyro guide or an autoguide
            class; None: the model's own guide, or else "multivariate_normal".
        method: "stochastic", or "deterministic" for a Gaussian guide: natural-gradient steps over draws that are fixed once and
            matched to the guide's mean and covariance. A dozen iterations, no learning rate, no noise; Giordano, Ingram &
            Broderick (2024) have the fixed draws. A mean-field guide then comes with its linear-response covariance.
        steps: at most so many.
        learning_rate: of the optimiser at the start; for a model with a bound of its own also ``{site: rate}``, as in MAP.
        schedule: how it falls over the steps: "cosine" (to 1 % of itself), "inverse" (as 1 / t) or "constant".
        optimizer: "adam", or "natural" for steps along the natural gradient of a Gaussian guide.
        gradient: how the gradient is estimated for a Gaussian guide: "pathwise", "score", or "score_baseline" (at least 2
            particles). All are unbiased; their variances differ by orders of magnitude.
        particles: draws a step.
        batch_size: rows a step; None: all.
        patience: once the moving average of the ELBO (over as many steps) has not risen for so many steps, the rate falls over as
            many more, and that is the end.
        draws: draws taken from the fitted guide.

    Stats: ``elbo`` (of the fitted guide, estimated with its draws), ``elbo_history`` [steps], ``lp`` and ``log_q`` of the
    draws where the guide is Gaussian; ``covariance`` [p, p] of z by linear response (deterministic, mean field). A model with a bound
    of its own (SVGP): ``elbo``, a bound of log p(y given theta), ``objective``, log p(theta) + ELBO (or + PPGPR's sum), and
    ``objective_history`` [steps].
    """

    guide: Annotated[str, OneOf(GUIDES)] | Callable[..., Any] | None = None
    method: Annotated[str, OneOf(("stochastic", "deterministic"))] = "stochastic"
    steps: Count = 5000
    learning_rate: Positive | Mapping[str, Positive] = 0.02
    schedule: Annotated[str, OneOf(SCHEDULES)] = "cosine"
    optimizer: Annotated[str, OneOf(("adam", "natural"))] = "adam"
    gradient: Annotated[str, OneOf(GRADIENTS)] = "pathwise"
    particles: Count = 1
    batch_size: Count | None = None
    patience: Count = 500
    draws: Count = 1000
    optimises_params = True
    takes_random_density = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.particles < FEWEST[self.gradient]:
            raise SettingError(
                f"at least {FEWEST[self.gradient]} particles with gradient={self.gradient!r}",
                str(self.particles),
                "raise particles",
            )
        if self.optimizer == "natural" and self.gradient != "pathwise":
            raise SettingError(
                "gradient='pathwise' with optimizer='natural'",
                repr(self.gradient),
                "leave gradient out",
            )
        if self.method == "deterministic" and (
            self.batch_size is not None or self.gradient != "pathwise"
        ):
            raise SettingError(
                "all rows and pathwise gradients with method='deterministic'",
                f"batch_size={self.batch_size}, gradient={self.gradient!r}",
                "leave both out",
            )

    @property
    def _rate(self) -> float:
        """The largest of several."""
        return (
            max(self.learning_rate.values())
            if isinstance(self.learning_rate, Mapping)
            else self.learning_rate
        )

    def numbers(self, p: int) -> float:
        """With the root of the covariance, its average, their gradients and moments where the guide has one."""
        return super().numbers(p) + (8.0 * p * p if self.guide == "multivariate_normal" else 0.0)

    def quick(self) -> SVI:
        return replace(self, steps=20, draws=20)

    def __call__(
        self,
        target: Target,
        *,
        seed: int = 0,
        progress: bool = False,
        init: Posterior | Tensor | None = None,
        checkpoint: str | Path | None = None,
    ) -> Posterior:
        """Run it; ``checkpoint`` (for the Gaussian guides) keeps guide, optimiser and random numbers.

        Raises:
            NotApplicable: for options that the guide cannot follow.
        """
        started = time.perf_counter()
        kept = Checkpoint(checkpoint, self, target, seed)
        check_batch(self, target, self.batch_size)
        if self.guide is None and supports(target.model, CollapsedBound):
            if checkpoint is not None:
                raise NotApplicable(
                    "a Gaussian guide with a checkpoint",
                    "a model's own bound",
                    "leave checkpoint out",
                )
            return fit_collapsed_elbo(self, target, seed, progress, init, started, self._train)
        if all(s.param for s in target.slices.values()):
            got = f"params alone ({', '.join(target.slices)})"
            raise NotApplicable(
                "an uncertain site for a guide", got, "use MAP, which optimises them"
            )
        own = target.model.guide if isinstance(target.model, OwnGuide) else None
        guide = self.guide or own or "multivariate_normal"
        if guide in ("normal", "multivariate_normal") and not any(
            s.param for s in target.slices.values()
        ):
            with kept:
                return kept.noted(
                    self._gaussian(
                        target, guide == "multivariate_normal", seed, progress, init, started, kept
                    )
                )
        if (self.gradient, self.optimizer, self.method) != ("pathwise", "adam", "stochastic"):
            raise NotApplicable(
                f"a Gaussian guide with gradient={self.gradient!r}, optimizer={self.optimizer!r} and method={self.method!r}",
                f"guide {guide if isinstance(guide, str) else type(guide).__name__}",
                "use guide='normal' or 'multivariate_normal'",
            )
        if target.enumerates:
            raise NotApplicable(
                "a Gaussian guide for a program with discrete sites",
                f"guide {guide}",
                "use 'normal' or 'multivariate_normal'",
            )
        if checkpoint is not None:
            raise NotApplicable(
                "a Gaussian guide with a checkpoint",
                f"guide {guide}",
                "use 'normal' or 'multivariate_normal'",
            )
        return self._pyro(target, guide, seed, progress, started)

    # -- the loop that both kinds share --------------------------------------------------------------------------

    def _train(
        self,
        step: Callable[[float], float],
        progress: bool,
        interrupted: bool = False,
        history: list[float] | None = None,
        after: Callable[[list[float]], None] = lambda history: None,
    ) -> tuple[list[float], list[str], bool]:
        """The ELBOs, notes, and whether Ctrl-C came.

        Calls ``step(rate)`` until the moving average of its ELBO has not risen for ``patience`` steps, and as many more with the
        rate falling to nothing.

        ``interrupted``: Ctrl-C came before the first step, so none is taken. ``history``: of the steps taken in an earlier
        life; ``after`` is called with it after each step.
        """
        history = [] if history is None else history
        notes: list[str] = []
        rule = _Stopping(self.patience)
        level: int | None = None  # the step from which the ELBO was seen to have stopped rising
        for elbo in history:
            if rule.over(elbo) and level is None:
                level = rule.taken
        try:
            with bar("SVI", self.steps, progress) as update:
                if interrupted:
                    raise KeyboardInterrupt
                while len(history) < (
                    self.steps if level is None else min(self.steps, level + self.patience)
                ):
                    rate = scheduled(self.schedule, len(history), self.steps)
                    if (
                        level is not None
                    ):  # the noise of the last rate is still in the guide: let it die away
                        rate *= scheduled("cosine", len(history) - level, self.patience)
                    elbo = step(self._rate * rate)
                    history.append(elbo)
                    if rule.over(elbo) and level is None:
                        level = rule.taken
                    update(len(history), elbo=rule.average)
                    after(history)
                if (
                    level is None
                    and self.steps >= 2 * self.patience
                    and rule.best_at >= self.steps - self.patience // 4
                ):
                    notes.append(
                        f"the ELBO was still rising after {self.steps} steps: raise steps or the learning rate"
                    )
        except KeyboardInterrupt:
            interrupted = True
            notes.append(
                f"stopped by Ctrl-C after {len(history)} of {self.steps} steps; this is the guide reached"
            )
        last = history[-self.patience :]
        bad = sum(not math.isfinite(e) for e in last)
        if bad:
            notes.append(
                f"the ELBO was not finite in {bad} of the last {len(last)} steps: check the priors"
            )
        return history, notes, interrupted

    # -- Gaussian guides on the compiled gradient ----------------------------------------------------------------

    def _gaussian(
        self,
        target: Target,
        correlated: bool,
        seed: int,
        progress: bool,
        init: Any,
        started: float,
        kept: Checkpoint,
    ) -> Posterior:
        found = kept.found()
        if found is None:
            start = starting_point(target, init, seed)
            if self.batch_size is None:
                with target.same_noise(seed):
                    origin, root, interrupted = starting_frame(target, correlated, start, seed)
            else:
                origin, root, interrupted = (
                    start,
                    START_SCALE * torch.eye(target.dim).to(start),
                    False,
                )
            root = (
                root.contiguous()
            )  # as a checkpoint gives it back: another layout may be summed in another order
        else:
            origin, root, interrupted = found["origin"], found["root"], False
        guide, averaged = (
            GaussianGuide(origin, root, correlated),
            GaussianGuide(origin, root, correlated),
        )
        # p^2 / 2 covariances that all move at once would overshoot at the rate of the p means
        factors = [1.0, 1.0, target.dim**-0.5]
        optimizer = torch.optim.Adam(
            [
                {"params": [q], "factor": f}
                for q, f in zip(guide.parameters(), factors, strict=False)
            ]
        )
        generator = torch.Generator().manual_seed(seed)
        taken, history = 0, []
        if found is not None:
            taken, history = _restored(found, guide, averaged, optimizer, generator)

        def noise(*shape: int) -> Tensor:
            return torch.randn(*shape, target.dim, generator=generator, dtype=torch.float64).to(
                guide.loc
            )

        def step(rate: float) -> float:
            nonlocal taken
            taken += 1
            e = noise(self.particles)
            if self.optimizer == "natural":
                elbos, slope = guide.evaluate(
                    target, e, batch=draw_batch(target, self.batch_size, generator)
                )
                guide.natural_step(e, slope, rate)
            else:
                for group in optimizer.param_groups:
                    group["lr"] = rate * group["factor"]
                elbos, gradients = guide.estimates(
                    target, e, self.gradient, draw_batch(target, self.batch_size, generator)
                )
                for parameter, gradient in zip(guide.parameters(), gradients, strict=True):
                    parameter.grad = torch.nan_to_num(
                        -gradient.mean(0), nan=0.0, posinf=0.0, neginf=0.0
                    )
                optimizer.step()
            keep = min(AVERAGING, 1 - 1 / taken)
            for mean, now in zip(averaged.parameters(), guide.parameters(), strict=True):
                mean.lerp_(now, 1 - keep)
            return float(elbos.mean())

        def after(history: list[float]) -> None:
            if kept.due():
                kept.save(_stored(origin, root, guide, averaged, optimizer, generator, history))

        extra: dict[str, Any] = {}
        if self.method == "deterministic" and not interrupted:
            averaged, history, notes, interrupted, fixed = fit_guide(
                guide, target, self.steps, generator, progress
            )
            if not correlated and not interrupted:
                extra["covariance"] = linear_response(averaged, target, fixed)
        else:
            history, notes, interrupted = self._train(step, progress, interrupted, history, after)
            kept.save(_stored(origin, root, guide, averaged, optimizer, generator, history))
        e = noise(self.draws)
        z = averaged.draw(e)
        lp = log_densities(target, z)
        log_q = averaged.log_prob(e)
        stats = {
            "elbo": float((lp - log_q).mean()),
            "elbo_history": torch.tensor(history, dtype=torch.float64),
            **extra,
        }
        if target.random is None:  # the density of a draw, else an estimate of it
            stats |= {"lp": lp[None], "log_q": log_q[None]}
        return finish(self, target, z[None], started, stats, notes, interrupted=interrupted)

    # -- any other guide, through Pyro ---------------------------------------------------------------------------

    def _pyro(
        self,
        target: Target,
        guide: str | Callable[..., Any],
        seed: int,
        progress: bool,
        started: float,
    ) -> Posterior:
        check_flat(target, "guide='normal' or 'multivariate_normal'")
        program = target.model.model
        like = (
            target.data.X
            if isinstance(target.data, Dataset)
            else torch.zeros((), dtype=torch.get_default_dtype())
        )
        generator = torch.Generator().manual_seed(seed)

        def arguments(rows: Tensor | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
            if not isinstance(target.data, Dataset):
                return (), dict(target.data)
            X, y = (
                (target.data.X, target.data.y)
                if rows is None
                else (target.data.X[rows], target.data.y[rows])
            )
            return (X, y), {"total": target.data.n}

        with (
            seeded(seed, like.device),
            pyro.get_param_store().scope() as _,
            pyro.validation_enabled(False),
        ):
            q = _autoguide(guide, program, like)
            optimizer = Adam({"lr": self._rate})
            loop = PyroSVI(program, q, optimizer, Trace_ELBO(num_particles=self.particles))

            def step(rate: float) -> float:
                for one in optimizer.optim_objs.values():
                    one.param_groups[0]["lr"] = rate
                args, kwargs = arguments(draw_batch(target, self.batch_size, generator))
                with training():  # networks drop units out here, and nowhere else
                    return -float(loop.step(*args, **kwargs))  # type: ignore[arg-type]

            history, notes, interrupted = self._train(step, progress)
            args, kwargs = arguments(None)
            with torch.no_grad():
                found = Predictive(q, num_samples=self.draws)(*args, **kwargs)
            losses = [cast(float, loop.evaluate_loss(*args, **kwargs)) for _ in range(LOOKS)]
            elbos = -torch.tensor(losses)
            params = {name: p.detach().clone() for name, p in pyro.get_param_store().items()}
        sites = [name for name, s in target.slices.items() if not s.param]
        draws = {
            name: found[name].detach().reshape(1, self.draws, *target.slices[name].event)
            for name in sites
        }
        held = {name: p for name, p in params.items() if name in target.slices}
        if guide == "iaf" and not interrupted:
            try:
                notes += below_a_gaussian(target, params, elbos.double(), seed)
            except KeyboardInterrupt:
                interrupted = True
                notes.append("stopped by Ctrl-C before this guide was held against a Gaussian one")
        stats = {
            "elbo": float(elbos.mean()),
            "elbo_history": torch.tensor(history, dtype=torch.float64),
        }
        return from_draws(self, target, draws, started, stats, notes, held, interrupted)


class _Stopping:
    """Stop once the moving average over ``patience`` steps has not risen for as many steps."""

    def __init__(self, patience: int) -> None:
        self.patience, self.best, self.best_at, self.total = patience, -math.inf, 0, 0.0
        self.window: deque[float] = deque()
        self.taken, self.average = 0, -math.inf

    def over(self, elbo: float) -> bool:
        self.window.append(_finite(elbo))
        self.total += self.window[-1] - (
            self.window.popleft() if len(self.window) > self.patience else 0.0
        )
        self.taken += 1
        self.average = self.total / len(self.window)
        if self.taken >= self.patience and self.average > self.best:
            self.best, self.best_at = self.average, self.taken - 1
        return self.taken - 1 - self.best_at >= self.patience and self.taken >= 2 * self.patience


def _stored(
    origin: Tensor,
    root: Tensor,
    guide: GaussianGuide,
    averaged: GaussianGuide,
    optimizer: torch.optim.Optimizer,
    generator: torch.Generator,
    history: list[float],
) -> dict[str, Tensor]:
    """All that the next step depends on."""
    out = {"origin": origin, "root": root, "generator": generator.get_state()}
    out["history"] = torch.tensor(history, dtype=torch.float64)
    for which, q in (("guide", guide), ("averaged", averaged)):
        out |= {f"{which}.{j}": p for j, p in enumerate(q.parameters())}
    for j, p in enumerate(guide.parameters()):
        out |= {f"adam.{j}.{name}": value for name, value in optimizer.state.get(p, {}).items()}
    return out


def _restored(
    found: dict[str, Tensor],
    guide: GaussianGuide,
    averaged: GaussianGuide,
    optimizer: torch.optim.Optimizer,
    generator: torch.Generator,
) -> tuple[int, list[float]]:
    """Put everything back; returns how many steps were taken, and their ELBOs."""
    generator.set_state(found["generator"])
    for which, q in (("guide", guide), ("averaged", averaged)):
        for j, p in enumerate(q.parameters()):
            p.copy_(found[f"{which}.{j}"])
    for j, p in enumerate(guide.parameters()):
        memory = {n.split(".", 2)[2]: v for n, v in found.items() if n.startswith(f"adam.{j}.")}
        if memory:
            optimizer.state[p] = memory
    history = found["history"].tolist()
    return len(history), history


def _finite(x: float) -> float:
    return x if math.isfinite(x) else 0.0


def _autoguide(
    guide: str | Callable[..., Any], program: Callable[..., Any], like: Tensor
) -> Callable[..., Any]:
    if guide == "normal":
        return autoguide.AutoNormal(program, init_scale=START_SCALE)
    if guide == "multivariate_normal":
        return autoguide.AutoMultivariateNormal(program, init_scale=START_SCALE)
    if guide == "lowrank":
        return autoguide.AutoLowRankMultivariateNormal(program, init_scale=START_SCALE)
    if guide == "iaf":

        def flow(dim: int) -> Any:
            # AutoIAFNormal makes a float32 network whatever the model's dtype
            return transforms.affine_autoregressive(dim, hidden_dims=[dim + 8, dim + 8]).to(
                like.dtype
            )

        return autoguide.AutoNormalizingFlow(program, flow)
    if isinstance(guide, type) and issubclass(guide, autoguide.AutoGuide):
        return guide(program)
    assert callable(guide)
    return guide
