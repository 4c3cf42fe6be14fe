"""Random-walk Metropolis-Hastings that learns the shape and the size of its steps."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...target.target import Target
from ..options import Count
from .adaptation import apply, gather, learn_root, preconditioner, window_ends
from .chains import Chains, State

WANTED = 0.234  # acceptance; Roberts, Gelman & Gilks (1997)


@dataclass(frozen=True)
class MetropolisHastings(Chains):
    """Gaussian steps with the covariance of the posterior; Metropolis et al. (1953), Hastings (1970), Haario, Saksman & Tamminen (2001).

    The covariance starts as the Laplace approximation's and is learnt in the warm-up from all chains together; the size is
    tuned to an acceptance of 0.234. No gradient of the density is used: for densities that have none that is worth its cost.

    Args:
        draws, warmup: a chain, kept and thrown away; each draw is the last of ``thin`` steps.
        chains: advanced together.
        thin: steps a draw.

    Stats, [chain, draw]: ``acceptance_rate`` (of the steps behind the draw), ``lp``, ``step_size``.
    """

    thin: Count = 10

    def quick(self) -> MetropolisHastings:
        return replace(self, draws=20, warmup=30, chains=2, thin=2)

    def begin(self, target: Target, z: Tensor, generator: torch.Generator) -> State:
        size = torch.tensor(2.38 / target.dim**0.5, dtype=torch.float64).log()
        return {
            "z": z,
            "lp": target.value_and_grad_batch(z)[0],
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
            e = torch.randn(z.shape, generator=generator, dtype=torch.float64).to(z)
            new = z + size * apply(state["root"], e)
            value, _ = target.value_and_grad_batch(new)
            accept = (value - lp).clamp_max(0.0).exp().nan_to_num(0.0)
            taken = torch.rand(len(z), generator=generator, dtype=torch.float64).to(z) < accept
            z, lp = torch.where(taken[:, None], new, z), torch.where(taken, value, lp)
            rate = rate + accept / self.thin
        state["z"], state["lp"] = z, lp
        if t < self.warmup:
            state["log_size"] = (
                state["log_size"] + (float(rate.mean()) - WANTED) * self.thin / (10.0 + t) ** 0.6
            )
            quiet = self.warmup - self.warmup // 4
            if t < quiet:
                gather(state)
                if t + 1 in window_ends(quiet):
                    learn_root(state)
        return {"acceptance_rate": rate, "lp": lp, "step_size": torch.full_like(lp, size)}
