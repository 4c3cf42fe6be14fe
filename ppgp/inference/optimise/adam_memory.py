"""The memory of an optimiser of torch, such as Adam, as tensors of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

PREFIX = "adam"


def memory_of(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return copies of the moments and step counts of each parameter; none before a step."""
    return {
        f"{PREFIX}.{j}.{name}": value.clone()
        for j, memory in optimizer.state_dict()["state"].items()
        for name, value in memory.items()
    }


def restore_memory(optimizer: torch.optim.Optimizer, saved: Mapping[str, Tensor]) -> None:
    """Put what ``memory_of`` returned into an optimizer of the same parameters."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in saved.items():
        if key.startswith(f"{PREFIX}."):
            _, j, name = key.split(".")
            state.setdefault(int(j), {})[name] = value.clone()
    optimizer.load_state_dict(
        {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}
    )
