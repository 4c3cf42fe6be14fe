"""Compile a graph that calls loops in pieces: what lies between two loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import getitem
from typing import Any, cast

import torch
from torch import Tensor, fx

Script = Callable[[fx.GraphModule, tuple[Tensor, ...]], Callable[..., Any]]


def calls_loop(node: fx.Node) -> bool:
    """Return whether a node calls a loop, which TorchScript cannot."""
    known = isinstance(node.target, torch._ops.OpOverload) or node.target is getitem
    return node.op == "call_function" and not known


@dataclass(frozen=True)
class Part:
    """A loop, or what lies between two.

    Args:
        run: (*inputs) -> a tuple.
        inputs: The nodes of the inputs.
        outputs: Nodes, and the place of each in the tuple.
    """

    run: Callable[..., Any]
    inputs: list[fx.Node]
    outputs: list[tuple[fx.Node, int]]


class InPieces:
    """(*arguments) -> what a graph of several results computes. Its operations keep their order.

    Args:
        module: The graph.
        example: Arguments of it.
        script: Compiles what lies between two loops.
    """

    def __init__(self, module: fx.GraphModule, example: tuple[Tensor, ...], script: Script) -> None:
        nodes = list(module.graph.nodes)
        self.arguments = [node for node in nodes if node.op == "placeholder"]
        self.results: list[fx.Node] = list(cast(Any, nodes[-1].args[0]))
        self.constants = {n: getattr(module, str(n.target)) for n in nodes if n.op == "get_attr"}
        self.parts: list[Part] = []
        values = self.constants | dict(zip(self.arguments, example, strict=True))
        for group in _groups(nodes):
            if calls_loop(group[0]):
                inputs = list(cast(tuple[fx.Node, ...], group[0].args))
                outputs = [(node, cast(int, node.args[1])) for node in group[1:]]
                part = Part(cast(Any, group[0].target), inputs, outputs)
            else:
                graph, inputs, needed = self._piece(group)
                own = tuple(values[node] for node in inputs)
                part = Part(script(graph, own), inputs, [(n, i) for i, n in enumerate(needed)])
            self.parts.append(part)
            _run(part, values)

    def __call__(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        values = self.constants | dict(zip(self.arguments, arguments, strict=True))
        for part in self.parts:
            _run(part, values)
        # a result may be a constant, which the tracer of TorchScript does not copy
        return tuple(copied(values[node]) for node in self.results)

    def _piece(self, group: list[fx.Node]) -> tuple[fx.GraphModule, list[fx.Node], list[fx.Node]]:
        """Return the graph of some nodes, the nodes that it reads and those that others read."""
        own = set(group)
        read = dict.fromkeys(part for node in group for part in node.all_input_nodes)
        inputs = [node for node in read if node not in own and node not in self.constants]
        results = set(self.results)
        needed = [n for n in group if n in results or not own.issuperset(n.users)]
        graph, owner = fx.Graph(), torch.nn.Module()
        copies = {node: graph.placeholder(f"x{i}") for i, node in enumerate(inputs)}
        for node in read:
            if node in self.constants:
                owner.register_buffer(str(node.target), self.constants[node])
                copies[node] = graph.get_attr(str(node.target))
        for node, copied in copies.items():
            copied.meta = dict(node.meta)
        for node in group:
            copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output([copies[node] for node in needed])
        return fx.GraphModule(owner, graph), inputs, needed


def copied(x: Tensor) -> Tensor:
    """Return a tensor with memory of its own for each number."""
    return x.clone(memory_format=torch.contiguous_format)


def _run(part: Part, values: dict[fx.Node, Tensor]) -> None:
    found = part.run(*(values[node] for node in part.inputs))
    values.update((node, found[place]) for node, place in part.outputs)


def _groups(nodes: list[fx.Node]) -> list[list[fx.Node]]:
    """Return operations in groups: each loop with the nodes of its results, and all in between."""
    groups: list[list[fx.Node]] = [[]]
    home: dict[Any, list[fx.Node]] = {}
    for node in nodes:
        if node.op != "call_function":
            continue
        if calls_loop(node):
            groups += [[node], []]
            home[node] = groups[-2]
        else:
            part_of_loop = node.target is getitem and node.args[0] in home
            group = home[node.args[0]] if part_of_loop else groups[-1]
            group.append(node)
    return [group for group in groups if group]
