"""Write operations on small tensors as Python on floats, a variable for each number.

A tensor operation takes about a microsecond however few its numbers are, an operation on floats
about 30 nanoseconds. Operations that only move numbers cost nothing: they name them anew. Where
torch gives infinity or NaN from finite numbers, Python may raise ArithmeticError or ValueError.
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
#: Floats of Python are in double precision. Numbers in single precision are rounded at the end.
DTYPES = {torch.float64: float, torch.float32: float, torch.bool: bool}
SMALL = 16  # numbers of a tensor that is computed as floats
MOVED = 4096  # numbers of a tensor from which, or into which, a few are moved
DEPTH = 8  # of brackets in an expression
VARIABLE, ASSIGNED = re.compile(r"\bv\d+\b"), re.compile(r"(v\d+) = ")
#: what the lines may call
NAMES: dict[str, Any] = {
    name: getattr(math, name)
    for name in (
        *("exp", "log", "log1p", "expm1", "sqrt", "sin", "cos", "tan", "tanh", "sinh", "cosh"),
        *("atan", "erf", "erfc", "lgamma", "pow", "inf", "nan"),
    )
} | {"abs": abs}
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
}
KEYWORDS_OF_MOVES = {"memory_format"}
OF_ONE = ("exp", "log", "log1p", "expm1", "sqrt", "sin", "cos", "tan", "tanh", "sinh", "cosh")
BINARY = {"add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "div": "{} / {}"}
COMPARED = {"gt": ">", "lt": "<", "ge": ">=", "le": "<=", "eq": "==", "ne": "!="}
#: expressions of operations, entry by entry, whose result is in double precision
OF_NUMBERS: dict[Any, str] = {
    **{getattr(aten, name).Tensor: text for name, text in BINARY.items()},
    **{getattr(aten, name).Scalar: text for name, text in BINARY.items()},
    **{
        getattr(aten, name).default: f"{name}({{}})"
        for name in (*OF_ONE, "atan", "erf", "erfc", "lgamma", "abs")
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
    aten.pow.Tensor_Scalar: "pow({}, {})",
    aten.pow.Scalar: "pow({}, {})",
    aten.tanh_backward.default: "{0} * (1.0 - {1} * {1})",
    aten.sigmoid_backward.default: "{0} * (1.0 - {1}) * {1}",
    aten.threshold_backward.default: "(0.0 if {1} <= {2} else {0})",
    aten.masked_fill.Scalar: "({2} if {1} else {0})",
    aten.masked_fill.Tensor: "({2} if {1} else {0})",
    aten.where.self: "({1} if {0} else {2})",
}
#: those whose result is true or false, of numbers
COMPARISONS: dict[Any, str] = {
    getattr(getattr(aten, name), kind): f"({{}} {sign} {{}})"
    for name, sign in COMPARED.items()
    for kind in ("Tensor", "Scalar")
}
#: those of what is true or false alone
LOGIC: dict[Any, str] = {
    aten.logical_not.default: "(not {})",
    aten.logical_and.default: "({} and {})",
    aten.logical_or.default: "({} or {})",
    aten.bitwise_and.Tensor: "({} and {})",
    aten.bitwise_or.Tensor: "({} or {})",
    aten.bitwise_not.default: "(not {})",
}
EXPRESSIONS = OF_NUMBERS | COMPARISONS | LOGIC
#: which argument of an operation is true or false, where the result is a number
CONDITIONS = {
    aten.where.self: 0,
    aten.masked_fill.Scalar: 1,
    aten.masked_fill.Tensor: 1,
}
SUMS = {aten.sum.default, aten.sum.dim_IntList}
PRODUCTS = {aten.dot.default, aten.mv.default, aten.mm.default}
POWERS = {1.0: "{0}", 2.0: "{0} * {0}", 3.0: "{0} * {0} * {0}", 0.5: "sqrt({0})"}


def runs_on_floats(node: fx.Node) -> bool:
    """Return whether ``Lines`` can write an operation of a graph."""
    if node.target is getitem:
        return True
    results = [_layout(part) for part in _results(node)]
    inputs = [_layout(part) for part in node.all_input_nodes]
    if not all(suits(part) for part in [*results, *inputs]):
        return False
    sizes = [[cast(Layout, part).shape.numel() for part in side] for side in (results, inputs)]
    largest = [max(side, default=0) for side in sizes]
    if node.target in MOVES:
        same = len({cast(Layout, part).dtype for part in [*results, *inputs]}) == 1
        plain = node.kwargs.keys() <= KEYWORDS_OF_MOVES
        return same and plain and min(largest) <= SMALL and max(largest) <= MOVED
    if node.kwargs or max(largest) > SMALL:
        return False
    if node.target in SUMS or node.target in PRODUCTS:
        return all(DTYPES[cast(Layout, part).dtype] is float for part in [*results, *inputs])
    return node.target in EXPRESSIONS and _has_dtypes_of_table(node)


def _has_dtypes_of_table(node: fx.Node) -> bool:
    """Return whether an operation entry by entry has the arguments that its expression is for."""
    needed = [a for a in cast(Any, node.target)._schema.arguments if not a.has_default_value()]
    if len(node.args) != len(needed):  # it is given alpha or the like
        return False
    kinds = [_kind(part) for part in node.args]
    result = _kind(node)
    if node.target in LOGIC:
        return {*kinds, result} == {bool}
    if node.target in COMPARISONS:
        return set(kinds) == {float} and result is bool
    i = CONDITIONS.get(cast(Any, node.target))
    if i is not None and kinds.pop(i) is not bool:
        return False
    if node.target is aten.mul.Tensor and float in kinds:  # a mask times a number
        return {*kinds, result} <= {float, bool} and result is float
    return set(kinds) == {float} and result is float


def _kind(part: Any) -> Any:
    """Return float or bool, for numbers or what is true or false."""
    layout = _layout(part) if isinstance(part, fx.Node) else None
    if layout is not None:
        return DTYPES.get(layout.dtype)
    return float if type(part) in (int, float) else type(part)


def suits(layout: Layout | None) -> bool:
    """Return whether the numbers of a tensor that lies in this way can be floats of Python."""
    if layout is None or layout.device.type != "cpu":
        return False
    return layout.dtype in DTYPES


def _layout(node: fx.Node) -> Layout | None:
    """Return how the tensor of a node lies in memory; None if it is no tensor."""
    found = node.meta.get("layout")
    return Layout.of(found) if isinstance(found, Tensor) else found


def _results(node: fx.Node) -> list[fx.Node]:
    """Return the nodes of the tensors that an operation computes."""
    parts = [user for user in node.users if user.target is getitem]
    return parts if parts and len(parts) == len(node.users) else [node]


class Lines:
    """Lines of Python that compute the numbers of tensors.

    Args:
        constants: The nodes of a graph whose values are known.

    Attributes:
        lines: The lines, without indentation.
    """

    def __init__(self, constants: dict[fx.Node, Tensor]) -> None:
        self.lines: list[str] = []
        self._numbers: dict[fx.Node, Any] = {
            node: [_literal(v) for v in value.flatten().tolist()]
            for node, value in constants.items()
        }
        self._names: dict[str, str] = {}  # of expressions that have one
        self._count = 0

    def of(self, node: fx.Node) -> list[str]:
        """Return the names of the numbers of a node; a constant has its numbers themselves."""
        return self._numbers[node]

    def fresh(self, nodes: list[fx.Node]) -> list[str]:
        """Return new names of the numbers of several nodes."""
        for node in nodes:
            self._numbers[node] = [self._named() for _ in range(_shape(node).numel())]
        return [name for node in nodes for name in self._numbers[node]]

    def write(self, node: fx.Node) -> None:
        """Add the lines of an operation for which ``runs_on_floats`` holds."""
        if node.target is getitem:
            source, i = node.args
            self._numbers[node] = self._numbers[cast(fx.Node, source)][cast(int, i)]
        elif node.target in MOVES:
            self._numbers[node] = self._moved(node)
        elif node.target in SUMS:
            self._numbers[node] = self._summed(node)
        elif node.target in PRODUCTS:
            self._numbers[node] = self._multiplied(node)
        else:
            self._numbers[node] = self._entry_by_entry(node)

    def _named(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def _name_of(self, expression: str) -> str:
        """Return the name of the value of an expression, written once."""
        name = self._names.get(expression)
        if name is None:
            name = self._names[expression] = self._named()
            self.lines.append(f"{name} = {expression}")
        return name

    def _moved(self, node: fx.Node) -> Any:
        """Return the names of moved numbers, found by moving their places; 0 is a new zero."""
        names = ["False" if _kind(_results(node)[0]) is bool else "0.0"]

        def places(part: fx.Node) -> Tensor:
            first = len(names)
            names.extend(self.of(part))
            return torch.arange(first, len(names)).reshape(_shape(part))

        args = map_arg(node.args, places)
        target: Any = aten.reshape.default if node.target is aten.view.default else node.target
        found = target(*args)
        if isinstance(found, Tensor):
            return [names[i] for i in found.flatten().tolist()]
        return [[names[i] for i in part.flatten().tolist()] for part in found]

    def _summed(self, node: fx.Node) -> list[str]:
        source, *others = node.args
        source = cast(fx.Node, source)
        places = torch.arange(len(self.of(source))).reshape(_shape(source))
        if node.target is aten.sum.default or not others[0]:
            groups = [places.flatten().tolist()]
        else:
            places = places.reshape(_shape(source) or [1])
            dims = [d % places.ndim for d in cast(Any, others[0])]
            kept = [d for d in range(places.ndim) if d not in dims]
            count = math.prod(places.shape[d] for d in kept)
            size = math.prod(places.shape[d] for d in dims)
            groups = places.permute([*kept, *dims]).reshape(count, size).tolist()
        names = self.of(source)
        return [self._total([names[i] for i in group]) for group in groups]

    def _total(self, names: list[str]) -> str:
        return names[0] if len(names) == 1 else self._name_of(" + ".join(names) or "0.0")

    def _multiplied(self, node: fx.Node) -> list[str]:
        left, right = (cast(fx.Node, part) for part in node.args)
        inner = _shape(right)[0]
        a, b = self.of(left), self.of(right)
        columns = math.prod(_shape(right)[1:])
        rows = [a[i * inner : (i + 1) * inner] for i in range(math.prod(_shape(left)[:-1]))]
        return [
            self._total(
                [self._name_of(f"{x} * {y}") for x, y in zip(row, b[j::columns], strict=True)]
            )
            for row in rows
            for j in range(columns)
        ]

    def _entry_by_entry(self, node: fx.Node) -> list[str]:
        text = EXPRESSIONS[node.target]
        if node.target is aten.pow.Tensor_Scalar:
            text = POWERS.get(float(cast(Any, node.args[1])), text)
        columns = [self._spread(part, _shape(node)) for part in node.args]
        return [self._name_of(text.format(*entry)) for entry in zip(*columns, strict=True)]

    def _spread(self, part: Any, shape: torch.Size) -> list[str]:
        """Return the names of an argument that is broadcast to a shape."""
        if not isinstance(part, fx.Node):
            return [_literal(part)] * shape.numel()
        names = self.of(part)
        places = torch.arange(len(names)).reshape(_shape(part)).expand(shape)
        return [names[i] for i in places.flatten().tolist()]


def _shape(node: fx.Node) -> torch.Size:
    return cast(Layout, _layout(node)).shape


def _literal(value: float | bool) -> str:
    """Return a number as Python writes it, in brackets where a sign could bind otherwise."""
    text = repr(value if isinstance(value, bool) else float(value))
    return f"({text})" if text.startswith("-") else text


def inlined(lines: list[str], kept: Iterable[str] = ()) -> list[str]:
    """Return lines with fewer variables: one that a single line reads is written there in brackets.

    A third of the time goes into variables otherwise: each is stored and loaded. The depth of
    brackets is limited, as Python limits it.

    Args:
        lines: As those of ``Lines``.
        kept: The names that others read too.
    """
    last = set(kept)
    reads = Counter(last)
    for line in lines:
        reads.update(VARIABLE.findall(ASSIGNED.sub("", line)))
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
        name, expression = line.split(" = ", 1)
        expression = VARIABLE.sub(in_place, expression)
        if reads[name] == 1 and name not in last and depth < DEPTH:
            waiting[name] = (expression, depth)
        elif reads[name]:
            found.append(f"{name} = {expression}")
    return found


def function_of(lines: list[str], name: str, arguments: str) -> Callable[..., Any]:
    """Return the function that does the lines, all of which the library wrote.

    Args:
        lines: The lines.
        name: That of the function.
        arguments: Their names, with commas.
    """
    body = "\n ".join(lines)
    code = compile(f"def {name}({arguments}):\n {body}", f"<{name} of floats>", "exec")
    (function,) = (part for part in code.co_consts if isinstance(part, CodeType))
    return FunctionType(function, NAMES | {"__builtins__": {}})
