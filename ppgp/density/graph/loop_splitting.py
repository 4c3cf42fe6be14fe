"""Split a loop: only what carries from step to step runs in order, and all else at once.

Where the carry is a value that is known for all steps, as that of a latent site, nothing is left of
the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, fx

from .batching import BatchedOperations, has_rule
from .bodies import Body

InOrder = Callable[[Body, list[Tensor], list[Tensor]], Sequence[Tensor]]


def split(
    body: Body,
    carry: list[Tensor],
    xs: list[Tensor],
    steps: int,
    in_order: InOrder,
    settled: bool = False,
) -> list[Tensor]:
    """Return the last carry and the stacked results of a loop.

    Args:
        body: That of the loop.
        carry: The first one.
        xs: What the steps take, [steps, ...] each.
        steps: The number of steps.
        in_order: (body, first carry, xs) -> last carry, results; what runs step by step.
        settled: Whether the first carry is what a step before has returned. Parts that no step
            changes then stay from the first step on, and results that are the same at all steps
            have an axis of length 1.
    """
    parts = _Split(body, carry, xs, steps, settled)
    moving = parts.reached({*parts.carry, *parts.rows})
    if not all(has_rule(node.target) for node in moving if node.op == "call_function"):
        return list(in_order(body, carry, xs))
    return parts.run(in_order)


class _Split:
    """The nodes of a step, and what is known of them at all steps.

    Args:
        body: That of the loop.
        carry: The first one.
        xs: What the steps take, [steps, ...] each.
        steps: The number of steps.
        settled: See ``split``.

    Attributes:
        rows: ``{node: its values at all steps}``, [steps, ...] each.
        fixed: ``{node: its value}``, of those that are the same at all steps.
    """

    def __init__(
        self, body: Body, carry: list[Tensor], xs: list[Tensor], steps: int, settled: bool
    ) -> None:
        self.body, self.first, self.steps, self.settled = body, carry, steps, settled
        self.nodes = list(body.graph.graph.nodes)
        given = [node for node in self.nodes if node.op == "placeholder"]
        n, m = body.n_carry, body.n_carry + body.n_x
        self.carry = given[:n]
        self.results: list[fx.Node] = list(cast(Any, self.nodes[-1].args[0]))
        self.rows: dict[fx.Node, Tensor] = dict(zip(given[n:m], xs, strict=True))
        self.fixed: dict[fx.Node, Tensor] = dict(zip(given[m:], body.others, strict=True))
        self.last: dict[int, Tensor] = {}  # parts of the last carry
        for node in self.nodes:
            if node.op == "get_attr":
                self.fixed[node] = getattr(body.graph, str(node.target))

    def run(self, in_order: InOrder) -> list[Tensor]:
        """Return the last carry and the stacked results."""
        for node, first, after in zip(self.carry, self.first, self.results, strict=False):
            if after is node:  # it stays
                self.fixed[node] = first
        if self.settled:
            # what depends on another part of the carry is settled one step later, or never
            moving = self.reached({*self.rows, *(c for c in self.carry if c not in self.fixed)})
            for node, first, after in zip(self.carry, self.first, self.results, strict=False):
                if node not in self.fixed and after not in moving:
                    self.fixed[node] = first
        left = self._known_beforehand([i for i, c in enumerate(self.carry) if c not in self.fixed])
        if left:
            self._step_by_step(left, in_order)
        self._compute(self.results)
        for i, node in enumerate(self.results[: len(self.carry)]):
            if i not in self.last:
                self.last[i] = self.fixed[node] if node in self.fixed else self.rows[node][-1]
        last = [self.last[i] for i in range(len(self.carry))]
        ys = self.results[len(self.carry) :]
        if self.settled:
            return [*last, *(self.fixed[r][None] if r in self.fixed else self.rows[r] for r in ys)]
        return [*last, *(self._at_all_steps(r) for r in ys)]

    def _at_all_steps(self, node: fx.Node) -> Tensor:
        if node in self.rows:
            return self.rows[node]
        return self.fixed[node].expand(self.steps, *self.fixed[node].shape)

    def _known_beforehand(self, left: list[int]) -> list[int]:
        """Compute the parts of the carry that need no other of ``left``; return those that do."""
        while left:
            reach = self.reached({self.carry[i] for i in left})
            free = [i for i in left if self.results[i] not in reach]
            if not free:
                break
            self._compute([self.results[i] for i in free])
            for i in free:
                self._shift(i, self._at_all_steps(self.results[i]))
            left = [i for i in left if i not in free]
        return left

    def _shift(self, i: int, after: Tensor) -> None:
        """Put a part of the carry before each step, given what it is after them."""
        self.rows[self.carry[i]] = torch.cat([self.first[i][None], after[:-1]])

    def reached(self, sources: set[fx.Node]) -> set[fx.Node]:
        """Return the nodes that depend on some of the sources, these among them."""
        found = set(sources)
        for node in self.nodes:
            if node.op == "call_function" and not found.isdisjoint(node.all_input_nodes):
                found.add(node)
        return found

    def _step_by_step(self, left: list[int], in_order: InOrder) -> None:
        """Run what is left of the carry, and keep it before and after each step."""
        wanted = [self.results[i] for i in left]
        reach = self.reached({self.carry[i] for i in left})
        inside = [node for node in self._needed(wanted) if node in reach]
        outside = dict.fromkeys(
            part for node in (*inside, *wanted) for part in node.all_input_nodes
        )
        outside = [node for node in (*outside, *wanted) if node not in reach]
        self._compute(outside)
        operations = [node for node in inside if node.op == "call_function"]
        rows = [node for node in dict.fromkeys(outside) if node in self.rows]
        others = [node for node in dict.fromkeys(outside) if node not in self.rows]
        carry = [self.carry[i] for i in left]
        first = [self.first[i] for i in left]
        xs, fixed = [self.rows[node] for node in rows], [self.fixed[node] for node in others]
        if not xs:  # a loop takes its length from them
            node = next(iter(self.rows))
            xs, rows = [self.rows[node]], [node]
        # the carry before each step: after the last one it has no slope where it is not used
        graph = _part(self.body.graph, [*carry, *rows, *others], operations, [*wanted, *carry])
        example = (*first, *(x[0] for x in xs), *fixed)
        form = torch.contiguous_format
        whole = tuple(x.detach().clone(memory_format=form) for x in example)
        body = Body(graph, len(carry), len(rows), fixed, whole)
        found = in_order(body, first, xs)
        lasts, befores = found[: len(left)], found[len(left) :]
        for i, node, last, before in zip(left, wanted, lasts, befores, strict=True):
            self.last[i] = last
            self.rows[self.carry[i]] = before
            if node not in self.fixed:
                self.rows[node] = torch.cat([before[1:], last[None]])

    def _needed(self, wanted: Iterable[fx.Node]) -> list[fx.Node]:
        """Return the nodes that are not known and that some nodes need, in order."""
        needed: set[fx.Node] = set()
        stack = [node for node in wanted if node not in self.rows and node not in self.fixed]
        while stack:
            node = stack.pop()
            if node not in needed:
                needed.add(node)
                parts = node.all_input_nodes
                stack += [p for p in parts if p not in self.rows and p not in self.fixed]
        return [node for node in self.nodes if node in needed]

    def _compute(self, wanted: Sequence[fx.Node]) -> None:
        """Compute nodes at all steps at once."""
        operations = self._needed(wanted)
        if not operations:
            return
        moving: set[fx.Node] = set()
        for node in operations:
            if any(part in self.rows or part in moving for part in node.all_input_nodes):
                moving.add(node)
        still = [node for node in operations if node not in moving]
        if still:
            used = {part for node in operations for part in node.all_input_nodes} | {*wanted}
            kept = [node for node in still if node in used and _is_tensor(node)]
            self.fixed |= zip(kept, self._evaluated(still, kept), strict=True)
        rest = [node for node in operations if node in moving]
        if rest:
            kept = [node for node in dict.fromkeys(wanted) if node in moving]
            self.rows |= zip(kept, self._evaluated(rest, kept), strict=True)

    def _evaluated(self, operations: list[fx.Node], results: list[fx.Node]) -> list[Tensor]:
        """Return the values of some nodes, with the axis of the steps where an input has it."""
        own = set(operations)
        read = dict.fromkeys(part for node in operations for part in node.all_input_nodes)
        inputs = [node for node in read if node not in own]
        graph = _part(self.body.graph, inputs, operations, results)
        values = [self.rows[node] if node in self.rows else self.fixed[node] for node in inputs]
        if not any(node in self.rows for node in inputs):
            return list(graph(*values))
        dims = tuple(0 if node in self.rows else None for node in inputs)
        return list(torch.vmap(BatchedOperations(graph).run, in_dims=dims)(*values))


def _is_tensor(node: fx.Node) -> bool:
    return "layout" in node.meta


def _part(
    module: fx.GraphModule,
    inputs: list[fx.Node],
    operations: list[fx.Node],
    results: list[fx.Node],
) -> fx.GraphModule:
    """Return the graph of some operations of a module, (*inputs) -> results."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for i, node in enumerate(inputs):
        copies[node] = graph.placeholder(f"x{i}")
        copies[node].meta = dict(node.meta)
    for node in operations:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output([copies[node] for node in results])
    return fx.GraphModule(torch.nn.Module(), graph)
