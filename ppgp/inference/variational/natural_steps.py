"""Natural-gradient steps of any guide, from the scores of its own draws."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from pyro import poutine
from pyro.infer import Trace_ELBO
from pyro.infer.autoguide import AutoContinuous
from torch import Tensor, nn
from torch.distributions import biject_to

from ...data.training_data import Rows
from ...density.target import Target
from ...errors import NotApplicable
from ...networks.networks import drops_out, training
from ...numerics.conjugate_gradients import conjugate_gradients
from ..base import draw_batch
from .training_loop import SVIOptions

DRAWS = 64  # per step, unless more particles are asked for
STEPS_KEPT = 10  # whose scores make up the Fisher matrix
DAMPING = 1.0  # at the first step, relative to the mean of the diagonal of the Fisher matrix
LEAST_DAMPING = 0.02
FALL, RISE = 0.5, 4.0  # factors of the damping after a step that was taken, or taken back
TOO_FAR = 4.0  # times the KL divergence that the Fisher matrix promises: the step is taken back
LARGEST_STEP = 0.1  # nats of the KL divergence between the guides before and after a step
CG_STEPS = 50
CG_LEFT = 0.01


#: the ELBO, its gradient [p], the scores [draw, p], and the KL divergence after a step
Estimates = tuple[float, Tensor, Tensor, Callable[[], float]]


def natural_direction(
    scores: Tensor,
    gradient: Tensor,
    damping: float = 0.0,
    start: Tensor | None = None,
    left: float = CG_LEFT,
) -> Tensor:
    """Return (F + damping d I)^-1 gradient by conjugate gradients on products with F.

    F v is the mean over the draws of g (g'v), where g is the score of a draw, and d is the mean of
    the diagonal of F. Martens (2020).

    Args:
        scores: The derivatives of log q at each draw, [draw, p].
        gradient: [p].
        damping: What is added to F, relative to its diagonal.
        start: Where conjugate gradients begin, [p].
        left: The share of the gradient that they leave.
    """
    added = damping * float(scores.square().mean())

    def product(v: Tensor) -> Tensor:
        return scores.mT @ (scores @ v) / len(scores) + added * v

    steps = min(len(gradient), CG_STEPS)
    return conjugate_gradients(product, gradient, start, steps=steps, left=left)[0]


class NaturalSteps:
    """The guide, the scores of its last draws, and the last direction.

    Args:
        options: The numbers of the fit.
        target: The density.
        program: The Pyro program of the density.
        guide: The guide, a Pyro program with parameters.
        generator: Of the rows of mini-batches.

    Raises:
        NotApplicable: If the guide has no parameters.
    """

    def __init__(
        self,
        options: SVIOptions,
        target: Target,
        program: Callable[..., Any],
        guide: Callable[..., Any],
        generator: torch.Generator,
    ) -> None:
        self.options, self.target, self.program, self.guide = options, target, program, guide
        self.generator = generator
        self.draws = max(DRAWS, options.particles)
        self.parameters = self._parameters()
        if not self.parameters:
            do = "write pyro.param in the guide"
            raise NotApplicable("a guide with parameters", "one without", do)
        self.kept: deque[Tensor] = deque(maxlen=STEPS_KEPT)
        self.direction: Tensor | None = None
        self.damping = DAMPING
        self.at_once = self._is_a_density_of_z()

    def step(self, rate: float) -> float:
        """Take one step along the natural gradient; return the ELBO before it."""
        rows = draw_batch(self.target, self.options.batch_size, self.generator)
        if self.at_once:
            elbo, gradient, scores, divergence = self._of_all_draws(rows)
        else:
            elbo, gradient, scores, divergence = self._of_each_draw(rows)
        if not bool(torch.isfinite(gradient).all() and torch.isfinite(scores).all()):
            return math.nan
        self.kept.append(scores)
        kept = torch.cat(list(self.kept))
        self.direction = natural_direction(kept, gradient, self.damping, self.direction)
        promised = 0.5 * float((kept @ self.direction).square().mean())
        if promised > 0:
            rate = min(rate, math.sqrt(LARGEST_STEP / promised))
        self._move(rate * self.direction)
        moved = divergence()
        if moved <= TOO_FAR * rate**2 * promised:
            self.damping = max(LEAST_DAMPING, FALL * self.damping)
        else:  # NaN is too far
            self._move(-rate * self.direction)
            self.damping *= RISE
        return elbo

    def _move(self, step: Tensor) -> None:
        """Add a step [p] to the parameters."""
        with torch.no_grad():
            start = 0
            for value in self.parameters:
                value += step[start : start + value.numel()].reshape(value.shape)
                start += value.numel()

    def _parameters(self) -> list[Tensor]:
        """Return the unconstrained parameters of the guide."""
        args, kwargs = self.target.data.passed()
        with poutine.trace(param_only=True) as run:
            self.guide(*args, **kwargs)
        if isinstance(self.guide, nn.Module):
            return list(self.guide.parameters())
        sites: Any = run.trace.nodes.values()
        return [s["value"].unconstrained() for s in sites if s["type"] == "param"]

    def _flat(self, parts: tuple[Tensor | None, ...], *shape: int) -> Tensor:
        """Return derivatives by each parameter as one tensor [*shape, p]."""
        both = zip(parts, self.parameters, strict=True)
        each = [value.new_zeros(*shape, value.numel()) if p is None else p for p, value in both]
        return torch.cat([p.detach().reshape(*shape, -1) for p in each], -1)

    # -- autoguides with a density of z -----------------------------------------------------------

    def _is_a_density_of_z(self) -> bool:
        """Return whether the guide is a distribution of the z that the target has."""
        target = self.target
        guide: Any = self.guide
        if not isinstance(guide, AutoContinuous) or guide.latent_dim != target.dim:
            return False
        if target.random is not None or drops_out(target.model):
            return False
        z = torch.linspace(-1.0, 1.0, target.dim).to(target.origin())
        ours = target.constrain(z)
        sites: Any = guide._unpack_latent(z)
        for site, value in sites:
            theirs = biject_to(site["fn"].support)(value)
            own = ours.get(site["name"])
            if own is None or own.shape != theirs.shape or not torch.allclose(own, theirs):
                return False
        return True

    def _of_all_draws(self, rows: Rows | None) -> Estimates:
        """Return the estimates from all draws in one tensor."""
        guide: Any = self.guide
        with torch.enable_grad():
            q = guide.get_posterior()
            z = q.rsample((self.draws,))
            log_q = q.log_prob(z)
            value, slope = self.target.value_and_grad_batch(z.detach(), rows)
            lifted = ((slope * z).sum(-1) - log_q).mean()
            gradient = torch.autograd.grad(lifted, self.parameters, allow_unused=True)
            # a copy, or a flow would return the noise that z was made of and not invert itself
            own = guide.get_posterior().log_prob(z.detach().clone())
            eye = torch.eye(self.draws).to(own)
            scores = torch.autograd.grad(
                own, self.parameters, eye, is_grads_batched=True, allow_unused=True
            )
        elbo = float((value - log_q.detach()).mean())

        def divergence() -> float:
            now = guide.get_posterior().log_prob(z.detach().clone())
            return _divergence(now - own)

        return elbo, self._flat(gradient), self._flat(scores, self.draws), divergence

    # -- other guides -----------------------------------------------------------------------------

    def _of_each_draw(self, rows: Rows | None) -> Estimates:
        """Return the estimates from one run of the guide per draw."""
        data = self.target.data
        args, kwargs = data.passed(self.target.tables(rows))
        loss: Any = Trace_ELBO(num_particles=self.draws)
        with torch.enable_grad():
            with training():  # networks drop units out in these steps only
                negative = loss.differentiable_loss(self.program, self.guide, *args, **kwargs)
            gradient = torch.autograd.grad(-negative, self.parameters, allow_unused=True)
            runs = [self._detached_run(args, kwargs) for _ in range(self.draws)]
            own = [self._log_q(run, args, kwargs) for run in runs]
            scores = [
                self._flat(torch.autograd.grad(each, self.parameters, allow_unused=True))
                for each in own
            ]

        def divergence() -> float:
            now = [self._log_q(run, args, kwargs) for run in runs]
            return _divergence(torch.stack(now) - torch.stack(own))

        return -float(negative.detach()), self._flat(gradient), torch.stack(scores), divergence

    def _detached_run(self, args: Any, kwargs: Any) -> Any:
        """Return a run of the guide, whose values do not depend on the parameters."""
        run: Any = poutine.trace(self.guide).get_trace(*args, **kwargs)
        for s in run.nodes.values():
            if s["type"] == "sample" and not s["is_observed"]:
                s["value"] = s["value"].detach()
        return run

    def _log_q(self, run: Any, args: Any, kwargs: Any) -> Tensor:
        """Return the log density of a run under the guide as it is now."""
        for s in run.nodes.values():
            if s["type"] == "sample" and not s["is_observed"]:
                s["value"] = s["value"].clone()
        again = poutine.trace(poutine.replay(self.guide, trace=run))
        return torch.as_tensor(again.get_trace(*args, **kwargs).log_prob_sum())


def _divergence(log_ratio: Tensor) -> float:
    """Return the KL divergence of the last guide from the one now, from log(now / last) at draws.

    Each term of the mean is positive, so that a small divergence is not lost in its noise.
    """
    log_ratio = log_ratio.detach()
    return float((torch.expm1(log_ratio) - log_ratio).mean())
