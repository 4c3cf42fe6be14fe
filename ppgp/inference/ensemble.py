"""The same method from several starts, their answers put side by side."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ..errors import NotApplicable, Renamed, listed, renamed_arguments
from ..posterior.posterior import Posterior
from ..posterior.summary import cut_short
from ..target.target import Target
from .base import Inference, from_draws
from .interrupts import whole
from .optimise.map import MAP
from .options import Count
from .progress import bar

SPREAD = 2.0  # members start Uniform(-2, 2) around the origin of unconstrained space, the first at the origin itself


@renamed_arguments(of="base")
@dataclass(frozen=True)
class Ensemble(Inference):
    """Deep ensembles, an equal mixture of the members' answers; Lakshminarayanan, Pritzel & Blundell (2017).

    With ``MAP`` it is also the multi-start search: ``stats["log_density"]`` says which member is the best, and the sites'
    spread over members whether there are several modes.

    Args:
        base: the method of each member; one that gives no params of its own, or the same ones.
        members: how many.

    Stats: ``log_density`` [member], where the method has one; ``seconds`` [member].
    """

    base: Inference = field(default_factory=MAP)
    members: Count = 5
    of = Renamed("base")

    @property
    def optimises_params(self) -> bool:  # type: ignore[override]
        return self.base.optimises_params

    @property
    def takes_random_density(self) -> bool:  # type: ignore[override]
        return self.base.takes_random_density

    def quick(self) -> Ensemble:
        return replace(self, base=self.base.quick(), members=2)

    def __call__(
        self,
        target: Target,
        *,
        seed: int = 0,
        progress: bool = False,
        init: Posterior | Tensor | None = None,
    ) -> Posterior:
        started = time.perf_counter()
        found: list[Posterior] = []
        notes: list[str] = []
        interrupted = False
        # a search from several starts in each member would end in one mode every time
        one = (
            replace(self.base, starts=1)
            if isinstance(self.base, MAP) and self.base.starts is None
            else self.base
        )
        try:
            with bar(f"Ensemble of {self.members}", self.members, progress) as update:
                for member in range(self.members):
                    start = (
                        init
                        if init is not None or member == 0
                        else target.start(seed + member, SPREAD)
                    )
                    found.append(one(target, seed=seed + member, progress=False, init=start))
                    _refuse_own_params(self.base, found[-1], target)
                    update(member + 1)
                    whole(found[-1])
        except KeyboardInterrupt:
            if not found:
                raise
            if len(found) > 1 and cut_short(found[-1].stats):
                found.pop()
            interrupted = True
            notes.append(f"stopped by Ctrl-C: {len(found)} of {self.members} members")
        sentences = [s for p in found for s in p.warnings if s not in target.notes]
        notes += list(dict.fromkeys(sentences))
        draws = {name: torch.cat([p.draws[name] for p in found], 1) for name in found[0].draws}
        stats: dict[str, Any] = {
            "seconds": torch.tensor([p.seconds for p in found], dtype=torch.float64)
        }
        if all("log_density" in p.stats for p in found):
            stats["log_density"] = torch.tensor(
                [p.stats["log_density"] for p in found], dtype=torch.float64
            )
        return from_draws(self, target, draws, started, stats, notes, interrupted=interrupted)


def _refuse_own_params(how: Inference, found: Posterior, target: Target) -> None:
    """Raises NotApplicable where a member has params of its own: one Posterior has one of each."""
    own = sorted(set(found.params) - set(target.params))
    if own:
        got = f"{listed(own, 'param')} of each member's own, from {type(how).__name__} on {type(target.model).__name__}"
        do = "use the method by itself, or Ensemble(MAP()) of a model whose sites all have priors"
        raise NotApplicable("a method whose members differ in their sites alone", got, do)
