"""Vectors that a graph computes, and the nodes that are parts of them."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, fx

from .recorder import Layout

aten = torch.ops.aten
#: of two tensors, or a tensor and a constant, with the second operand that changes nothing
BINARY: dict[Any, float] = {
    aten.add.Tensor: -0.0,  # 0.0 would turn -0.0 into 0.0
    aten.sub.Tensor: 0.0,
    aten.mul.Tensor: 1.0,
    aten.div.Tensor: 1.0,
}
COMMUTES = {aten.add.Tensor, aten.mul.Tensor}
RESHAPES = {aten.view.default, aten.squeeze.dim, aten.unsqueeze.default}
LONGEST = 4096  # numbers in a vector, beyond which an operation costs more than its overhead


class Part(NamedTuple):
    """The numbers from ``start`` to ``stop`` of a vector, in any shape."""

    vector: fx.Node
    start: int
    stop: int


class Vectors:
    """What is known of the vectors in a graph.

    Args:
        module: The graph, whose constants are its buffers.
        mutated: Nodes that an operation in place changes, which are left alone.

    Attributes:
        parts: The nodes that are parts of vectors.
        equal: For a part, the other vectors that hold the same numbers in its range.
    """

    def __init__(self, module: fx.GraphModule, mutated: set[fx.Node]) -> None:
        self.module, self.graph, self.mutated = module, module.graph, mutated
        self.parts: dict[fx.Node, Part] = {}
        self.equal: dict[Part, list[fx.Node]] = {}

    def constant(self, value: Any) -> Tensor | None:
        """Return the number of an operand that is one, or the tensor of a constant."""
        if isinstance(value, fx.Node):
            known = value.op == "get_attr" and value not in self.mutated
            return getattr(self.module, str(value.target)) if known else None
        return torch.tensor(float(value), dtype=torch.float64)

    def joined(
        self, members: dict[fx.Node, tuple[int, int]], at: list[int], layout: Layout, rest: float
    ) -> fx.Node:
        """Return the constant vector of the constants that are operands of operations on parts.

        Args:
            members: The operations, with the range of each.
            at: Which operand of each it is.
            layout: Of the vector.
            rest: The number outside the ranges.
        """
        whole = torch.full(layout.shape, rest, dtype=layout.dtype, device=layout.device)
        for (node, (start, stop)), i in zip(members.items(), at, strict=True):
            constant = cast(Tensor, self.constant(node.args[i]))
            whole[start:stop] = constant.to(whole).expand(node.meta["layout"].shape).reshape(-1)
        return stored(self.module, whole)

    def without_reshapes(self, node: fx.Node) -> fx.Node:
        """Return the node whose numbers a node has in another shape."""
        while node.target in RESHAPES and node not in self.mutated:
            node = cast(fx.Node, node.args[0])
        return node


def stored(module: fx.GraphModule, value: Tensor) -> fx.Node:
    """Add a constant to a module as a buffer, and return its node."""
    number = len(module._buffers)
    while f"_joined_{number}" in module._buffers:
        number += 1
    module.register_buffer(f"_joined_{number}", value)
    node = module.graph.get_attr(f"_joined_{number}")
    node.meta["layout"] = Layout.of(value)
    return node


def is_vector(layout: Any) -> bool:
    """Return whether this is the layout of a vector of at least two floating-point numbers."""
    if not isinstance(layout, Layout) or len(layout.shape) != 1:
        return False
    return layout.dtype.is_floating_point and 2 <= layout.shape[0] <= LONGEST


def of_vector(layout: Layout, size: int) -> Layout:
    """Return the layout of a vector of so many numbers, of the kind of another."""
    return Layout(torch.Size([size]), (1,), layout.dtype, layout.device)
