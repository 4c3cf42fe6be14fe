"""Hamiltonian Monte Carlo whose chains advance side by side."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ...density.target import Target
from ...runtime.seeding import standard_normal, standard_uniform
from ..base import divergences
from ..options import Acceptance, Positive
from ..variational.pathfinder import near_the_mass
from .adaptation import (
    DENSE_UP_TO,
    apply,
    apply_transpose,
    gather,
    learn_root,
    preconditioner,
    window_ends,
)
from .chains import Chains, State

MAX_STEPS = 1024  # leapfrog steps per transition
DIVERGENT = 1000.0  # error of the energy, in nats, that counts as a divergence


@dataclass(frozen=True)
class HMC(Chains):
    """Hamiltonian Monte Carlo: leapfrog steps of adapted size, trajectories of random length.

    Duane et al. (1987), Neal (2011). The warm-up tunes the step size by dual averaging (Hoffman &
    Gelman 2014, algorithm 5) and the mass matrix by the covariance of all chains together, in
    windows of doubling length, starting from the Laplace approximation.

    Stats, [chain, draw]: ``acceptance_rate``, ``diverging``, ``n_steps``, ``energy`` and ``lp`` (in
    nats), ``step_size``.

    Args:
        draws: Draws per chain that are kept.
        warmup: Draws per chain that are thrown away.
        chains: The number of chains, which advance together.
        trajectory: The mean length of a trajectory in posterior standard deviations; pi / 2 makes
            successive draws of a Gaussian independent. Each length is this times
            Uniform(0.5, 1.5), which avoids resonance.
        target_accept: The mean acceptance that the step size is tuned to.

    Raises:
        SettingError: For an option outside its range.
        ImproperPosterior: On use, if the density does not fall in some direction.
        NumericalError: On use, if the density is not finite anywhere near the start.

    Examples:
        >>> import ppgp, pyro, torch
        >>> import pyro.distributions as dist
        >>> from ppgp import inference
        >>> covariance = torch.tensor([[1.0, 0.9], [0.9, 1.0]])
        >>> def correlated():
        ...     pyro.sample("z", dist.MultivariateNormal(torch.zeros(2), covariance))
        >>> how = inference.HMC(draws=400, warmup=100, chains=8)
        >>> posterior = ppgp.fit(correlated, {}, how, progress=False)
        >>> posterior.draws["z"].shape  # [chain, draw, *event]
        torch.Size([8, 400, 2])
        >>> bool((torch.cov(posterior.theta["z"].T) - covariance).abs().max() < 0.15)
        True
        >>> bool(posterior.stats["acceptance_rate"].mean() > 0.6)
        True
    """

    trajectory: Positive = math.pi / 2
    target_accept: Acceptance = 0.8

    def begin(self, target: Target, z: Tensor, generator: torch.Generator) -> State:
        if target.dim <= DENSE_UP_TO:
            z = torch.stack([near_the_mass(target, start, chain) for chain, start in enumerate(z)])
        value, gradient = target.value_and_grad_batch(z)
        return {
            "z": z,
            "lp": value,
            "gradient": gradient,
            **preconditioner(target, z),
            "tuner": _tuner(target.dim**-0.25),
            "step": torch.tensor(target.dim**-0.25, dtype=torch.float64),
        }

    def move(
        self, target: Target, state: State, generator: torch.Generator, t: int
    ) -> dict[str, Tensor]:
        z, lp, gradient, root = state["z"], state["lp"], state["gradient"], state["root"]
        size = float(state["step"])
        shape = z.shape

        def uniform(*shape: int) -> Tensor:
            return standard_uniform(generator, *shape).to(z)

        steps = max(
            1, min(MAX_STEPS, math.ceil(self.trajectory * (0.5 + float(uniform(1))) / size))
        )
        momentum = standard_normal(generator, *shape).to(z)
        energy = 0.5 * momentum.square().sum(-1) - lp
        new, value, slope = z, lp, gradient
        for _ in range(steps):
            momentum = momentum + 0.5 * size * apply_transpose(root, slope)
            new = new + size * apply(root, momentum)
            value, slope = target.value_and_grad_batch(new)
            momentum = momentum + 0.5 * size * apply_transpose(root, slope)
        error = 0.5 * momentum.square().sum(-1) - value - energy
        finite = torch.isfinite(error) & torch.isfinite(slope).all(-1)
        error = torch.where(finite, error, torch.full_like(error, math.inf))
        accept = torch.exp(-error.clamp_min(0.0))
        taken = uniform(len(z)) < accept
        state["z"] = torch.where(taken[:, None], new, z)
        state["lp"] = torch.where(taken, value, lp)
        state["gradient"] = torch.where(taken[:, None], slope, gradient)
        if t < self.warmup:
            self._adapt(state, float(accept.mean()), t)
        return {
            "acceptance_rate": accept,
            "diverging": error > DIVERGENT,
            "n_steps": torch.full_like(accept, steps),
            "energy": energy,
            "lp": state["lp"],
            "step_size": torch.full_like(accept, size),
        }

    def _adapt(self, state: State, accept: float, t: int) -> None:
        """Tune the step size, and at the end of a window the mass matrix.

        In the last quarter of the warm-up only the step size is tuned.
        """
        state["tuner"], state["step"] = _tuned(
            state["tuner"], accept, self.target_accept, last=t == self.warmup - 1
        )
        with_mass_matrix = self.warmup - self.warmup // 4
        if t >= with_mass_matrix:
            return
        gather(state)
        if t + 1 not in window_ends(with_mass_matrix):
            return
        learn_root(state)
        state["tuner"] = _tuner(float(state["step"]))

    def notes(self, stats: dict[str, Tensor]) -> list[str]:
        return divergences(stats["diverging"])


def _tuner(step: float) -> Tensor:
    """Return the state of dual averaging.

    It holds the iteration, the log step size that it is biased towards, the running error and the
    running mean of the log step size.
    """
    return torch.tensor([0.0, math.log(10 * step), 0.0, 0.0], dtype=torch.float64)


def _tuned(tuner: Tensor, accept: float, wanted: float, last: bool) -> tuple[Tensor, Tensor]:
    """Make one step of dual averaging; return its state and the step size, averaged if ``last``."""
    gamma, offset, kappa = 0.05, 10.0, 0.75
    count, centre, error, log_average = tuner.tolist()
    count += 1
    error += (wanted - accept - error) / (count + offset)
    log_step = centre - math.sqrt(count) / gamma * error
    weight = count**-kappa
    log_average = weight * log_step + (1 - weight) * log_average
    memory = torch.tensor([count, centre, error, log_average], dtype=torch.float64)
    if last:
        log_step = log_average
    return memory, torch.tensor(math.exp(log_step), dtype=torch.float64)
