"""Put parts of vectors together, in sums and in gradients that are laid end to end.

A sum of the sums of all parts of a vector is the sum of the vector. A concatenation of results of
equal operations on parts is the operation on the concatenation.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, cast

import torch
from torch import fx

from .recorder import Layout
from .vectors import BINARY, COMMUTES, Part, Vectors, is_vector, of_vector

aten = torch.ops.aten
SUMS = {aten.sum.default, aten.sum.dim_IntList}


def gather(known: Vectors) -> None:
    """Change a graph to put parts of its vectors together."""
    gathering = _Gathering(known)
    for node in list(known.graph.nodes):
        if node.target is aten.add.Tensor:
            gathering.summed(node)
        elif node.target is aten.cat.default:
            gathering.put_together(node)


class _Gathering:
    def __init__(self, known: Vectors) -> None:
        self.known, self.graph, self.mutated = known, known.graph, known.mutated
        self.parts = known.parts

    def summed(self, root: fx.Node) -> None:
        """Replace a sum of parts that make up whole vectors by a sum of these."""
        layout = root.meta.get("layout")
        if not isinstance(layout, Layout) or layout.shape or not _is_a_root(root):
            return
        terms = _terms(root, self.mutated)
        by_vector: dict[fx.Node, dict[fx.Node, tuple[int, int]]] = {}
        for term in terms:
            part = self._of_term(term)
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
        with self.graph.inserting_before(root):
            for size in {vector.meta["layout"].shape[0]: None for vector in whole}:
                equal = [v for v in whole if v.meta["layout"].shape[0] == size]
                together = self._added(equal, equal[0].meta["layout"])
                total = self.graph.call_function(aten.sum.default, (together,))
                total.meta["layout"] = layout
                terms.append(total)
            if whole:
                root.replace_all_uses_with(self._added(terms, layout))

    def _of_term(self, term: Any) -> Part | None:
        """Return the part whose sum a term is; None if it is no such sum."""
        if not isinstance(term, fx.Node):
            return None
        if term.target not in SUMS or term.kwargs or term in self.mutated:
            return self.parts.get(term)
        inner = cast(fx.Node, term.args[0])
        if term.target is aten.sum.dim_IntList and len(inner.meta["layout"].shape) != 1:
            return None
        return self.parts.get(inner)

    def _added(self, terms: list[Any], layout: Layout) -> fx.Node:
        total = terms[0]
        for term in terms[1:]:
            total = self.graph.call_function(aten.add.Tensor, (total, term))
            total.meta["layout"] = layout
        return total

    def put_together(self, node: fx.Node) -> None:
        """Move equal last operations on the pieces of a vector behind the concatenation.

        It takes one operand of each piece to be part of one vector, or a constant.
        """
        layout: Any = node.meta.get("layout")
        if len(node.args) > 1 or node.kwargs or not is_vector(layout):
            return
        pieces = [self.known.without_reshapes(p) for p in cast(Any, node.args)[0]]
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
        for vector in [*self._vectors_of(first), None]:
            sides = [self._side(p, vector, r, layout.shape[0]) for p, r in members.items()]
            if None in sides or (len(set(sides)) > 1 and first.target not in COMMUTES):
                continue
            given = cast(list[int], sides)
            others = [cast(fx.Node, p.args[1 - i]) for p, i in zip(pieces, given, strict=True)]
            with self.graph.inserting_before(node):
                rest = [self._flat(other) for other in others]
                inner = self.graph.call_function(aten.cat.default, (rest,))
                operand: Any = vector
                if vector is None:
                    operand = self.known.joined(members, given, layout, 0.0)
                pair = (operand, inner) if given[0] == 0 else (inner, operand)
                whole = self.graph.call_function(cast(Any, first.target), pair)
            inner.meta["layout"] = whole.meta["layout"] = layout
            node.replace_all_uses_with(whole)
            self.put_together(inner)
            return

    def _vectors_of(self, node: fx.Node) -> list[fx.Node]:
        parts = [self.parts.get(x) for x in node.args if isinstance(x, fx.Node)]
        return [part.vector for part in parts if part is not None]

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
                constant = self.known.constant(x)
                if constant is not None and (not constant.ndim or constant.shape == layout.shape):
                    return i
                continue
            part = self.parts.get(cast(fx.Node, x))
            if part is None or part[1:] != own or size != vector.meta["layout"].shape[0]:
                continue
            if vector is part.vector or vector in self.known.equal.get(part, []):
                return i
        return None

    def _flat(self, node: fx.Node) -> fx.Node:
        """Return a node with the same numbers as a vector."""
        node = self.known.without_reshapes(node)
        shape = node.meta["layout"].shape
        if len(shape) == 1:
            return node
        flat = self.graph.call_function(aten.view.default, (node, [shape.numel()]))
        if not shape:
            flat.target, flat.args = aten.unsqueeze.default, (node, 0)
        flat.meta["layout"] = of_vector(node.meta["layout"], shape.numel())
        return flat


def _is_a_root(node: fx.Node) -> bool:
    """Return whether a sum of two is not used solely as a term of another sum."""
    return not node.kwargs and (
        len(node.users) != 1
        or any(user.target is not aten.add.Tensor or user.kwargs for user in node.users)
    )


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
