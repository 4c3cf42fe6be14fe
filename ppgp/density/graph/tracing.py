"""Trace a density and its gradient to a graph, and compare graph and program.

A graph that calls loops is compiled in pieces: what lies between two loops.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from operator import getitem
from typing import Any, cast

import torch
from torch import Tensor, fx
from torch.fx import graph_module

from ...numerics.cholesky import lacks_factor
from ...runtime.process_locks import silenced
from .batching import BatchedOperations, has_rule
from .recorder import Layout, recorded
from .simplify import by_value, simplified

ABREAST_UP_TO = 10_000  # numbers in the largest tensor computed for one point
LARGE = 2**16  # numbers computed for one point, from which a graph without gradient is worth it
HEAVY = 2**20  # numbers computed for one point, from which TorchScript is not worth its start
#: operations of a graph up to which TorchScript optimises it, at the first calls; without that, a
#: graph of 2,700 took as long at each call, and a third of a second less at the first two
MANY = 500
aten = torch.ops.aten
ARITHMETIC = {aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor}
#: what TorchScript has no form for: the flags that the gradient of a convolution takes, a result
#: that is the same at every point, and a graph without results
NOT_OF_TORCHSCRIPT = ("unsupported argument type", "observable data dependence", "infer type of []")
ValueAndGradient = Callable[..., tuple[Tensor, Tensor]]


@contextmanager
def _sources_forgotten() -> Iterator[None]:
    """Drop the text of each graph compiled inside, which torch.fx would keep for ever."""
    sources = graph_module._loader.eval_cache
    before = set(sources)
    try:
        yield
    finally:
        for name in set(sources) - before:
            sources.pop(name, None)
            linecache.cache.pop(name, None)


@_sources_forgotten()
def one_point(function: ValueAndGradient, example: tuple[Tensor, ...]) -> fx.GraphModule:
    """Return the operations of a function, with those left out that compute nothing.

    Pyro's handlers and autograd run once, while the operations are recorded.

    Args:
        function: (z [p], *tables) -> value, gradient [p].
        example: Arguments at which it is recorded. The value is NaN where the function takes other
            branches, and ``graph.meta["branches"]`` says how many conditions there are.
    """
    # elsewhere than on the CPU, an operation that a condition guards may end the process
    on_cpu = all(x.device.type == "cpu" for x in example)
    return simplified(recorded(function, example, branches=on_cpu))


def worth_widening(graph: fx.GraphModule) -> bool:
    """Whether a graph of one point is worth widening to several.

    One operation then serves all points, and they share its overhead. Where operations are large
    the overhead does not matter, and points are better evaluated in turn, each in the cache. So are
    they where torch would take them in turn at one of the operations.
    """
    each = all(has_rule(node.target) for node in graph.graph.nodes)
    return each and max(_sizes(graph), default=0) <= ABREAST_UP_TO


def _sizes(graph: fx.GraphModule) -> list[int]:
    """Return how many numbers each operation of a graph computes."""
    operations = [n for n in graph.graph.nodes if n.op == "call_function"]
    computed = [n.meta.get("layout") for n in operations]
    inside = [getattr(n.target, "numbers", 0) for n in operations]
    return [layout.shape.numel() for layout in computed if layout is not None] + inside


@_sources_forgotten()
def traced(
    function: ValueAndGradient,
    example: tuple[Tensor, ...],
    k: int | None = None,
    own_tables: bool = False,
    few: bool = False,
) -> ValueAndGradient:
    """Record the operations of a function, and compile them by TorchScript.

    A graph of one point that computes more than ``HEAVY`` numbers is returned as it is, an
    ``fx.GraphModule``: TorchScript would run it twice at the start, and leave memory in pieces that
    are too small for what comes later. So is one of several points that runs a ``few`` times.

    Args:
        function: (z [p], *tables) -> value, gradient [p], or what ``one_point`` made of it.
        example: Arguments at which it is recorded.
        k: The graph takes z [k, p]; None for one point. A graph that is not ``worth_widening``
            takes the points in turn.
        own_tables: Whether each of k points has tables of its own, [k, ...].
        few: Whether a graph of several points runs too few times to repay TorchScript.
    """
    graph = function
    if not isinstance(graph, fx.GraphModule):
        graph = simplified(recorded(function, example))
    if k is None or not worth_widening(graph):
        one = owned(graph) if sum(_sizes(graph)) > HEAVY else _compiled(graph, example)
        return one if k is None else Looped(OrNaN(one), own_tables)
    by_value(graph)  # the strides of several points may allow no view
    run = BatchedOperations(graph).run
    wide = torch.vmap(run, in_dims=(0, *(0 if own_tables else None,) * (len(example) - 1)))
    example = repeated(k, example, own_tables)
    widened = simplified(recorded(wide, example))
    several = owned(widened) if few else _compiled(widened, example)
    return OrNaN(several, Looped(OrNaN(graph), own_tables))


@_sources_forgotten()
def values_alone(
    graph: fx.GraphModule, example: tuple[Tensor, ...]
) -> Callable[..., tuple[Tensor, ...]] | None:
    """Return a graph of one point without its gradient: (z [p], *tables) -> (value,).

    It is None where the gradient is too small a part of the work to repay the compiling.
    """
    if any(_calls_loop(node) for node in graph.graph.nodes) or sum(_sizes(graph)) < LARGE:
        return None
    operations = fx.Graph()
    value, _ = cast(Any, operations.graph_copy(graph.graph, {}))
    operations.output((value,))
    operations.eliminate_dead_code()
    return _compiled(fx.GraphModule(graph, operations), example)


def owned(module: fx.GraphModule) -> fx.GraphModule:
    """Return a graph, changed so that each call returns memory of its own.

    A result may be a constant, an argument, or a view in which several numbers share memory.
    """
    (output,) = (node for node in module.graph.nodes if node.op == "output")
    results = list(cast(Any, output.args[0]))
    for i, node in enumerate(results):
        if not isinstance(node, fx.Node) or node.target is aten.clone.default:
            continue
        with module.graph.inserting_before(output):
            results[i] = module.graph.call_function(
                aten.clone.default, (node,), {"memory_format": torch.contiguous_format}
            )
        if "layout" in node.meta:
            results[i].meta["layout"] = Layout.of(node.meta["layout"].empty().contiguous())
    output.args = (tuple(results),)
    module.recompile()
    return module


def _compiled(graph: fx.GraphModule, example: tuple[Tensor, ...]) -> ValueAndGradient:
    """Return a graph by TorchScript, or what lies between its loops."""
    if any(_calls_loop(node) for node in graph.graph.nodes):
        return cast(Any, _InPieces(graph, example, scripted))
    function = scripted(graph, example)
    if function is graph:
        return owned(graph)
    few = len(graph.graph.nodes) <= MANY
    return cast(ValueAndGradient, WithoutAutograd(function, optimised=few))


def scripted(graph: fx.GraphModule, example: tuple[Tensor, ...]) -> ValueAndGradient:
    """Return the graph as a TorchScript function that is freed when nothing refers to it.

    A graph that TorchScript has no form for is returned itself. What ``torch.jit.trace`` returns is
    registered with the interpreter and never freed.
    """
    _with_one_dtype(graph)
    names = [f"x{i}" for i in range(len(example))]
    # the tracer looks up the line of each operation, which in the code of the graph, one function,
    # takes a time that grows with the line
    run = fx.Interpreter(graph).run
    with silenced():  # the tracer warns of numbers that it takes for constants
        try:
            recorded, _ = torch._C._create_graph_by_tracing(
                run, example, lambda _: "", True, False, None, names
            )
        except RuntimeError as error:
            if not any(said in str(error) for said in NOT_OF_TORCHSCRIPT):
                raise
            return graph
        return torch._C._create_function_from_graph("density", recorded)


@dataclass(frozen=True)
class WithoutAutograd:
    """A compiled density, run without what autograd does at each operation.

    Attributes:
        function: By TorchScript.
        optimised: Whether TorchScript looks for a faster order of operations at the first calls.
    """

    function: ValueAndGradient
    optimised: bool = True

    def __call__(self, z: Tensor, *tables: Tensor) -> tuple[Tensor, ...]:
        # the setting is that of one thread
        search = nullcontext() if self.optimised else torch.jit.optimized_execution(False)
        with torch.inference_mode(), search:
            results = self.function(z, *tables)
        # autograd takes no tensor from inside; a copy is any other tensor
        return tuple([x.clone(memory_format=torch.contiguous_format) for x in results])


def _with_one_dtype(module: fx.GraphModule) -> None:
    """Convert Boolean and whole numbers before arithmetic whose result is a float.

    TorchScript takes a constant without axes for a Python number. It would compute the sum of such
    a constant in double precision and a Boolean tensor in single precision.
    """
    converted = False
    for node in list(module.graph.nodes):
        result = node.meta.get("layout")
        if node.target not in ARITHMETIC or result is None or not result.dtype.is_floating_point:
            continue
        for part in node.all_input_nodes:
            own = part.meta.get("layout")
            if own is not None and not own.dtype.is_floating_point:
                with module.graph.inserting_before(node):
                    copy = module.graph.call_function(
                        aten._to_copy.default, (part,), {"dtype": result.dtype}
                    )
                node.replace_input_with(part, copy)
                converted = True
    if converted:
        module.recompile()


def repeated(k: int, example: tuple[Tensor, ...], own_tables: bool) -> tuple[Tensor, ...]:
    """Return arguments of one point as those of k equal points."""
    z, *tables = (value.expand(k, *value.shape).contiguous() for value in example)
    return (z, *tables) if own_tables else (z, *example[1:])


@dataclass(frozen=True)
class OrNaN:
    """A density that is NaN, with a gradient of NaN, where a matrix has no factor or no inverse.

    Attributes:
        function: That of z [p], or of several points [k, p].
        in_turn: That of several points which takes them one by one, so that those without a density
            do not take it from the others; None for a function of one point.
    """

    function: Callable[..., tuple[Tensor, ...]]
    in_turn: ValueAndGradient | None = None

    def __call__(self, z: Tensor, *tables: Tensor) -> Any:
        try:
            return self.function(z, *tables)
        except RuntimeError as error:
            if not lacks_factor(error):
                raise
        if self.in_turn is not None:
            return self.in_turn(z, *tables)
        return z.new_tensor(torch.nan), torch.full_like(z, torch.nan)


@dataclass(frozen=True)
class Looped:
    """(z [k, p], ...) -> values [k], gradients [k, p], one call of the graph per point."""

    graph: ValueAndGradient
    own_tables: bool = False

    def __call__(self, z: Tensor, *tables: Tensor) -> tuple[Tensor, Tensor]:
        several = zip(*tables, strict=True) if self.own_tables else (tables for _ in z)
        pairs = (self.graph(point, *own) for point, own in zip(z, several, strict=True))
        values, gradients = zip(*pairs, strict=True)
        return torch.stack(values), torch.stack(gradients)


def agree(
    a: tuple[Tensor, Tensor],
    b: tuple[Tensor, Tensor],
    near: tuple[Tensor, Tensor] | None = None,
    *,
    single: bool = False,
) -> bool:
    """Return whether two values and gradients are the same up to rounding.

    Args:
        a: Value and gradient.
        b: Value and gradient of the other.
        near: Those of the other at a point one rounding error away. Ill-conditioned matrices
            magnify such an error. What is computed in another order may then differ by ten times as
            much, but not by more than ten times the usual tolerance.
        single: Whether some of the numbers behind both are in float32.
    """
    tolerance = 1e-3 if single or a[0].dtype == torch.float32 else 1e-8
    for x, y, beside in zip(a, b, b if near is None else near, strict=True):
        if torch.allclose(x, y, rtol=tolerance, atol=tolerance, equal_nan=True):
            continue
        usual = tolerance * (1 + _largest(y))
        slack = usual + min(10 * _largest(beside - y), 10 * usual)
        if not torch.allclose(x, y, rtol=tolerance, atol=slack, equal_nan=True):
            return False
    return True


def _largest(values: Tensor) -> float:
    """Return the largest finite absolute value; 0 if there is none."""
    if not values.numel():
        return 0.0
    return float(torch.nan_to_num(values.abs(), nan=0.0, posinf=0.0).max())


def agrees_up_to_rounding(
    found: tuple[Tensor, Tensor],
    one: ValueAndGradient,
    z: Tensor,
    tables: tuple[Tensor, ...],
    own: tuple[Tensor, Tensor] | None = None,
    *,
    single: bool = False,
) -> bool:
    """Return whether the values of a graph at z are those of the program itself.

    ``own`` are the latter, where they are known; ``single`` is that of ``agree``.
    """
    own = one(z, *tables) if own is None else own
    if agree(found, own, single=single):
        return True
    beside = one(z + 8 * torch.finfo(z.dtype).eps * (1 + z.abs()), *tables)
    return agree(found, own, beside, single=single)


def jacobian_of(gradient: Tensor, z: Tensor, at_once: bool = False) -> Tensor:
    """Return the derivatives [p, p] of a gradient [p] by z [p]; 0 where it does not depend on z.

    ``at_once`` differentiates all rows together, for cheap functions, of which overhead is most of
    the time. A function that cannot be batched takes the rows one by one.
    """
    if not gradient.requires_grad:
        return z.new_zeros(len(z), len(z))
    H = _rows_at_once(gradient, z) if at_once else None
    if H is None:
        rows = [
            torch.autograd.grad(g, z, retain_graph=True, materialize_grads=True)[0]
            for g in gradient
        ]
        H = torch.stack(rows).detach()
    return 0.5 * (H + H.mT)


def _rows_at_once(gradient: Tensor, z: Tensor) -> Tensor | None:
    """Return the derivatives [p, p] of a gradient from one batched pass; None if there is none."""
    eye = torch.eye(len(z)).to(gradient)
    try:
        (H,) = torch.autograd.grad(
            gradient, z, eye, retain_graph=True, is_grads_batched=True, materialize_grads=True
        )
    except (RuntimeError, NotImplementedError):
        return None
    return H.detach()


def several_of(
    graph: ValueAndGradient,
    points: list[Tensor],
    tables: list[tuple[Tensor, ...]],
    k: int | None,
    own_tables: bool = False,
) -> list[tuple[Tensor, Tensor]]:
    """Return value and gradient at several points, from as few calls of a graph as will do.

    The points of one call differ, so that a graph that mixes them is found.

    Args:
        graph: That of k points.
        points: [p] each.
        tables: Those of each point; without ``own_tables`` all are the same.
        k: See ``traced``.
        own_tables: See ``traced``.
    """
    if k is None or isinstance(graph, Looped):
        one = graph.graph if isinstance(graph, Looped) else graph
        return [one(z, *own) for z, own in zip(points, tables, strict=True)]
    found: list[tuple[Tensor, Tensor]] = []
    for start in range(0, len(points), k):
        part = range(start, min(start + k, len(points)))
        chosen = [part[i % len(part)] for i in range(k)]
        given = tables[0]
        if own_tables:
            columns = zip(*(tables[i] for i in chosen), strict=True)
            given = tuple(torch.stack(column) for column in columns)
        values, gradients = graph(torch.stack([points[i] for i in chosen]), *given)
        found += zip(values[: len(part)], gradients[: len(part)], strict=True)
    return found


Script = Callable[[fx.GraphModule, tuple[Tensor, ...]], Callable[..., Any]]


def _calls_loop(node: fx.Node) -> bool:
    """Return whether a node calls a loop, which TorchScript cannot."""
    known = isinstance(node.target, torch._ops.OpOverload) or node.target is getitem
    return node.op == "call_function" and not known


@dataclass(frozen=True)
class _Part:
    """A loop, or what lies between two.

    Args:
        run: (*inputs) -> a tuple.
        inputs: The nodes of the inputs.
        outputs: Nodes, and the place of each in the tuple.
    """

    run: Callable[..., Any]
    inputs: list[fx.Node]
    outputs: list[tuple[fx.Node, int]]


class _InPieces:
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
        self.parts: list[_Part] = []
        values = self.constants | dict(zip(self.arguments, example, strict=True))
        for group in _groups(nodes):
            if _calls_loop(group[0]):
                inputs = list(cast(tuple[fx.Node, ...], group[0].args))
                outputs = [(node, cast(int, node.args[1])) for node in group[1:]]
                part = _Part(cast(Any, group[0].target), inputs, outputs)
            else:
                graph, inputs, needed = self._piece(group)
                own = tuple(values[node] for node in inputs)
                part = _Part(script(graph, own), inputs, [(n, i) for i, n in enumerate(needed)])
            self.parts.append(part)
            _run(part, values)

    def __call__(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        values = self.constants | dict(zip(self.arguments, arguments, strict=True))
        for part in self.parts:
            _run(part, values)
        # a result may be a constant, which the tracer of TorchScript does not copy
        results = (values[node] for node in self.results)
        return tuple(x.clone(memory_format=torch.contiguous_format) for x in results)

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


def _run(part: _Part, values: dict[fx.Node, Tensor]) -> None:
    found = part.run(*(values[node] for node in part.inputs))
    values.update((node, found[place]) for node, place in part.outputs)


def _groups(nodes: list[fx.Node]) -> list[list[fx.Node]]:
    """Return operations in groups: each loop with the nodes of its results, and all in between."""
    groups: list[list[fx.Node]] = [[]]
    home: dict[Any, list[fx.Node]] = {}
    for node in nodes:
        if node.op != "call_function":
            continue
        if _calls_loop(node):
            groups += [[node], []]
            home[node] = groups[-2]
        else:
            part_of_loop = node.target is getitem and node.args[0] in home
            group = home[node.args[0]] if part_of_loop else groups[-1]
            group.append(node)
    return [group for group in groups if group]
