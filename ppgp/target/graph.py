"""A function traced to a graph, and the graph made small: Pyro's handlers leave much behind that computes nothing, and at 60 microseconds a gradient it shows.

Shapes are known, so what depends on shapes alone is a constant; so is what depends on constants alone. A repeated operation
is done once, and adding 0, multiplying by 1 or reshaping to the same shape is left out. Nothing that changes a tensor in
place is touched, nor what it changes.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx import graph_module
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg

from ..numerics.libraries import unchanged
from ..numerics.process_locks import silenced

aten = torch.ops.aten
OF_SHAPES_ALONE = {
    aten.zeros_like.default,
    aten.ones_like.default,
    aten.full_like.default,
    aten.new_zeros.default,
    aten.new_ones.default,
    aten.new_full.default,
}
SAME_IF_SAME_SHAPE = {
    aten.view.default,
    aten._unsafe_view.default,
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
ABREAST_UP_TO = 10_000  # numbers in the largest tensor computed for one point
HEAVY = 2**20
LARGEST = 4096  # numbers in a constant that is stored rather than computed


def simplified(module: fx.GraphModule) -> fx.GraphModule:
    """The same function of the same arguments, with fewer operations."""
    graph = module.graph
    _functional(graph)
    mutated = _mutated(graph)
    constants: dict[fx.Node, Tensor] = {}
    seen: dict[Any, fx.Node] = {}
    for node in list(graph.nodes):
        if node.op == "get_attr":
            constants[node] = getattr(module, str(node.target))
        if node.op != "call_function" or node in mutated or not _pure(node):
            continue
        if any(
            n in mutated for n in node.all_input_nodes
        ):  # what it reads may have changed since an equal operation read it
            continue
        same = _neutral(node, constants)
        if same is None:
            value = _constant(node, constants)
            if value is not None:
                with graph.inserting_before(node):
                    same = _stored(module, value)
                constants[same] = value
                same.meta["val"] = node.meta.get("val")
            else:
                node = _chained(module, node, constants)
                same = seen.setdefault((node.target, *map(_key, (node.args, node.kwargs))), node)
        if same is not node:
            node.replace_all_uses_with(same)
            graph.erase_node(node)
    _joined(graph)
    graph.eliminate_dead_code()
    module.recompile()
    return module


def _joined(graph: fx.Graph) -> None:
    """A gradient that is the sum of its pieces, each padded with zeros to full length, is their concatenation."""
    for node in list(graph.nodes):
        if (
            node.target is not aten.add.Tensor
            or any(u.target is aten.add.Tensor for u in node.users)
            or node.kwargs
        ):
            continue
        pieces = _padded(node)
        if pieces is None:
            continue
        pieces.sort(key=lambda piece: piece[0])
        ends = [0, *(stop for _, stop, _ in pieces)]
        if [start for start, _, _ in pieces] != ends[:-1] or ends[-1] != node.meta["val"].shape[0]:
            continue
        with graph.inserting_before(node):
            whole = graph.call_function(aten.cat.default, ([piece for *_, piece in pieces],))
        whole.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(whole)


def _padded(node: fx.Node) -> list[tuple[int, int, fx.Node]] | None:
    """(start, stop, piece) of a sum of ``slice_backward`` of vectors; None where it is anything else."""
    if node.target is aten.slice_backward.default:
        piece, sizes, dim, start, stop, step = node.args
        return [(start, stop, piece)] if len(sizes) == 1 and dim == 0 and step == 1 else None  # type: ignore[arg-type,list-item]
    if node.target is not aten.add.Tensor or node.kwargs:
        return None
    sides = [_padded(a) if isinstance(a, fx.Node) else None for a in node.args]
    return None if any(s is None for s in sides) else [piece for side in sides for piece in side]  # type: ignore[union-attr]


def _functional(graph: fx.Graph) -> None:
    """``squeeze_`` and its kind change the shape of a view that nothing else uses: the operation that is not in place serves."""
    for node in graph.nodes:
        if (
            isinstance(node.target, torch._ops.OpOverload)
            and torch.Tag.inplace_view in node.target.tags
        ):
            packet = getattr(
                aten, node.target._schema.name.removeprefix("aten::").removesuffix("_")
            )
            node.target = getattr(packet, node.target._overloadname)


def _is_view(node: fx.Node) -> bool:
    if not isinstance(node.target, torch._ops.OpOverload):
        return node.op == "call_function"  # getitem of an operation with several results
    return any(r.alias_info is not None for r in node.target._schema.returns)


def _mutated(graph: fx.Graph) -> set[fx.Node]:
    """Nodes that an operation in place changes, and all that may share memory with them."""
    found: set[fx.Node] = set()
    waiting = [
        n
        for n in graph.nodes
        if isinstance(n.target, torch._ops.OpOverload) and n.target._schema.is_mutable
    ]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes[:1] if _is_view(node) else []
            waiting += [user for user in node.users if _is_view(user)]
    return found


def _pure(node: fx.Node) -> bool:
    target = node.target
    return (
        isinstance(target, torch._ops.OpOverload)
        and torch.Tag.nondeterministic_seeded not in target.tags
    )


def _key(argument: Any) -> Any:
    return (
        repr(map_arg(argument, lambda n: n)) if not isinstance(argument, fx.Node) else argument.name
    )


def _like(a: Any, b: Any) -> bool:
    """Whether both are tensors of one shape, layout, dtype and device."""
    return (
        isinstance(a, Tensor)
        and isinstance(b, Tensor)
        and (a.shape, a.stride(), a.dtype, a.device) == (b.shape, b.stride(), b.dtype, b.device)
    )


def _neutral(node: fx.Node, constants: dict[fx.Node, Tensor]) -> fx.Node | None:
    """The argument that the node merely repeats."""
    here = node.meta.get("val")
    first = node.args[0] if node.args else None
    if node.target in SAME_IF_SAME_SHAPE:
        return first if isinstance(first, fx.Node) and _like(first.meta.get("val"), here) else None
    neutral = NEUTRAL.get(node.target)
    if neutral is None or node.kwargs:
        return None
    pairs = [node.args[:2]] + ([node.args[1::-1]] if node.target in COMMUTES else [])
    for kept, other in pairs:
        if isinstance(kept, fx.Node) and _like(kept.meta.get("val"), here):
            value = constants.get(other) if isinstance(other, fx.Node) else other
            if isinstance(value, Tensor) and value.numel():
                value = (
                    value.reshape(-1)[0].item()
                    if bool((value == value.reshape(-1)[0]).all())
                    else None
                )
            if isinstance(value, int | float) and value == neutral:
                return kept
    return None


def _chained(module: fx.GraphModule, node: fx.Node, constants: dict[fx.Node, Tensor]) -> fx.Node:
    """A multiple of a multiple is one multiple, by constants; a shift of a shift one shift. The node that does for both."""
    for read, combine, target in (
        (_multiple, torch.mul, aten.mul.Tensor),
        (_shift, torch.add, aten.add.Tensor),
    ):
        outer = read(node, constants)
        inner = (
            read(outer[0], constants) if outer is not None and len(outer[0].users) == 1 else None
        )
        if outer is None or inner is None:
            continue
        constant = combine(outer[1], inner[1])
        if not bool(torch.isfinite(constant).all()):
            continue
        with module.graph.inserting_before(node):
            stored = _stored(module, constant)
            whole = module.graph.call_function(target, (inner[0], stored))
        constants[stored] = constant
        stored.meta["val"], whole.meta["val"] = constant, node.meta["val"]
        node.replace_all_uses_with(whole)
        module.graph.erase_node(node)
        return whole
    return node


def _multiple(node: fx.Node, constants: dict[fx.Node, Tensor]) -> tuple[fx.Node, Tensor] | None:
    """(x, c) of a node that is x c, of the shape of x."""
    if node.kwargs:
        return None
    if node.target is aten.neg.default:
        return _over(node, node.args[0], -1.0, constants)
    if node.target in (aten.mul.Tensor, aten.mul.Scalar):
        x, c = node.args
        return _over(node, x, c, constants) or _over(node, c, x, constants)
    if node.target in (aten.div.Tensor, aten.div.Scalar):
        x, c = node.args
        found = _over(node, x, c, constants)
        return None if found is None else (found[0], found[1].reciprocal())
    return None


def _shift(node: fx.Node, constants: dict[fx.Node, Tensor]) -> tuple[fx.Node, Tensor] | None:
    """(x, c) of a node that is x + c, of the shape of x."""
    if node.kwargs:
        return None
    if node.target in (aten.add.Tensor, aten.add.Scalar):
        x, c = node.args
        return _over(node, x, c, constants) or _over(node, c, x, constants)
    if node.target in (aten.sub.Tensor, aten.sub.Scalar):
        x, c = node.args
        found = _over(node, x, c, constants)
        return None if found is None else (found[0], -found[1])
    return None


def _over(
    node: fx.Node, x: Any, c: Any, constants: dict[fx.Node, Tensor]
) -> tuple[fx.Node, Tensor] | None:
    if (
        not isinstance(x, fx.Node)
        or x in constants
        or not _like(x.meta.get("val"), node.meta.get("val"))
    ):
        return None
    value: Tensor = x.meta["val"]
    if isinstance(c, int | float) and value.is_floating_point():
        return x, torch.tensor(float(c), dtype=value.dtype, device=value.device)
    held = constants.get(c) if isinstance(c, fx.Node) else None
    return (
        (x, held)
        if held is not None and held.dtype == value.dtype and held.numel() <= LARGEST
        else None
    )


def _constant(node: fx.Node, constants: dict[fx.Node, Tensor]) -> Tensor | None:
    target: Any = node.target
    here = node.meta.get("val")
    if not isinstance(here, Tensor) or (
        here.numel() > LARGEST and target not in (aten.expand.default, aten.view.default)
    ):
        return None
    if target in OF_SHAPES_ALONE:
        shape = node.args[0].meta["val"]  # type: ignore[union-attr]
        dummy = torch.empty_strided(
            shape.shape, shape.stride(), dtype=shape.dtype, device=shape.device
        )
        return target(dummy, *node.args[1:], **node.kwargs)
    if all(n in constants for n in node.all_input_nodes):
        args, kwargs = map_arg((node.args, node.kwargs), lambda n: constants[n])
        return target(*args, **kwargs)
    return None


def _stored(module: fx.GraphModule, value: Tensor) -> fx.Node:
    name = f"_folded_{sum(key.startswith('_folded_') for key in dict(module.named_buffers()))}"
    module.register_buffer(name, value)
    return module.graph.get_attr(name)


def traced(
    function: Callable[..., tuple[Tensor, Tensor]],
    example: tuple[Tensor, ...],
    k: int | None = None,
) -> Callable[..., tuple[Tensor, Tensor]]:
    """Pyro's handlers, autograd and all, run once: make_fx records the operations, TorchScript runs them; k points abreast.

    Points abreast share the overhead of an operation; where operations are large there is none to speak of, and they take
    turns, each in the cache. A graph of one point that computes more than ``HEAVY`` numbers is returned as it is, an
    ``fx.GraphModule``: to run it is what takes time, and TorchScript would begin by running it twice, and leave so many numbers
    of memory in pieces that nothing later fits into.
    """
    with _sources_forgotten():
        return _traced(function, example, k)


def _traced(
    function: Callable[..., tuple[Tensor, Tensor]], example: tuple[Tensor, ...], k: int | None
) -> Callable[..., tuple[Tensor, Tensor]]:
    graph = simplified(_recorded(function, example))
    if k is None or max(_sizes(graph), default=0) > ABREAST_UP_TO:
        one = graph if sum(_sizes(graph)) > HEAVY else _scripted(graph, example)
        return one if k is None else looped(one)
    wide = torch.vmap(graph, in_dims=(0, *(None,) * (len(example) - 1)))
    example = (example[0].expand(k, -1).clone(), *example[1:])
    return _scripted(simplified(_recorded(wide, example)), example)


def _recorded(function: Callable[..., Any], example: tuple[Tensor, ...]) -> fx.GraphModule:
    with unchanged():  # what torch imports for its first trace sets an environment variable
        return make_fx(function)(*example)


def _sizes(module: fx.GraphModule) -> list[int]:
    """Numbers in each tensor that is computed."""
    values = [n.meta.get("val") for n in module.graph.nodes if n.op == "call_function"]
    return [v.numel() for v in values if isinstance(v, Tensor)]


@contextmanager
def _sources_forgotten() -> Iterator[None]:
    """The text of each graph that is compiled inside, which torch.fx keeps for tracebacks as long as the process lives, is dropped."""
    sources = graph_module._loader.eval_cache
    before = set(sources)
    try:
        yield
    finally:
        for name in set(sources) - before:
            sources.pop(name, None)
            linecache.cache.pop(name, None)


def _scripted(
    graph: fx.GraphModule, example: tuple[Tensor, ...]
) -> Callable[..., tuple[Tensor, Tensor]]:
    """The graph as a function of TorchScript that goes when nothing refers to it: what ``torch.jit.trace`` makes is registered with
    the interpreter, which never lets it go."""
    names = [f"x{i}" for i in range(len(example))]
    with silenced():  # the tracer's, of numbers that it takes for constants
        try:
            recorded, _ = torch._C._create_graph_by_tracing(
                graph, example, lambda _: "", True, False, None, names
            )
        except RuntimeError as error:
            if "unsupported argument type" not in str(error):
                raise
            return graph  # the slope of a convolution takes flags that TorchScript has no type for: op by op, as the ops are large
        return torch._C._create_function_from_graph("density", recorded)


def looped(graph: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., tuple[Tensor, Tensor]]:
    """(z [k, p], ...) -> values [k], gradients [k, p], one call of the graph a point."""

    def each(z: Tensor, *tables: Tensor) -> tuple[Tensor, Tensor]:
        values, gradients = zip(*(graph(point, *tables) for point in z), strict=True)
        return torch.stack(values), torch.stack(gradients)

    return each


def agree(
    a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor], near: tuple[Tensor, Tensor] | None = None
) -> bool:
    """Whether two values and gradients are the same up to rounding.

    Args:
        near: those of the second a rounding error away. Ill-conditioned matrices magnify such an error, and what is computed in
            another order then need not be closer than ten times that; nor further than ten times the usual tolerance.
    """
    tolerance = 1e-8 if a[0].dtype == torch.float64 else 1e-3
    for x, y, beside in zip(a, b, b if near is None else near, strict=True):
        size = float(torch.nan_to_num(y.abs(), nan=0.0, posinf=0.0).max()) if y.numel() else 0.0
        slack = (
            10 * float(torch.nan_to_num((beside - y).abs(), nan=0.0, posinf=0.0).max())
            if y.numel()
            else 0.0
        )
        usual = tolerance * (1 + size)
        if not torch.allclose(
            x, y, rtol=tolerance, atol=usual + min(slack, 10 * usual), equal_nan=True
        ):
            return False
    return True


def agrees_up_to_rounding(
    found: tuple[Tensor, Tensor],
    one: Callable[..., tuple[Tensor, Tensor]],
    z: Tensor,
    tables: tuple[Tensor, ...],
) -> bool:
    """Whether a graph found at z what the program itself does."""
    own = one(z, *tables)
    if agree(found, own):
        return True
    return agree(found, own, one(z + 8 * torch.finfo(z.dtype).eps * (1 + z.abs()), *tables))


def jacobian_of(gradient: Tensor, z: Tensor) -> Tensor:
    """Derivatives of a gradient [p] with respect to z [p]: symmetric, and 0 where it does not depend on z."""
    if not gradient.requires_grad:
        return z.new_zeros(len(z), len(z))
    H = torch.stack(
        [torch.autograd.grad(g, z, retain_graph=True, materialize_grads=True)[0] for g in gradient]
    ).detach()
    return 0.5 * (H + H.mT)


def first_of(
    graph: Callable[..., tuple[Tensor, Tensor]],
    z: Tensor,
    tables: tuple[Tensor, ...],
    k: int | None,
) -> Any:
    if k is None:
        return graph(z, *tables)
    values, gradients = graph(z.expand(k, -1).clone(), *tables)
    return values[0], gradients[0]
