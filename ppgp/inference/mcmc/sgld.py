"""Stochastic gradient MCMC: Langevin dynamics and Hamiltonian Monte Carlo on mini-batches.

No step is rejected where the density exists.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from ...density.target import Target
from ...runtime.seeding import standard_normal
from ..base import check_batch, draw_batch
from ..options import Between, Count, Share
from .adaptation import apply, apply_transpose, preconditioner
from .chains import Chains, State, Transition

FIRST = 10.0  # ratio of the first step size of the warm-up to the last
#: Standard deviations per coordinate. Within so many of its mode, a normal posterior has no longer
#: gradient.
FAR = 10.0
OFTEN = 0.01  # share of steps cut short above which there is a warning
POWER = 0.55  # of the decay of the step size; Welling & Teh (2011) need one in (0.5, 1]


@dataclass(frozen=True)
class SGLD(Chains):
    """Stochastic gradient Langevin dynamics: z + (step / 2) gradient + N(0, step).

    Welling & Teh (2011). The steps are preconditioned by the Laplace approximation (up to 200
    dimensions), so that ``step`` is in posterior variances. No step is rejected where the density
    exists. The draws therefore follow the posterior only up to an error of order ``step`` and, with
    mini-batches, of order step times the variance of the gradient. How well the chains mix is no
    measure of that error: ``diagnose`` and ``compare`` judge these draws only beside a reference.
    Where the density falls much faster than at the mode, steps are cut short, and a warning reports
    how often.

    Stats, [chain, draw]: ``lp`` (in nats, of the mini-batch, scaled to all rows), ``step_size``,
    ``cut`` (share of the steps cut short).

    Args:
        draws: Draws per chain that are kept; each is the last of ``thin`` steps.
        warmup: Draws per chain that are thrown away.
        chains: The number of chains, which advance together on the same mini-batches.
        step: The size of a step after the warm-up. During the warm-up it falls polynomially from
            ten times that, but at most from 1.
        batch_size: Rows per step, drawn without replacement, which makes the gradient unbiased.
            None: all rows, but 1,000 of a stream; of a program as many as its plates take by
            ``subsample_size=``.
        thin: Steps per draw.

    Raises:
        SettingError: For an option outside its range; on use, for a ``batch_size`` above the number
            of rows.
        NotApplicable: On use, for mini-batches of a model that needs all rows at once, such as GP.
        ImproperPosterior: On use, if the density does not fall in some direction.
        NumericalError: On use, if the density is not finite anywhere near the start.

    Examples:
        >>> import ppgp, torch
        >>> from ppgp import inference, models
        >>> X = torch.linspace(-1, 1, 200, dtype=torch.float64)[:, None]
        >>> data = ppgp.Dataset(X, 1 + 2 * X[:, 0] + 0.5 * torch.sin(40 * X[:, 0]))
        >>> how = inference.SGLD(draws=250, warmup=20, step=0.8, thin=4, batch_size=100)
        >>> posterior = ppgp.fit(models.LinearRegression(noise=0.1), data, how, progress=False)
        >>> posterior.stats["lp"].shape  # [chain, draw]
        torch.Size([4, 250])
        >>> bool(abs(posterior.coefficients()["weight"].mean() - 2) < 0.2)
        True
    """

    step: Annotated[float, Between(0.0, 2.0, "use 0.05")] = 0.05
    batch_size: Count | None = None
    thin: Count = 10
    takes_random_density = True
    #: whether steps are never rejected, so that the draws depend on the step size and on the noise
    #: of mini-batches
    uncorrected: ClassVar[bool] = True

    def quick(self) -> SGLD:
        return replace(self, draws=20, warmup=30, chains=2, thin=2)

    def transition(self, target: Target) -> Transition:
        """Return ``move`` for one target.

        Raises:
            SettingError: If there are fewer rows than ``batch_size``.
            NotApplicable: If the data are not a Dataset and ``batch_size`` is given.
        """
        check_batch(self, target, self.batch_size)
        return super().transition(target)

    def begin(self, target: Target, z: Tensor, generator: torch.Generator) -> State:
        value, gradient = target.value_and_grad_batch(
            z, draw_batch(target, self._rows_per_step(target), generator)
        )
        return {"z": z, "lp": value, "gradient": gradient, **preconditioner(target, z)}

    def _rows_per_step(self, target: Target) -> int | None:
        """Return how many rows a step takes; None: all."""
        return self.batch_size or target.data.own_batch

    def _size(self, t: int) -> float:
        """Return the step size of transition ``t``."""
        if t >= self.warmup:
            return self.step
        share = t / self.warmup
        start = max(self.step, min(FIRST * self.step, 1.0))
        return self.step + (start - self.step) * (1 - share) * (1 + t) ** -POWER

    def _drift(self, target: Target, state: State) -> tuple[Tensor, Tensor]:
        """Return the preconditioned gradient [chain, p], and whether it was shortened [chain].

        The preconditioned gradient of a normal posterior is as long as the way to the mode. A step
        along a much longer one would end where the density is 0, so it is shortened as in Brosse
        et al. (2019).
        """
        gradient = apply_transpose(state["root"], torch.nan_to_num(state["gradient"], nan=0.0))
        rows = target.data.total or 1
        batch = self._rows_per_step(target) or rows
        times = max([rows / min(batch, rows), *(size / n for n, size in target.batches.values())])
        most = FAR * (target.dim * times) ** 0.5
        length = gradient.norm(dim=-1, keepdim=True)
        return gradient * (most / length.clamp_min(most)), (length > most)[:, 0]

    def _step(self, state: State, drift: Tensor, e: Tensor, h: float) -> Tensor:
        """Return the preconditioned step [chain, p]; e [chain, p] is standard normal."""
        return 0.5 * h * drift + h**0.5 * e

    def _go(self, target: Target, state: State, z: Tensor, generator: torch.Generator) -> Tensor:
        """Move the chains to z [chain, p] and evaluate the gradient there.

        A chain stays where it is if the density does not exist at its place in z.

        Returns:
            Whether the chain stayed, [chain].
        """
        value, gradient = target.value_and_grad_batch(
            z, draw_batch(target, self._rows_per_step(target), generator)
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
            e = standard_normal(generator, *drift.shape).to(drift)
            step = apply(state["root"], self._step(state, drift, e, h))
            stayed = self._go(target, state, state["z"] + step, generator)
            cut = cut + (long | stayed).to(cut)
        return {"lp": state["lp"], "step_size": torch.full_like(cut, h), "cut": cut / self.thin}

    def notes(self, stats: dict[str, Tensor]) -> list[str]:
        share = float(stats["cut"].mean())
        if share <= OFTEN:
            return []
        return [
            f"{share:.0%} of the steps met slopes too steep for their size and were cut short: "
            "lower step, or use NUTS"
        ]


@dataclass(frozen=True)
class SGHMC(SGLD):
    """Stochastic gradient Hamiltonian Monte Carlo: Langevin dynamics with momentum and friction.

    Chen, Fox & Guestrin (2014), equation 15. The preconditioner and the stats [chain, draw] are
    those of ``SGLD``.

    Args:
        draws: Draws per chain that are kept; each is the last of ``thin`` steps.
        warmup: Draws per chain that are thrown away.
        chains: The number of chains, which advance together on the same mini-batches.
        step: The step in time, in posterior standard deviations; the error is of order step^2.
        batch_size: Rows per step. None: all rows.
        thin: Steps per draw.
        friction: The share of the momentum that is lost per step.

    Raises:
        SettingError: For an option outside its range; on use, for a ``batch_size`` above the number
            of rows.
        NotApplicable: On use, for mini-batches of a model that needs all rows at once, such as GP.
        ImproperPosterior: On use, if the density does not fall in some direction.
        NumericalError: On use, if the density is not finite anywhere near the start.

    Examples:
        >>> import ppgp, torch
        >>> from ppgp import inference, models
        >>> X = torch.linspace(-2, 2, 100, dtype=torch.float64)[:, None]
        >>> y = (X[:, 0] + torch.sin(50 * X[:, 0]) > 0).double()
        >>> how = inference.SGHMC(draws=300, warmup=20, step=0.5, thin=4, batch_size=50)
        >>> data = ppgp.Dataset(X, y)
        >>> posterior = ppgp.fit(models.LogisticRegression(), data, how, progress=False)
        >>> posterior.draws["weight"].shape  # [chain, draw, d]
        torch.Size([4, 300, 1])
        >>> posterior.predict([[-2.0], [2.0]]).probabilities[:, 1].numpy().round(0)
        array([0., 1.])
    """

    step: Annotated[float, Between(0.0, 2.0, "use 0.15")] = 0.15
    friction: Share = 0.15

    def begin(self, target: Target, z: Tensor, generator: torch.Generator) -> State:
        state = super().begin(target, z, generator)
        e = standard_normal(generator, *z.shape).to(z)
        return {**state, "momentum": self.step * e}

    def _size(self, t: int) -> float:
        return self.step

    def _step(self, state: State, drift: Tensor, e: Tensor, h: float) -> Tensor:
        # this noise keeps the variance of the momentum at h^2 exactly
        noise = (2 * self.friction - self.friction**2) ** 0.5 * h
        state["momentum"] = (1 - self.friction) * state["momentum"] + h**2 * drift + noise * e
        return state["momentum"]

    def _go(self, target: Target, state: State, z: Tensor, generator: torch.Generator) -> Tensor:
        stayed = super()._go(target, state, z, generator)
        state["momentum"] = torch.where(stayed[:, None], -state["momentum"], state["momentum"])
        return stayed
