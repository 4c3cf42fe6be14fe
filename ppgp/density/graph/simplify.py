"""Simplify a traced graph: Pyro's handlers leave behind operations that compute nothing.

They would take a noticeable share of a gradient of 60 microseconds. Shapes are known, so what
depends on shapes alone is a constant, and so is what depends on constants alone. A repeated
operation is done once. Adding 0, multiplying by 1 and reshaping to the same shape are left out. An
operation that changes a tensor in place stays as it is, and so does the tensor that it changes.
"""

from __future__ import annotations

from operator import getitem
from typing import Any, cast

import torch
from torch import Tensor, fx
from torch.fx.node import map_arg

from .horizontal_fusion import fuse_parts
from .peephole import peephole
from .recorder import OF_SHAPES_ALONE, Layout, memory_of, stored, written_arguments

aten = torch.ops.aten
SAME_IF_SAME_SHAPE = {
    aten.view.default,
    aten.reshape.default,
    aten.expand.default,
    aten.squeeze.dim,
    aten.sum.default,
    aten._to_copy.default,
    aten.alias.default,
    aten.detach.default,
}
NEUTRAL: dict[Any, float] = {
    aten.add.Tensor: 0.0,
    aten.sub.Tensor: 0.0,
    aten.mul.Tensor: 1.0,
    aten.div.Tensor: 1.0,
    aten.pow.Tensor_Scalar: 1.0,
}
COMMUTES = {aten.add.Tensor, aten.mul.Tensor}
#: an operation by c as a multiple by c, 1 / c or -1, or as a shift by c or -c
BY_A_CONSTANT: dict[Any, tuple[Any, Any]] = {
    aten.neg.default: (aten.mul.Tensor, torch.clone),
    aten.mul.Tensor: (aten.mul.Tensor, torch.clone),
    aten.mul.Scalar: (aten.mul.Tensor, torch.clone),
    aten.div.Tensor: (aten.mul.Tensor, torch.reciprocal),
    aten.div.Scalar: (aten.mul.Tensor, torch.reciprocal),
    aten.add.Tensor: (aten.add.Tensor, torch.clone),
    aten.add.Scalar: (aten.add.Tensor, torch.clone),
    aten.sub.Tensor: (aten.add.Tensor, torch.neg),
    aten.sub.Scalar: (aten.add.Tensor, torch.neg),
}
LARGEST = 4096  # numbers in a constant made of shapes that is stored rather than computed
STORED = 2**25  # numbers in all constants made of others that are stored: 256 MB
VIEWS = {aten.expand.default, aten.view.default}  # of memory that is stored already
Constants = dict[fx.Node, Tensor]


def simplified(module: fx.GraphModule, together: bool = True) -> fx.GraphModule:
    """Return ``module`` itself, changed to compute the same with fewer operations.

    Args:
        module: A recorded graph.
        together: Whether operations on parts of a vector, and some that follow each other, are done
            in one. A step that runs on floats has no form for these.
    """
    graph = module.graph
    changed = _mutated(module)
    constants: Constants = {}
    several: dict[fx.Node, Any] = {}  # the results of operations that have more than one
    seen: dict[Any, fx.Node] = {}
    room = STORED
    for node in list(graph.nodes):
        if node.op == "get_attr":
            constants[node] = getattr(module, str(node.target))
        if node.target is getitem and node.args[0] in several:
            _replaced(module, node, several[node.args[0]][node.args[1]], constants)
            continue
        target: Any = node.target
        pure = getattr(target, "pure", False)
        if isinstance(target, torch._ops.OpOverload):
            pure = torch.Tag.nondeterministic_seeded not in target.tags
        if (
            not pure
            # what it reads may have changed since an equal operation read it
            or not changed.isdisjoint([node, *node.all_input_nodes])
        ):
            continue
        same = _neutral(node, constants)
        if same is None:
            value = _constant(node, constants, room)
            if isinstance(value, Tensor):
                room -= 0 if node.target in VIEWS else value.numel()
                _replaced(module, node, value, constants)
                continue
            if value is not None:
                room -= sum(part.numel() for part in value)
                several[node] = value
                continue
            node = _chained(module, node, constants, changed)
            same = seen.setdefault((node.target, repr(node.args), repr(node.kwargs)), node)
        if same is not node:
            node.replace_all_uses_with(same)
            graph.erase_node(node)
    _joined(graph, changed)
    graph.eliminate_dead_code()
    if together:
        fuse_parts(module, changed)
        peephole(module, changed)
    read = {str(node.target) for node in graph.nodes if node.op == "get_attr"}
    for name in [name for name, _ in module.named_buffers() if name not in read]:
        delattr(module, name)
    module.recompile()
    return module


