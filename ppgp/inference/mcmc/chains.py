"""Markov chains side by side: how every sampler written here starts, advances, is stopped and becomes a Posterior."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...posterior.posterior import Posterior
from ...target.target import Target
from ..base import Inference, finish, starting_point
from ..checkpoint import Checkpoint
from ..options import Count
from ..progress import bar

State = dict[str, Tensor]
Transition = Callable[[State, torch.Generator, int], dict[str, Tensor]]
SPREAD = 1.0  # chains start Uniform(-1, 1) around the origin of unconstrained space


@dataclass(frozen=True)
class Chains(Inference):
    """An interface: the chains advance together, so that one graph evaluates them all at once.

    A method gives ``begin`` and ``move``; ``z`` in its state is where the chains stand, [chain, dim]. What the state holds
    is all that a chain remembers, tensors only.
    """

    draws: Count = 1000
    warmup: Count = 1000
    chains: Count = 4

    def quick(self) -> Chains:
        return replace(self, draws=20, warmup=30, chains=2)

    def begin(self, target: Target, z: Tensor, generator: torch.Generator) -> State:
        """What the chains remember between transitions, from where they start, z [chain, dim]."""
        return {"z": z}

    def move(
        self, target: Target, state: State, generator: torch.Generator, t: int
    ) -> dict[str, Tensor]:
        """Transition number t (from 0; the first ``warmup`` may adapt) of all chains: changes ``state``, returns figures [chain]."""
        raise NotImplementedError

    def transition(self, target: Target) -> Transition:
        """``move`` for one target; a method with work to do once for all transitions gives this instead."""
        return partial(self.move, target)

    def __call__(
        self,
        target: Target,
        *,
        seed: int = 0,
        progress: bool = False,
        init: Posterior | Tensor | None = None,
        checkpoint: str | Path | None = None,
    ) -> Posterior:
        """All transitions; from the file at ``checkpoint`` on, where there is one."""
        with Checkpoint(checkpoint, self, target, seed) as kept:
            return kept.noted(self._run(target, seed, progress, init, kept))

    def _run(
        self,
        target: Target,
        seed: int,
        progress: bool,
        init: Posterior | Tensor | None,
        kept: Checkpoint,
    ) -> Posterior:
        started = time.perf_counter()
        generator = torch.Generator().manual_seed(seed)
        move = self.transition(target)
        record, notes, interrupted = _Record(), [], False
        found = kept.found()
        if found is None:
            state = self.begin(target, _starts(target, init, seed, self.chains), generator)
            # laid out as a file would give it back: another layout may be summed in another order
            state = {name: value.contiguous() for name, value in state.items()}
        else:
            state = record.restore(found, generator)
        total = self.warmup + self.draws
        try:
            with bar(f"{type(self).__name__}, {self.chains} chains", total, progress) as update:
                for t in range(record.t, total):
                    record.add(move(state, generator, t), state["z"], keep=t >= self.warmup)
                    state |= {name: value.contiguous() for name, value in state.items()}
                    update(t + 1, **record.latest)
                    if kept.due() or t + 1 == total:
                        kept.save(record.tensors(state, generator))
        except KeyboardInterrupt:
            record.cut()
            if not record.draws:
                raise
            interrupted = True
            notes.append(f"stopped by Ctrl-C: {len(record.draws)} of {self.draws} draws a chain")
        stats = record.stats()
        notes += self.notes(stats)
        return finish(
            self,
            target,
            torch.stack(record.draws, 1),
            started,
            stats,
            notes,
            interrupted=interrupted,
        )

    def notes(self, stats: dict[str, Tensor]) -> list[str]:
        """What the figures say against the draws."""
        return []


class _Record:
    """What has been drawn so far, and how to put it into a checkpoint and back."""

    def __init__(self) -> None:
        self.t = 0
        self.draws: list[Tensor] = []
        self.figures: list[dict[str, Tensor]] = []
        self.latest: dict[str, float] = {}

    def add(self, figures: dict[str, Tensor], z: Tensor, keep: bool) -> None:
        if keep:
            self.draws.append(z.clone())
            self.figures.append(figures)
        self.latest = {name: float(value.double().mean()) for name, value in figures.items()}
        self.t += 1

    def cut(self) -> None:
        """To as many draws as there are figures: Ctrl-C may have come between them."""
        self.draws = self.draws[: len(self.figures)]

    def stats(self) -> dict[str, Any]:
        """[chain, draw] each."""
        return {name: torch.stack([f[name] for f in self.figures], 1) for name in self.figures[0]}

    def tensors(self, state: State, generator: torch.Generator) -> dict[str, Tensor]:
        out = {"t": torch.tensor(self.t), "generator": generator.get_state()}
        out |= {f"state.{name}": value for name, value in state.items()}
        if self.draws:
            out["draws"] = torch.stack(self.draws, 1)
            out |= {f"figure.{name}": value for name, value in self.stats().items()}
        return out

    def restore(self, found: dict[str, Tensor], generator: torch.Generator) -> State:
        self.t = int(found["t"])
        generator.set_state(found["generator"])
        if "draws" in found:
            self.draws = list(found["draws"].unbind(1))
            figures = {
                name.removeprefix("figure."): v
                for name, v in found.items()
                if name.startswith("figure.")
            }
            self.figures = [
                {name: v[:, i] for name, v in figures.items()} for i in range(len(self.draws))
            ]
        return {
            name.removeprefix("state."): v for name, v in found.items() if name.startswith("state.")
        }


def _starts(target: Target, init: Posterior | Tensor | None, seed: int, chains: int) -> Tensor:
    """[chain, dim]: apart from one another, so that R-hat means something; draws of the Posterior given."""
    if init is None:
        return torch.stack([target.start(seed + chain, SPREAD) for chain in range(chains)])
    if isinstance(init, Posterior):
        z = target.unconstrain(init.theta)
        if len(z) >= chains:
            return z[torch.linspace(0, len(z) - 1, chains).long()].clone()
    return starting_point(target, init, seed).expand(chains, -1).clone()
