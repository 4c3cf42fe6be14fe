"""Stochastic gradient Langevin dynamics and stochastic gradient Hamiltonian Monte Carlo: chains on mini-batches, nothing rejected."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from ...target.target import Target
from ..base import check_batch, draw_batch
from ..options import Between, Count, Share
from .adaptation import apply, apply_transpose, preconditioner
from .chains import Chains, State, Transition

FIRST = 10.0  # times the step size at the start of the warm-up
FAR = 10.0  # sds a coordinate: no gradient of a normal posterior is longer nearer to its mode
OFTEN = 0.01  # share of steps cut short that is worth a word
POWER = 0.55  # of the fall to it; Welling & Teh (2011) need one in (0.5, 1]


@dataclass(frozen=True)
class SGLD(Chains):
    """Half a gradient step plus noise of the same variance; Welling & Teh (2011).

    The steps are taken in the frame of the Laplace approximation (up to 200 dimensions), so that ``step`` is in posterior
    variances. Nothing is rejected where the density exists: what is drawn is the posterior only up to an error of order ``step``
    and, with mini-batches, of order step times the variance of the gradient. Where the density falls much faster than where the
    frame was measured, steps are cut short, and a warning says how often. How chains mix says nothing of that error:
    ``diagnose`` and ``compare`` judge them beside a reference alone.

    Args:
        draws, warmup: a chain, kept and thrown away; each is the last of ``thin`` steps.
        chains: advanced together, on the same mini-batches.
        step: size of a step after the warm-up; during it the size falls from ten times that, polynomially.
        batch_size: rows a step, drawn without replacement: an unbiased gradient. None: all.
        thin: steps a draw.

    Stats, [chain, draw]: ``lp`` (of the mini-batch, scaled to all rows), ``step_size``, ``cut`` (share of the steps cut short).
    """

    step: Annotated[float, Between(0.0, 2.0, "use 0.05")] = 0.05
    batch_size: Count | None = None
    thin: Count = 10
    takes_random_density = True
    #: whether steps are never rejected, so that their size, and the noise of mini-batches, changes the law of the draws
    uncorrected: ClassVar[bool] = True

    def quick(self) -> SGLD:
        return replace(self, draws=20, warmup=30, chains=2, thin=2)

    def transition(self, target: Target) -> Transition:
        """Raises SettingError or NotApplicable if the data cannot give such a mini-batch."""
        check_batch(self, target, self.batch_size)
        return super().transition(target)

    def begin(self, target: Target, z: Tensor, generator: torch.Generator) -> State:
        value, gradient = target.value_and_grad_batch(
            z, draw_batch(target, self.batch_size, generator)
        )
        return {"z": z, "lp": value, "gradient": gradient, **preconditioner(target, z)}

    def _size(self, t: int) -> float:
        if t >= self.warmup:
            return self.step
        share = t / self.warmup
        start = min(FIRST * self.step, 1.0)
        return self.step + (start - self.step) * (1 - share) * (1 + t) ** -POWER

    def _drift(self, target: Target, state: State) -> tuple[Tensor, Tensor]:
        """The gradient in the frame, and whether it had to be shortened. In the frame of a normal posterior it is as long as the way to
        the mode: much longer, and a step along it would leave for where the density is 0. (Tamed as in Brosse et al. 2019.)"""
        gradient = apply_transpose(state["root"], torch.nan_to_num(state["gradient"], nan=0.0))
        rows = getattr(target.data, "n", 1)
        most = FAR * (target.dim * rows / min(self.batch_size or rows, rows)) ** 0.5
        length = gradient.norm(dim=-1, keepdim=True)
        return gradient * (most / length.clamp_min(most)), (length > most)[:, 0]

    def _moved(self, state: State, drift: Tensor, e: Tensor, h: float) -> Tensor:
        """The way of one step in the frame; e [chain, p] is standard normal."""
        return 0.5 * h * drift + h**0.5 * e

    def _go(self, target: Target, state: State, z: Tensor, generator: torch.Generator) -> Tensor:
        """To z, with the gradient there; whether not, [chain]: where the density does not exist, the chain stays."""
        value, gradient = target.value_and_grad_batch(
            z, draw_batch(target, self.batch_size, generator)
        )
        there = torch.isfinite(value) & torch.isfinite(gradient).all(-1)
        state["z"] = torch.where(there[:, None], z, state["z"])
        state["gradient"] = torch.where(there[:, None], gradient, state["gradient"])
        state["lp"] = torch.where(there, value, state["lp"])
        return ~there

    def move(
        self, target: Target, state: State, generator: torch.Generator, t: int
    ) -> dict[str, Tensor]:
        h, cut = self._size(t), torch.zeros_like(state["lp"])
        for _ in range(self.thin):
            drift, long = self._drift(target, state)
            e = torch.randn(drift.shape, generator=generator, dtype=torch.float64).to(drift)
            stayed = self._go(
                target,
                state,
                state["z"] + apply(state["root"], self._moved(state, drift, e, h)),
                generator,
            )
            cut = cut + (long | stayed).to(cut)
        return {"lp": state["lp"], "step_size": torch.full_like(cut, h), "cut": cut / self.thin}

    def notes(self, stats: dict[str, Tensor]) -> list[str]:
        share = float(stats["cut"].mean())
        if share <= OFTEN:
            return []
        return [
            f"{share:.0%} of the steps met slopes too steep for their size and were cut short: lower step, or use NUTS"
        ]


@dataclass(frozen=True)
class SGHMC(SGLD):
    """Langevin dynamics with momentum and friction; Chen, Fox & Guestrin (2014), equation 15.

    Args:
        step: of time, in posterior standard deviations; the error is of order step^2.
        friction: share of the momentum lost a step.
        draws, warmup, chains, batch_size, thin: as for SGLD.
    """

    step: Annotated[float, Between(0.0, 2.0, "use 0.15")] = 0.15
    friction: Share = 0.15

    def begin(self, target: Target, z: Tensor, generator: torch.Generator) -> State:
        state = super().begin(target, z, generator)
        e = torch.randn(z.shape, generator=generator, dtype=torch.float64).to(z)
        return {**state, "momentum": self.step * e}

    def _size(self, t: int) -> float:
        return self.step

    def _moved(self, state: State, drift: Tensor, e: Tensor, h: float) -> Tensor:
        noise = (
            2 * self.friction - self.friction**2
        ) ** 0.5 * h  # keeps the momentum's variance at h^2 exactly
        state["momentum"] = (1 - self.friction) * state["momentum"] + h**2 * drift + noise * e
        return state["momentum"]

    def _go(self, target: Target, state: State, z: Tensor, generator: torch.Generator) -> Tensor:
        stayed = super()._go(target, state, z, generator)
        state["momentum"] = torch.where(stayed[:, None], -state["momentum"], state["momentum"])
        return stayed
