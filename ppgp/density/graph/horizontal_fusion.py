"""Horizontal fusion: an operation on several parts of a vector is done once on the vector.

A program has sites, each with a part of z, and does the same to most of them: exp, the log density
of a normal, and the derivatives of both. An operation on few numbers takes as long as one on a
hundred, so ``exp(z[0]), exp(z[1:9])`` is one exp of z and two views of it. The numbers are the
same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import Any, cast

import torch
from torch import fx

from .gathered import gather
from .recorder import Layout
from .vectors import BINARY, RESHAPES, Part, Vectors, is_vector, of_vector

aten = torch.ops.aten
#: of one tensor; further arguments are numbers
UNARY = {
    aten.exp.default,
    aten.log.default,
    aten.log1p.default,
    aten.expm1.default,
    aten.neg.default,
    aten.reciprocal.default,
    aten.sqrt.default,
    aten.sigmoid.default,
    aten.tanh.default,
    aten.lgamma.default,
    aten.digamma.default,
    aten.softplus.default,
    aten.pow.Tensor_Scalar,
    aten.rsub.Scalar,
}


@dataclass
class Group:
    """Equal operations on parts of the same vectors."""

    vectors: tuple[fx.Node | None, ...]  # for each operand; None for a constant
    members: dict[fx.Node, tuple[int, int]] = field(default_factory=dict)

    def add(self, node: fx.Node, start: int, stop: int) -> None:
        """Take in an operation on a range that no other member has."""
        if all(stop <= a or b <= start for a, b in self.members.values()):
            self.members[node] = start, stop


def fuse_parts(module: fx.GraphModule, mutated: set[fx.Node]) -> None:
    """Change the graph of a module to do the same on whole vectors.

    Args:
        module: The graph, whose constants are its buffers.
        mutated: Nodes that an operation in place changes, which are left alone.
    """
    known = _Fusion(module, mutated)
    known.run()
    gather(known)
    module.graph.eliminate_dead_code()


class _Fusion(Vectors):
    def __init__(self, module: fx.GraphModule, mutated: set[fx.Node]) -> None:
        super().__init__(module, mutated)
        self.groups: dict[Any, Group] = {}

    def run(self) -> None:
        found: list[fx.Node] = []
        for node in self.graph.nodes:
            layout = node.meta.get("layout")
            if node.op == "placeholder" and is_vector(layout) and node not in self.mutated:
                self.parts[node] = Part(node, 0, layout.shape[0])
                found.append(node)
        while found:
            waiting: dict[fx.Node, None] = {}
            while found:  # views first: a merged group cannot grow
                users = {user: None for node in found for user in node.users}
                waiting |= users
                found = [part for node in users for part in self._cut(node)]
            for node in waiting:
                found += self._sorted_in(node)
            for group in sorted(self.groups.values(), key=lambda g: -len(g.members)):
                found += self._merged(group)

    # -- parts -------------------------------------------------------------------------------------

    def _cut(self, node: fx.Node) -> list[fx.Node]:
        """Return the node, in a list, if it is a view of a part that was not known."""
        whole = self.parts.get(cast(fx.Node, node.args[0])) if node.args else None
        layout = node.meta.get("layout")
        if whole is None or node in self.parts or node in self.mutated or layout is None:
            return []
        first = cast(fx.Node, node.args[0]).meta["layout"]
        part = None
        if node.target in RESHAPES and layout.shape.numel() == whole.stop - whole.start:
            part = whole
        elif node.target is aten.select.int and first.shape[1:] == () and node.args[1] == 0:
            at = whole.start + cast(int, node.args[2]) % first.shape[0]
            part = Part(whole.vector, at, at + 1)
        elif node.target is aten.slice.Tensor and len(first.shape) == 1 and len(node.args) == 4:
            start, stop, _ = slice(*cast(Any, node.args[2:4])).indices(first.shape[0])
            part = Part(whole.vector, whole.start + start, whole.start + stop)
        if part is None or part.start >= part.stop:
            return []
        self.parts[node] = part
        return [node]

    def _sorted_in(self, node: fx.Node) -> list[fx.Node]:
        """Put an operation on parts into its groups: several where its vectors have equals.

        Return it, in a list, if it is an operation on whole vectors, and so a vector.
        """
        layout = node.meta.get("layout")
        operands = list(node.args)
        if node.target in UNARY:
            operands, others = operands[:1], operands[1:]
        elif node.target in BINARY and len(operands) == 2:
            others = []
        else:
            return []
        if node.kwargs or node in self.mutated or not isinstance(layout, Layout):
            return []
        found = self._choices(operands, layout)
        if found is None:
            return []
        choices, (start, stop) = found
        if layout.shape == (stop,) and start == 0 and node not in self.parts:
            vectors = [v for several in choices for v in several if v is not None]
            if all(v.meta["layout"].shape == layout.shape for v in vectors):
                self.parts[node] = Part(node, 0, stop)
                return [node]
        for vectors in product(*choices):
            sizes = {v.meta["layout"].shape for v in vectors if v is not None}
            if len(sizes) == 1:
                key = (node.target, vectors, repr(others))
                self.groups.setdefault(key, Group(vectors)).add(node, start, stop)
        return []

    def _choices(
        self, operands: list[Any], layout: Layout
    ) -> tuple[list[list[fx.Node | None]], tuple[int, int]] | None:
        """Return the vectors that each operand may be part of, and the range of all of them.

        A constant has None. The result is None for other operands than constants and parts.
        """
        ranges: set[tuple[int, int]] = set()
        choices: list[list[fx.Node | None]] = []
        for x in operands:
            part = self.parts.get(x)
            if part is not None:
                own = x.meta["layout"]
                if own.shape != layout.shape or own.dtype != layout.dtype:
                    return None
                ranges.add(part[1:])
                choices.append([part.vector, *self.equal.get(part, [])])
                continue
            constant = self.constant(x)
            if constant is None or (constant.ndim and constant.shape != layout.shape):
                return None
            choices.append([None])
        return (choices, ranges.pop()) if len(ranges) == 1 else None

    # -- operations on whole vectors ---------------------------------------------------------------

    def _merged(self, group: Group) -> list[fx.Node]:
        """Replace the members of a group by one operation; return the parts of its result."""
        members = {n: r for n, r in group.members.items() if n not in self.parts and n.users}
        vectors = [v for v in group.vectors if v is not None]
        layout = vectors[0].meta["layout"]
        size = layout.shape[0]
        if len(members) < 2 or 2 * sum(b - a for a, b in members.values()) < size:
            return []
        first = next(iter(members))
        with self.graph.inserting_before(max(vectors).next):
            operands: list[Any] = []
            for i, vector in enumerate(group.vectors):
                operands.append(vector or self._joined_constant(i, members, layout))
            others = first.args[len(operands) :]
            whole = self.graph.call_function(cast(Any, first.target), (*operands, *others))
        whole.meta["layout"] = of_vector(layout, size)
        self.parts[whole] = Part(whole, 0, size)
        found = [whole]
        for node, (start, stop) in members.items():
            with self.graph.inserting_before(node):
                part = self._part(whole, start, stop, node.meta["layout"])
            node.replace_all_uses_with(part)
            self.graph.erase_node(node)
            self.parts[node] = self.parts[part]  # for groups that hold it as well
            found.append(part)
        return found + self._equals(group, members, whole)

    def _equals(
        self, group: Group, members: dict[fx.Node, tuple[int, int]], whole: fx.Node
    ) -> list[fx.Node]:
        """Note where a result is its operand, between the members; return the operand's parts."""
        if group.vectors[-1] is not None or len(group.vectors) < 2:
            return []
        operand = group.vectors[0]
        found: list[fx.Node] = []
        for node, part in list(self.parts.items()):
            apart = all(part.stop <= a or b <= part.start for a, b in members.values())
            if part.vector is operand and apart and node is not operand:
                equals = self.equal.setdefault(part, [])
                if whole not in equals:
                    equals.append(whole)
                found.append(node)
        return found

    def _joined_constant(
        self, i: int, members: dict[fx.Node, tuple[int, int]], layout: Layout
    ) -> Any:
        """Return the operand of a whole vector, given those of its parts, which are constants."""
        first = next(iter(members))
        numbers = {repr(node.args[i]) for node in members}
        every = sum(b - a for a, b in members.values()) == layout.shape[0]
        if every and len(numbers) == 1 and not isinstance(first.args[i], fx.Node):
            return first.args[i]
        neutral = BINARY[first.target] if i else 1.0
        return self.joined(members, [i] * len(members), layout, neutral)

    def _part(self, whole: fx.Node, start: int, stop: int, layout: Layout) -> fx.Node:
        """Return the node of a part of a vector, in the shape of a layout."""
        size = whole.meta["layout"].shape[0]
        shape = layout.shape
        if not shape:
            node = self.graph.call_function(aten.select.int, (whole, 0, start))
        else:
            node = whole
            if (start, stop) != (0, size):
                node = self.graph.call_function(aten.slice.Tensor, (whole, 0, start, stop))
                node.meta["layout"] = of_vector(layout, stop - start)
                self.parts[node] = Part(whole, start, stop)
            if len(shape) > 1:
                node = self.graph.call_function(aten.view.default, (node, list(shape)))
        node.meta.setdefault("layout", Layout.of(layout.empty().contiguous()))
        self.parts[node] = Part(whole, start, stop)
        return node
