"""A loop as one operation of a graph."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import repeat
from typing import Any, cast

import torch
from torch import Tensor, fx
from torch._C._functorch import peek_interpreter_stack
from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode

from .floats import SMALL, Lines, function_of, inlined, runs_on_floats, suits
from .recorder import Layout, Recorder, recorded
from .simplify import by_value, simplified
from .tracing import scripted

MOST_LINES = 5000  # of a step on floats; Python takes long to compile more
Tensors = tuple[Tensor, ...]


class Loop:
    """(*carry, *xs, *others) -> (*last carry, *ys, *sums, *carries before each step).

    Steps whose tensors have few numbers run on floats, which are in double precision; where Python
    raises an error for them, and in all other loops, they run on tensors.

    Args:
        graph: Of a step, (*carry, *x, *others) -> (*carry, *y, *terms of the sums).
        example: Arguments of the graph.
        counts: How many tensors carry, x and y have.
        keeps: Whether the carries before each step are returned.
        backwards: Whether the last step is done first. The results [steps, ...] stay in the order
            of xs.
        single: Whether the program is in single precision. Otherwise numbers in it are not computed
            on floats: what double precision adds to them would be seen.
        k: The number of loops abreast: the first axis of all tensors, before the steps.
        floats: One loop of those abreast on floats; None where they run on tensors.
    """

    def __init__(
        self,
        graph: fx.GraphModule,
        example: Tensors,
        counts: tuple[int, int, int],
        keeps: bool,
        backwards: bool,
        single: bool = False,
        k: int | None = None,
        floats: Floats | None = None,
    ) -> None:
        self.__name__, self.__module__ = "loop", __name__
        self.example, self.counts = example, counts
        self.keeps, self.backwards, self.k = keeps, backwards, k
        self.graph = by_value(simplified(graph, together=False))
        self.floats = Floats.of(self.graph, counts, keeps, single) if k is None else floats
        self.step: Callable[..., Any] = self.graph
        if self.floats is None:
            self.step = scripted(self.graph, example)

    def __call__(self, *given: Tensor) -> Tensors:
        if peek_interpreter_stack() is not None:
            return _Abreast.apply(self, *given)
        with torch.no_grad():
            if self.floats is not None:
                try:
                    return self.floats(given, self.k, self.backwards)
                except (ArithmeticError, ValueError):  # an infinite number, or NaN
                    pass
            return self._on_tensors(*given)

    def abreast(self, k: int) -> Loop:
        """Return k loops as one; see the argument ``k``."""
        example = tuple(x.expand(k, *x.shape).contiguous() for x in self.example)
        with _disable_current_modes():
            graph = recorded(torch.vmap(self.graph), example)
            counts, floats = self.counts, self.floats
            return Loop(graph, example, counts, self.keeps, self.backwards, k=k, floats=floats)

    def _on_tensors(self, *given: Tensor) -> Tensors:
        n, n_x, n_y = self.counts
        carry, others = given[:n], given[n + n_x :]
        axis = int(self.k is not None)
        rows = zip(*(x.unbind(axis) for x in given[n : n + n_x]), strict=True)
        kept, ys, sums = [], [], None
        for x in reversed(list(rows)) if self.backwards else rows:
            kept.append(carry)
            found = tuple(self.step(*carry, *x, *others))
            carry, terms = found[:n], found[n + n_y :]
            ys.append(found[n : n + n_y])
            sums = terms if sums is None else tuple(a + b for a, b in zip(sums, terms, strict=True))
        lists = [*zip(*ys, strict=True), *(zip(*kept, strict=True) if self.keeps else ())]
        if self.backwards:
            lists = [each[::-1] for each in lists]
        stacks = [torch.stack(each, axis) for each in lists]
        # new tensors: a step may return a tensor that it was given
        return (*(_new(x) for x in carry), *stacks[:n_y], *map(_new, sums or ()), *stacks[n_y:])


def _new(x: Tensor) -> Tensor:
    """Return a copy, which is no view: the program may write into it."""
    return x.clone(memory_format=torch.contiguous_format)


class _Abreast(torch.autograd.Function):
    """The call of a loop under vmap."""

    @staticmethod
    def forward(loop: Loop, *given: Tensor) -> Tensors:
        return loop(*given)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep nothing: the gradient of a loop is another loop."""

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Tensors, Any]:
        loop, *given = args
        k = info.batch_size
        wide = [
            x.expand(k, *x.shape) if dim is None else x.movedim(dim, 0)
            for x, dim in zip(given, in_dims[1:], strict=True)
        ]
        abreast = loop.abreast(k)
        recorder = _get_current_dispatch_mode()
        if isinstance(recorder, Recorder) and peek_interpreter_stack() is None:
            found = recorder.call(abreast, *wide)
        else:
            found = abreast(*wide)
        return found, (0,) * len(found)


