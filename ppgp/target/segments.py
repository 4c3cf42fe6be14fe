"""Run a graph in segments: small tensors as floats, large ones by TorchScript, loops in between."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from operator import getitem
from typing import Any, cast

import torch
from torch import Tensor, fx
from torch.fx.node import map_arg

from .floats import MOVES, Lines, function_of, inlined, is_stacked, runs_on_floats
from .recorder import sources_forgotten

aten = torch.ops.aten
FLOATS, TENSORS, LOOPS = range(3)  # kinds of segments
MANY = 300  # operations on small tensors, from which floats are worth their start
FLOATS_PER_TENSOR = 12  # operations on floats take as long as one on tensors of a few points
MOST = 18  # segments of a graph; values that go to and fro more often cost what floats save
Script = Callable[[fx.GraphModule, tuple[Tensor, ...]], Callable[..., Any]]


@dataclass
class Segment:
    """Operations of one kind that need nothing of later segments."""

    kind: int
    nodes: list[fx.Node] = field(default_factory=list)
    inputs: list[fx.Node] = field(default_factory=list)  # tensors that others compute
    by_step: list[bool] = field(default_factory=list)  # whether an input is the xs of a loop
    outputs: list[fx.Node] = field(default_factory=list)  # tensors that others need
    stacked: set[fx.Node] = field(default_factory=set)  # outputs of all steps of a loop
    run: Callable[..., Any] | None = None  # (*inputs) -> outputs, but for floats


class Segmented:
    """(*tensors) -> what a graph computes.

    Where an operation on floats fails, the graph itself runs: Python raises an error for a division
    by zero, of which torch makes infinity.

    Args:
        whole: the graph.
        segments: its operations.
        floats: see ``_floats``.
        constants: the values of nodes that are constants.
    """

    def __init__(
        self,
        whole: fx.GraphModule,
        segments: list[Segment],
        floats: Callable[..., Generator[Any, Any, None]],
        constants: dict[fx.Node, Tensor],
    ) -> None:
        self.whole, self.segments, self.floats = whole, segments, floats
        self.arguments = [node for node in whole.graph.nodes if node.op == "placeholder"]
        self.results: list[fx.Node] = list(cast(Any, whole.graph.output_node().args[0]))
        read = {*self.results, *(node for segment in segments for node in segment.inputs)}
        self.constants = {node: value for node, value in constants.items() if node in read}

    @property
    def mostly_floats(self) -> bool:
        """Whether several points are faster one after another than in wide tensors."""
        counts = [0, 0, 0]
        for segment in self.segments:
            counts[segment.kind] += sum(node.target not in MOVES for node in segment.nodes)
        return counts[FLOATS] > FLOATS_PER_TENSOR * counts[TENSORS]

    def __call__(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        try:
            return self.by_segments(*arguments)
        except (ArithmeticError, ValueError):
            with sources_forgotten():  # its code is written at the first such point
                return tuple(self.whole(*arguments))

    def by_segments(self, *arguments: Tensor, script: Script | None = None) -> tuple[Tensor, ...]:
        """Return the results.

        Args:
            arguments: those of the graph.
            script: compiles the segments of tensors, where they are not compiled yet.

        Raises:
            ArithmeticError: where a float is infinite.
            ValueError: outside the domain of a function of floats.
        """
        values = self.constants | dict(zip(self.arguments, arguments, strict=True))
        floats = self.floats()
        floats.send(None)
        for segment in self.segments:
            inputs = tuple(values[node] for node in segment.inputs)
            if segment.kind == FLOATS:
                lists = floats.send(
                    [
                        _listed(x, by_step)
                        for x, by_step in zip(inputs, segment.by_step, strict=True)
                    ]
                )
                for node, numbers in zip(segment.outputs, lists, strict=True):
                    layout = node.meta["layout"]
                    x = torch.tensor(numbers, dtype=layout.dtype)
                    if node in segment.stacked:
                        x = x.mT.reshape(layout.shape)
                    values[node] = x.view(layout.shape) if x.ndim != len(layout.shape) else x
                continue
            if script is not None and segment.kind == TENSORS:
                segment.run = script(cast(fx.GraphModule, segment.run), inputs)
            values.update(zip(segment.outputs, cast(Any, segment.run)(*inputs), strict=True))
        return tuple(values[node] for node in self.results)


def in_segments(
    module: fx.GraphModule, example: tuple[Tensor, ...], script: Script
) -> Segmented | None:
    """Return a graph of several results in segments; None where it is not worth it.

    Args:
        module: the graph.
        example: arguments of it.
        script: compiles the graph of large tensors.
    """
    results = module.graph.output_node().args[0]
    if not isinstance(results, tuple | list):
        return None
    constants = {
        node: getattr(module, str(node.target))
        for node in module.graph.nodes
        if node.op == "get_attr"
    }
    small = [node for node in module.graph.nodes if _is_small(node, constants)]
    if (len(small) < MANY and not has_loops(module)) or not without_writing(module.graph):
        return None
    segments = _cut(module.graph, constants)
    if segments is None:
        return None
    _connect(segments, [node for node in results if isinstance(node, fx.Node)])
    floats = _floats(segments, constants)
    for segment in segments:
        if segment.kind == LOOPS:
            segment.run = _called_one_by_one(segment)
        elif segment.kind == TENSORS:
            segment.run = _subgraph(module, segment)
    found = Segmented(module, segments, floats, constants)
    try:
        found.by_segments(*example, script=script)
    except (ArithmeticError, ValueError):  # the example is a point where floats fail
        return None
    return found


def _listed(x: Tensor, by_step: bool) -> Any:
    """Return the numbers of a tensor, or a list for each number of a step."""
    if by_step:
        return x.reshape(len(x), -1).mT.tolist()
    return x.tolist() if x.ndim < 2 else x.flatten().tolist()


def _is_loop(node: fx.Node) -> bool:
    """Return whether a node calls a recorded loop."""
    own = isinstance(node.target, torch._ops.OpOverload) or node.target is getitem
    return node.op == "call_function" and not own


def has_loops(module: fx.GraphModule) -> bool:
    """Return whether a graph calls a recorded loop."""
    return any(_is_loop(node) for node in module.graph.nodes)


def _is_small(node: fx.Node, constants: dict[fx.Node, Tensor]) -> bool:
    """Return whether a node computes with floats."""
    if not isinstance(node.target, torch._ops.OpOverload) or node.target in MOVES:
        return False
    return runs_on_floats(node, constants)


def without_writing(graph: fx.Graph) -> bool:
    """Write each result into a tensor of its own, and return whether that is possible.

    Random numbers make it impossible too: they have to be drawn in the order of the program.
    """
    found: dict[fx.Node, Any] = {}
    for node in graph.nodes:
        if not isinstance(node.target, torch._ops.OpOverload):
            continue
        if torch.Tag.nondeterministic_seeded in node.target.tags:
            return False
        if node.target._schema.is_mutable:
            found[node] = _in_new_memory(node)
            if found[node] is None or not _is_alone(node):
                return False
    changed: dict[fx.Node, fx.Node] = {}  # by what it is after the last change
    for node in graph.nodes:
        for part in changed.keys() & set(node.all_input_nodes):
            node.replace_input_with(part, changed[part])
        if node in found:
            before = node.args[0]
            node.target = found[node]
            changed = {part: node if now is before else now for part, now in changed.items()}
            changed[before] = node
    return True


def _in_new_memory(node: fx.Node) -> Any:
    """Return the operation that does not change its argument, for one that does; None if none."""
    target: Any = node.target
    name = target._schema.name.removeprefix("aten::")
    if not target._schema.is_mutable or not name.endswith("_"):
        return None
    packet = getattr(aten, name.removesuffix("_"), None)
    return getattr(packet, target._overloadname, None)


def _is_alone(writer: fx.Node) -> bool:
    """Return whether what a node changes is a tensor whose memory no other one shares."""

    def shares(one: fx.Node) -> bool:
        if not isinstance(one.target, torch._ops.OpOverload):
            return True
        aliases = any(part.alias_info is not None for part in one.target._schema.returns)
        return aliases and _in_new_memory(one) is None

    changed = writer.args[0]
    dtypes = [part.meta["layout"].dtype for part in writer.all_input_nodes if "layout" in part.meta]
    if any(dtype not in (dtypes[0], torch.bool) for dtype in dtypes):
        return False  # the result in new memory may be of another dtype
    if not isinstance(changed, fx.Node) or changed.op != "call_function" or shares(changed):
        return False
    return not any(shares(user) for user in [*changed.users, *writer.users])


def _cut(graph: fx.Graph, constants: dict[fx.Node, Tensor]) -> list[Segment] | None:
    """Return the nodes of a graph in segments, as few as their order allows."""
    level: dict[fx.Node, int] = {}
    for node in graph.nodes:
        if node.op != "call_function":
            level[node] = -1
            continue
        if node.target is getitem:
            level[node] = level[node.args[0]]
            continue
        kind = TENSORS
        if _is_loop(node):
            kind = LOOPS if node.target.floats is None else FLOATS
        elif runs_on_floats(node, constants):
            kind = FLOATS
        after = max([0, *(level[part] for part in node.all_input_nodes)])
        level[node] = after + (kind - after) % 3
    if max(level.values()) >= MOST:
        return None
    segments = [Segment(i % 3) for i in range(max(level.values()) + 1)]
    for node, place in level.items():
        if place >= 0:
            segments[place].nodes.append(node)
    return [segment for segment in segments if segment.nodes]


def _connect(segments: list[Segment], results: list[fx.Node]) -> None:
    """Find the tensors that go from one segment to another."""
    home = {node: segment for segment in segments for node in segment.nodes}
    needed = set(results)
    for segment in segments:
        inputs: dict[tuple[fx.Node, bool], None] = {}
        for part, by_step in (pair for node in segment.nodes for pair in _read(node)):
            source = home.get(part)
            if source is segment:
                continue
            if source is not None and source.kind == segment.kind == FLOATS:
                continue  # the function keeps its variables
            if part.op == "get_attr" and segment.kind != LOOPS:
                continue
            inputs[part, by_step and segment.kind == FLOATS] = None
        segment.inputs = [part for part, _ in inputs]
        segment.by_step = [by_step for _, by_step in inputs]
        needed.update(segment.inputs)
    for segment in segments:
        segment.outputs = [node for node in segment.nodes if node in needed]
        segment.stacked = {node for node in segment.outputs if is_stacked(node)}


def _read(node: fx.Node) -> Iterator[tuple[fx.Node, bool]]:
    """Yield the nodes that a node reads, and whether each is the xs of a loop."""
    if not _is_loop(node):
        yield from ((part, False) for part in node.all_input_nodes)
        return
    by_step = cast(Any, node.target).by_step
    yield from ((cast(fx.Node, part), i in by_step) for i, part in enumerate(node.args))


def _floats(
    segments: list[Segment], constants: dict[fx.Node, Tensor]
) -> Callable[..., Generator[Any, Any, None]]:
    """Return a generator function that runs all segments of floats.

    It takes the lists of the inputs of a segment, and yields those of its outputs.
    """
    lines = Lines(constants)
    lines.lines.append("given = yield")
    for segment in segments:
        if segment.kind != FLOATS:
            continue
        for i, (node, by_step) in enumerate(zip(segment.inputs, segment.by_step, strict=True)):
            (lines.take_columns if by_step else lines.take)(node, f"given[{i}]")
        for node in segment.nodes:
            lines.write(node)
        shown = [lines.shown(node) for node in segment.outputs]
        lines.lines.append(f"given = yield ({''.join(f'{part}, ' for part in shown)})")
    return function_of(inlined(lines.lines), "density", "", lines.objects)


def _called_one_by_one(segment: Segment) -> Callable[..., list[Any]]:
    """Return a function (*inputs) -> outputs that calls the loops of a segment."""

    def run(*inputs: Tensor) -> list[Any]:
        values: dict[fx.Node, Any] = dict(zip(segment.inputs, inputs, strict=True))
        for node in segment.nodes:
            args = map_arg(node.args, values.__getitem__)
            values[node] = cast(Any, node.target)(*args)
        return [values[node] for node in segment.outputs]

    return run


def _subgraph(module: fx.GraphModule, segment: Segment) -> fx.GraphModule:
    """Return the graph (*inputs) -> outputs of a segment."""
    graph, copies, owner = fx.Graph(), {}, torch.nn.Module()
    for i, node in enumerate(segment.inputs):
        copies[node] = graph.placeholder(f"x{i}")
    for node in segment.nodes:
        for part in node.all_input_nodes:
            if part.op == "get_attr" and part not in copies:
                owner.register_buffer(str(part.target), getattr(module, str(part.target)))
                copies[part] = graph.get_attr(str(part.target))
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[node] for node in segment.outputs))
    return fx.GraphModule(owner, graph)
