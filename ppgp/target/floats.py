"""Write operations on small tensors as Python on floats, a variable for each number.

A tensor operation takes about a microsecond however few its numbers are, an operation on floats
about 30 nanoseconds. Operations that only move numbers cost nothing: they name them anew.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from operator import getitem
from types import CodeType, FunctionType
from typing import Any, cast

import torch
from torch import Tensor, fx
from torch.fx.node import map_arg

from .recorder import Layout

aten = torch.ops.aten
SMALL = 16  # numbers of a tensor that is computed as floats
MOVED = 4096  # numbers of a tensor from which, or into which, a few are moved
DTYPES = (torch.float64, torch.bool)
DEPTH = 8  # of brackets in an expression
VARIABLE, ASSIGNED = re.compile(r"\bv\d+\b"), re.compile(r"(v\d+) = ")
ZERO, ONE = "0.0", "1.0"
#: what the lines may call
NAMES: dict[str, Any] = {
    name: getattr(math, name)
    for name in (
        *("exp", "log", "log1p", "expm1", "sqrt", "sin", "cos", "tan", "tanh", "sinh", "cosh"),
        *("atan", "erf", "erfc", "lgamma", "pow", "isfinite", "isinf", "inf", "nan"),
    )
} | {"abs": abs, "zip": zip, "reversed": reversed}
MOVES = {
    aten.alias.default,
    aten.cat.default,
    aten.clone.default,
    aten.detach.default,
    aten.diagonal.default,
    aten.expand.default,
    aten.flip.default,
    aten.lift_fresh_copy.default,
    aten.permute.default,
    aten.reshape.default,
    aten.select.int,
    aten.select_backward.default,
    aten.slice.Tensor,
    aten.slice_backward.default,
    aten.split.Tensor,
    aten.split_with_sizes.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.stack.default,
    aten.t.default,
    aten.transpose.int,
    aten.unbind.int,
    aten.unsqueeze.default,
    aten.view.default,
    aten._unsafe_view.default,
}
BINARY = {"add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "div": "{} / {}"}
COMPARED = {"gt": ">", "lt": "<", "ge": ">=", "le": "<=", "eq": "==", "ne": "!="}
#: expressions of operations, entry by entry
EXPRESSIONS: dict[Any, str] = {
    **{getattr(aten, name).Tensor: text for name, text in BINARY.items()},
    **{getattr(aten, name).Scalar: text for name, text in BINARY.items()},
    **{getattr(aten, name).Tensor: f"({{}} {sign} {{}})" for name, sign in COMPARED.items()},
    **{getattr(aten, name).Scalar: f"({{}} {sign} {{}})" for name, sign in COMPARED.items()},
    **{
        getattr(aten, name).default: f"{name}({{}})"
        for name in (
            *("exp", "log", "log1p", "expm1", "sqrt", "sin", "cos", "tan", "tanh", "sinh"),
            *("cosh", "atan", "erf", "erfc", "lgamma", "abs", "isinf"),
        )
    },
    aten.neg.default: "-{}",
    aten.reciprocal.default: "1.0 / {}",
    aten.rsqrt.default: "1.0 / sqrt({})",
    aten.rsub.Scalar: "{1} - {0}",
    aten.sigmoid.default: "1.0 / (1.0 + exp(-{}))",
    aten.relu.default: "({0} if {0} > 0.0 or {0} != {0} else 0.0)",
    aten.sgn.default: "(({0} > 0.0) - ({0} < 0.0)) * 1.0",
    aten.sign.default: "(({0} > 0.0) - ({0} < 0.0)) * 1.0",
    aten.maximum.default: "({0} if {0} >= {1} or {0} != {0} else {1})",
    aten.minimum.default: "({0} if {0} <= {1} or {0} != {0} else {1})",
    aten.pow.Tensor_Tensor: "pow({}, {})",
    aten.pow.Scalar: "pow({}, {})",
    aten.tanh_backward.default: "{0} * (1.0 - {1} * {1})",
    aten.sigmoid_backward.default: "{0} * (1.0 - {1}) * {1}",
    aten.threshold_backward.default: "({0} if {1} > {2} else 0.0)",
    aten.masked_fill.Scalar: "({2} if {1} else {0})",
    aten.masked_fill.Tensor: "({2} if {1} else {0})",
    aten.where.self: "({1} if {0} else {2})",
    aten.logical_not.default: "(not {})",
    aten.logical_and.default: "({} and {})",
    aten.logical_or.default: "({} or {})",
    aten.bitwise_and.Tensor: "({} and {})",
    aten.bitwise_or.Tensor: "({} or {})",
    aten.bitwise_not.default: "(not {})",
}
SUMS = {aten.sum.default, aten.sum.dim_IntList}
PRODUCTS = {aten.dot.default, aten.mv.default, aten.mm.default}
POWERS = {1.0: "{0}", 2.0: "{0} * {0}", 3.0: "{0} * {0} * {0}", 0.5: "sqrt({0})"}


def runs_on_floats(node: fx.Node, constants: dict[fx.Node, Tensor]) -> bool:
    """Return whether ``Lines`` can write a node of a graph."""
    if node.target in (aten.add.Tensor, aten.sub.Tensor, aten.div.Tensor) and node.kwargs:
        return False  # multiplied by alpha, or rounded
    results = [layout_of(part) for part in results_of(node)]
    inputs = [layout_of(part, constants) for part in node.all_input_nodes]
    if not all(suits(part) for part in [*results, *inputs]):
        return False
    sizes = [[cast(Layout, part).shape.numel() for part in side] for side in (results, inputs)]
    largest = [max(side, default=0) for side in sizes]
    if any(is_stacked(part) for part in node.all_input_nodes):
        return False
    if node.target in MOVES:
        return min(largest) <= SMALL and max(largest) <= MOVED
    known = node.target in EXPRESSIONS or node.target in SUMS or node.target in PRODUCTS
    if node.target is aten.pow.Tensor_Scalar:
        known = isinstance(node.args[1], int | float)
    return known and max(largest) <= SMALL


def suits(layout: Layout | None) -> bool:
    """Return whether the numbers of a tensor that lies in this way can be floats of Python."""
    return layout is not None and layout.dtype in DTYPES and layout.device.type == "cpu"


def is_stacked(node: fx.Node) -> bool:
    """Return whether a node is a result of all steps of a loop that runs on floats."""
    if node.target is not getitem:
        return False
    loop: Any = cast(fx.Node, node.args[0]).target
    return getattr(loop, "floats", None) is not None and loop.stacked[cast(int, node.args[1])]


def layout_of(node: fx.Node, constants: dict[fx.Node, Tensor] | None = None) -> Layout | None:
    """Return how the tensor of a node lies in memory; None if it is no tensor."""
    if constants is not None and node in constants:
        return Layout.of(constants[node])
    layout = node.meta.get("layout")
    return layout if isinstance(layout, Layout) else None


def results_of(node: fx.Node) -> list[fx.Node]:
    """Return the nodes of the tensors that an operation computes."""
    parts = [user for user in node.users if user.target is getitem]
    return parts if parts and len(parts) == len(node.users) else [node]


class Lines:
    """Lines of Python that compute the numbers of tensors.

    Args:
        constants: the nodes of a graph whose values are known.

    Attributes:
        lines: the lines, without indentation.
        numbers: the names of the numbers of each node, in the order of its entries. An operation
            with several results has a list of such lists.
        columns: for nodes whose first axis is the steps of a loop, the names of lists, one for each
            number of a step.
        stacked: the nodes whose numbers are known as columns alone.
        objects: what the lines call or read by name, besides ``NAMES``.
    """

    def __init__(self, constants: dict[fx.Node, Tensor]) -> None:
        self.constants = constants
        self.lines: list[str] = []
        self.numbers: dict[fx.Node, Any] = {}
        self.columns: dict[fx.Node, list[str]] = {}
        self.objects: dict[str, Any] = {}
        self.stacked: set[fx.Node] = set()
        self._names: dict[str, str] = {}  # of expressions that have one
        self._count = 0

    def named(self) -> str:
        """Return a new name of a number."""
        self._count += 1
        return f"v{self._count}"

    def name_of(self, expression: str) -> str:
        """Return the name of the value of an expression, written once."""
        name = self._names.get(expression)
        if name is None:
            name = self._names[expression] = self.named()
            self.lines.append(f"{name} = {expression}")
        return name

    def of(self, node: fx.Node) -> list[str]:
        """Return the names of the numbers of a node; a constant has its numbers themselves."""
        if node not in self.numbers:
            self.numbers[node] = [literal(v) for v in self.constants[node].flatten().tolist()]
        return self.numbers[node]

    def columns_of(self, node: fx.Node) -> list[str]:
        """Return the expressions of lists of each number of a step of a loop."""
        if node in self.constants and node not in self.columns:
            table = self.constants[node]
            lists = table.reshape(len(table), -1).mT.tolist()
            self.columns[node] = [self.object(column) for column in lists]
        if node not in self.columns:
            names, steps = self.of(node), self._shape(node)[0]
            n = len(names) // steps
            lists = [f"[{', '.join(names[i::n])}]" for i in range(n)]
            self.columns[node] = [self.name_of(column) for column in lists]
        return self.columns[node]

    def object(self, value: Any) -> str:
        """Return a name by which the lines read an object."""
        name = f"o{len(self.objects)}"
        self.objects[name] = value
        return name

    def unpacked(self, name: str, count: int) -> list[str]:
        """Return new names of the parts of a list."""
        names = [self.named() for _ in range(count)]
        if names:
            self.lines.append(f"{', '.join(names)}, = {name}")
        return names

    def take_columns(self, node: fx.Node, expression: str) -> None:
        """Let an expression be lists of each number of a step of a loop."""
        shape = self._shape(node)
        self.columns[node] = self.unpacked(expression, shape[1:].numel())

    def fresh(self, nodes: list[fx.Node]) -> list[str]:
        """Return new names of the numbers of several nodes."""
        for node in nodes:
            layout = cast(Layout, layout_of(node))
            self.numbers[node] = [self.named() for _ in range(layout.shape.numel())]
        return [name for node in nodes for name in self.numbers[node]]

    def take(self, node: fx.Node, expression: str) -> None:
        """Let an expression be a float, or a list of the numbers of a node with dimensions."""
        names = self.fresh([node])
        if not self._shape(node):
            self.lines.append(f"{names[0]} = {expression}")
        elif names:
            self.lines.append(f"{', '.join(names)}, = {expression}")

    def shown(self, node: fx.Node) -> str:
        """Return the expression of a float, or a list of the numbers of a node."""
        names = self.columns[node] if node in self.stacked else self.of(node)
        return f"[{', '.join(names)}]" if self._shape(node) else names[0]

    def write(self, node: fx.Node) -> None:
        """Add the lines of a node for which ``runs_on_floats`` holds, or that is part of one."""
        if node.target is getitem:
            source, i = cast(fx.Node, node.args[0]), cast(int, node.args[1])
            if is_stacked(node):
                self.stacked.add(node)
                self.columns[node] = self.numbers[source][i]
            else:
                self.numbers[node] = self.numbers[source][i]
        elif not isinstance(node.target, torch._ops.OpOverload):
            self.numbers[node] = cast(Any, node.target).write(self, node.args)
        elif node.target in MOVES:
            self.numbers[node] = self._moved(node)
        elif node.target in SUMS:
            self.numbers[node] = self._summed(node)
        elif node.target in PRODUCTS:
            self.numbers[node] = self._multiplied(node)
        else:
            self.numbers[node] = self._entry_by_entry(node)

    def _moved(self, node: fx.Node) -> Any:
        """Return the names of moved numbers, found by moving their places; 0 is a new zero."""
        names = [ZERO]

        def places(part: fx.Node) -> Tensor:
            first = len(names)
            names.extend(self.of(part))
            return torch.arange(first, len(names)).view(self._shape(part))

        args = map_arg(node.args, places)
        kwargs = {k: v for k, v in node.kwargs.items() if k not in ("dtype", "memory_format")}
        found = cast(Any, node.target)(*args, **kwargs)
        if isinstance(found, Tensor):
            return [names[i] for i in found.flatten().tolist()]
        return [[names[i] for i in part.flatten().tolist()] for part in found]

    def _shape(self, node: fx.Node) -> torch.Size:
        return cast(Layout, layout_of(node, self.constants)).shape

    def _summed(self, node: fx.Node) -> list[str]:
        source, *others = node.args
        source = cast(fx.Node, source)
        places = torch.arange(len(self.of(source))).view(self._shape(source))
        if node.target is aten.sum.default or not others[0]:
            groups = [places.flatten().tolist()]
        else:
            dims = [d % places.ndim for d in cast(Any, others[0])]
            kept = [d for d in range(places.ndim) if d not in dims]
            count = math.prod(places.shape[d] for d in kept)
            groups = places.permute(*kept, *dims).reshape(count, -1).tolist()
        names = self.of(source)
        return [self._total([names[i] for i in group]) for group in groups]

    def _total(self, names: list[str]) -> str:
        terms = [name for name in names if name != ZERO] or [ZERO]
        return terms[0] if len(terms) == 1 else self.name_of(" + ".join(terms))

    def _multiplied(self, node: fx.Node) -> list[str]:
        left, right = (cast(fx.Node, part) for part in node.args)
        inner = self._shape(right)[0]
        a, b = self.of(left), self.of(right)
        columns = len(b) // inner
        rows = [a[i : i + inner] for i in range(0, len(a), inner)]
        return [
            self._total(
                [self._entry("{} * {}", pair) for pair in zip(row, b[j::columns], strict=True)]
            )
            for row in rows
            for j in range(columns)
        ]

    def _entry_by_entry(self, node: fx.Node) -> list[str]:
        shape = cast(Layout, layout_of(node)).shape
        args = node.args
        if node.target is aten.pow.Tensor_Scalar:
            text = POWERS.get(float(cast(Any, args[1])), "pow({}, {})")
        else:
            text = EXPRESSIONS[node.target]
        columns = [self._spread(part, shape) for part in args]
        return [self._entry(text, entries) for entries in zip(*columns, strict=True)]

    def _spread(self, part: Any, shape: torch.Size) -> list[str]:
        """Return the names of an argument that is broadcast to a shape."""
        numel = shape.numel()
        if not isinstance(part, fx.Node):
            return [literal(part)] * numel
        names = self.of(part)
        if len(names) == numel:
            return names
        if len(names) == 1:
            return names * numel
        places = torch.arange(len(names)).view(self._shape(part)).expand(shape)
        return [names[i] for i in places.flatten().tolist()]

    def _entry(self, text: str, names: tuple[str, ...]) -> str:
        if text == BINARY["add"] and ZERO in names:
            return names[names[0] == ZERO]
        if text == BINARY["mul"] and ONE in names:
            return names[names[0] == ONE]
        return self.name_of(text.format(*names))


def literal(value: float | bool) -> str:
    """Return a number as Python writes it, in brackets where a sign could bind otherwise."""
    text = repr(value if isinstance(value, bool) else float(value))
    return f"({text})" if text.startswith("-") else text


def inlined(lines: list[str], kept: Iterable[str] = ()) -> list[str]:
    """Return lines with fewer variables: one that a single line reads is written there in brackets.

    A third of the time goes into variables otherwise: each is stored and loaded. The depth of
    brackets is limited, as Python limits it.

    Args:
        lines: as those of ``Lines``; a line that is not ``name = expression`` stays where it is.
        kept: the names that others read too.
    """
    reads = Counter(kept)
    for line in lines:
        reads.update(VARIABLE.findall(ASSIGNED.sub("", line)))
    last = set(kept)
    waiting: dict[str, tuple[str, int]] = {}  # expressions to be written, with their depths
    found: list[str] = []
    depth = 0

    def in_place(match: re.Match[str]) -> str:
        nonlocal depth
        if match[0] not in waiting:
            return match[0]
        expression, own = waiting.pop(match[0])
        depth = max(depth, own + 1)
        return f"({expression})"

    for line in lines:
        depth = 0
        start = ASSIGNED.match(line)
        if start is None:
            line = VARIABLE.sub(in_place, line)
            found += [f"{name} = {expression}" for name, (expression, _) in waiting.items()]
            waiting.clear()
            found.append(line)
            continue
        name, expression = start[1], VARIABLE.sub(in_place, line[start.end() :])
        if reads[name] == 1 and name not in last and depth < DEPTH:
            waiting[name] = (expression, depth)
        else:
            found.append(f"{name} = {expression}")
    return found + [f"{name} = {expression}" for name, (expression, _) in waiting.items()]


def function_of(
    lines: list[str], name: str, arguments: str, objects: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """Return the function that does the lines, all of which the library wrote.

    Args:
        lines: the lines.
        name: that of the function.
        arguments: their names, with commas.
        objects: what the lines may use besides ``NAMES``.
    """
    body = "\n ".join(lines)
    code = compile(f"def {name}({arguments}):\n {body}", f"<{name} of floats>", "exec")
    (function,) = (part for part in code.co_consts if isinstance(part, CodeType))
    return FunctionType(function, NAMES | (objects or {}) | {"__builtins__": {}})
