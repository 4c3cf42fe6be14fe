"""Replace two operations that follow each other by one that does both.

Each rule holds for all numbers up to rounding; see ``_quotient_times`` for the exception.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, fx

from .recorder import Layout, stored

aten = torch.ops.aten


def peephole(module: fx.GraphModule, mutated: set[fx.Node]) -> None:
    """Change the graph of a module, whose constants are its buffers.

    Args:
        module: The graph.
        mutated: Nodes that an operation in place changes, which are left alone.
    """
    for node in list(module.graph.nodes):
        if node.op != "call_function" or not mutated.isdisjoint([node, *node.all_input_nodes]):
            continue
        for rule, targets in RULES:
            if node.target not in targets:
                continue
            with module.graph.inserting_before(node):
                found = rule(module, node)
            if found is not None and not _takes_the_place(found, node, mutated):
                module.graph.erase_node(found)
                found = None
            if found is not None:
                found.meta["layout"] = node.meta["layout"]
                node.replace_all_uses_with(found)
                inputs = node.all_input_nodes
                module.graph.erase_node(node)
                for unread in inputs:  # its operands would count as read otherwise
                    if not unread.users and unread.op == "call_function":
                        module.graph.erase_node(unread)
                node = found
    module.graph.eliminate_dead_code()


def _takes_the_place(found: fx.Node, node: fx.Node, mutated: set[fx.Node]) -> bool:
    """Return whether an operation on the operands of others may stand in the place of the last.

    An operand that is written to in between has other numbers there. Strides depend on the order of
    operands that lie in memory in different ways, and later views depend on strides.
    """
    if not mutated.isdisjoint(found.all_input_nodes):
        return False
    layout: Layout = node.meta["layout"]
    if found.target is aten.slice.Tensor:
        return True
    operands: list[Layout] = []
    for x in found.all_input_nodes:
        if x.op != "get_attr":
            operands.append(x.meta["layout"])
            continue
        table: Tensor = getattr(node.graph.owning_module, str(x.target))
        operands.append(Layout.of(table))
        if x is found.args[0] and table.ndim > 1:
            return False  # with several points, it lies in another way than what they compute
    same = [own for own in operands if own.shape == layout.shape]
    rest = [own for own in operands if own.shape != layout.shape]
    return (
        bool(same)
        and all(own.stride == layout.stride for own in same)
        and all(own.empty().is_contiguous() for own in rest)
    )


def _multiple_added(module: fx.GraphModule, node: fx.Node) -> fx.Node | None:
    """Return x + c y in one operation, for a number c."""
    layout = node.meta.get("layout")
    if node.kwargs or not isinstance(layout, Layout) or not layout.dtype.is_floating_point:
        return None
    sign = 1.0 if node.target is aten.add.Tensor else -1.0
    # the multiple on either side; the sign is that of the second operand
    pairs = [(node.args[0], node.args[1], sign, 1.0), (node.args[1], node.args[0], 1.0, sign)]
    for product, other, of_other, of_product in pairs:
        found = _multiple(module, product)
        if found is None or not _alike(found[0], node):
            continue
        y, c = found
        if isinstance(other, fx.Node):
            if of_other != 1.0 or other.meta["layout"].dtype != layout.dtype:
                continue
        else:
            value = of_other * float(cast(float, other))
            other = stored(module, torch.tensor(value, dtype=layout.dtype, device=layout.device))
        alpha: dict[str, Any] = {"alpha": of_product * c}
        return module.graph.call_function(aten.add.Tensor, (other, y), alpha)
    return None


def _square_added(module: fx.GraphModule, node: fx.Node) -> fx.Node | None:
    """Return x + c y^2 in one operation, for a number c."""
    square = node.args[1]
    if not isinstance(node.args[0], fx.Node):
        return None
    if not isinstance(square, fx.Node) or len(square.users) > 1 or not _alike(square, node):
        return None
    if square.target is not aten.pow.Tensor_Scalar or square.args[1] != 2:
        return None
    x, y = node.args[0], cast(fx.Node, square.args[0])
    if not _alike(y, node) or x.meta["layout"].dtype != y.meta["layout"].dtype:
        return None
    value: dict[str, Any] = {"value": node.kwargs.get("alpha", 1)}
    return module.graph.call_function(aten.addcmul.default, (x, y, y), value)


def _quotient_times(module: fx.GraphModule, node: fx.Node) -> fx.Node | None:
    """Return (a + b / e) e as b + a e, for e = exp(z).

    Where e is 0 or infinite, or b / e overflows, the first is not finite. The second is then the
    derivative itself, or not finite either.
    """
    for whole, e in (node.args, node.args[::-1]):
        if not isinstance(e, fx.Node) or e.target is not aten.exp.default:
            continue
        if not isinstance(whole, fx.Node) or whole.target is not aten.add.Tensor:
            continue
        if whole.kwargs or len(whole.users) > 1:  # the sum and the quotient are read once
            continue
        for a, quotient in (whole.args, whole.args[::-1]):
            if not isinstance(a, fx.Node) or not isinstance(quotient, fx.Node):
                continue
            if quotient.target is not aten.div.Tensor or len(quotient.users) > 1:
                continue
            b, divisor = quotient.args
            if divisor is not e or not isinstance(b, fx.Node):
                continue
            if all(_alike(x, node) for x in (a, b, e)):
                return module.graph.call_function(aten.addcmul.default, (b, a, e))
    return None


def _one_of_a_vector(module: fx.GraphModule, node: fx.Node) -> fx.Node | None:
    """Return one number of a vector as a vector, without the number itself."""
    one = node.args[0]
    if (
        not isinstance(one, fx.Node)
        or one.target is not aten.select.int
        or node.meta["layout"].shape != (1,)
    ):
        return None
    vector, _, at = cast(Any, one.args)
    size = vector.meta["layout"].shape[0]
    return module.graph.call_function(aten.slice.Tensor, (vector, 0, at % size, at % size + 1))


def _multiple(module: fx.GraphModule, node: Any) -> tuple[fx.Node, float] | None:
    """Return (y, c) of a node that is c y for a finite number c, and that one node reads."""
    if not isinstance(node, fx.Node) or node.kwargs or len(node.users) > 1:
        return None
    if node.target is aten.neg.default:
        return cast(fx.Node, node.args[0]), -1.0
    if node.target is aten.rsub.Scalar and node.args[1] == 0 and len(node.args) == 2:
        return cast(fx.Node, node.args[0]), -1.0
    if node.target is not aten.mul.Tensor:
        return None
    for y, c in (node.args, node.args[::-1]):
        number = math.nan
        if isinstance(c, int | float):
            number = float(c)
        elif isinstance(c, fx.Node) and c.op == "get_attr":
            tensor: Tensor = getattr(module, str(c.target))
            if tensor.is_floating_point() and 0 < tensor.numel() <= 4096:
                first = tensor.reshape(-1)[0]
                number = float(first) if bool((tensor == first).all()) else math.nan
        if math.isfinite(number) and isinstance(y, fx.Node) and _alike(y, node):
            return y, number
    return None


def _alike(x: fx.Node, y: fx.Node) -> bool:
    """Return whether two nodes have the same shape and kind of numbers."""
    a, b = x.meta.get("layout"), y.meta.get("layout")
    if not isinstance(a, Layout) or not isinstance(b, Layout):
        return False
    return a.shape == b.shape and a.dtype == b.dtype


#: the rules in their order, and the operations that each one looks at
RULES: tuple[tuple[Callable[[fx.GraphModule, fx.Node], fx.Node | None], set[Any]], ...] = (
    (_multiple_added, {aten.add.Tensor, aten.sub.Tensor}),
    (_square_added, {aten.add.Tensor}),
    (_quotient_times, {aten.mul.Tensor}),
    (_one_of_a_vector, {aten.unsqueeze.default}),
)
