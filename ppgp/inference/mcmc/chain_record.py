"""The draws and statistics of chains so far, and their way into a checkpoint and back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...density.target import Target
from ..base import continue_batches, order_of_batches

State = dict[str, Tensor]


class Record:
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
