"""The interface of the samplers written here, whose chains advance side by side."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from ...density.target import Target
from ...posterior.posterior import Posterior
from ...runtime.progress import bar
from ..base import Inference, attempted, finish
from ..checkpoint import Checkpoint
from ..options import Count
from .chain_record import Record, State
from .chain_starts import starts_of_chains

Transition = Callable[[State, torch.Generator, int], dict[str, Tensor]]


@dataclass(frozen=True)
class Chains(Inference):
    """An interface: the chains advance together, so that one graph evaluates them all at once.

    A method defines ``begin`` and ``move``. ``z`` in its state is the position of the chains,
    [chain, p]. The state holds all that the chains remember, as tensors.
    """

    draws: Count = 1000
    warmup: Count = 1000
    chains: Count = 4

    def quick(self) -> Chains:
        return replace(self, draws=20, warmup=30, chains=2)

    def begin(self, target: Target, z: Tensor, generator: torch.Generator) -> State:
        """Return the state of chains that start at z [chain, p]."""
        return {"z": z}

    def move(
        self, target: Target, state: State, generator: torch.Generator, t: int
    ) -> dict[str, Tensor]:
        """Make transition ``t`` of all chains: change ``state``, and return statistics [chain].

        ``t`` counts from 0; the first ``warmup`` transitions may adapt.
        """
        raise NotImplementedError

    def transition(self, target: Target) -> Transition:
        """Return ``move`` for one target.

        A method with work to do once for all transitions overrides this instead of ``move``.
        """
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
        """Make all transitions, starting from the file at ``checkpoint`` if there is one."""
        with Checkpoint(checkpoint, self, target, seed) as kept:
            return kept.with_notes(self._run(target, seed, progress, init, kept))

    def _run(
        self,
        target: Target,
        seed: int,
        progress: bool,
        init: Posterior | Tensor | None,
        checkpoint: Checkpoint,
    ) -> Posterior:
        started = time.perf_counter()
        generator = torch.Generator().manual_seed(seed)
        move = self.transition(target)
        record, notes, interrupted = Record(), [], False
        saved = checkpoint.found()
        if saved is None:
            state = self.begin(target, starts_of_chains(target, init, seed, self.chains), generator)
            # contiguous as in a checkpoint: another layout may be summed in another order
            state = {name: value.contiguous() for name, value in state.items()}
        else:
            state = record.restore(saved, target, generator)
        total = self.warmup + self.draws
        try:
            with bar(f"{type(self).__name__}, {self.chains} chains", total, progress) as update:
                for t in range(record.t, total):
                    record.add(move(state, generator, t), state["z"], keep=t >= self.warmup)
                    state |= {name: value.contiguous() for name, value in state.items()}
                    update(t + 1, **record.latest)
                    if checkpoint.due() or t + 1 == total:
                        checkpoint.save(record.tensors(state, target, generator))
        except KeyboardInterrupt:
            record.cut()
            if not record.draws:
                raise
            interrupted = True
            notes.append(f"stopped by Ctrl-C: {len(record.draws)} of {self.draws} draws per chain")
        stats = record.stats()
        notes += attempted(target, notes, "the check of the chains", lambda: self.notes(stats), [])
        z = torch.stack(record.draws, 1)
        return finish(self, target, z, started, stats, notes, interrupted=interrupted)

    def notes(self, stats: dict[str, Tensor]) -> list[str]:
        """Return warnings about the draws that follow from the statistics."""
        return []
