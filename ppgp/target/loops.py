"""Loops that are recorded by their body, and their derivatives, each one node of a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import getitem
from typing import Any, cast

import torch
from torch import Tensor, fx
from torch.utils._python_dispatch import _disable_current_modes

from .floats import SMALL, Lines, function_of, inlined, layout_of, runs_on_floats, suits
from .graph import scripted
from .recorder import Layout, Recorder, recorded, sources_forgotten
from .segments import without_writing
from .simplify import simplified

Tensors = tuple[Tensor, ...]


class OfBody(Recorder):
    """Records a body; notes whether part of it is not to be differentiated."""

    def __init__(self) -> None:
        super().__init__()
        self.cut = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.cut = self.cut or not torch.is_grad_enabled()
        tags = func.tags
        self.cut = self.cut or torch.Tag.nondeterministic_seeded in tags
        return super().__torch_dispatch__(func, types, args, kwargs)

    def settle(self, results: list[Tensor]) -> None:
        """Give each result a node, one that the step was not given and did not compute too."""
        self._in_graph(results, [])


@dataclass(frozen=True)
class Body:
    """The body of a loop: a graph (*carry, *x, *others) -> (*carry, *y).

    Args:
        graph: the graph.
        n_carry: how many tensors the carry has.
        n_x: how many tensors x has.
        others: the tensors that it uses besides, which may depend on parameters.
        example: arguments of the graph.
    """

    graph: fx.GraphModule
    n_carry: int
    n_x: int
    others: list[Tensor]
    example: Tensors


def body_of(
    step: Callable[..., list[Tensor]], recorder: Recorder, carry: list[Tensor], x: list[Tensor]
) -> Body | None:
    """Return the body of a loop; None where its steps have to be recorded one by one.

    That is where a step draws random numbers, holds back gradients, asks for values or writes into
    tensors of others.

    Args:
        step: (*carry, *x) -> [*carry, *y].
        recorder: what records the program around the loop.
        carry: the first one.
        x: of the first step.
    """
    own = OfBody()
    with _disable_current_modes(), torch.enable_grad():
        arguments = [a.detach().clone() for a in [*carry, *x]]
        for a in arguments:
            own.argument(a)
        try:
            with own:
                found = step(*arguments)
        except RuntimeError:  # it asks for values, or its error comes again in the loop itself
            return None
        if own.cut or any(_writes(node) for node in own.graph.nodes):
            return None
        own.settle(found)
        captured = [
            (constant, node)
            for constant, node in own.constants.values()
            if constant in recorder.nodes or constant.requires_grad
        ]
        first = next((n for n in own.graph.nodes if n.op != "placeholder"), own.graph._root)
        with own.graph.inserting_before(first):
            places = [own.graph.placeholder(f"other{i}") for i in range(len(captured))]
        for (constant, node), place in zip(captured, places, strict=True):
            place.meta.update(node.meta)
            node.replace_all_uses_with(place)
            own.graph.erase_node(node)
            own.nodes[constant] = place
        graph = own.module(found)
    others = [constant for constant, _ in captured]
    example = (*arguments, *(other.detach() for other in others))
    return Body(graph, len(carry), len(x), others, example)


def _writes(node: fx.Node) -> bool:
    """Return whether an operation changes its arguments."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def looped(body: Body, recorder: Recorder, carry: list[Tensor], xs: list[Tensor]) -> list[Tensor]:
    """Return the last carry and the stacked results of a loop, recorded as one node.

    Args:
        body: that of the loop.
        recorder: what records the program around it.
        carry: the first one.
        xs: what the steps take, [steps, ...] each.
    """
    inputs = [*carry, *xs, *body.others]
    with _disable_current_modes(), sources_forgotten():
        outputs = [y.meta["layout"] for y in cast(Any, body.graph.graph.output_node().args[0])]
        back = None
        if any(x.requires_grad for x in inputs):
            real = [layout.dtype.is_floating_point for layout in outputs]
            back = _Pullback(body, real, [x.requires_grad for x in inputs])
        forward = Loop(body.graph, body.example, body.n_carry, body.n_x, len(outputs), True)
    found = _Recorded.apply(forward, back, recorder, *inputs)
    return list(found[: len(outputs)])


