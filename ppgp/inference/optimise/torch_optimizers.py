"""Optimisers of torch that take one step per entry: Adam and AdaGrad, and their memory."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

#: ``{name: class}`` of the optimisers that MAP and SVI name. A step in one entry depends on the
#: gradients of that entry alone, so several searches can share one optimiser.
OF_TORCH: dict[str, type[torch.optim.Adam | torch.optim.Adagrad]] = {
    "adam": torch.optim.Adam,  # Kingma & Ba (2015)
    "adagrad": torch.optim.Adagrad,  # Duchi, Hazan & Singer (2011)
}

PREFIX = "adam"  # of both, as in the checkpoints of earlier versions


def class_of(name: str) -> type[torch.optim.Adam | torch.optim.Adagrad]:
    """Return the class of an optimiser; Adam for others, which move some of the sites by it."""
    return OF_TORCH.get(name, torch.optim.Adam)


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
