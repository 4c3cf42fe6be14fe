"""Random-walk Metropolis-Hastings with adapted covariance and step size."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...density.target import Target
from ...runtime.seeding import standard_normal, standard_uniform
from ..options import Count
from .adaptation import apply, gather, learn_root, preconditioner, window_ends
from .chains import Chains, State

WANTED = 0.234  # acceptance that the size is tuned to; Roberts, Gelman & Gilks (1997)


@dataclass(frozen=True)
class MetropolisHastings(Chains):
    """Random-walk Metropolis-Hastings: Gaussian steps with the covariance of the posterior.

    Metropolis et al. (1953), Hastings (1970), Haario, Saksman & Tamminen (2001). The covariance
    starts as that of the Laplace approximation, and the warm-up estimates it from all chains
    together. The step size is tuned to an acceptance of 0.234. The steps use no gradient, which
    suits densities whose gradient does not exist or is not worth its cost.

    Stats, [chain, draw]: ``acceptance_rate`` (mean over the steps of the draw), ``lp`` (in nats),
    ``step_size`` (in posterior standard deviations).

    Args:
        draws: Draws per chain that are kept; each draw is the last of ``thin`` steps.
        warmup: Draws per chain that are thrown away.
        chains: The number of chains, which advance together.
        thin: Steps per draw.

    Raises:
        SettingError: For an option outside its range.
        ImproperPosterior: On use, if the density does not fall in some direction.
        NumericalError: On use, if the density is not finite anywhere near the start.

    Examples:
        >>> import ppgp, pyro, torch
        >>> import pyro.distributions as dist
        >>> from ppgp import inference
        >>> def step(y):  # a density with a jump at y, where it has no gradient
        ...     x = pyro.sample("x", dist.Normal(0.0, 1.0))
        ...     pyro.factor("above", torch.where(x > y, 0.0, -1000.0))
        >>> how = inference.MetropolisHastings(draws=250, warmup=50, chains=8)
        >>> posterior = ppgp.fit(step, {"y": torch.tensor(0.0)}, how, progress=False)
        >>> draws = posterior.theta["x"]
        >>> bool(draws.min() >= 0)
        True
        >>> bool(abs(draws.mean() - 0.798) < 0.1)  # of a half-normal: sqrt(2 / pi)
        True
    """

    thin: Count = 10
    needs_gradient = False

    def quick(self) -> MetropolisHastings:
        return replace(self, draws=20, warmup=30, chains=2, thin=2)

    def begin(self, target: Target, z: Tensor, generator: torch.Generator) -> State:
        size = torch.tensor(2.38 / target.dim**0.5, dtype=torch.float64).log()
        return {
            "z": z,
            "lp": _densities(target, z),
            "log_size": size,
            **preconditioner(target, z),
        }

    def move(
        self, target: Target, state: State, generator: torch.Generator, t: int
    ) -> dict[str, Tensor]:
        z, lp = state["z"], state["lp"]
        rate = torch.zeros_like(lp)
        size = float(state["log_size"].exp())
        for _ in range(self.thin):
            e = standard_normal(generator, *z.shape).to(z)
            new = z + size * apply(state["root"], e)
            value = _densities(target, new)
            accept = (value - lp).clamp_max(0.0).exp().nan_to_num(0.0)
            taken = standard_uniform(generator, len(z)).to(z) < accept
            z, lp = torch.where(taken[:, None], new, z), torch.where(taken, value, lp)
            rate = rate + accept / self.thin
        state["z"], state["lp"] = z, lp
        if t < self.warmup:
            state["log_size"] = (
                state["log_size"] + (float(rate.mean()) - WANTED) * self.thin / (10.0 + t) ** 0.6
            )
            with_covariance = self.warmup - self.warmup // 4
            if t < with_covariance:
                gather(state)
                if t + 1 in window_ends(with_covariance):
                    learn_root(state)
        return {"acceptance_rate": rate, "lp": lp, "step_size": torch.full_like(lp, size)}


def _densities(target: Target, z: Tensor) -> Tensor:
    """Return the log densities [k] at z [k, p]."""
    if target.out_of_torch is None:
        return target.value_and_grad_batch(z)[0]
    return target.log_densities(z)