class Floats:
    """A loop of which each number is a float of Python.

    Args:
        run: (carry, steps, others) -> last carry, ys, sums, carries before each step, as lists of
            numbers or of a list for each number.
        counts: How many tensors carry, x and y have.
        results: The layouts of the results, without the axis of the steps.
        n_own: How many of them a step computes; the others are the carries before each step.
    """

    def __init__(
        self,
        run: Callable[..., Any],
        counts: tuple[int, int, int],
        results: list[Layout],
        n_own: int,
    ) -> None:
        self.run, self.counts, self.results, self.n_own = run, counts, results, n_own

    @classmethod
    def of(
        cls, graph: fx.GraphModule, counts: tuple[int, int, int], keeps: bool, single: bool
    ) -> Floats | None:
        """Return the loop of a step; None if an operation has no such form."""
        nodes = list(graph.graph.nodes)
        constants = {n: getattr(graph, str(n.target)) for n in nodes if n.op == "get_attr"}
        operations = [n for n in nodes if n.op == "call_function"]
        if not all(runs_on_floats(n) for n in operations):
            return None
        arguments = [n for n in nodes if n.op == "placeholder"]
        results = list(cast(Any, nodes[-1].args[0]))
        layouts = [_layout(n, constants) for n in (*arguments, *constants, *results)]
        if not all(suits(x) and x.shape.numel() <= SMALL for x in layouts):
            return None
        if not single and any(x.dtype == torch.float32 for x in layouts):
            return None
        lines = _lines(arguments, operations, results, constants, counts, keeps)
        if len(lines) > MOST_LINES:
            return None
        run = function_of(lines, "loop", "carry, steps, others")
        found = layouts[-len(results) :] if results else []
        before = found[: counts[0]] if keeps else []
        return cls(run, counts, [*found, *before], len(found))

    def __call__(self, given: Tensors, k: int | None, backwards: bool) -> Tensors:
        """Return the results, of one loop or of k abreast; see ``Loop``.

        Raises:
            ArithmeticError: Where Python raises it for what is infinite in torch.
            ValueError: Outside the domain of a function of floats.
        """
        n, n_x, n_y = self.counts
        count = given[n].shape[int(k is not None)]
        carry, others = ([_by_point(x, k) for x in part] for part in (given[:n], given[n + n_x :]))
        columns = [_columns_by_point(x, k) for x in given[n : n + n_x]]
        found: list[list[Any]] = []
        for point in range(k or 1):
            own: list[Any] = _joined(columns, point)
            if backwards:
                own = [reversed(column) for column in own]
            # no list of tuples: Python would look for garbage again and again
            steps = zip(*own, strict=True) if own else repeat((), count)
            parts = self.run(_joined(carry, point), steps, _joined(others, point))
            if backwards:
                for column in (*parts[1], *parts[3]):
                    column.reverse()
            found.append([number for part in parts for number in part])
        results, start = [], 0
        for i, layout in enumerate(self.results):
            end = start + layout.shape.numel()
            numbers = [point[start:end] for point in found]
            stacked = n <= i < n + n_y or i >= self.n_own
            results.append(_in_tensor(numbers, layout, k, count if stacked else None))
            start = end
        return tuple(results)


