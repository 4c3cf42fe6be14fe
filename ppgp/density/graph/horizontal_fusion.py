"""Horizontal fusion: an operation on several parts of a vector is done once on the vector.

A program has sites, each with a part of z, and does the same to most of them: exp, the log density
of a normal, and the derivatives of both. An operation on few numbers takes as long as one on a
hundred, so ``exp(z[0]), exp(z[1:9])`` is one exp of z and two views of it. The numbers are the
same.

At the end parts are put together, in sums and in gradients that are laid end to end: a sum of the
sums of all parts of a vector is the sum of the vector, and a concatenation of results of equal
operations on parts is the operation on the concatenation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, fx

from .recorder import Layout, stored

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


#: of two tensors, or a tensor and a constant, with the second operand that changes nothing
BINARY: dict[Any, float] = {
    aten.add.Tensor: -0.0,  # 0.0 would turn -0.0 into 0.0
    aten.sub.Tensor: 0.0,
    aten.mul.Tensor: 1.0,
    aten.div.Tensor: 1.0,
}
COMMUTES = {aten.add.Tensor, aten.mul.Tensor}
SUMS = {aten.sum.default, aten.sum.dim_IntList}
RESHAPES = {aten.view.default, aten.squeeze.dim, aten.unsqueeze.default}
LONGEST = 4096  # numbers in a vector, beyond which an operation costs more than its overhead


class Part(NamedTuple):
    """The numbers from ``start`` to ``stop`` of a vector, in any shape."""

    vector: fx.Node
    start: int
    stop: int


@dataclass
class Group:
    """Equal operations on parts of the same vectors."""

    vectors: tuple[fx.Node | None, ...]  # for each operand; None for a constant
    members: dict[fx.Node, tuple[int, int]] = field(default_factory=dict)


def fuse_parts(module: fx.GraphModule, mutated: set[fx.Node]) -> None:
    """Change the graph of a module to do the same on whole vectors.

    Args:
        module: The graph, whose constants are its buffers.
        mutated: Nodes that an operation in place changes, which are left alone.
    """
    known = _Fusion(module, mutated)
    found: list[fx.Node] = []
    for node in module.graph.nodes:
        layout = node.meta.get("layout")
        if node.op == "placeholder" and is_vector(layout) and node not in mutated:
            known.parts[node] = Part(node, 0, layout.shape[0])
            found.append(node)
    while found:
        waiting: dict[fx.Node, None] = {}
        while found:  # views first: a merged group cannot grow
            users = {user: None for node in found for user in node.users}
            waiting |= users
            found = [part for node in users for part in known.cut(node)]
        for node in waiting:
            found += known.sorted_in(node)
        for group in sorted(known.groups.values(), key=lambda g: -len(g.members)):
            found += known.merged(group)
    for node in list(module.graph.nodes):
        if node.target is aten.add.Tensor:
            known.summed(node)
        elif node.target is aten.cat.default:
            known.put_together(node)
    module.graph.eliminate_dead_code()


@dataclass(eq=False, repr=False)
class _Fusion:
    """What is known of the vectors in a graph, and the fusion of operations on their parts.

    Args:
        module: The graph, whose constants are its buffers.
        mutated: Nodes that an operation in place changes, which are left alone.

    Attributes:
        parts: The nodes that are parts of vectors.
        equal: For a part, the other vectors that hold the same numbers in its range.
        groups: The operations that can be done at once.
    """

    module: fx.GraphModule
    mutated: set[fx.Node]
    parts: dict[fx.Node, Part] = field(init=False, default_factory=dict)
    equal: dict[Part, list[fx.Node]] = field(init=False, default_factory=dict)
    groups: dict[Any, Group] = field(init=False, default_factory=dict)

    # -- parts -------------------------------------------------------------------------------------

    def cut(self, node: fx.Node) -> list[fx.Node]:
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

    def sorted_in(self, node: fx.Node) -> list[fx.Node]:
        """Put an operation on parts into its groups: several where its vectors have equals.

        Its operands are constants, or parts of equal range. Return it, in a list, if it is an
        operation on whole vectors, and so a vector.
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
        ranges: set[tuple[int, int]] = set()
        choices: list[list[fx.Node | None]] = []  # vectors of each operand; None for a constant
        for x in operands:
            part = self.parts.get(cast(fx.Node, x))
            if part is not None:
                own = cast(fx.Node, x).meta["layout"]
                if own.shape != layout.shape or own.dtype != layout.dtype:
                    return []
                ranges.add(part[1:])
                choices.append([part.vector, *self.equal.get(part, [])])
                continue
            constant = self.constant(x)
            if constant is None or (constant.ndim and constant.shape != layout.shape):
                return []
            choices.append([None])
        if len(ranges) != 1:
            return []
        start, stop = ranges.pop()
        if layout.shape == (stop,) and start == 0 and node not in self.parts:
            vectors = [v for several in choices for v in several if v is not None]
            if all(v.meta["layout"].shape == layout.shape for v in vectors):
                self.parts[node] = Part(node, 0, stop)
                return [node]
        for vectors in product(*choices):
            sizes = {v.meta["layout"].shape for v in vectors if v is not None}
            if len(sizes) == 1:
                key = (node.target, vectors, repr(others))
                members = self.groups.setdefault(key, Group(vectors)).members
                if all(stop <= a or b <= start for a, b in members.values()):
                    members[node] = start, stop
        return []

    # -- operations on whole vectors ---------------------------------------------------------------

    def merged(self, group: Group) -> list[fx.Node]:
        """Replace the members of a group by one operation; return the parts of its result.

        Where a result is its operand, between the members, return the parts of the operand too.
        """
        members = {n: r for n, r in group.members.items() if n not in self.parts and n.users}
        vectors = [v for v in group.vectors if v is not None]
        layout = vectors[0].meta["layout"]
        size = layout.shape[0]
        if len(members) < 2 or 2 * sum(b - a for a, b in members.values()) < size:
            return []
        first = next(iter(members))
        every = sum(b - a for a, b in members.values()) == size
        with self.module.graph.inserting_before(max(vectors).next):
            operands: list[Any] = []
            for i, vector in enumerate(group.vectors):
                if vector is not None:
                    operands.append(vector)
                    continue
                numbers = {repr(node.args[i]) for node in members}
                if every and len(numbers) == 1 and not isinstance(first.args[i], fx.Node):
                    operands.append(first.args[i])
                else:
                    neutral = BINARY[first.target] if i else 1.0
                    operands.append(self.joined(members, [i] * len(members), layout, neutral))
            others = first.args[len(operands) :]
            whole = self.module.graph.call_function(cast(Any, first.target), (*operands, *others))
        whole.meta["layout"] = of_vector(layout, size)
        self.parts[whole] = Part(whole, 0, size)
        found = [whole]
        for node, (start, stop) in members.items():
            with self.module.graph.inserting_before(node):
                part = self._part(whole, start, stop, node.meta["layout"])
            node.replace_all_uses_with(part)
            self.module.graph.erase_node(node)
            self.parts[node] = self.parts[part]  # for groups that hold it as well
            found.append(part)
        if group.vectors[-1] is not None or len(group.vectors) < 2:
            return found
        operand = group.vectors[0]
        for node, part in list(self.parts.items()):
            apart = all(part.stop <= a or b <= part.start for a, b in members.values())
            if part.vector is operand and apart and node is not operand:
                equals = self.equal.setdefault(part, [])
                if whole not in equals:
                    equals.append(whole)
                found.append(node)
        return found

    def _part(self, whole: fx.Node, start: int, stop: int, layout: Layout) -> fx.Node:
        """Return the node of a part of a vector, in the shape of a layout."""
        size = whole.meta["layout"].shape[0]
        shape = layout.shape
        if not shape:
            node = self.module.graph.call_function(aten.select.int, (whole, 0, start))
        else:
            node = whole
            if (start, stop) != (0, size):
                node = self.module.graph.call_function(aten.slice.Tensor, (whole, 0, start, stop))
                node.meta["layout"] = of_vector(layout, stop - start)
                self.parts[node] = Part(whole, start, stop)
            if len(shape) > 1:
                node = self.module.graph.call_function(aten.view.default, (node, list(shape)))
        node.meta.setdefault("layout", Layout.of(layout.empty().contiguous()))
        self.parts[node] = Part(whole, start, stop)
        return node

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

    # -- parts put together ------------------------------------------------------------------------

    def summed(self, root: fx.Node) -> None:
        """Replace a sum of parts that make up whole vectors by a sum of these."""
        layout = root.meta.get("layout")
        if not isinstance(layout, Layout) or layout.shape or root.kwargs:
            return
        if [user.target for user in root.users] == [aten.add.Tensor] and not any(
            user.kwargs for user in root.users
        ):
            return  # it is a term of another sum alone
        terms = _terms(root, self.mutated)
        by_vector: dict[fx.Node, dict[fx.Node, tuple[int, int]]] = {}
        for term in terms:
            if not isinstance(term, fx.Node):
                continue
            added = term  # what the term is the sum of
            if term.target in SUMS and not term.kwargs and term not in self.mutated:
                added = cast(fx.Node, term.args[0])
                by_axes = term.target is aten.sum.dim_IntList
                if by_axes and len(added.meta["layout"].shape) != 1:
                    continue
            part = self.parts.get(added)
            if part is not None and part.vector.meta["layout"].dtype == layout.dtype:
                by_vector.setdefault(part.vector, {})[term] = part[1:]
        whole: list[fx.Node] = []
        for vector, own in by_vector.items():
            pieces = sorted(own.values())
            ends = [0, *(stop for _, stop in pieces)]
            starts = [start for start, _ in pieces] + [vector.meta["layout"].shape[0]]
            once = sum(term in own for term in terms) == len(own)
            if len(own) > 1 and once and starts == ends:
                whole.append(vector)
                terms = [term for term in terms if term not in own]
        with self.module.graph.inserting_before(root):
            for size in {vector.meta["layout"].shape[0]: None for vector in whole}:
                equal = [v for v in whole if v.meta["layout"].shape[0] == size]
                together = self._added(equal, equal[0].meta["layout"])
                total = self.module.graph.call_function(aten.sum.default, (together,))
                total.meta["layout"] = layout
                terms.append(total)
            if whole:
                root.replace_all_uses_with(self._added(terms, layout))

    def _added(self, terms: list[Any], layout: Layout) -> fx.Node:
        total = terms[0]
        for term in terms[1:]:
            total = self.module.graph.call_function(aten.add.Tensor, (total, term))
            total.meta["layout"] = layout
        return total

    def put_together(self, node: fx.Node) -> None:
        """Move equal last operations on the pieces of a vector behind the concatenation.

        It takes one operand of each piece to be part of one vector, or a constant.
        """
        layout: Any = node.meta.get("layout")
        if len(node.args) > 1 or node.kwargs or not is_vector(layout):
            return
        pieces = [self.without_reshapes(p) for p in cast(Any, node.args)[0]]
        sizes = [piece.meta["layout"].shape.numel() for piece in pieces]
        ends = torch.tensor([0, *sizes]).cumsum(0).tolist()
        members = dict(zip(pieces, pairwise(ends), strict=True))
        first = pieces[0]
        if len(members) < max(2, len(pieces)) or first.target not in BINARY:
            return
        if any(
            piece.target is not first.target
            or piece.kwargs
            or not self.mutated.isdisjoint([piece, *piece.all_input_nodes])
            for piece in pieces
        ):
            return
        parts = [self.parts.get(x) for x in first.args if isinstance(x, fx.Node)]
        for vector in [*(part.vector for part in parts if part is not None), None]:
            sides = [self._side(p, vector, r, layout.shape[0]) for p, r in members.items()]
            if None in sides or (len(set(sides)) > 1 and first.target not in COMMUTES):
                continue
            given = cast(list[int], sides)
            others = [cast(fx.Node, p.args[1 - i]) for p, i in zip(pieces, given, strict=True)]
            with self.module.graph.inserting_before(node):
                rest = []  # the other operands, as vectors
                for other in map(self.without_reshapes, others):
                    own = other.meta["layout"]
                    if len(own.shape) == 1:
                        rest.append(other)
                        continue
                    reshape: Any = aten.view.default if own.shape else aten.unsqueeze.default
                    shape: Any = [own.shape.numel()] if own.shape else 0
                    flat = self.module.graph.call_function(reshape, (other, shape))
                    flat.meta["layout"] = of_vector(own, own.shape.numel())
                    rest.append(flat)
                inner = self.module.graph.call_function(aten.cat.default, (rest,))
                operand: Any = vector
                if vector is None:
                    operand = self.joined(members, given, layout, 0.0)
                pair = (operand, inner) if given[0] == 0 else (inner, operand)
                whole = self.module.graph.call_function(cast(Any, first.target), pair)
            inner.meta["layout"] = whole.meta["layout"] = layout
            node.replace_all_uses_with(whole)
            self.put_together(inner)
            return

    def _side(
        self, node: fx.Node, vector: fx.Node | None, own: tuple[int, int], size: int
    ) -> int | None:
        """Return which operand is the part of a vector in a range, or a constant; None if neither.

        The other operand must have the shape of the result.
        """
        layout = node.meta["layout"]
        for i in (0, 1):
            x, other = node.args[i], node.args[1 - i]
            if not isinstance(other, fx.Node) or other.op == "get_attr":
                continue
            if other.meta["layout"].shape != layout.shape or other.meta["layout"].dtype != (
                layout.dtype
            ):
                continue
            if vector is None:
                constant = self.constant(x)
                if constant is not None and (not constant.ndim or constant.shape == layout.shape):
                    return i
                continue
            part = self.parts.get(cast(fx.Node, x))
            if part is None or part[1:] != own or size != vector.meta["layout"].shape[0]:
                continue
            if vector is part.vector or vector in self.equal.get(part, []):
                return i
        return None


def _terms(root: fx.Node, mutated: set[fx.Node]) -> list[Any]:
    """Return the terms of a sum of numbers without axes, which nothing else reads in part."""
    terms: list[Any] = []
    waiting: list[Any] = [root]
    while waiting:
        node = waiting.pop()
        layout = node.meta.get("layout") if isinstance(node, fx.Node) else None
        inner = isinstance(node, fx.Node) and node.target is aten.add.Tensor and not node.kwargs
        own = node is root or (
            inner and len(node.users) == 1 and mutated.isdisjoint(node.all_input_nodes)
        )
        if inner and own and node not in mutated and layout is not None and not layout.shape:
            waiting += reversed(node.args)
            continue
        terms.append(node)
    return terms


def is_vector(layout: Any) -> bool:
    """Return whether this is the layout of a vector of at least two floating-point numbers."""
    if not isinstance(layout, Layout) or len(layout.shape) != 1:
        return False
    return layout.dtype.is_floating_point and 2 <= layout.shape[0] <= LONGEST


def of_vector(layout: Layout, size: int) -> Layout:
    """Return the layout of a vector of so many numbers, of the kind of another."""
    return Layout(torch.Size([size]), (1,), layout.dtype, layout.device)