def by_value(module: fx.GraphModule) -> fx.GraphModule:
    """Return a graph itself, changed to take arguments that lie in memory in any way.

    Views stay where an operation in place may write through them.
    """
    changed = _mutated(module)
    for node in module.graph.nodes:
        if node.target is aten.view.default and node not in changed:
            node.target = aten.reshape.default
    module.recompile()
    return module


def _replaced(module: fx.GraphModule, node: fx.Node, value: Tensor, constants: Constants) -> None:
    """Put a stored constant in the place of a node."""
    with module.graph.inserting_before(node):
        constant = stored(module, value)
    constants[constant] = value
    constant.meta["layout"] = node.meta.get("layout")
    node.replace_all_uses_with(constant)
    module.graph.erase_node(node)


def _joined(graph: fx.Graph, mutated: set[fx.Node]) -> None:
    """Replace a sum of vectors that are padded with zeros, as gradients are, by a concatenation."""
    for node in list(graph.nodes):
        if (
            node.target is not aten.add.Tensor
            or any(u.target is aten.add.Tensor for u in node.users)
            or node.kwargs
        ):
            continue
        pieces = _padded(node, mutated)
        if pieces is None:
            continue
        pieces.sort(key=lambda piece: piece[0])
        ends = [0, *(stop for _, stop, _ in pieces)]
        if [start for start, _, _ in pieces] != ends[:-1] or ends[-1] != node.meta["layout"].shape[
            0
        ]:
            continue
        with graph.inserting_before(node):
            whole = graph.call_function(aten.cat.default, ([piece for *_, piece in pieces],))
        whole.meta["layout"] = node.meta["layout"]
        node.replace_all_uses_with(whole)


def _padded(root: fx.Node, mutated: set[fx.Node]) -> list[tuple[int, int, fx.Node]] | None:
    """Return (start, stop, piece) of a sum of ``slice_backward`` of vectors; None if not one.

    Nor is it one where an operation in place may change a part before the sum is read.

    A stack holds what is left to see: the sums in the gradient of a long loop are deeper than
    Python may recurse.
    """
    pieces: list[tuple[int, int, fx.Node]] = []
    waiting: list[Any] = [root]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, fx.Node) or (node in mutated and node is not root):
            return None
        if node.target is aten.slice_backward.default:
            piece, sizes, dim, start, stop, step = node.args
            if len(cast(Any, sizes)) != 1 or dim != 0 or step != 1 or piece in mutated:
                return None
            pieces.append(cast(Any, (start, stop, piece)))
            continue
        shared = node is not root and len(node.users) > 1  # it is computed in any case
        if node.target is not aten.add.Tensor or node.kwargs or shared:
            return None
        left, right = node.args
        if left is right:  # twice the same is no concatenation
            return None
        waiting += [right, left]
    return pieces


def _mutated(module: fx.GraphModule) -> set[fx.Node]:
    """Return nodes that an operation in place changes, and all that may share memory with them.

    ``squeeze_`` and the like, which reshape a view that nothing else uses, are first replaced by
    the operation that is not in place.
    """
    views: set[fx.Node] = set()
    waiting: list[fx.Node] = []
    for node in module.graph.nodes:
        target = node.target
        if not isinstance(target, torch._ops.OpOverload):
            if node.op == "call_function":
                views.add(node)  # getitem of an operation with several results
            continue
        if torch.Tag.inplace_view in target.tags:
            name = target._schema.name.removeprefix("aten::").removesuffix("_")
            target = node.target = getattr(getattr(aten, name), target._overloadname)
        if target._schema.is_mutable:
            waiting += [node, *written_arguments(target, node.args, node.kwargs)]
        if any(r.alias_info is not None for r in target._schema.returns):
            views.add(node)
    sharing: dict[int, list[fx.Node]] = {}  # constants by their memory
    for node in module.graph.nodes:
        if node.op == "get_attr":
            memory = memory_of(getattr(module, str(node.target)))
            sharing.setdefault(memory, []).append(node)
    beside = {node: group for group in sharing.values() for node in group}
    found: set[fx.Node] = set()
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes[:1] if node in views else []
            waiting += views.intersection(node.users)
            waiting += beside.get(node, [])
    return found