def _joined(parts: list[list[list[Any]]], point: int) -> list[Any]:
    """Return the numbers of several tensors at one of the points."""
    return [number for part in parts for number in part[point]]


def _by_point(x: Tensor, k: int | None) -> list[list[Any]]:
    """Return the numbers of each point."""
    width = k or 1
    return x.reshape(width, x.numel() // width).tolist()


def _columns_by_point(x: Tensor, k: int | None) -> list[list[list[Any]]]:
    """Return, for each point, a list of the steps for each number of a step."""
    if k is None:
        return _columns_by_point(x[None], 1)
    if k > 1 and x.stride(0) == 0:  # the same for all
        return _columns_by_point(x[:1], 1) * k
    count = x.shape[1]
    return x.reshape(k, count, x.numel() // count // k).mT.tolist()


def _in_tensor(numbers: list[Any], layout: Layout, k: int | None, count: int | None) -> Tensor:
    """Return the tensor of the numbers of each point, or of a list of the steps for each."""
    shape = [*([] if k is None else [k]), *([] if count is None else [count]), *layout.shape]
    flat = array("d")  # several times faster than torch.tensor
    for point in numbers:
        for part in [point] if count is None else point:
            flat.fromlist(part)
    if not flat:
        return torch.zeros(shape, dtype=layout.dtype)
    x = torch.frombuffer(flat, dtype=torch.float64)
    if count is not None:
        x = x.reshape(k or 1, layout.shape.numel(), count).mT
    return _new(x.reshape(shape).to(layout.dtype))


def _layout(node: fx.Node, constants: dict[fx.Node, Tensor]) -> Any:
    return Layout.of(constants[node]) if node in constants else node.meta.get("layout")


def _lines(
    arguments: list[fx.Node],
    operations: list[fx.Node],
    results: list[fx.Node],
    constants: dict[fx.Node, Tensor],
    counts: tuple[int, int, int],
    keeps: bool,
) -> list[str]:
    """Return the lines of ``Floats.run``."""
    n, n_x, n_y = counts
    lines = Lines(constants)
    parts = (arguments[:n], arguments[n : n + n_x], arguments[n + n_x :])
    carry, given, others = (lines.fresh(part) for part in parts)
    fixed = {*arguments[n + n_x :], *constants}
    for node in operations:  # what is the same in each step is computed before the loop
        if fixed.issuperset(node.all_input_nodes):
            fixed.add(node)
            lines.write(node)
    before, lines.lines = lines.lines, []
    for node in operations:
        if node not in fixed:
            lines.write(node)
    of_results = (results[:n], results[n : n + n_y], results[n + n_y :])
    after, each, terms = ([name for node in part for name in lines.of(node)] for part in of_results)
    ys, past = [f"y{i}" for i in range(len(each))], [f"p{i}" for i in range(len(carry) * keeps)]
    sums = [f"s{i}" for i in range(len(terms))]
    inside = inlined(lines.lines, [*carry, *after, *each, *terms])
    return [
        f"[{_listed(carry)}] = carry",
        f"[{_listed(others)}] = others",
        *before,
        *(f"{name} = []" for name in (*ys, *past)),
        *(f"{name} = 0.0" for name in sums),
        f"for [{_listed(given)}] in steps:",
        *(f" {name}.append({value})" for name, value in zip(past, carry, strict=False)),
        *(f" {line}" for line in inside),
        *(f" {name}.append({value})" for name, value in zip(ys, each, strict=True)),
        *(f" {name} = {name} + {value}" for name, value in zip(sums, terms, strict=True)),
        f" [{_listed(carry)}] = [{_listed(after)}]",
        f"return {', '.join(f'[{_listed(part)}]' for part in (carry, ys, sums, past))}",
    ]


def _listed(names: list[str]) -> str:
    return ", ".join(names)
