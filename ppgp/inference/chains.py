"""Markov chains side by side: how every sampler written here starts, advances, is stopped and becomes a Posterior."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..posterior import Posterior
from ..progress import bar
from ..target import Target
from .inference import Inference, check_counts, finish, starting_point

State = dict[str, Tensor]
Transition = Callable[[State, torch.Generator, int], dict[str, Tensor]]
SPREAD = 1.0  # chains start Uniform(-1, 1) around the origin of unconstrained space


@dataclass(frozen=True)
class Chains(Inference):
    """An interface: the chains advance together, so that one graph evaluates them all at once.

    A method gives ``begin`` and ``move``; ``z`` in its state is where the chains stand, [chain, dim]. What the state holds
    is all that a chain remembers, tensors only.
    """

    draws: int = 1000
    warmup: int = 1000
    chains: int = 4

    def __post_init__(self) -> None:
        check_counts(self, draws=self.draws, warmup=self.warmup, chains=self.chains)

    def quick(self) -> Chains:
        return replace(self, draws=20, warmup=30, chains=2)

    def begin(self, target: Target, z: Tensor, generator: torch.Generator) -> State:
        """What the chains remember between transitions, from where they start, z [chain, dim]."""
        return {"z": z}

    def move(self, target: Target, state: State, generator: torch.Generator, t: int) -> dict[str, Tensor]:
        """Transition number t (from 0; the first ``warmup`` may adapt) of all chains: changes ``state``, returns figures [chain]."""
        raise NotImplementedError

    def transition(self, target: Target) -> Transition:
        """``move`` for one target; a method with work to do once for all transitions gives this instead."""
        return partial(self.move, target)

    def __call__(
        self, target: Target, *, seed: int = 0, progress: bool = False, init: Posterior | Tensor | None = None
    ) -> Posterior:
        started = time.perf_counter()
        generator = torch.Generator().manual_seed(seed)
        move = self.transition(target)
        state = self.begin(target, _starts(target, init, seed, self.chains), generator)
        draws: list[Tensor] = []
        figures: list[dict[str, Tensor]] = []
        notes: list[str] = []
        total = self.warmup + self.draws
        try:
            with bar(f"{type(self).__name__}, {self.chains} chains", total, progress) as update:
                for t in range(total):
                    seen = move(state, generator, t)
                    if t >= self.warmup:
                        draws.append(state["z"].clone())
                        figures.append(seen)
                    update(t + 1, **{name: float(value.double().mean()) for name, value in seen.items()})
        except KeyboardInterrupt:
            figures, draws = figures[: len(draws)], draws[: len(figures)]
            if not draws:
                raise
            notes.append(f"stopped by Ctrl-C: {len(draws)} of {self.draws} draws a chain")
        stats: dict[str, Any] = {name: torch.stack([f[name] for f in figures], 1) for name in figures[0]}
        return finish(self, target, torch.stack(draws, 1), started, stats, [*notes, *self.notes(stats)])

    def notes(self, stats: dict[str, Tensor]) -> list[str]:
        """What the figures say against the draws."""
        return []


def _starts(target: Target, init: Posterior | Tensor | None, seed: int, chains: int) -> Tensor:
    """[chain, dim]: apart from one another, so that R-hat means something; draws of the Posterior given."""
    if init is None:
        return torch.stack([target.start(seed + chain, SPREAD) for chain in range(chains)])
    if isinstance(init, Posterior):
        z = target.unconstrain(init.theta)
        if len(z) >= chains:
            return z[torch.linspace(0, len(z) - 1, chains).long()].clone()
    return starting_point(target, init, seed).expand(chains, -1).clone()
