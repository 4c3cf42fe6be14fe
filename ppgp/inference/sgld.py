"""Stochastic gradient Langevin dynamics and stochastic gradient Hamiltonian Monte Carlo: chains on mini-batches, nothing rejected."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..errors import SettingError
from ..target import Target
from .adaptation import across, along, frame
from .chains import Chains, State, Transition
from .inference import check_batch, check_counts, draw_batch

FIRST = 10.0  # times the step size at the start of the warm-up
POWER = 0.55  # of the fall to it; Welling & Teh (2011) need one in (0.5, 1]


@dataclass(frozen=True)
class SGLD(Chains):
    """Half a gradient step plus noise of the same variance; Welling & Teh (2011).

    The steps are taken in the frame of the Laplace approximation (up to 200 dimensions), so that ``step`` is in posterior
    variances. Nothing is rejected: what is drawn is the posterior only up to an error of order ``step`` and, with mini-batches,
    of order step times the variance of the gradient.

    Args:
        draws, warmup: a chain, kept and thrown away; each is the last of ``thin`` steps.
        chains: advanced together, on the same mini-batches.
        step: size of a step after the warm-up; during it the size falls from ten times that, polynomially.
        batch_size: rows a step, drawn without replacement: an unbiased gradient. None: all.
        thin: steps a draw.

    Stats, [chain, draw]: ``lp`` (of the mini-batch, scaled to all rows), ``step_size``.
    """

    step: float = 0.05
    batch_size: int | None = None
    thin: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(self, thin=self.thin, batch_size=self.batch_size)
        if not 0 < self.step < 2:
            raise SettingError(f"a step in (0, 2) in {type(self).__name__}", repr(self.step), "use 0.05")

    def quick(self) -> SGLD:
        return replace(self, draws=20, warmup=30, chains=2, thin=2)

    def transition(self, target: Target) -> Transition:
        """Raises SettingError or NotApplicable if the data cannot give such a mini-batch."""
        check_batch(self, target, self.batch_size)
        return super().transition(target)

    def begin(self, target: Target, z: Tensor, generator: torch.Generator) -> State:
        return {"z": z, **frame(target, z)}

    def _size(self, t: int) -> float:
        if t >= self.warmup:
            return self.step
        share = t / self.warmup
        start = min(FIRST * self.step, 1.0)
        return self.step + (start - self.step) * (1 - share) * (1 + t) ** -POWER

    def _gradient(self, target: Target, z: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        value, gradient = target.side_by_side(z, draw_batch(target, self.batch_size, generator))
        return value, torch.nan_to_num(gradient, nan=0.0, posinf=0.0, neginf=0.0)

    def move(self, target: Target, state: State, generator: torch.Generator, t: int) -> dict[str, Tensor]:
        z, root, h = state["z"], state["root"], self._size(t)
        for _ in range(self.thin):
            value, gradient = self._gradient(target, z, generator)
            e = torch.randn(z.shape, generator=generator, dtype=torch.float64).to(z)
            z = z + along(root, 0.5 * h * across(root, gradient) + h**0.5 * e)
        state["z"] = z
        return {"lp": value, "step_size": torch.full_like(value, h)}


@dataclass(frozen=True)
class SGHMC(SGLD):
    """Langevin dynamics with momentum and friction; Chen, Fox & Guestrin (2014), equation 15.

    Args:
        step: of time, in posterior standard deviations; the error is of order step^2.
        friction: share of the momentum lost a step.
        draws, warmup, chains, batch_size, thin: as for SGLD.
    """

    step: float = 0.15
    friction: float = 0.15

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.friction < 1:
            raise SettingError("friction in (0, 1) in SGHMC", repr(self.friction), "use 0.15")

    def begin(self, target: Target, z: Tensor, generator: torch.Generator) -> State:
        e = torch.randn(z.shape, generator=generator, dtype=torch.float64).to(z)
        return {"z": z, "momentum": self.step * e, **frame(target, z)}

    def _size(self, t: int) -> float:
        return self.step

    def move(self, target: Target, state: State, generator: torch.Generator, t: int) -> dict[str, Tensor]:
        z, v, root, h = state["z"], state["momentum"], state["root"], self._size(t)
        noise = (2 * self.friction - self.friction**2) ** 0.5 * h  # keeps the momentum's variance at h^2 exactly
        for _ in range(self.thin):
            value, gradient = self._gradient(target, z, generator)
            e = torch.randn(z.shape, generator=generator, dtype=torch.float64).to(z)
            v = (1 - self.friction) * v + h**2 * across(root, gradient) + noise * e
            z = z + along(root, v)
        state["z"], state["momentum"] = z, v
        return {"lp": value, "step_size": torch.full_like(value, h)}
