"""Record one step of a loop as a graph that serves every step."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, fx
from torch.nn import Parameter
from torch.utils._python_dispatch import _disable_current_modes

from .recorder import Layout, Recorder
from .simplify import by_value

aten = torch.ops.aten
Tensors = tuple[Tensor, ...]
#: views that depend on how a tensor lies in memory, which may differ from step to step
OF_STRIDES = {aten.as_strided.default, aten._reshape_alias.default}


class OfBody(Recorder):
    """Records a step. Every tensor that the step did not compute becomes an argument.

    It refuses, before they run, operations in place, random numbers and operations without
    gradients: one graph of all steps would not give what the steps give one by one.

    Args:
        outer: What records the program around the loop.
        arguments: Those of the step.

    Attributes:
        others: The tensors from outside, in the order of the arguments after those of the step.
        refused: Whether an operation was refused. The step may have caught the error.
    """

    takes_calls = False

    def __init__(self, outer: Recorder | Everything, arguments: Sequence[Tensor]) -> None:
        super().__init__(arguments)
        self.outer = outer
        self.others: list[Tensor] = []
        self.refused = False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        random = torch.Tag.nondeterministic_seeded in func.tags
        special = random or func._schema.is_mutable or func in OF_STRIDES
        if special or not torch.is_grad_enabled():
            self.refused = True
            raise RuntimeError(f"{func} in the step of a loop")
        if func is aten.lift_fresh.default:
            super()._node(args[0])  # a new constant
        return super().__torch_dispatch__(func, types, args, kwargs)

    def _node(self, x: Tensor) -> fx.Node:
        node = self.nodes.get(x)
        if node is not None or id(x) in self.constants:
            return super()._node(x)
        first = next((n for n in self.graph.nodes if n.op != "placeholder"), self.graph._root)
        with self.graph.inserting_before(first):
            node = self.graph.placeholder(f"other{len(self.others)}")
        self._keep(x, node, self.outer.varies(x))
        self.others.append(x)
        return node

    def check_that_nothing_stays(self) -> None:
        """Raise RuntimeError if a tensor that the step computed is still in use after the step."""
        for collected in (False, True):
            if collected:
                gc.collect()
            others = {id(x) for x in self.others}
            if all(id(x) in others for x in self.nodes):
                return
        raise RuntimeError(
            "a step of ppgp.scan stores a tensor outside, as append does: return it as y"
        )


class Everything:
    """What is around a loop in a program that is not recorded: any value may vary."""

    def varies(self, x: Tensor) -> bool:
        """Return True."""
        return True


@dataclass(frozen=True)
class Body:
    """One step of a loop: a graph (*carry, *x, *others) -> (*carry, *y).

    Args:
        graph: The graph.
        n_carry: How many tensors the carry has.
        n_x: How many tensors x has.
        others: The tensors that it uses besides.
        example: Arguments of the graph.
    """

    graph: fx.GraphModule
    n_carry: int
    n_x: int
    others: list[Tensor]
    example: Tensors

    @property
    def results(self) -> list[Layout]:
        """How the results lie in memory."""
        return [node.meta["layout"] for node in cast(Any, self.graph.graph.output_node().args[0])]


def body_of(
    step: Callable[..., list[Tensor]],
    outer: Recorder | Everything,
    carry: list[Tensor],
    x: list[Tensor],
) -> Body | None:
    """Return one step as a graph; None where the steps have to be recorded one by one.

    Args:
        step: (*carry, *x) -> [*carry, *y].
        outer: What records the program around the loop.
        carry: The first one.
        x: Of the first step.

    Raises:
        RuntimeError: If the step keeps tensors, as by appending them to a list: it ran once more
            than the loop has steps.
    """
    with _disable_current_modes(), torch.enable_grad():
        example = [a.detach().clone(memory_format=torch.contiguous_format) for a in [*carry, *x]]
        own, body = _recorded(step, outer, example, len(carry))
    own.check_that_nothing_stays()
    return body


def _recorded(
    step: Callable[..., list[Tensor]],
    outer: Recorder | Everything,
    example: list[Tensor],
    n_carry: int,
) -> tuple[OfBody, Body | None]:
    arguments = [a.clone() for a in example]
    own = OfBody(outer, arguments)
    try:
        with own:
            found = step(*arguments)
    except RuntimeError:  # it asks for a value, or its error comes again in the loop itself
        return own, None
    graph = own.module(found)
    tensors = [*example, *own.others, *found]
    if own.refused or not all(_is_plain(x) for x in tensors):
        return own, None
    whole = (*example, *(other.detach() for other in own.others))
    return own, Body(by_value(graph), n_carry, len(example) - n_carry, own.others, whole)


def _is_plain(x: Tensor) -> bool:
    """Return whether a tensor is a dense one of real numbers, and of no class of its own."""
    return type(x) in (Tensor, Parameter) and x.layout == torch.strided and not x.is_complex()
