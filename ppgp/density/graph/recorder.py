"""Record the tensor operations of a function as a graph of torch.fx.

``make_fx`` of torch.fx.experimental does the same several times slower, since it also follows
shapes that are not numbers, and calls of Python functions and modules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import getitem
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.weak import WeakTensorKeyDictionary

from ...runtime.dispatch_mode import DispatchMode
from ...runtime.libraries import settings_unchanged

aten = torch.ops.aten
#: operations that read the shape of a tensor, and none of its values
OF_SHAPES_ALONE = {
    aten.zeros_like.default,
    aten.ones_like.default,
    aten.full_like.default,
    aten.new_zeros.default,
    aten.new_empty.default,
    aten.empty_like.default,
    aten.new_ones.default,
    aten.new_full.default,
}
#: what gives the numbers of a tensor to Python or NumPy without an operation of torch
READING = {
    Tensor.numpy,
    Tensor.tolist,
    Tensor.__array__,
    Tensor.__deepcopy__,
    Tensor.__dlpack__,
    Tensor.data_ptr,
    torch.to_dlpack,
}
#: what makes a tensor of the numbers in a list
OF_LISTS = {torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor}
DATA = Tensor.data.__get__  # type: ignore[attr-defined]
has_kernel = cache(torch._C._dispatch_has_kernel_for_dispatch_key)  # asked at each operation


@dataclass(frozen=True)
class Layout:
    """How a tensor lies in memory. The graph keeps it in place of the tensor itself.

    Each node that computes a tensor holds it as ``node.meta["layout"]``.
    """

    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, x: Tensor) -> Layout:
        """Return the layout of a tensor."""
        return cls(x.shape, x.stride(), x.dtype, x.device)

    def empty(self) -> Tensor:
        """Return a tensor that lies in this way, of any values."""
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device)


class Recorder(DispatchMode):
    """Add a node to a graph for each operation that runs inside this context.

    An operation that turns a value into a Python number raises an error if the value depends on the
    arguments, since the graph would hold the number of the arguments at which it is recorded.

    Args:
        arguments: The tensors that become the arguments of the graph.
        branches: Whether a truth value may become one of Python, as the condition of an ``if``
            does. The graph holds the branch that was taken, and ``conditions`` the truth values.
    """

    records = True

    def __init__(self, arguments: Sequence[Tensor], branches: bool = False) -> None:
        super().__init__()
        self.owner = torch.nn.Module()
        self.graph = fx.Graph()
        self.nodes = WeakTensorKeyDictionary()  # of the tensors that the graph computes
        self.constants: dict[int, tuple[Tensor, fx.Node]] = {}
        self.vary: set[fx.Node] = set()  # with the arguments or at random
        # memory into which what varies was written, with a tensor that keeps it from being freed
        self.written: dict[int, Tensor] = {}
        self.branches = branches
        self.conditions: list[tuple[Tensor, bool]] = []  # and what they are where it is recorded
        self.random = False  # whether a number is drawn
        self.inside = False  # a function that is recorded as one operation
        self.single = not any(x.dtype == torch.float64 for x in arguments)
        for i, x in enumerate(arguments):
            self._keep(x, self.graph.placeholder(f"x{i}"), varies=True)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        # an operation made of others, of which autograd has the derivatives
        if has_kernel(func.name(), "CompositeImplicitAutograd") and not has_kernel(
            func.name(), torch._C._dispatch_key_for_device(_device_type((args, kwargs)))
        ):
            with self:
                return func.decompose(*args, **kwargs)
        inputs: list[fx.Node] = []
        node_args, node_kwargs = self._in_graph(args, inputs), self._in_graph(kwargs, inputs)
        drawn = torch.Tag.nondeterministic_seeded in func.tags
        self.random = self.random or drawn
        varies = drawn or (
            func not in OF_SHAPES_ALONE and any(node in self.vary for node in inputs)
        )
        if torch.Tag.data_dependent_output in func.tags:
            if varies and self._is_condition(func, args):
                truth = func(*args)
                with self:  # a copy, as the program may write into it
                    self.conditions.append((args[0].reshape(()).clone(), truth))
                return truth
            if varies:
                raise RuntimeError(f"{func} of a value that depends on the arguments of the graph")
            return func(*args, **kwargs)
        if torch.Tag.dynamic_output_shape in func.tags and any(
            self._node(x) in self.vary for x in _deciding_shape(func, args)
        ):
            raise RuntimeError(f"{func} has a shape that depends on the arguments of the graph")
        if func is aten.lift_fresh.default:  # a new constant, into which the program may write
            func = aten.lift_fresh_copy.default
        if func is aten._unsafe_view.default:  # a view that does not say so, as of a product
            func = aten.view.default
        if varies and func._schema.is_mutable:
            self.written |= {memory_of(x): x for x in written_arguments(func, args, kwargs)}
        result = func(*args, **kwargs)  # first, as the program may catch its error
        node = self.graph.create_node("call_function", func, node_args, node_kwargs)
        self._keep(result, node, varies)
        return result

    def call(self, function: Callable[..., Any], *tensors: Tensor) -> Any:
        """Return what a function of tensors returns, and record it as one operation.

        Equal functions whose attribute ``pure`` is true are called once for the same tensors. The
        attribute ``numbers`` says how many numbers a function computes beside its results.
        """
        inputs: list[fx.Node] = []
        node_args = self._in_graph(tensors, inputs)
        self.inside = True
        try:
            with _disable_current_modes():
                result = function(*tensors)
        finally:
            self.inside = False
        node = self.graph.call_function(function, node_args)
        self._keep(result, node, any(part in self.vary for part in inputs))
        return result

    def _is_condition(self, func: OpOverload, args: tuple[Any, ...]) -> bool:
        """Return whether an operation gives Python a truth value that may choose a branch.

        One that depends on random numbers chooses another branch each time.
        """
        reads = func is aten._local_scalar_dense.default and args[0].dtype == torch.bool
        return reads and self.branches and not self.random and not self.inside

    def where_taken(self, value: Tensor) -> Tensor:
        """Return a value, and NaN at arguments that take another branch than those recorded."""
        for condition, truth in self.conditions:
            other = condition.logical_not() if truth else condition
            value = value.masked_fill(other, torch.nan)
        return value

    def varies(self, x: Tensor) -> bool:
        """Return whether the values of a tensor depend on the arguments or are random."""
        return self.nodes.get(x) in self.vary or memory_of(x) in self.written

    def _keep(self, result: Any, node: fx.Node, varies: bool) -> None:
        """Remember which node computes a tensor, or each of several."""
        if isinstance(result, Tensor):
            self.nodes[result] = node
            node.meta["layout"] = Layout.of(result)
            if varies:
                self.vary.add(node)
        elif isinstance(result, tuple | list):
            for i, part in enumerate(result):
                if isinstance(part, Tensor):
                    self._keep(part, self.graph.call_function(getitem, (node, i)), varies)

    def _in_graph(self, value: Any, inputs: list[fx.Node]) -> Any:
        """Return an argument with nodes in place of tensors, and add these to ``inputs``."""
        if isinstance(value, Tensor):
            node = self._node(value)
            if self.written and memory_of(value) in self.written:
                self.vary.add(node)
            inputs.append(node)
            return node
        if isinstance(value, tuple | list):
            parts = [self._in_graph(part, inputs) for part in value]
            return parts if isinstance(value, list) else tuple(parts)
        if isinstance(value, dict):
            return {name: self._in_graph(part, inputs) for name, part in value.items()}
        return value

    def _node(self, x: Tensor) -> fx.Node:
        """Return the node of a tensor; one that the graph does not compute is a constant."""
        node = self.nodes.get(x)
        if node is not None:
            return node
        if id(x) not in self.constants:
            name = f"_constant_{len(self.constants)}"
            self.owner.register_buffer(name, x)
            node = self.graph.get_attr(name)
            node.meta["layout"] = Layout.of(x)
            self.constants[id(x)] = x, node
        return self.constants[id(x)][1]

    def module(self, result: Any) -> fx.GraphModule:
        """Return the graph that computes a result, a tensor or several."""
        self.graph.output(self._in_graph(result, []))
        return fx.GraphModule(self.owner, self.graph)


@dataclass(eq=False, repr=False)
class Reads(TorchFunctionMode):
    """Find where a function reads numbers past torch, as ``.numpy()`` and ``.tolist()`` do.

    Such a number, if it depends on the arguments of the graph, would be that of the arguments at
    which the graph is recorded.
    """

    recorder: Recorder

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func == DATA and not self.recorder.inside:
            return args[0].detach()  # the same numbers, which the graph then computes
        read: list[Any] = []
        if func in READING:
            read = [args[0]]
        elif func in OF_LISTS:
            lists = (*args, *(kwargs or {}).values())
            read = [x for given in lists if isinstance(given, list | tuple) for x in _parts(given)]
        if self.recorder.inside:
            return func(*args, **(kwargs or {}))
        masked = func is Tensor.__setitem__ and is_masked(*args)
        if masked and self.recorder.varies(args[1]):
            return fill_where(*args)
        if any(map(self.recorder.varies, read)):
            name = getattr(func, "__name__", str(func))
            raise RuntimeError(f"{name} of a value that depends on the arguments of the graph")
        return func(*args, **(kwargs or {}))


def is_masked(x: Tensor, index: Any, value: Any) -> bool:
    """Return whether ``x[index] = value`` writes one number where a mask is true."""
    if not isinstance(index, Tensor) or index.dtype != torch.bool:
        return False
    one = not isinstance(value, Tensor) or not value.ndim
    return one and index.shape == x.shape[: index.ndim]


def fill_where(x: Tensor, mask: Tensor, value: Any) -> None:
    """Do ``x[mask] = value`` for one number without a look at the mask."""
    mask = mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim))
    x.copy_(torch.where(mask, torch.as_tensor(value, dtype=x.dtype, device=x.device), x))


def _parts(value: Any) -> list[Tensor]:
    """Return the tensors in a list of lists."""
    if isinstance(value, list | tuple):
        return [x for part in value for x in _parts(part)]
    return [value] if isinstance(value, Tensor) else []


def recorded(
    function: Callable[..., Any], example: tuple[Tensor, ...], branches: bool = False
) -> fx.GraphModule:
    """Return the graph of the operations that a function does.

    Args:
        function: Takes tensors, and returns a tensor, or a list or tuple of tensors.
        example: Arguments at which it is recorded.
        branches: Whether it may have branches on values. The first of its results is then NaN at
            arguments that take other branches, and ``graph.meta["branches"]`` says how many
            conditions there are.

    Raises:
        RuntimeError: If the function turns a value into a Python number, as ``float()`` does, or an
            ``if`` without ``branches``, or into an array of NumPy.
    """
    arguments = [x.view_as(x) for x in example]
    recorder = Recorder(arguments, branches)
    # some operations import torch._dynamo, which changes a setting
    with settings_unchanged(), Reads(recorder), recorder:
        result = function(*arguments)
        if recorder.conditions:
            first, *others = result
            result = (recorder.where_taken(first), *others)
    module = recorder.module(result)
    module.meta["branches"] = len(recorder.conditions)
    return module


def written_arguments(
    func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[Any]:
    """Return the tensors, or nodes, that an operation in place writes to."""
    found: list[Any] = []
    for i, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = args[i] if i < len(args) else kwargs.get(argument.name)
            parts = given if isinstance(given, tuple | list) else [given]
            found += [part for part in parts if isinstance(part, Tensor | fx.Node)]
    return found


def _deciding_shape(func: OpOverload, args: tuple[Any, ...]) -> list[Tensor]:
    """Return the tensors whose values decide the shape of a result."""
    if func is aten.index.Tensor:
        masks = (torch.bool, torch.uint8)
        return [x for x in args[1] if isinstance(x, Tensor) and x.dtype in masks]
    if func is aten.masked_select.default:
        return [args[1]]
    return [x for x in args if isinstance(x, Tensor)]


def stored(module: fx.GraphModule, value: Tensor) -> fx.Node:
    """Add a constant to a module as a buffer, and return its node."""
    number = len(module._buffers)  # buffers are removed at the end alone, so most names are free
    while f"_stored_{number}" in module._buffers:
        number += 1
    module.register_buffer(f"_stored_{number}", value)
    node = module.graph.get_attr(f"_stored_{number}")
    node.meta["layout"] = Layout.of(value)
    return node


def memory_of(x: Tensor) -> int:
    """Return what tensors have in common that share memory."""
    try:
        return x.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):  # a sparse tensor has several
        return id(x)


def _device_type(arguments: Any) -> str:
    """Return where the first tensor among the arguments is; the CPU if there is none."""
    if isinstance(arguments, Tensor):
        return arguments.device.type
    if isinstance(arguments, dict):
        arguments = tuple(arguments.values())
    if isinstance(arguments, tuple | list):
        for part in arguments:
            if isinstance(part, Tensor | tuple | list | dict):
                return _device_type(part)
    return "cpu"
