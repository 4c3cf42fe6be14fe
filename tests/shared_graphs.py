"""Graphs of densities that several fits share, so that each is traced once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.fx import GraphModule

from ppgp.density import target as targets
from ppgp.density.graph.tracing import ValueAndGradient
from ppgp.density.target import Graphs


@contextmanager
def graphs_kept() -> Iterator[None]:
    """Trace each density of a model, or of a program, and its data once inside the block.

    Programs are told apart by how they are printed, so that one that is made anew has the graph of
    the one before.

    ``Graphs`` compares a graph with the program at two or three points, new or kept.
    """
    kept: dict[str, Any] = {}
    trace, record, of_key = targets.traced, targets.one_point, Graphs._compiled

    def once(
        self: Graphs, batch: int | None, jacobian: bool, k: int | None, few: bool = False
    ) -> Any:
        density: Any = self.density
        recipe = density.model, density.collapsed_elbo, density.dim, batch, jacobian
        key = f"{recipe} {digest(density.data.passed())}"

        def recorded(*arguments: Any) -> GraphModule:
            if key not in kept:
                kept[key] = record(*arguments)
            return kept[key]

        def traced(*arguments: Any) -> ValueAndGradient:
            own = f"{key} {k} {few}"
            if own not in kept:
                kept[own] = trace(*arguments)
            return kept[own]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(targets, "one_point", recorded)
            patch.setattr(targets, "traced", traced)
            return of_key(self, batch, jacobian, k, few)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Graphs, "_compiled", once)
        yield


def digest(arguments: Any) -> str:
    """Return a digest of the tensors among the arguments of a program, and of all else there."""
    if isinstance(arguments, torch.Tensor):
        values = arguments.detach().cpu().contiguous().numpy().tobytes()
        kind = f"{arguments.dtype} {arguments.device} {tuple(arguments.shape)}"
        return f"{kind} {hashlib.sha256(values).hexdigest()}"
    if isinstance(arguments, dict):
        return str({name: digest(value) for name, value in arguments.items()})
    if isinstance(arguments, tuple | list):
        return str([digest(value) for value in arguments])
    return repr(arguments)
