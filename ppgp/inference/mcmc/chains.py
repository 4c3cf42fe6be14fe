"""The interface of the samplers written here, whose chains advance side by side; their starts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...density.target import Target
from ...posterior.posterior import Posterior
from ...runtime.progress import bar
from ..base import Inference, attempted, continue_batches, finish, order_of_batches, starting_point
from ..checkpoint import Checkpoint
from ..options import Count

State = dict[str, Tensor]


class _Record:
    """The draws and statistics so far, and their way into a checkpoint and back."""

    def __init__(self) -> None:
        self.t = 0
        self.draws: list[Tensor] = []
        self.statistics: list[dict[str, Tensor]] = []
        self.latest: dict[str, float] = {}

    def add(self, statistics: dict[str, Tensor], z: Tensor, keep: bool) -> None:
        if keep:
            self.draws.append(z.clone())
            self.statistics.append(statistics)
        self.latest = {name: float(value.double().mean()) for name, value in statistics.items()}
        self.t += 1

    def cut(self) -> None:
        """Keep as many draws as there are statistics: Ctrl-C may have come between the two."""
        self.draws = self.draws[: len(self.statistics)]

    def stats(self) -> dict[str, Any]:
        """Return each statistic as a tensor [chain, draw]."""
        return {
            name: torch.stack([f[name] for f in self.statistics], 1) for name in self.statistics[0]
        }

    def tensors(
        self, state: State, target: Target, generator: torch.Generator
    ) -> dict[str, Tensor]:
        out = {"t": torch.tensor(self.t), **order_of_batches(target, generator)}
        out |= {f"state.{name}": value for name, value in state.items()}
        if self.draws:
            out["draws"] = torch.stack(self.draws, 1)
            out |= {f"figure.{name}": value for name, value in self.stats().items()}
        return out

    def restore(
        self, saved: dict[str, Tensor], target: Target, generator: torch.Generator
    ) -> State:
        """Take everything back from a checkpoint; return the state of the chains."""
        self.t = int(saved["t"])
        continue_batches(target, generator, saved)
        if "draws" in saved:
            self.draws = list(saved["draws"].unbind(1))
            statistics = _group(saved, "figure.")
            self.statistics = [
                {name: value[:, i] for name, value in statistics.items()}
                for i in range(len(self.draws))
            ]
        return _group(saved, "state.")


def _group(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names begin with the prefix, named without it."""
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }


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
        record, notes, interrupted = _Record(), [], False
        saved = checkpoint.found()
        if saved is None:
            state = self.begin(
                target, _starts_of_chains(target, init, seed, self.chains), generator
            )
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


#: Chains start Uniform(-1, 1) around the origin of unconstrained space, or on a path from there.
SPREAD = 1.0


def _starts_of_chains(
    target: Target, init: Posterior | Tensor | None, seed: int, chains: int
) -> Tensor:
    """Return the starts of chains that advance together, [chain, p].

    Without ``init`` they lie apart, so that R-hat is informative. A Posterior gives some of its
    draws, a point serves all chains.
    """
    if init is None:
        return torch.stack([target.start(seed + chain, SPREAD) for chain in range(chains)])
    if isinstance(init, Posterior):
        z = target.unconstrain(init.theta)
        if len(z) >= chains:
            return z[torch.linspace(0, len(z) - 1, chains).long()].clone()
    return starting_point(target, init, seed).expand(chains, -1).clone()
