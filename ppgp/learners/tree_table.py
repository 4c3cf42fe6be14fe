"""The trees of a fit in progress, kept in a few padded arrays.

Many small arrays that outlive the large ones of each stage would leave gaps in the heap: 0.2 MB per
stage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from .stacking import joined, padded
from .tree import Tree, constant_tree

NODES = ("feature", "threshold", "missing_left", "left", "right", "value", "gain")
CATEGORIES = ("category", "categories")
LINEAR = ("constant", "columns", "coefficients")
SCALED = ("value", "constant", "coefficients")  # what a step multiplies
BLOCK = 64  # trees that are packed at once

Arrays = dict[str, np.ndarray]


class TreeTable:
    """Trees in the order of stages and outputs, as in ``tree_tensors``.

    Args:
        outputs: The number K of outputs.
        categorical: Whether trees may split by categories.
        linear: Whether leaves are linear.
    """

    def __init__(self, outputs: int, categorical: bool = False, linear: bool = False) -> None:
        self.outputs = outputs
        self.names = NODES + CATEGORIES * categorical + LINEAR * linear
        self.packed: list[Arrays] = []
        self.loose: list[Tree] = []
        self.size = 0

    @property
    def stages(self) -> int:
        """The number of stages."""
        return self.size // self.outputs

    def append(self, trees: Sequence[Tree]) -> None:
        """Add the trees of one stage."""
        self.loose += trees
        self.size += len(trees)
        if len(self.loose) >= BLOCK:
            self.packed.append(self._arrays(self.loose))
            self.loose = []

    def tensors(self, steps: Tensor) -> dict[str, Tensor]:
        """Return the first ``len(steps)`` stages; stage m is multiplied by ``steps[m]``."""
        blocks = [*self.packed, self._arrays(self.loose)]
        return self._scaled(blocks, steps)

    def tensors_of(self, trees: Sequence[Tree]) -> dict[str, Tensor]:
        """Return the tensors of one stage."""
        return self._scaled([self._arrays(trees)], torch.ones(1))

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take up the trees of ``tensors``, in place of all others."""
        self.packed = [{name: tensors[name].detach().cpu().numpy() for name in self.names}]
        self.loose, self.size = [], len(tensors["feature"])

    def _arrays(self, trees: Sequence[Tree]) -> Arrays:
        """Return trees as padded arrays."""
        arrays = {}
        for name in self.names:
            values = [getattr(tree, name) for tree in trees or [constant_tree(0.0)]]
            arrays[name] = padded(name, values)[: len(trees)]  # no trees: empty, of the same axes
        return arrays

    def _scaled(self, blocks: Sequence[Arrays], steps: Tensor) -> dict[str, Tensor]:
        """Return the first ``len(steps)`` stages of blocks as tensors, multiplied by ``steps``."""
        factor = np.repeat(steps.detach().cpu().double().numpy(), self.outputs)
        tensors = {"outputs": torch.tensor(self.outputs)}
        for name in self.names:
            array = joined(name, [block[name] for block in blocks])[: len(factor)]
            if name in SCALED:
                array = array * factor.reshape(-1, *[1] * (array.ndim - 1))
            tensors[name] = torch.from_numpy(array)
        return tensors