class _Recorded(torch.autograd.Function):
    """The node of a loop, and that of its derivatives."""

    @staticmethod
    def forward(
        ctx: Any, loop: Loop, back: _Pullback | None, recorder: Recorder, *inputs: Tensor
    ) -> Tensors:
        found = recorder.call(loop, *inputs)
        past = found[loop.n_out :]
        ctx.back, ctx.recorder = back, recorder
        ctx.save_for_backward(*inputs, *past)
        whole = [x for x in found[: loop.n_out] if not x.is_floating_point()]
        ctx.mark_non_differentiable(*past, *whole)
        return found

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError("a recorded loop has first derivatives alone")
        back = ctx.back
        wanted = [i for i in back.of if ctx.needs_input_grad[3 + i]]
        given = [slope for slope, real in zip(slopes, back.real, strict=False) if real]
        found = ctx.recorder.call(back, *ctx.saved_tensors, *given)
        by_input = dict(zip(back.of, found, strict=True))
        n = len(ctx.needs_input_grad) - 3
        return (None,) * 3 + tuple(by_input[i] if i in wanted else None for i in range(n))


class _Pullback:
    """(*carry, *xs, *others, *earlier carries, *slopes of the results) -> slopes of the inputs.

    It is a loop that goes back: its carry is the slopes of the carry, and each step runs the body
    again at the carry that was kept.

    Args:
        body: that of the loop.
        real: which of its results have slopes.
        needed: which of its inputs need slopes; those of the carry are needed from step to step.

    Attributes:
        of: the places of the inputs whose slopes it returns.
        by_step: the places of the arguments whose first axis is the steps.
        stacked: which results have the steps as first axis.
        floats: the loop on floats, if its operations have that form.
    """

    def __init__(self, body: Body, real: list[bool], needed: list[bool]) -> None:
        self.__name__, self.__module__ = "pullback", __name__
        self.real = real
        self.n = len(body.example)
        self.n_carry, self.n_x = body.n_carry, body.n_x
        self.of = [
            i
            for i, x in enumerate(body.example)
            if x.is_floating_point() and (needed[i] or i < body.n_carry)
        ]
        self.real_carry = sum(real[: body.n_carry])
        slopes = [
            torch.ones_like(part)
            for part, one in zip(body.graph(*body.example), real, strict=True)
            if one
        ]
        own = slice(0, body.n_carry + body.n_x)
        example = (
            *slopes[: self.real_carry],
            *body.example[own],
            *slopes[self.real_carry :],
            *body.example[own.stop :],
        )

        def pull(*given: Tensor) -> list[Tensor]:
            first, rest = given[: self.real_carry], given[self.real_carry :]
            n_y = len(slopes) - self.real_carry
            of_y, others = rest[own.stop : own.stop + n_y], rest[own.stop + n_y :]
            inputs = [x.detach() for x in (*rest[own], *others)]
            for i in self.of:
                inputs[i].requires_grad_()
            with torch.enable_grad():
                found = body.graph(*inputs)
            found = [x for x, one in zip(found, real, strict=True) if one]
            pairs = [
                (x, slope)
                for x, slope in zip(found, (*first, *of_y), strict=True)
                if x.requires_grad
            ]
            sources = [inputs[i] for i in self.of]
            if not pairs:
                return [torch.zeros_like(x) for x in sources]
            return list(
                torch.autograd.grad(
                    [x for x, _ in pairs], sources, [slope for _, slope in pairs],
                    allow_unused=True, materialize_grads=True,
                )
            )  # fmt: skip

        graph = recorded(pull, example)
        of_x = sum(self.n_carry <= i < own.stop for i in self.of)
        n_in = own.stop + len(slopes) - self.real_carry
        self.loop = Loop(graph, example, self.real_carry, n_in, self.real_carry + of_x, False)
        self.floats, self.stacked = self.loop.floats, self.loop.stacked
        first_y = self.n + self.n_carry + self.real_carry
        self.by_step = {*range(self.n_carry, self.n_carry + self.n_x)}
        self.by_step |= {*range(self.n, self.n + self.n_carry)}
        self.by_step |= {*range(first_y, first_y + len(slopes) - self.real_carry)}

    def write(self, lines: Lines, given: tuple[Any, ...]) -> list[list[str]]:
        """Add the lines that call it to those of a graph; return the names of its results."""
        inputs, rest = given[: self.n], given[self.n :]
        past, slopes = rest[: self.n_carry], rest[self.n_carry :]
        xs = inputs[self.n_carry : self.n_carry + self.n_x]
        by_step = (*past, *xs, *slopes[self.real_carry :])
        found = self.loop.called(
            lines,
            [name for node in slopes[: self.real_carry] for name in lines.of(node)],
            [f"reversed({name})" for node in by_step for name in lines.columns_of(node)],
            [name for node in inputs[self.n_carry + self.n_x :] for name in lines.of(node)],
        )
        return [
            [lines.name_of(f"{name}[::-1]") for name in names] if stacked else names
            for names, stacked in zip(found, self.stacked, strict=True)
        ]

    def __call__(self, *given: Tensor) -> Tensors:
        inputs, rest = given[: self.n], given[self.n :]
        past, slopes = rest[: self.n_carry], rest[self.n_carry :]
        xs = inputs[self.n_carry : self.n_carry + self.n_x]
        by_step = (*past, *xs, *slopes[self.real_carry :])
        found = self.loop(
            *slopes[: self.real_carry],
            *(x.flip(0) for x in by_step),
            *inputs[self.n_carry + self.n_x :],
        )
        of_steps = range(self.real_carry, self.loop.n_out)
        return tuple(x.flip(0) if i in of_steps else x for i, x in enumerate(found))