def _neutral(node: fx.Node, constants: Constants) -> fx.Node | None:
    """Return the argument that the node only repeats; None if there is none."""
    here = node.meta.get("layout")
    if not isinstance(here, Layout):
        return None
    first = node.args[0] if node.args else None
    if node.target in SAME_IF_SAME_SHAPE:
        same = isinstance(first, fx.Node) and here == first.meta.get("layout")
        return cast(fx.Node, first) if same else None
    neutral = NEUTRAL.get(node.target)
    if neutral is None or node.kwargs:
        return None
    pairs = [node.args[:2]] + ([node.args[1::-1]] if node.target in COMMUTES else [])
    for kept, other in pairs:
        if not isinstance(kept, fx.Node) or here != kept.meta.get("layout"):
            continue
        number: Any = constants.get(cast(Any, other), cast(Any, other))
        equal = torch.as_tensor(number == neutral)
        if equal.numel() and bool(equal.all()):
            return kept
    return None


def _chained(
    module: fx.GraphModule, node: fx.Node, constants: Constants, mutated: set[fx.Node]
) -> fx.Node:
    """Merge a multiple of a multiple by constants, or a shift of a shift; return the node."""
    outer = _by_a_constant(node, constants)
    if outer is None or len(outer[1].users) != 1:
        return node
    if not mutated.isdisjoint(outer[1].all_input_nodes):  # they may change before the outer one
        return node
    inner = _by_a_constant(outer[1], constants)
    if inner is None or inner[0] is not outer[0]:
        return node
    target, x, first = inner
    constant = target(outer[2], first)
    if not bool(torch.isfinite(constant).all()):
        return node
    for factor in (outer[2], first) if target is aten.mul.Tensor else ():
        if factor.is_floating_point():
            least, size = torch.finfo(factor.dtype).tiny ** 0.25, factor.abs()
            if not bool(((size == 0) | ((size > least) & (size < 1 / least))).all()):
                return node  # one product may underflow or overflow where the other does not
    with module.graph.inserting_before(node):
        folded = stored(module, constant)
        whole = module.graph.call_function(target, (x, folded))
    constants[folded] = constant
    folded.meta["layout"], whole.meta["layout"] = constant, node.meta["layout"]
    node.replace_all_uses_with(whole)
    module.graph.erase_node(node)
    return whole


def _by_a_constant(node: fx.Node, constants: Constants) -> tuple[Any, fx.Node, Tensor] | None:
    """Return (mul, x, c) of a node that is x c, or (add, x, c) of one that is x + c.

    The node has the shape of x. None for another node.
    """
    if node.target not in BY_A_CONSTANT or node.kwargs or len(node.args) > 2:
        return None
    target, constant_of = BY_A_CONSTANT[node.target]
    pair = (*node.args, -1.0)[:2]  # a negative is a multiple by -1
    for x, c in (pair, pair[::-1]) if node.target in COMMUTES else (pair,):
        if not isinstance(x, fx.Node) or x in constants:
            continue
        value: Any = x.meta.get("layout")
        if not isinstance(value, Layout) or value != node.meta.get("layout"):
            continue
        c = constants.get(cast(Any, c), c)  # the tensor of a constant
        if isinstance(c, int | float) and value.dtype.is_floating_point:
            c = torch.tensor(float(c), dtype=value.dtype, device=value.device)
        if isinstance(c, Tensor) and c.dtype == value.dtype and c.numel() <= LARGEST:
            return target, x, constant_of(c)
    return None


def _constant(node: fx.Node, constants: Constants, room: int) -> Tensor | tuple[Tensor, ...] | None:
    """Return the value of a node that depends on shapes or constants alone; None otherwise.

    An operation with several results, such as a Cholesky factor and whether it failed, has a tuple.

    Args:
        node: The node.
        constants: Those known so far.
        room: The numbers that may be stored in addition to them.
    """
    target: Any = node.target
    results = [user for user in node.users if user.target is getitem]
    if not results or len(results) < len(node.users):
        results = [node]  # its one result is a tensor
    parts = [part.meta.get("layout") for part in results]
    layouts = [part for part in parts if isinstance(part, Layout)]
    if len(layouts) < len(parts):
        return None
    numbers = sum(layout.shape.numel() for layout in layouts)
    inputs = node.all_input_nodes
    if target in OF_SHAPES_ALONE:
        if numbers > LARGEST:
            return None
        like = cast(fx.Node, node.args[0]).meta["layout"].empty()
        return target(like, *node.args[1:], **node.kwargs)
    if not all(n in constants for n in inputs):
        return None
    if target not in VIEWS and numbers > (room if inputs else LARGEST):
        return None
    args, kwargs = map_arg((node.args, node.kwargs), lambda n: constants[n])
    value = target(*args, **kwargs)
    return value if isinstance(value, Tensor) else tuple(value)  # unbind gives a list