class Loop:
    """(*carry, *xs, *others) -> (*last carry, *ys, *sums or *carries before each step).

    Args:
        graph: the body, (*carry, *x, *others) -> (*carry, *y, *terms of the sums).
        example: arguments of the body.
        n_carry: how many tensors the carry has.
        n_x: how many tensors x has.
        n_out: how many tensors carry and y have.
        past: whether the carries before each step are returned.

    Attributes:
        by_step, stacked, floats: as in ``_Pullback``.
    """

    def __init__(
        self,
        graph: fx.GraphModule,
        example: Tensors,
        n_carry: int,
        n_x: int,
        n_out: int,
        past: bool,
    ) -> None:
        self.__name__, self.__module__ = "loop", __name__
        self.n_carry, self.n_x, self.n_out, self.past = n_carry, n_x, n_out, past
        graph = simplified(graph)
        self.by_step = {*range(n_carry, n_carry + n_x)}
        n_sums = len(cast(Any, graph.graph.output_node().args[0])) - n_out
        self.stacked = [n_carry <= i < n_out for i in range(n_out + n_sums)]
        self.stacked += [True] * (n_carry if past else 0)
        self.floats = self._on_floats(graph)
        self.graph: Callable[..., Any] = graph
        if self.floats is None:
            self.graph = scripted(graph, example)

    def __call__(self, *given: Tensor) -> Tensors:
        with torch.no_grad():
            if self.floats is not None:
                try:
                    return self._by_floats(*given)
                except (ArithmeticError, ValueError):  # an infinite value, or NaN
                    pass
            return self._by_tensors(*given)

    def write(self, lines: Lines, given: tuple[Any, ...]) -> list[list[str]]:
        """Add the lines that call it to those of a graph; return the names of its results."""
        n, m = self.n_carry, self.n_carry + self.n_x
        return self.called(
            lines,
            [name for node in given[:n] for name in lines.of(node)],
            [name for node in given[n:m] for name in lines.columns_of(node)],
            [name for node in given[m:] for name in lines.of(node)],
        )

    def called(
        self, lines: Lines, carry: list[str], columns: list[str], others: list[str]
    ) -> list[list[str]]:
        """Add a call of the loop on floats; return the names of its results."""
        parts = [lines.named() for _ in range(4)]
        call = f"([{_joined(carry)}], zip({_joined(columns)}), [{_joined(others)}])"
        lines.lines.append(f"{_joined(parts)} = {lines.object(self.floats)}{call}")
        n, groups = self.n_carry, self.layouts
        groups = (groups[:n], groups[n : self.n_out], groups[self.n_out :])
        groups = (*groups, self.layouts[:n] if self.past else [])
        found: list[list[str]] = []
        for part, layouts in zip(parts, groups, strict=True):
            sizes = [layout.shape.numel() for layout in layouts]
            names = iter(lines.unpacked(part, sum(sizes)))
            found += [[next(names) for _ in range(size)] for size in sizes]
        return found

    def _by_tensors(self, *given: Tensor) -> Tensors:
        n, m = self.n_carry, self.n_carry + self.n_x
        carry, others = given[:n], given[m:]
        kept, rows, sums = [], [], None
        for x in zip(*(column.unbind(0) for column in given[n:m]), strict=True):
            kept.append(carry)
            found = tuple(self.graph(*carry, *x, *others))
            carry = found[:n]
            rows.append(found[n : self.n_out])
            terms = found[self.n_out :]
            sums = terms if sums is None else tuple(a + b for a, b in zip(sums, terms, strict=True))
        last = kept if self.past else []
        stacked = [torch.stack(column) for column in zip(*rows, strict=True)]
        before = [torch.stack(column) for column in zip(*last, strict=True)]
        # new tensors: a loop may return a carry that it was given
        return (*(x.clone() for x in carry), *stacked, *(sums or ()), *before)

    def _by_floats(self, *given: Tensor) -> Tensors:
        n, m = self.n_carry, self.n_carry + self.n_x
        steps = len(given[n])
        carry = [number for x in given[:n] for number in x.flatten().tolist()]
        columns = [column for x in given[n:m] for column in x.reshape(steps, -1).mT.tolist()]
        others = [number for x in given[m:] for number in x.flatten().tolist()]
        found, ys, sums, past = cast(Any, self.floats)(carry, zip(*columns, strict=True), others)
        return (
            *_in_tensors(found, self.layouts[:n]),
            *_in_tensors(ys, self.layouts[n : self.n_out], steps),
            *_in_tensors(sums, self.layouts[self.n_out :]),
            *_in_tensors(past, self.layouts[:n] if self.past else [], steps),
        )

    def _on_floats(self, graph: fx.GraphModule) -> Callable[..., Any] | None:
        """Return the loop on floats; None if an operation has no such form."""
        if not without_writing(graph.graph):
            return None
        nodes = list(graph.graph.nodes)
        constants = {n: getattr(graph, str(n.target)) for n in nodes if n.op == "get_attr"}
        operations = [n for n in nodes if n.op == "call_function"]
        if not all(n.target is getitem or runs_on_floats(n, constants) for n in operations):
            return None
        results = cast(Any, nodes[-1].args[0])
        arguments = [n for n in nodes if n.op == "placeholder"]
        layouts = [layout_of(n, constants) for n in (*arguments, *results)]
        if not all(suits(x) and cast(Layout, x).shape.numel() <= SMALL for x in layouts):
            return None
        self.layouts = cast(list[Layout], layouts[len(arguments) :])
        return _function(arguments, operations, results, constants, self)


def _function(
    arguments: list[fx.Node],
    operations: list[fx.Node],
    results: list[fx.Node],
    constants: dict[fx.Node, Tensor],
    loop: Loop,
) -> Callable[..., Any]:
    """Return (carry, steps, others) -> last carry, ys, sums, carries before each step, of floats.

    The numbers of all tensors of a kind are in one list. Those of ys and of carries are lists.
    """
    n, m = loop.n_carry, loop.n_carry + loop.n_x
    lines = Lines(constants)
    carry, given, others = (
        lines.fresh(part) for part in (arguments[:n], arguments[n:m], arguments[m:])
    )
    fixed = {*arguments[m:], *constants}
    for node in operations:  # what is the same in each step is computed before the loop
        if fixed.issuperset(node.all_input_nodes):
            fixed.add(node)
            lines.write(node)
    before, lines.lines = lines.lines, []
    for node in operations:
        if node not in fixed:
            lines.write(node)
    after, each, terms = (
        [name for node in part for name in lines.of(node)]
        for part in (results[:n], results[n : loop.n_out], results[loop.n_out :])
    )
    kept = carry if loop.past else []
    ys, past = [f"y{i}" for i in range(len(each))], [f"p{i}" for i in range(len(kept))]
    sums = [f"s{i}" for i in range(len(terms))]
    text = [
        *([f"{''.join(f'{name}, ' for name in carry)} = carry"] if carry else []),
        *([f"{''.join(f'{name}, ' for name in others)} = others"] if others else []),
        *before,
        *(f"{name} = []" for name in (*ys, *past)),
        *(f"{name} = 0.0" for name in sums),
        f"for {''.join(f'{name}, ' for name in given)} in steps:",
        *(f" {name}.append({value})" for name, value in zip(past, kept, strict=True)),
        *(f" {line}" for line in inlined(lines.lines, [*carry, *after, *each, *terms])),
        *(f" {name}.append({value})" for name, value in zip(ys, each, strict=True)),
        *(f" {name} = {name} + {value}" for name, value in zip(sums, terms, strict=True)),
        *([f" {', '.join(carry)}, = {', '.join(after)}," ] if carry else []),
        *([] if carry or kept or lines.lines or each or terms else [" pass"]),
        f"return {', '.join(f'[{_joined(part)}]' for part in (carry, ys, sums, past))}",
    ]  # fmt: skip
    return function_of(text, "loop", "carry, steps, others")


def _joined(names: list[str]) -> str:
    return ", ".join(names)


def _in_tensors(
    numbers: list[Any], layouts: list[Layout], steps: int | None = None
) -> Iterator[Tensor]:
    """Yield the tensors of the numbers, or of lists of a number for each step."""
    for layout in layouts:
        n = layout.shape.numel()
        own, numbers = numbers[:n], numbers[n:]
        x = torch.tensor(own, dtype=layout.dtype)
        if steps is None:
            yield x.view(layout.shape)
        else:
            yield x.view(n, steps).mT.reshape(steps, *layout.shape)
