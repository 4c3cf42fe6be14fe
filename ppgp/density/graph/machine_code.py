"""Compile a recorded density and its gradient to machine code, by LLVM.

An operation of torch on few numbers takes a microsecond, nearly all of which is overhead. Here an
operation on one number is done in registers, operations entry by entry on tensors of one shape are
one loop, and views cost nothing. A graph with an operation that has no form here, or with more
numbers than torch's own loops take to repay their overhead, is not compiled.

Numbers in single precision are computed in double precision, and rounded where they are stored.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from importlib.util import find_spec
from operator import getitem
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, fx
from torch.fx.node import map_arg

from ...numerics.shapes import broadcast_shapes
from .machine_math import (
    BOOL,
    FUNCTIONS,
    INT,
    OF_LIBRARY,
    VECTORISED,
    Register,
    Writer,
    as_float,
    exp,
    is_nan,
    library_address,
    log,
    log1p,
    log_sigmoid,
    maximum,
    minimum,
    power,
    sigmoid,
    softplus,
    xlogy,
)
from .machine_matrices import (
    PREFIX,
    Matrix,
    addresses,
    declared,
    factorised,
    inverted,
    multiplied,
    solve_into,
)
from .recorder import Layout

aten = torch.ops.aten
MOST_NODES = 2500  # of a graph: the time to compile grows with them
MOST_NUMBERS = 2**16  # computed by one operation
MOST_PRODUCTS = 2**17  # of one matrix product, from which a BLAS repays its overhead
LARGEST_SYSTEM = 8  # equations of a triangular system, whose solution is written out
#: rows of a covariance up to which LAPACK's factor takes no longer on one thread than that of torch
MOST_ROWS = 512
MOST_OF_COVARIANCES = 2**18  # numbers computed by one operation beside a factor of a covariance
MOST_STORED = 2**20  # numbers of one constant beside it
MOST_WAVES = 2**12  # sines and cosines of the C library, several of which torch does at once
#: numbers that belong to formulas rather than to data
WRITTEN_OUT = {sign * x for x in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0) for sign in (1, -1)}
KEPT = 32  # functions that are kept for other graphs of the same operations and shapes
ALIGNMENT = 64  # bytes
NUMPY = {torch.float64: np.float64, torch.float32: np.float32}
SIZES = {torch.float64: 8, torch.float32: 4, torch.int64: 8, torch.bool: 1}
STORED_AS = {
    torch.float64: "double",
    torch.float32: "float",
    torch.int64: "i64",
    torch.bool: "i8",
}


class NoForm(Exception):
    """An operation that has no form in machine code."""


# -- operations entry by entry ---------------------------------------------------------------------


def _where(condition: Register, x: Register, y: Register) -> Register:
    return x.writer.select(_truth(condition), x, y)


def _truth(x: Register) -> Register:
    """Return whether a number is not 0."""
    if x.kind == BOOL:
        return x
    return as_float(x).compared("une", 0.0)


def _added(x: Register, y: Any, alpha: Any = 1) -> Register:
    return as_float(x) + (y if alpha == 1 else y * alpha)


def _subtracted(x: Register, y: Any, alpha: Any = 1) -> Register:
    return as_float(x) - (y if alpha == 1 else y * alpha)


def _clamped(x: Register, least: Any = None, most: Any = None) -> Register:
    w = x.writer
    if least is not None:
        x = w.select(x.compared("olt", w.number(least)), least, x)
    if most is not None:
        x = w.select(x.compared("ogt", w.number(most)), most, x)
    return x


def _sigmoid_backward(g: Register, y: Register) -> Register:
    return g * (1.0 - y) * y


def _tanh_backward(g: Register, y: Register) -> Register:
    return g * (1.0 - y * y)


def _softplus_backward(g: Register, x: Register, beta: Any, threshold: Any) -> Register:
    w = x.writer
    scaled = x * float(beta)
    e = exp(scaled)
    return w.select(scaled > float(threshold), g, g * e / (e + 1.0))


def _log_sigmoid_backward(g: Register, x: Register, _: Any = None) -> Register:
    return g * sigmoid(-x)


def _threshold_backward(g: Register, x: Register, threshold: float) -> Register:
    return x.writer.select(x <= float(threshold), 0.0, g)


def _addcmul(x: Register, a: Register, b: Register, value: Any = 1) -> Register:
    product = a * b if value == 1 else a * value * b
    return x + product


def _addcdiv(x: Register, a: Register, b: Register, value: Any = 1) -> Register:
    quotient = a / b if value == 1 else a * value / b
    return x + quotient


def _cross_entropy(x: Register, y: Register, *rest: Any) -> Register:
    """Return the negative log density of a Bernoulli variable with logits x.

    What follows are weights, and how the entries are summed: 0 is not at all, and by default their
    mean is taken.
    """
    if rest != (None, None, 0):
        raise NoForm("weights, or a sum")
    largest = x.writer.select(x < 0.0, -x, 0.0)
    return (1.0 - y) * x + largest + log1p(exp(-abs(x)))


def _sign(x: Register) -> Register:
    return as_float(x > 0.0) - as_float(x < 0.0)


def _compared(how: str) -> Callable[[Register, Any], Register]:
    return lambda x, y: as_float(x).compared(how, y)


def _logic(operation: str) -> Callable[[Register, Register], Register]:
    return lambda x, y: x.writer.logic(operation, _truth(x), _truth(y))


def _not(x: Register) -> Register:
    return x.writer.logic("xor", _truth(x), x.writer.truth(True))


def _of_one(function: Callable[[Register], Register]) -> Callable[..., Register]:
    return lambda x: function(as_float(x))


def _same(x: Register) -> Register:
    return x


COMPARED = {"gt": "ogt", "lt": "olt", "ge": "oge", "le": "ole", "eq": "oeq", "ne": "une"}
LOGIC = {"and": "and", "or": "or", "xor": "xor"}
#: operations entry by entry
ENTRIES: dict[Any, Callable[..., Register]] = {
    **{
        getattr(aten, name).default: _of_one(function)
        for name, function in FUNCTIONS.items()
        if hasattr(aten, name)
    },
    **{
        getattr(getattr(aten, name), kind): _compared(how)
        for name, how in COMPARED.items()
        for kind in ("Tensor", "Scalar")
    },
    **{
        getattr(getattr(aten, f"{side}_{name}"), kind): _logic(operation)
        for name, operation in LOGIC.items()
        for side, kind in (("logical", "default"), ("bitwise", "Tensor"))
    },
    aten.isnan.default: lambda x: is_nan(as_float(x)),
    aten.logical_not.default: _not,
    aten.bitwise_not.default: _not,
    aten.add.Tensor: _added,
    aten.add.Scalar: _added,
    aten.sub.Tensor: _subtracted,
    aten.sub.Scalar: _subtracted,
    aten.rsub.Scalar: lambda x, y, alpha=1: y - (x if alpha == 1 else x * alpha),
    aten.mul.Tensor: lambda x, y: as_float(x) * y,
    aten.mul.Scalar: lambda x, y: as_float(x) * y,
    aten.div.Tensor: lambda x, y: as_float(x) / y,
    aten.div.Scalar: lambda x, y: as_float(x) / y,
    aten.pow.Tensor_Scalar: power,
    aten.pow.Tensor_Tensor: power,
    aten.pow.Scalar: lambda x, y: power(y.writer.number(x), y),
    aten.sgn.default: _sign,
    aten.sign.default: _sign,
    aten.maximum.default: maximum,
    aten.minimum.default: minimum,
    aten.where.self: _where,
    aten.masked_fill.Scalar: lambda x, mask, y: x.writer.select(mask, y, x),
    aten.masked_fill.Tensor: lambda x, mask, y: x.writer.select(mask, y, x),
    aten.clamp.default: _clamped,
    aten.clamp_min.default: _clamped,
    aten.clamp_max.default: lambda x, most: _clamped(x, None, most),
    aten.addcmul.default: _addcmul,
    aten.addcdiv.default: _addcdiv,
    aten.xlogy.Tensor: xlogy,
    aten.softplus.default: softplus,
    aten.log_sigmoid_forward.default: log_sigmoid,
    aten.binary_cross_entropy_with_logits.default: _cross_entropy,
    aten.sigmoid_backward.default: _sigmoid_backward,
    aten.tanh_backward.default: _tanh_backward,
    aten.softplus_backward.default: _softplus_backward,
    aten.log_sigmoid_backward.default: _log_sigmoid_backward,
    aten.threshold_backward.default: _threshold_backward,
    aten._to_copy.default: _same,
    aten.clone.default: _same,
    aten.copy.default: lambda x, y, *_: y,
    aten.copysign.Tensor: lambda x, y: x.writer.intrinsic("copysign", as_float(x), as_float(y)),
    aten.fill.Scalar: lambda x, y: x.writer.number(y),
    aten.zero.default: lambda x: x.writer.number(0.0),
}
#: those that take much longer than it takes to copy a number
COSTLY = {
    aten.binary_cross_entropy_with_logits.default,
    aten.log_sigmoid_backward.default,
    aten.log_sigmoid_forward.default,
    aten.softplus.default,
    aten.softplus_backward.default,
    aten.xlogy.Tensor,
    *(
        getattr(aten, name).default
        for name in ("exp", "expm1", "log", "log1p", "tanh", "sigmoid", "digamma")
    ),
}
#: those of which a number among the arguments may be made from data
BY_NUMBERS = {
    getattr(getattr(aten, name), kind)
    for name, kinds in {
        "add": ("Tensor", "Scalar"),
        "addcdiv": ("default",),
        "addcmul": ("default",),
        "div": ("Tensor", "Scalar"),
        "mul": ("Tensor", "Scalar"),
        "rsub": ("Scalar",),
        "sub": ("Tensor", "Scalar"),
    }.items()
    for kind in kinds
}
BITWISE = {
    aten.bitwise_and.Tensor,
    aten.bitwise_or.Tensor,
    aten.bitwise_xor.Tensor,
    aten.bitwise_not.default,
}
WITHOUT_KEYWORDS = {aten._to_copy.default, aten.clone.default}


def _in_place_of(target: Any) -> Any:
    """Return the form of an operation that changes its first operand; None if it has none."""
    name, overload = target._schema.name.removeprefix("aten::"), target._overloadname
    packet = getattr(aten, f"{name}_", None)
    return getattr(packet, overload, None)


#: operations that change their first operand, and their forms that do not
IN_PLACE = {
    **{_in_place_of(target): target for target in ENTRIES if _in_place_of(target) is not None},
    aten.addr_.default: aten.addr.default,
    aten.pow_.Scalar: aten.pow.Tensor_Scalar,
    aten.logical_and_.default: aten.logical_and.default,
    aten.logical_or_.default: aten.logical_or.default,
    aten.bitwise_and_.Tensor: aten.bitwise_and.Tensor,
    aten.masked_fill_.Scalar: aten.masked_fill.Scalar,
    aten.masked_fill_.Tensor: aten.masked_fill.Tensor,
    aten.add_.Tensor: aten.add.Tensor,
    aten.mul_.Tensor: aten.mul.Tensor,
    aten.relu_.default: aten.relu.default,
    aten.clamp_.default: aten.clamp.default,
    aten.copy_.default: aten.copy.default,
    aten.index_put_.default: aten.index_put.default,
    aten.scatter_.value: aten.scatter.value,
    aten.scatter_.src: aten.scatter.src,
    aten.scatter_add_.default: aten.scatter_add.default,
}
#: operations that take numbers from elsewhere, by indices that are known
TAKEN = {
    aten.flip.default,
    aten.gather.default,
    aten.index.Tensor,
    aten.index_select.default,
}
#: those that put their operand into a part of a tensor of zeros, with the view that is this part
PUT = {
    aten.select_backward.default: aten.select.int,
    aten.slice_backward.default: aten.slice.Tensor,
    aten.diagonal_backward.default: aten.diagonal.default,
}
#: those that add to the numbers of a tensor in places that are known, or replace them
ADDED_AT = {
    aten.index_put.default,
    aten.scatter_add.default,
    aten.scatter.src,
    aten.scatter.value,
    aten.index_add.default,
    aten.index_copy.default,
    aten.masked_scatter.default,
}
SCATTERS = {aten.scatter_add.default, aten.scatter.src, aten.scatter.value}
VIEWS = {
    aten.alias.default,
    aten.detach.default,
    aten.diagonal.default,
    aten.expand.default,
    aten.permute.default,
    aten.reshape.default,
    aten.select.int,
    aten.slice.Tensor,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.t.default,
    aten.transpose.int,
    aten.unsqueeze.default,
    aten.view.default,
    aten.lift_fresh_copy.default,
}
PARTS = {aten.split.Tensor, aten.split_with_sizes.default, aten.unbind.int}
#: operations whose result is in the memory of their first operand
SHARING = {*VIEWS, *PARTS, aten.as_strided.default}
ALL_OR_ANY = {aten.all.default, aten.all.dim, aten.any.default, aten.any.dim}
SUMS = {aten.sum.default, aten.sum.dim_IntList}
PRODUCTS = {
    aten.mm.default,
    aten.mv.default,
    aten.bmm.default,
    aten.dot.default,
    aten.addmm.default,
}
FILLED: dict[Any, float] = {
    aten.zeros.default: 0.0,
    aten.new_zeros.default: 0.0,
    aten.zeros_like.default: 0.0,
    aten.ones.default: 1.0,
    aten.new_ones.default: 1.0,
    aten.ones_like.default: 1.0,
    aten.empty.memory_format: math.nan,
    aten.new_empty_strided.default: math.nan,
    aten.new_empty.default: math.nan,
    aten.empty_like.default: math.nan,
}
SOFTMAX_BACKWARD = {aten._softmax_backward_data.default, aten._log_softmax_backward_data.default}
MASKS = {aten.tril.default, aten.triu.default}
#: those that replace a part of a tensor, with the view that is this part
REPLACED = {
    aten.diagonal_scatter.default: aten.diagonal.default,
    aten.select_scatter.default: aten.select.int,
    aten.slice_scatter.default: aten.slice.Tensor,
}
TRANSPOSED = aten.transpose.int, [-1, -2]
FACTOR = aten.linalg_cholesky_ex.default
CHECK = aten._linalg_check_errors.default
WAVES = {aten.sin.default, aten.cos.default}
#: the operations that have a form, most of them for some arguments alone
FORMS = {
    *ENTRIES,
    *IN_PLACE,
    *VIEWS,
    *PARTS,
    *SUMS,
    *TAKEN,
    *PUT,
    *ADDED_AT,
    *PRODUCTS,
    *FILLED,
    *MASKS,
    *REPLACED,
    *SOFTMAX_BACKWARD,
    FACTOR,
    CHECK,
    getitem,
    *ALL_OR_ANY,
    aten.addr.default,
    aten.amax.default,
    aten.as_strided.default,
    aten.cat.default,
    aten.cholesky_inverse.default,
    aten.cholesky_solve.default,
    aten.constant_pad_nd.default,
    aten.cumprod.default,
    aten.cumsum.default,
    aten.diag_embed.default,
    aten.eye.default,
    aten.linalg_solve_triangular.default,
    aten.linalg_vector_norm.default,
    aten._log_softmax.default,
    aten._softmax.default,
    aten.logsumexp.default,
    aten.masked_scatter_backward.default,
    aten.max.dim,
    aten.mean.default,
    aten.mean.dim,
    aten.stack.default,
}


# -- where numbers are -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """Where the numbers of a tensor are.

    Attributes:
        base: The pointer to them, as LLVM's language names it.
        offset: Of the first number, in numbers.
        shape: That of the tensor.
        strides: In numbers.
        dtype: That of the numbers.
        number: The one number that all entries are, in a register; the pointer is not read.
        places: A table of the places of the numbers, whose offset and strides these are; None: they
            lie in the order of the strides.
    """

    base: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    number: Register | None = None
    places: str | None = None

    @property
    def extent(self) -> int:
        """How many numbers of memory hold it; those before the first one count."""
        if 0 in self.shape:
            return 0
        steps = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        return self.offset + 1 + sum(steps)

    @property
    def flat(self) -> bool:
        """Whether the numbers, or the places of them, lie one after the other."""
        return self.number is None and self.strides == contiguous(self.shape)

    def viewed(self, target: Any, args: Sequence[Any]) -> Place | None:
        """Return the place of a view; None if the numbers must be copied for it."""
        if target is aten.reshape.default:
            target = aten.view.default
        if target is aten.lift_fresh_copy.default:
            return self
        try:
            return self.lying_as(target(self.without_numbers(), *args))
        except RuntimeError:
            return None

    def without_numbers(self) -> Tensor:
        """Return a tensor without memory that lies as this one."""
        memory = torch.empty(self.extent, dtype=torch.uint8, device="meta")
        return torch.as_strided(memory, self.shape, self.strides, self.offset)

    def lying_as(self, view: Tensor) -> Place:
        """Return the place of a view of ``without_numbers()``."""
        return replace(
            self,
            offset=view.storage_offset(),
            shape=tuple(view.shape),
            strides=tuple(view.stride()),
        )


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a tensor whose numbers lie one after the other."""
    strides: list[int] = []
    size = 1
    for n in reversed(shape):
        strides.append(0 if n == 1 else size)
        size *= n
    return tuple(reversed(strides))


def _spread(place: Place, shape: tuple[int, ...]) -> Place:
    """Return the place of a tensor that is broadcast to a shape."""
    new = len(shape) - len(place.shape)
    strides = [0 if n == 1 else s for n, s in zip(place.shape, place.strides, strict=True)]
    return replace(place, shape=shape, strides=(*(0,) * new, *strides))


# -- code ------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Loop:
    """Operations entry by entry on tensors of one shape that wait to be written as one loop.

    Attributes:
        shape: That of the tensors.
        members: The operations, in their order.
        sums: Sums of all numbers of a member.
    """

    shape: tuple[int, ...]
    members: dict[fx.Node, Callable[..., Register]] = field(default_factory=dict)
    sums: list[fx.Node] = field(default_factory=list)


class _Code:
    """The code of one graph, written operation by operation.

    Args:
        graph: A graph of z [p] alone, which returns the value and the gradient [p].

    Attributes:
        writer: The lines of the function.
        allocated: Lines of its first block.
        bytes: Of memory that a call needs.
        tables: Constants that it reads.
        numbers: Constants of one number each.

    Raises:
        NoForm: If an operation has no form in machine code.
    """

    def __init__(self, graph: fx.GraphModule) -> None:
        self.writer = Writer()
        self.allocated: list[str] = []
        self.bytes = 0
        self.tables: list[Tensor] = []
        self.numbers: list[float] = []
        operations = [node for node in graph.graph.nodes if node.op == "call_function"]
        self._of_covariances = any(node.target is FACTOR for node in operations)
        waves = sum(_layout(n).shape.numel() for n in operations if n.target in WAVES)
        if self._of_covariances and waves > MOST_WAVES:
            raise NoForm("many sines")
        self._places: dict[fx.Node, Place] = {}
        self._parts: dict[fx.Node, list[Place]] = {}  # of operations with several results
        self._constants: dict[fx.Node, Tensor] = {}
        self._waiting: dict[fx.Node, _Loop] = {}
        self._checked: list[Place] = []  # numbers other than 0 there are errors of torch
        self._loops: dict[tuple[int, ...], _Loop] = {}  # not yet written, by their shapes
        self._order = {node: i for i, node in enumerate(graph.graph.nodes)}
        self._in_place = {
            node
            for node in graph.graph.nodes
            if node.target in IN_PLACE and self._is_read_again(node)
        }
        self._changed = {_memory_of(node) for node in self._in_place}
        inputs = 0
        for node in graph.graph.nodes:
            if node.op == "placeholder":
                inputs += 1
                shape = tuple(_layout(node).shape)
                dtype = _layout(node).dtype
                self._places[node] = Place("%x", 0, shape, contiguous(shape), dtype)
            elif node.op == "get_attr":
                self._places[node] = self._constant(node, getattr(graph, str(node.target)))
            elif node.op == "output":
                self._output(node)
            else:
                self._operation(node)
            if node in self._changed and not self._is_owner(node):
                self._places[node] = self._copied(self._place(node))
        if inputs != 1:
            raise NoForm("arguments beside z")

    def _operation(self, node: fx.Node) -> None:
        target: Any = node.target
        args: list[Any] = list(node.args)
        kwargs: dict[str, Any] = dict(node.kwargs)
        if target in IN_PLACE:
            if node in self._in_place:
                self._write_into(node, IN_PLACE[target], args, kwargs)
                return
            target = IN_PLACE[target]
        _check_whole(node, target)
        if target is getitem:
            source, i = cast(Any, args)
            if source in self._parts:
                self._places[node] = self._parts[source][i]
            elif i == 0:  # of an operation entry by entry
                self._places[node] = self._place(source)
            elif source.target is aten.log_sigmoid_forward.default:
                # only the derivative reads it, and has a form without it
                self._places[node] = self._filled(_layout(node), self.writer.number(math.nan))
            elif node.users:
                raise NoForm(source.target)
        elif target in ENTRIES:
            self._by_entries(node, target, args, {} if target in WITHOUT_KEYWORDS else kwargs)
        elif target in VIEWS:
            self._places[node] = self._viewed(node, target, args)
        elif target in PARTS:
            self._split(node, target, args)
        elif target in SUMS:
            self._sum(node, args)
        elif target in (aten.cat.default, aten.stack.default):
            self._put_together(node, target, args)
        elif target is aten.gather.default and args[2] not in self._constants:
            self._gather(node, *args)
        elif target in SCATTERS and args[2] not in self._constants:
            self._scatter(node, target, *args)
        elif target in TAKEN:
            self._places[node] = self._taken(target, args)
        elif target is aten.masked_scatter_backward.default:
            self._first_of_masked(node, *args)
        elif target is aten.diag_embed.default:
            self._embedded(node, *args)
        elif target in PUT:
            self._put(node, PUT[target], args)
        elif target is aten.constant_pad_nd.default:
            self._padded(node, *args)
        elif target in MASKS:
            self._masked(node, target, args)
        elif target in ADDED_AT:
            self._added_at(node, target, args, kwargs)
        elif target in PRODUCTS:
            self._product(node, target, args, kwargs)
        elif target is aten.amax.default:
            self._places[node] = self._largest(self._place(args[0]), *args[1:])
        elif target is aten.max.dim:
            self._parts[node] = self._largest_and_where(self._place(args[0]), *args[1:])
        elif target is aten.as_strided.default:
            self._places[node] = self._strided(cast(fx.Node, args[0]), *args[1:])
        elif target in ALL_OR_ANY:
            self._all_or_any(node, target, *args)
        elif target is aten.logsumexp.default:
            self._log_sum_exp(node, *args)
        elif target in (aten._softmax.default, aten._log_softmax.default):
            self._softmax(node, target, *args)
        elif target in SOFTMAX_BACKWARD:
            self._softmax_backward(node, target, *args)
        elif target is aten.linalg_solve_triangular.default:
            self._places[node] = self._solved(*map(self._place, args), **kwargs)
        elif target is FACTOR:
            self._parts[node] = self._factor(self._place(args[0]), *args[1:], **kwargs)
        elif target is aten.cholesky_inverse.default:
            self._places[node] = self._inverse(self._place(args[0]), *args[1:], **kwargs)
        elif target is aten.cholesky_solve.default:
            self._places[node] = self._solved_twice(
                self._place(args[0]), self._place(args[1]), *args[2:], **kwargs
            )
        elif target is aten.addr.default:
            start = _spread(self._place(args[0]), tuple(_layout(node).shape))
            there = self._copied(start)
            self._add_outer_product(there, args, kwargs)
            self._places[node] = there
        elif target is CHECK:
            self._checked.append(self._place(args[0]))
        elif target in REPLACED:
            self._replaced(node, REPLACED[target], args)
        elif target is aten.eye.default:
            self._places[node] = self._table(target(*args, **kwargs))
        elif target in (aten.mean.default, aten.mean.dim):
            self._mean(node, args)
        elif target is aten.linalg_vector_norm.default:
            self._norm(node, *args, **kwargs)
        elif target in (aten.cumsum.default, aten.cumprod.default):
            self._cumulated(node, target, args)
        elif target in FILLED:
            layout = _layout(node)
            self._places[node] = self._filled(layout, self.writer.number(FILLED[target]))
        else:
            raise NoForm(target)

    def _is_read_again(self, node: fx.Node) -> bool:
        """Return whether more than its result reads the memory that an operation changes."""
        changed = cast(fx.Node, node.args[0])
        names = [changed]  # of the one tensor, before and after each change
        while names[-1].target in IN_PLACE:
            names.append(cast(fx.Node, names[-1].args[0]))
        users = [user for name in names for user in name.users]
        later = any(self._order[user] > self._order[node] for user in users)
        viewed = any(_shares(user) for user in users)
        first = names[-1]
        return later or viewed or first.op != "call_function" or _shares(first)

    def _is_owner(self, node: fx.Node) -> bool:
        """Return whether a node alone has the memory of its numbers."""
        place = self._place(node)
        own = (node, node.args[0] if node.target is getitem else node)
        places = [other for x, other in self._places.items() if x not in own]
        places += [part for x, parts in self._parts.items() if x not in own for part in parts]
        held = any(other.base == place.base for other in places)
        return place.base.startswith("%m") and place.places is None and not held

    def _write_into(
        self, node: fx.Node, target: Any, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> None:
        """Change the numbers of a tensor where they lie."""
        if target not in ENTRIES and target is not aten.addr.default:
            raise NoForm(node.target)
        _check_whole(node, target)
        for loop in list(self._loops.values()):
            self._close(loop)  # what reads the numbers before they change
        there = self._place(args[0])
        if not there.base.startswith("%m"):
            raise NoForm(node.target)
        for other, place in self._places.items():  # numbers that were taken before they change
            if place.places is not None and place.base == there.base:
                self._places[other] = self._copied(place)
        self._places[node] = there
        if target is aten.addr.default:
            self._add_outer_product(there, args, kwargs)
            return
        args, kwargs = self._with_numbers(target, args, kwargs)
        places = {x: _spread(self._place(x), there.shape) for x in node.all_input_nodes}

        def body(at: list[str]) -> None:
            values = {x: self._load(place, at) for x, place in places.items()}
            self._store(there, at, _entry(target, args, kwargs, values, there.dtype))

        self._for(there.shape, body)

    # -- where numbers are -------------------------------------------------------------------------

    def _constant(self, node: fx.Node, value: Tensor) -> Place:
        if value.dtype not in SIZES or value.device.type != "cpu":
            raise NoForm(value.dtype)
        self._constants[node] = value
        flat = value.detach().reshape(-1)
        if flat.numel() and value.dtype != torch.int64:
            first = flat[0].item()
            if bool((flat == first).all()) and (first != 0 or not bool(torch.signbit(flat).any())):
                number = self._number(first)
                if value.dtype == torch.bool:
                    number = self.writer.truth(bool(first))
                return self._filled(Layout.of(value), number)
        return self._table(value)

    def _number(self, value: float) -> Register:
        """Return a constant: a common one is written out, others come with each call.

        The function then serves other data of the same shape.
        """
        if value in WRITTEN_OUT or value != value or math.isinf(value):
            return self.writer.number(value)
        name = f"%c{len(self.numbers)}"
        at = f"getelementptr inbounds double, ptr %numbers, i64 {len(self.numbers)}"
        self.allocated += [f"{name}.at = {at}", f"{name} = load double, ptr {name}.at"]
        self.numbers.append(value)
        return Register(self.writer, name)

    def _with_numbers(
        self, target: Any, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[Sequence[Any], dict[str, Any]]:
        """Return arguments with constants in place of their numbers."""

        def constant(x: Any) -> Any:
            return self._number(x) if isinstance(x, float) else x

        if target not in BY_NUMBERS:
            return args, kwargs
        return [constant(x) for x in args], {name: constant(x) for name, x in kwargs.items()}

    def _table(self, value: Tensor) -> Place:
        """Return the place of a constant, which is kept."""
        if value.numel() > (MOST_STORED if self._of_covariances else MOST_NUMBERS):
            raise NoForm("size")
        kept = value.detach().clone(memory_format=torch.contiguous_format)
        self.tables.append(kept)
        shape = tuple(kept.shape)
        return Place(f"%t{len(self.tables) - 1}", 0, shape, contiguous(shape), kept.dtype)

    def _filled(self, layout: Layout, number: Register) -> Place:
        shape = tuple(layout.shape)
        return Place("", 0, shape, (0,) * len(shape), layout.dtype, number)

    def _room(self, shape: Sequence[int], dtype: torch.dtype) -> Place:
        """Return a new place in the memory of a call."""
        numbers = math.prod(shape)
        most = MOST_OF_COVARIANCES if self._of_covariances else MOST_NUMBERS
        if dtype not in SIZES or numbers > most:
            raise NoForm((shape, dtype))
        if dtype != torch.bool:  # whole numbers are computed as floats, and are no indices
            dtype = torch.float64
        start = _whole_lines(self.bytes)
        self.bytes = start + numbers * SIZES[dtype]
        name = f"%m{len(self.allocated)}"
        self.allocated.append(f"{name} = getelementptr inbounds i8, ptr %memory, i64 {start}")
        return Place(name, 0, tuple(shape), contiguous(shape), dtype)

    def _place(self, node: Any) -> Place:
        """Return where the numbers of a node are, after the loop that computes them."""
        if node in self._waiting:
            self._close(self._waiting[node])
        return self._places[node]

    def _in_memory(self, place: Place) -> Place:
        """Return a place whose numbers lie in memory in the order of strides."""
        if place.number is None and place.places is None:
            return place
        return self._copied(place)

    def _side_by_side(self, place: Place) -> Place:
        """Return a place whose numbers lie in memory one after the other, or are all the same."""
        if place.number is not None or (place.flat and place.places is None):
            return place
        return self._copied(place)

    def _copied(self, place: Place) -> Place:
        there = self._room(place.shape, place.dtype)
        self._copy(place, there)
        return there

    def _copy(self, source: Place, there: Place) -> None:
        if source.flat and there.flat:
            size = math.prod(there.shape)
            source, there = (
                replace(place, shape=(size,), strides=contiguous((size,)))
                for place in (source, there)
            )

        def body(at: list[str]) -> None:
            self._store(there, at, self._load(source, at))

        self._for(there.shape, body)

    def _view(self, place: Place, target: Any, args: Sequence[Any]) -> Place:
        args = [list(part) if isinstance(part, list | tuple) else part for part in args]
        found = place.viewed(target, args)
        if found is None:
            found = self._copied(place).viewed(target, args)
        if found is None:
            raise NoForm(target)
        return found

    def _viewed(self, node: fx.Node, target: Any, args: Sequence[Any]) -> Place:
        """Return the place of the result of a view."""
        place = self._place(args[0])
        found = self._view(place, target, args[1:])
        if found.base != place.base and _memory_of(node) in self._changed:
            raise NoForm("a view of memory in another order that is changed")
        return found

    def _address(self, place: Place, at: str) -> str:
        kind = STORED_AS[place.dtype]
        name = self.writer.fresh()
        self.writer.line(f"{name} = getelementptr inbounds {kind}, ptr {place.base}, i64 {at}")
        return name

    def _index(self, place: Place, counters: Sequence[str]) -> str:
        """Return the offset of the number at some counters."""
        w = self.writer
        fixed, total = place.offset, None
        for counter, stride in zip(counters, place.strides, strict=True):
            if counter.isdigit():
                fixed += int(counter) * stride
            elif stride:
                part = Register(w, counter, INT)
                if stride != 1:
                    part = w.add(f"mul nsw i64 {counter}, {stride}", INT)
                total = part if total is None else w.whole("add nsw", total, part)
        if total is None:
            return str(fixed)
        return w.whole("add nsw", total, fixed).name if fixed else total.name

    def _load(self, place: Place, counters: Sequence[str]) -> Register:
        """Return the number of a tensor at some counters."""
        if place.number is not None:
            return place.number
        at = self._index(place, counters)
        if place.places is not None:
            table = Place(place.places, 0, (), (), torch.int64)
            at = self.writer.add(f"load i64, ptr {self._address(table, at)}", INT).name
        kind = STORED_AS[place.dtype]
        found = self.writer.add(f"load {kind}, ptr {self._address(place, at)}", kind)
        if kind == "float":
            return self.writer.add(f"fpext float {found.name} to double")
        if kind == "i8":
            return self.writer.add(f"icmp ne i8 {found.name}, 0", BOOL)
        return found

    def _store(self, place: Place, counters: Sequence[str], value: Register) -> None:
        self._store_at(place, self._index(place, counters), value)

    def _store_at(self, place: Place, at: str, value: Register) -> None:
        w, kind = self.writer, STORED_AS[place.dtype]
        if kind == "i8":
            value = w.add(f"zext i1 {_truth(value).name} to i8", kind)
        else:
            value = as_float(value)
            if kind == "float":
                value = w.add(f"fptrunc double {value.name} to float", kind)
        w.line(f"store {kind} {value.name}, ptr {self._address(place, at)}")

    # -- loops -------------------------------------------------------------------------------------

    def _for(self, counts: Sequence[int], body: Callable[[list[str]], None]) -> None:
        """Write nested loops; ``body`` takes the names of the counters, the outermost first."""
        if 0 in counts:
            return
        if not counts:
            body([])
            return
        count, inner = counts[0], counts[1:]
        if count == 1:
            self._for(inner, lambda rest: body(["0", *rest]))
            return
        w = self.writer
        before, start, end = w.block, w.fresh("loop"), w.fresh("end")
        counter, following = w.fresh("%i"), w.fresh("%n")
        w.line(f"br label %{start}")
        w.lines.append(f"{start}:")
        head = len(w.lines)
        w.lines.append("")
        w.block = start
        w.steps *= count
        self._for(inner, lambda rest: body([counter, *rest]))
        w.line(f"{following} = add nuw nsw i64 {counter}, 1")
        w.steps //= count
        w.lines[head] = f"  {counter} = phi i64 [ 0, %{before} ], [ {following}, %{w.block} ]"
        stop = w.add(f"icmp eq i64 {following}, {count}", BOOL)
        w.line(f"br i1 {stop.name}, label %{end}, label %{start}")
        w.lines.append(f"{end}:")
        w.block = end

    def _accumulator(self, start: float = 0.0) -> str:
        name = f"%a{len(self.allocated)}"
        self.allocated.append(f"{name} = alloca double")
        self.writer.line(f"store double {self.writer.number(start).name}, ptr {name}")
        return name

    def _accumulate(self, name: str, value: Register) -> None:
        w = self.writer
        so_far = w.add(f"load double, ptr {name}")
        total = w.add(f"fadd reassoc double {so_far.name}, {as_float(value).name}")
        w.line(f"store double {total.name}, ptr {name}")

    def _by_entries(
        self, node: fx.Node, target: Any, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> None:
        """Compute an operation in registers, or put it into the loop of its shape."""
        layout = _result(node)
        if layout.dtype not in SIZES:
            raise NoForm(layout.dtype)
        args, kwargs = self._with_numbers(target, args, kwargs)
        shape = tuple(layout.shape)
        inputs = node.all_input_nodes
        if math.prod(shape) == 0:
            self._places[node] = self._room(shape, layout.dtype)
            return
        for x in inputs:  # a loop of another shape ends before this one
            loop = self._waiting.get(x)
            if loop is not None and (loop.shape != shape or x in loop.sums):
                self._close(loop)
        known = {x: self._places[x] for x in inputs if x not in self._waiting}
        numbers = all(place.number is not None for place in known.values())
        if len(known) == len(inputs) and (numbers or math.prod(shape) == 1):
            values = {x: self._load(place, ["0"] * len(place.shape)) for x, place in known.items()}
            number = _entry(target, args, kwargs, values, layout.dtype)
            self._places[node] = self._filled(layout, number)
            return
        loop = self._loop_of(shape)
        loop.members[node] = partial(_entry, target, args, kwargs, dtype=layout.dtype)
        self._waiting[node] = loop

    def _loop_of(self, shape: tuple[int, ...]) -> _Loop:
        """Return the loop of a shape that waits to be written."""
        return self._loops.setdefault(shape, _Loop(shape))

    def _close(self, loop: _Loop) -> None:
        """Write a loop."""
        del self._loops[loop.shape]
        read = [x for node in (*loop.members, *loop.sums) for x in node.all_input_nodes]
        sources = [x for x in dict.fromkeys(read) if x not in loop.members]
        for x in sources:
            self._place(x)
        places = {x: _spread(self._places[x], loop.shape) for x in sources}
        if math.prod(loop.shape) >= VECTORISED and any(
            node.target in COSTLY for node in loop.members
        ):
            # one long loop over numbers side by side is done several at once
            places = {x: self._side_by_side(place) for x, place in places.items()}
        inside = {*loop.members, *loop.sums}
        stored = {
            node: self._room(loop.shape, _result(node).dtype)
            for node in loop.members
            if not inside.issuperset(node.users)
        }
        totals = {node: self._accumulator() for node in loop.sums}
        counts = loop.shape
        if all(place.flat or place.number is not None for place in places.values()):
            counts = (math.prod(loop.shape),)
        one = contiguous(counts)
        flat = counts is not loop.shape

        def laid(place: Place) -> Place:
            return replace(place, shape=counts, strides=one) if flat else place

        def body(at: list[str]) -> None:
            values = {x: self._load(laid(place), at) for x, place in places.items()}
            for node, computed in loop.members.items():
                values[node] = computed(values)
            for node, place in stored.items():
                self._store(laid(place), at, values[node])
            for node, name in totals.items():
                self._accumulate(name, values[cast(fx.Node, node.args[0])])

        self._for(counts, body)
        self._places.update(stored)
        for node, name in totals.items():
            number = self.writer.add(f"load double, ptr {name}")
            self._places[node] = self._filled(_layout(node), number)
        for node in inside:
            self._waiting.pop(node, None)

    # -- other operations --------------------------------------------------------------------------

    def _sum(self, node: fx.Node, args: Sequence[Any]) -> None:
        source, layout = args[0], _layout(node)
        shape = tuple(_layout(source).shape)
        axes = {
            d % max(len(shape), 1)
            for d in (args[1] if len(args) > 1 else None) or range(len(shape))
        }
        if math.prod(layout.shape) == 1 and math.prod(shape) > 1:
            waits = self._waiting.get(source)
            if waits is None and self._places[source].number is None:
                waits = self._loop_of(shape)
            if waits is not None and source not in waits.sums:
                waits.sums.append(node)
                self._waiting[node] = waits
                return
        place = self._place(source)
        counted = math.prod(n for d, n in enumerate(shape) if d in axes)
        if place.number is not None:
            self._places[node] = self._filled(layout, as_float(place.number) * float(counted))
            return
        there = self._room(layout.shape, layout.dtype)
        strides = list(there.strides)
        if len(there.shape) < len(shape):
            kept = iter(strides)
            strides = [0 if d in axes else next(kept) for d in range(len(shape))]
        added = replace(there, shape=shape, strides=tuple(strides))
        self._added(place, added, there, axes)
        self._places[node] = there

    def _added(self, source: Place, added: Place, there: Place, axes: set[int]) -> None:
        """Sum over axes; ``added`` is the place of the sums, with a stride of 0 along the axes."""
        shape = source.shape
        outer = [d for d in range(len(shape)) if d not in axes]
        inner = sorted(axes)
        if len(shape) - 1 in axes:

            def of_one(kept: list[str]) -> None:
                name = self._accumulator()
                where = dict(zip(outer, kept, strict=True))

                def add(rest: list[str]) -> None:
                    at = where | dict(zip(inner, rest, strict=True))
                    self._accumulate(name, self._load(source, [at[d] for d in sorted(at)]))

                self._for([shape[d] for d in inner], add)
                total = self.writer.add(f"load double, ptr {name}")
                at = where | dict.fromkeys(inner, "0")
                self._store(added, [at[d] for d in sorted(at)], total)

            self._for([shape[d] for d in outer], of_one)
            return
        self._fill(there, 0.0)

        def add_all(at: list[str]) -> None:
            self._add_to(added, at, as_float(self._load(source, at)))

        self._for(shape, add_all)

    def _fill(self, place: Place, value: float) -> None:
        number = self.writer.number(value)
        self._copy(replace(place, number=number), place)

    def _add_to(self, place: Place, at: Sequence[str], value: Register) -> None:
        """Add to a number in memory; the order of several such sums is free."""
        w = self.writer
        so_far = self._load(place, at)
        total = w.add(f"fadd reassoc contract double {so_far.name}, {value.name}")
        self._store(place, at, total)

    def _split(self, node: fx.Node, target: Any, args: Sequence[Any]) -> None:
        place = self._in_memory(self._place(args[0]))
        parts = target(place.without_numbers(), *args[1:])
        self._parts[node] = [place.lying_as(part) for part in parts]

    def _put_together(self, node: fx.Node, target: Any, args: Sequence[Any]) -> None:
        layout = _layout(node)
        there = self._room(layout.shape, layout.dtype)
        axis = args[1] if len(args) > 1 else 0
        start = 0
        for i, piece in enumerate(args[0]):
            place = self._place(piece)
            if target is aten.stack.default:
                part = there.viewed(aten.select.int, [axis, i])
            elif place.shape == (0,):
                continue
            else:
                stop = start + place.shape[axis]
                part = there.viewed(aten.slice.Tensor, [axis, start, stop])
                start = stop
            self._copy(place, cast(Place, part))
        self._places[node] = there

    def _known(self, args: Any) -> Any:
        """Return arguments with the constants among them in place of their nodes."""

        def value(node: fx.Node) -> Tensor:
            if node not in self._constants:
                raise NoForm("indices that are computed")
            return self._constants[node]

        return map_arg(args, value)

    def _taken(self, target: Any, args: Sequence[Any]) -> Place:
        """Return the place of numbers at known indices, as a table of their places."""
        place = self._place(args[0])
        rest = self._known(list(args[1:]))
        if place.places is not None:
            place = self._copied(place)
        if place.number is not None:
            like = torch.empty(place.shape, dtype=place.dtype)
            return self._filled(Layout.of(target(like, *rest)), place.number)
        every = torch.arange(place.extent)
        places = torch.as_strided(every, place.shape, place.strides, place.offset)
        table = self._table(target(places, *rest))
        return replace(place, offset=0, shape=table.shape, strides=table.strides, places=table.base)

    def _put(self, node: fx.Node, view: Any, args: Sequence[Any]) -> None:
        layout = _layout(node)
        there = self._room(layout.shape, layout.dtype)
        self._fill(there, 0.0)
        part = there.viewed(view, args[2:])
        self._copy(self._place(args[0]), cast(Place, part))
        self._places[node] = there

    def _embedded(
        self, node: fx.Node, x: fx.Node, offset: int = 0, first: int = -2, second: int = -1
    ) -> None:
        """Put numbers into the diagonals of matrices of zeros."""
        layout = _layout(node)
        there = self._room(layout.shape, layout.dtype)
        self._fill(there, 0.0)
        part = there.viewed(aten.diagonal.default, [offset, first, second])
        self._copy(self._place(x), cast(Place, part))
        self._places[node] = there

    def _first_of_masked(self, node: fx.Node, g: fx.Node, mask: Any, sizes: Any) -> None:
        place, layout = self._place(g), _layout(node)
        taken = self._known(mask).expand(place.shape)
        every = torch.arange(taken.numel()).reshape(place.shape)[taken]
        flat = self._in_memory(self._view(place, aten.reshape.default, [[-1]]))
        table = self._table(every * flat.strides[0] + flat.offset)
        found = replace(flat, offset=0, shape=table.shape, strides=table.strides, places=table.base)
        there = self._room((math.prod(layout.shape),), layout.dtype)
        self._fill(there, 0.0)
        part = there.viewed(aten.slice.Tensor, [0, 0, len(every)])
        self._copy(found, cast(Place, part))
        self._places[node] = self._view(there, aten.view.default, [list(layout.shape)])

    def _padded(self, node: fx.Node, x: fx.Node, pad: Sequence[int], value: float = 0) -> None:
        layout, place = _layout(node), self._place(x)
        there = self._room(layout.shape, layout.dtype)
        self._fill(there, value)
        part = there
        for i in range(len(pad) // 2):
            before, after = pad[2 * i], pad[2 * i + 1]
            axis = len(place.shape) - 1 - i
            size = place.shape[axis]
            kept = [axis, max(-before, 0), size - max(-after, 0)]  # a negative pad leaves out
            place = self._view(place, aten.slice.Tensor, kept)
            slot = [axis, max(before, 0), max(before, 0) + place.shape[axis]]
            part = cast(Place, part.viewed(aten.slice.Tensor, slot))
        self._copy(place, part)
        self._places[node] = there

    def _masked(self, node: fx.Node, target: Any, args: Sequence[Any]) -> None:
        place, layout = self._place(args[0]), _layout(node)
        mask = self._table(target(torch.ones(place.shape, dtype=torch.bool), *args[1:]))
        there = self._room(layout.shape, layout.dtype)

        def body(at: list[str]) -> None:
            kept = self.writer.select(self._load(mask, at), self._load(place, at), 0.0)
            self._store(there, at, kept)

        self._for(there.shape, body)
        self._places[node] = there

    def _added_at(
        self, node: fx.Node, target: Any, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> None:
        there = self._copied(self._place(args[0]))
        if there.shape != tuple(_layout(node).shape):
            raise NoForm("a tensor that is made larger")
        every = torch.arange(math.prod(there.shape)).reshape(there.shape)
        adds = target in (aten.scatter_add.default, aten.index_add.default)
        if target is aten.index_put.default:
            source = args[2]
            adds = bool(args[3]) if len(args) > 3 else kwargs.get("accumulate", False)
            where = aten.index.Tensor(every, self._known(args[1]))
        elif target is aten.masked_scatter.default:
            source = args[2]
            where = every[self._known(args[1]).expand(there.shape)]
        elif target in (aten.index_add.default, aten.index_copy.default):
            if kwargs:
                raise NoForm(kwargs)
            source = args[3]
            where = every.index_select(args[1], self._known(args[2]))
        else:
            source = args[3]
            where = every.gather(args[1], self._known(args[2]))
        shape = tuple(where.shape)
        if isinstance(source, fx.Node):
            place = self._place(source)
            if target in (aten.scatter_add.default, aten.scatter.src):  # of a corner of the source
                place = replace(place, shape=shape)
            if target is aten.masked_scatter.default:  # of its first numbers
                place = self._view(place, aten.reshape.default, [[-1]])
                place = replace(place, shape=shape)
            place = _spread(place, shape)
        else:
            place = replace(
                there, shape=shape, strides=(0,) * len(shape), number=self.writer.number(source)
            )
        table = self._table(where)

        def body(at: list[str]) -> None:
            value = self._load(place, at)
            slot = self._load(table, at).name
            if adds:
                kind = STORED_AS[there.dtype]
                so_far = self.writer.add(f"load {kind}, ptr {self._address(there, slot)}", kind)
                value = Register(self.writer, so_far.name) + value
            self._store_at(there, slot, value)

        self._for(shape, body)
        self._places[node] = there

    def _product(
        self, node: fx.Node, target: Any, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> None:
        start = None
        if target is aten.addmm.default:
            if any(value != 1 for value in kwargs.values()):
                raise NoForm(kwargs)
            start, *args = args
        layout = _layout(node)
        left, right = (self._in_memory(self._place(x)) for x in args)
        if len(left.shape) == 1:  # a product of vectors
            left = cast(Place, left.viewed(aten.unsqueeze.default, [0]))
        if len(right.shape) < 2:
            right = cast(Place, right.viewed(aten.unsqueeze.default, [1]))
        batch = left.shape[:-2]
        shape = (*batch, left.shape[-2], right.shape[-1])
        n, k, m = left.shape[-2], left.shape[-1], right.shape[-1]
        by_blas = math.prod(shape) * k > MOST_PRODUCTS
        if by_blas and not self._of_covariances:
            raise NoForm("a large product")
        there = self._room(shape, layout.dtype)
        if start is not None:
            self._copy(_spread(self._place(start), shape), there)
        elif not by_blas:
            self._fill(there, 0.0)
        if by_blas:
            self._multiplied_by_blas(left, right, there, 0.0 if start is None else 1.0)
            self._places[node] = self._view(there, aten.view.default, [list(layout.shape)])
            return
        along = left.strides[-1] in (0, 1) and right.strides[-2] in (0, 1)

        def term(at: list[str], i: str, j: str, c: str) -> Register:
            a = self._load(left, [*at, i, c])
            b = self._load(right, [*at, c, j])
            return self.writer.add(f"fmul reassoc contract double {a.name}, {b.name}")

        def by_entries(at: list[str]) -> None:
            *rest, i, j = at
            name = self._accumulator()

            def add(c: list[str]) -> None:
                w = self.writer
                product = term(rest, i, j, c[0])
                so_far = w.add(f"load double, ptr {name}")
                total = w.add(f"fadd reassoc contract double {so_far.name}, {product.name}")
                w.line(f"store double {total.name}, ptr {name}")

            self._for([k], add)
            self._add_to(there, at, self.writer.add(f"load double, ptr {name}"))

        def by_rows(at: list[str]) -> None:
            *rest, i, c, j = at
            self._add_to(there, [*rest, i, j], term(rest, i, j, c))

        def by_columns(at: list[str]) -> None:
            *rest, c, j, i = at
            self._add_to(there, [*rest, i, j], term(rest, i, j, c))

        if along and (m == 1 or right.strides[-1] != 1):
            self._for(shape, by_entries)
        elif m == 1:
            self._for([*batch, k, m, n], by_columns)
        else:
            self._for([*batch, n, k, m], by_rows)
        found = there
        if tuple(layout.shape) != shape:
            found = self._view(there, aten.view.default, [list(layout.shape)])
        self._places[node] = found

    def _reduced(
        self,
        source: Place,
        axes: Sequence[int],
        keep: bool,
        start: float,
        combine: Callable[[Register, Register], Register],
        entry: Callable[[Register, list[str]], Register] = lambda x, _: x,
    ) -> Place:
        """Return the place of what is left of the axes.

        Args:
            source: The place of the numbers.
            axes: Those that go; all if there are none.
            keep: Whether each axis stays with one entry.
            start: The number to begin with.
            combine: Takes the result so far and the next number.
            entry: Changes a number, at some counters, before that.
        """
        shape = source.shape
        rank = max(len(shape), 1)
        gone = {d % rank for d in axes} or set(range(len(shape)))
        outer = [d for d in range(len(shape)) if d not in gone]
        inner = sorted(gone & set(range(len(shape))))
        there = self._room([shape[d] for d in outer], torch.float64)

        def of_one(kept: list[str]) -> None:
            name = self._accumulator(start)
            where = dict(zip(outer, kept, strict=True))

            def step(rest: list[str]) -> None:
                at = where | dict(zip(inner, rest, strict=True))
                counters = [at[d] for d in sorted(at)]
                so_far = self.writer.add(f"load double, ptr {name}")
                value = entry(as_float(self._load(source, counters)), counters)
                self.writer.line(f"store double {combine(so_far, value).name}, ptr {name}")

            self._for([shape[d] for d in inner], step)
            self._store(there, kept, self.writer.add(f"load double, ptr {name}"))

        self._for(there.shape, of_one)
        if not keep:
            return there
        left = [1 if d in gone else n for d, n in enumerate(shape)]
        return self._view(there, aten.view.default, [left])

    def _largest(self, source: Place, axes: Sequence[int] = (), keep: bool = False) -> Place:
        return self._reduced(source, axes, keep, -math.inf, lambda a, b: maximum(b, a))

    def _largest_and_where(self, source: Place, axis: int, keep: bool = False) -> list[Place]:
        """Return the places of the largest numbers along an axis, and of their indices."""
        if not source.shape:
            raise NoForm("an axis of one number")
        largest = _spread(self._largest(source, [axis], True), source.shape)
        size = source.shape[axis]
        axis %= len(source.shape)

        def index(value: Register, at: list[str]) -> Register:
            w = self.writer
            most = self._load(largest, at)
            here = w.logic("or", value.compared("oeq", most), is_nan(value))
            return w.select(here, as_float(Register(w, at[axis], INT)), float(size))

        where = self._reduced(source, [axis], keep, float(size), minimum, index)
        return [self._largest(source, [axis], keep), where]

    def _gather(self, node: fx.Node, x: fx.Node, axis: int, index: fx.Node) -> None:
        """Take numbers at indices that are computed."""
        source, where = self._in_memory(self._place(x)), self._place(index)
        there = self._room(where.shape, torch.float64)

        def body(at: list[str]) -> None:
            self._store(there, at, self._load(source, self._moved(at, axis, where, source)))

        self._for(where.shape, body)
        self._places[node] = there

    def _scatter(
        self, node: fx.Node, target: Any, x: fx.Node, axis: int, index: fx.Node, source: Any
    ) -> None:
        """Put numbers at indices that are computed."""
        there, where = self._copied(self._place(x)), self._place(index)
        place = self._place(source) if isinstance(source, fx.Node) else None

        def body(at: list[str]) -> None:
            value = self.writer.number(source) if place is None else self._load(place, at)
            slot = self._moved(at, axis, where, there)
            if target is aten.scatter_add.default:
                value = self._load(there, slot) + value
            self._store(there, slot, value)

        self._for(where.shape, body)
        self._places[node] = there

    def _moved(self, at: Sequence[str], axis: int, where: Place, within: Place) -> list[str]:
        """Return counters with an index that is computed in place of one of them."""
        w = self.writer
        if not within.shape:
            raise NoForm("an axis of one number")
        axis %= len(within.shape)
        # one out of range, which torch refuses, must not leave the memory
        index = maximum(
            minimum(as_float(self._load(where, at)), w.number(within.shape[axis] - 1)),
            w.number(0.0),
        )
        counter = w.add(f"fptosi double {index.name} to i64", INT).name
        return [counter if d == axis else c for d, c in enumerate(at)]

    def _strided(
        self, x: fx.Node, shape: Sequence[int], strides: Sequence[int], offset: int = 0
    ) -> Place:
        place, layout = self._place(x), _layout(x)
        own = [s for n, s in zip(place.shape, place.strides, strict=True) if n > 1]
        torch_s = [s for n, s in zip(layout.shape, layout.stride, strict=True) if n > 1]
        if place.places is not None or place.number is not None or place.offset or own != torch_s:
            raise NoForm("memory in another order")
        return replace(place, offset=offset, shape=tuple(shape), strides=tuple(strides))

    def _all_or_any(
        self, node: fx.Node, target: Any, x: fx.Node, axis: int | None = None, keep: bool = False
    ) -> None:
        source = self._place(x)
        every = target in (aten.all.default, aten.all.dim)
        axes = list(range(len(source.shape))) if axis is None else [axis]
        combine, start = (minimum, 1.0) if every else (maximum, 0.0)

        def truth(value: Register, _: list[str]) -> Register:
            return as_float(_truth(value))

        found = self._reduced(source, axes, keep, start, combine, truth)
        there = self._room(found.shape, torch.bool)
        self._copy(found, there)
        self._places[node] = there

    def _log_sum_exp(
        self, node: fx.Node, x: fx.Node, axes: Sequence[int], keep: bool = False
    ) -> None:
        source = self._in_memory(self._place(x))
        self._places[node] = self._view(
            self._total_of_logs(source, axes), aten.view.default, [list(_layout(node).shape)]
        )

    def _shift_and_total(self, source: Place, axes: Sequence[int]) -> tuple[Place, Place]:
        """Return m and log sum exp(x - m) over axes, each of which stays with one entry.

        m is the largest x, and 0 where that is infinite.
        """
        w = self.writer
        largest = self._largest(source, axes, True)
        shift, total = (self._room(largest.shape, torch.float64) for _ in range(2))

        def finite(at: list[str]) -> None:
            m = self._load(largest, at)
            self._store(shift, at, w.select(abs(m).compared("oeq", math.inf), 0.0, m))

        self._for(shift.shape, finite)
        spread = _spread(shift, source.shape)

        def shifted(value: Register, at: list[str]) -> Register:
            return exp(value - self._load(spread, at))

        exps = self._reduced(source, axes, True, 0.0, lambda a, b: a + b, shifted)
        self._for(total.shape, lambda at: self._store(total, at, log(self._load(exps, at))))
        return shift, total

    def _total_of_logs(self, source: Place, axes: Sequence[int]) -> Place:
        """Return log sum exp over axes, each of which stays with one entry."""
        shift, total = self._shift_and_total(source, axes)
        there = self._room(total.shape, torch.float64)

        def body(at: list[str]) -> None:
            self._store(there, at, self._load(shift, at) + self._load(total, at))

        self._for(there.shape, body)
        return there

    def _softmax(self, node: fx.Node, target: Any, x: fx.Node, axis: int, _: bool) -> None:
        source = self._in_memory(self._place(x))
        parts = self._shift_and_total(source, [axis])
        shift, total = (_spread(part, source.shape) for part in parts)
        there = self._room(source.shape, torch.float64)

        def body(at: list[str]) -> None:
            # the shift first: a large one would take the digits of the rest
            found = (self._load(source, at) - self._load(shift, at)) - self._load(total, at)
            self._store(there, at, exp(found) if target is aten._softmax.default else found)

        self._for(there.shape, body)
        self._places[node] = there

    def _softmax_backward(
        self, node: fx.Node, target: Any, g: fx.Node, y: fx.Node, axis: int, _: Any
    ) -> None:
        slopes, found = self._in_memory(self._place(g)), self._in_memory(self._place(y))
        there = self._room(found.shape, torch.float64)
        in_logs = target is aten._log_softmax_backward_data.default

        def weighted(value: Register, at: list[str]) -> Register:
            return value if in_logs else value * self._load(found, at)

        total = self._reduced(slopes, [axis], True, 0.0, lambda a, b: a + b, weighted)
        total = _spread(total, found.shape)

        def body(at: list[str]) -> None:
            slope, share = self._load(slopes, at), self._load(found, at)
            if in_logs:
                slope = slope - exp(share) * self._load(total, at)
            else:
                slope = share * (slope - self._load(total, at))
            self._store(there, at, slope)

        self._for(there.shape, body)
        self._places[node] = there

    # -- matrices ----------------------------------------------------------------------------------

    def _in_columns(self, place: Place) -> Place:
        """Return the place of a copy of matrices, each of which is column-major."""
        *batch, n, m = place.shape
        there = cast(Place, self._room((*batch, m, n), torch.float64).viewed(*TRANSPOSED))
        self._copy_by_columns(place, there)
        return there

    def _copy_by_columns(self, source: Place, there: Place) -> None:
        self._copy(*(cast(Place, place.viewed(*TRANSPOSED)) for place in (source, there)))

    def _readable(self, place: Place) -> Place:
        """Return a place that a routine can read: the entries of rows or columns are neighbours."""
        n, m = place.shape[-2:]
        down, along = place.strides[-2:]
        neighbours = (down == 1 and along >= n) or (along == 1 and down >= m)
        if min(n, m) == 1:
            neighbours = n * m == 1 or max(down, along) > 0  # 0: one number, repeated
        plain = place.number is None and place.places is None and place.dtype == torch.float64
        return place if plain and neighbours else self._in_columns(place)

    def _matrix(self, place: Place, at: Sequence[str]) -> Matrix:
        """Return one of several matrices that are readable; ``at`` counts them."""
        n, m = place.shape[-2:]
        down, along = place.strides[-2:]
        name = self._address(place, self._index(place, [*at, "0", "0"]))
        if (m == 1 or along >= n) and (down == 1 or n == 1):
            return Matrix(name, along if m > 1 else n)
        return Matrix(name, down, transposed=True)

    def _info(self) -> str:
        """Return a pointer to a whole number by which LAPACK says whether it failed."""
        name = f"%a{len(self.allocated)}"
        self.allocated.append(f"{name} = alloca i32")
        return name

    def _factor(
        self, source: Place, *, upper: bool = False, check_errors: bool = False
    ) -> list[Place]:
        """Return the places of Cholesky factors, and of 0 for each that exists."""
        *batch, n, _ = source.shape
        if upper or n > MOST_ROWS or not n:
            raise NoForm((upper, n))
        there = cast(Place, self._room((*batch, n, n), torch.float64).viewed(*TRANSPOSED))
        failed = self._room(batch, torch.float64)
        info = self._info()
        w = self.writer

        def lower(at: list[str]) -> None:
            *rest, column, row = at
            inside = w.add(f"icmp sge i64 {row}, {column}", BOOL)
            value = self._load(source, [*rest, row, column])
            self._store(there, [*rest, row, column], w.select(inside, value, 0.0))

        def of_one(at: list[str]) -> None:
            found = as_float(factorised(w, self._matrix(there, at), n, info))
            self._store(failed, at, found)

        self._for([*batch, n, n], lower)
        self._for(batch, of_one)
        if check_errors:
            self._checked.append(failed)
        return [there, failed]

    def _inverse(self, source: Place, upper: bool = False) -> Place:
        """Return the place of the inverses of L L'; NaN where L has a zero on its diagonal."""
        *batch, n, _ = source.shape
        if upper or n > MOST_ROWS or not n:
            raise NoForm((upper, n))
        there = self._in_columns(source)
        info = self._info()
        w = self.writer

        def of_one(at: list[str]) -> None:
            found = as_float(inverted(w, self._matrix(there, at), n, info))
            factor = w.select(found.compared("oeq", 0.0), 1.0, math.nan)
            first = [*at, "0", "0"]
            self._store(there, first, self._load(there, first) * factor)

        self._for(batch, of_one)
        return there

    def _solved_twice(self, right: Place, factor: Place, upper: bool = False) -> Place:
        """Return the place of the solution of L L' X = B, or U' U X = B."""
        turned = cast(Place, self._in_memory(factor).viewed(*TRANSPOSED))
        lower = turned if upper else factor
        higher = factor if upper else turned
        return self._solved(higher, self._solved(lower, right, upper=False), upper=True)

    def _solved(
        self,
        a: Place,
        b: Place,
        *,
        upper: bool,
        left: bool = True,
        unitriangular: bool = False,
    ) -> Place:
        """Return the place of the solution of triangular systems."""
        matrix, right = self._in_memory(a), self._in_memory(b)
        if not left:  # x A = b is A' x' = b'
            matrix, right = (cast(Place, place.viewed(*TRANSPOSED)) for place in (matrix, right))
            upper = not upper
        n, m = right.shape[-2:]
        batch = broadcast_shapes(matrix.shape[:-2], right.shape[:-2])
        matrix = _spread(matrix, (*batch, n, n))
        right = _spread(right, (*batch, n, m))
        if n <= LARGEST_SYSTEM:
            there = self._written_out(matrix, right, upper, unitriangular)
        elif n > MOST_ROWS:
            raise NoForm("a large system")
        else:
            there = self._in_columns(right)
            if m:
                matrix = self._readable(matrix)

                def of_one(at: list[str]) -> None:
                    triangle, solved = self._matrix(matrix, at), self._matrix(there, at)
                    solve_into(self.writer, triangle, solved, (n, m), upper, unitriangular)

                self._for(batch, of_one)
        return there if left else cast(Place, there.viewed(*TRANSPOSED))

    def _written_out(self, matrix: Place, right: Place, upper: bool, unit: bool) -> Place:
        """Solve small triangular systems, row after row."""
        *batch, n, m = right.shape
        there = self._room((*batch, n, m), torch.float64)

        def body(at: list[str]) -> None:
            *rest, column = at
            solved: dict[int, Register] = {}
            for i in range(n - 1, -1, -1) if upper else range(n):
                value = self._load(right, [*rest, str(i), column])
                for j, x in solved.items():
                    value = value - self._load(matrix, [*rest, str(i), str(j)]) * x
                if not unit:
                    value = value / self._load(matrix, [*rest, str(i), str(i)])
                solved[i] = value
            for i, x in solved.items():
                self._store(there, [*rest, str(i), column], x)

        self._for([*batch, m], body)
        return there

    def _multiplied_by_blas(self, left: Place, right: Place, there: Place, beta: float) -> None:
        """Write A B + beta C into C, whose entries lie one after the other."""
        *batch, n, m = there.shape
        k = left.shape[-1]
        left, right = self._readable(left), self._readable(right)

        def of_one(at: list[str]) -> None:
            name = self._address(there, self._index(there, [*at, "0", "0"]))
            pair = self._matrix(left, at), self._matrix(right, at)
            multiplied(self.writer, *pair, Matrix(name, m, transposed=True), (n, k, m), beta)

        self._for(batch, of_one)

    def _add_outer_product(self, there: Place, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Write beta A + alpha x y' into A."""
        beta, alpha = float(kwargs.get("beta", 1)), float(kwargs.get("alpha", 1))
        x, y = (self._in_memory(self._place(vector)) for vector in args[1:])

        def body(at: list[str]) -> None:
            i, j = at
            found = self._load(x, [i]) * alpha * self._load(y, [j])
            if beta != 0:
                found = found + self._load(there, at) * beta
            self._store(there, at, found)

        self._for(there.shape, body)

    def _replaced(self, node: fx.Node, view: Any, args: Sequence[Any]) -> None:
        """Replace a part of a tensor."""
        there = self._copied(self._place(args[0]))
        part = cast(Place, there.viewed(view, list(args[2:])))
        self._copy(_spread(self._place(args[1]), part.shape), part)
        self._places[node] = there

    def _mean(self, node: fx.Node, args: Sequence[Any]) -> None:
        shape = _layout(cast(fx.Node, args[0])).shape
        self._sum(node, args)
        total = self._place(node)
        count = shape.numel()
        share = math.prod(total.shape) / count if count else math.nan
        self._places[node] = self._scaled(total, lambda x: x * share)

    def _scaled(self, source: Place, entry: Callable[[Register], Register]) -> Place:
        """Return the place of a function of each entry."""
        if source.number is not None:
            return replace(source, number=entry(as_float(source.number)))
        there = self._room(source.shape, torch.float64)
        self._for(
            there.shape, lambda at: self._store(there, at, entry(as_float(self._load(source, at))))
        )
        return there

    def _norm(
        self,
        node: fx.Node,
        x: fx.Node,
        order: float = 2,
        axes: Sequence[int] | None = None,
        keep: bool = False,
        dtype: torch.dtype | None = None,
    ) -> None:
        if order != 2 or dtype is not None:
            raise NoForm(order)
        source = self._place(x)
        found = self._reduced(
            source, axes or (), keep, 0.0, lambda a, b: a + b, lambda value, _: value * value
        )
        self._places[node] = self._scaled(found, lambda x: x.writer.intrinsic("sqrt", x))

    def _cumulated(self, node: fx.Node, target: Any, args: Sequence[Any]) -> None:
        place, layout = self._place(args[0]), _layout(node)
        if not place.shape:
            raise NoForm("an axis of one number")
        there = self._room(layout.shape, layout.dtype)
        axis = args[1] % len(place.shape)
        outer = [d for d in range(len(place.shape)) if d != axis]
        start, operation = (0.0, "fadd") if target is aten.cumsum.default else (1.0, "fmul")

        def of_one(kept: list[str]) -> None:
            name = self._accumulator(start)
            where = dict(zip(outer, kept, strict=True))

            def step(i: list[str]) -> None:
                w = self.writer
                at = where | {axis: i[0]}
                counters = [at[d] for d in sorted(at)]
                value = as_float(self._load(place, counters))
                so_far = w.add(f"load double, ptr {name}")
                total = w.add(f"{operation} double {so_far.name}, {value.name}")
                w.line(f"store double {total.name}, ptr {name}")
                self._store(there, counters, total)

            self._for([place.shape[axis]], step)

        self._for([place.shape[d] for d in outer], of_one)
        self._places[node] = there

    def _output(self, node: fx.Node) -> None:
        value, gradient = cast(Any, node.args[0])
        total = self._place(value)
        number = as_float(self._load(total, ["0"] * len(total.shape)))
        for place in self._checked:  # where torch raises an error there is no density
            worst = self._reduced(place, (), False, 0.0, maximum)
            right = self._load(worst, []).compared("oeq", 0.0)
            number = self.writer.select(right, number, math.nan)
        self.writer.line(f"store double {number.name}, ptr %value")
        slopes = self._place(gradient)
        shape = slopes.shape
        there = Place("%gradient", 0, shape, contiguous(shape), torch.float64)
        self._copy(slopes, there)


def _memory_of(node: fx.Node) -> fx.Node:
    """Return the tensor whose memory an operation in place changes."""
    while node.target in IN_PLACE or _shares(node):
        node = cast(fx.Node, node.args[0])
    return node


def _shares(node: fx.Node) -> bool:
    """Return whether the result of an operation is in the memory of its first operand."""
    if node.target is getitem:
        return cast(fx.Node, node.args[0]).target in PARTS
    return node.target in SHARING


def _check_whole(node: fx.Node, target: Any) -> None:
    """Raise NoForm if an operation makes whole numbers of floats, or works on their bits.

    Here they are floats too.
    """
    found = node.meta.get("layout")
    if not isinstance(found, Layout) or found.dtype.is_floating_point:
        return
    if found.dtype != torch.bool:
        if target in BITWISE:
            raise NoForm(target)
        given = [x.meta.get("layout") for x in node.all_input_nodes]
        if any(isinstance(x, Layout) and x.dtype.is_floating_point for x in given):
            raise NoForm("a float as a whole number")


def _layout(node: fx.Node) -> Layout:
    """Return how the tensor of a node lies in memory."""
    found = node.meta.get("layout")
    if found is None and node.target is aten._to_copy.default and "dtype" in node.kwargs:
        return replace(_layout(cast(fx.Node, node.args[0])), dtype=cast(Any, node.kwargs["dtype"]))
    if isinstance(found, Tensor):
        return Layout.of(found)
    if not isinstance(found, Layout):
        raise NoForm(node.target)
    return found


def _result(node: fx.Node) -> Layout:
    """Return the layout of the first result of an operation."""
    firsts = [user for user in node.users if user.target is getitem and user.args[1] == 0]
    return _layout(firsts[0] if firsts else node)


def _entry(
    target: Any,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    values: dict[fx.Node, Register],
    dtype: torch.dtype,
) -> Register:
    """Return one entry of the result of an operation, from those of its operands."""
    given, named = map_arg((tuple(args), kwargs), cast(Any, values.__getitem__))
    found = ENTRIES[target](*given, **named)
    return _truth(found) if dtype == torch.bool else as_float(found)


def machine_code(graph: fx.GraphModule) -> MachineCode | None:
    """Return a graph of z as machine code; None if it has no form, or without llvmlite."""
    nodes = graph.graph.nodes
    known = all(node.op != "call_function" or node.target in FORMS for node in nodes)
    if not known or len(nodes) > MOST_NODES or find_spec("llvmlite") is None:
        return None
    try:
        return MachineCode(graph)
    except NoForm:
        return None
    except Exception:  # arguments that no form foresees, which torch takes: its graph runs then
        return None


# -- machine code ----------------------------------------------------------------------------------


class MachineCode:
    """A density and its gradient as machine code: z [p] -> value, gradient [p].

    Several threads may call it at once.

    Args:
        graph: The operations, of z alone.

    Raises:
        NoForm: If an operation has no form in machine code.
        ImportError: If llvmlite is not installed.
    """

    def __init__(self, graph: fx.GraphModule) -> None:
        (z,) = (node for node in graph.graph.nodes if node.op == "placeholder")
        layout = _layout(z)
        self._dim, self._dtype = layout.shape.numel(), layout.dtype
        code = _Code(graph)
        constants = [*code.tables, torch.tensor(code.numbers, dtype=torch.float64)]
        offsets, size = [], 0
        for table in constants:
            offsets.append(size)
            size += _whole_lines(table.numel() * table.element_size())
        tables = np.zeros(size + ALIGNMENT, dtype=np.uint8)
        for start, table in zip(offsets, constants, strict=True):
            raw = table.numpy().reshape(-1).view(np.uint8)
            tables[start : start + len(raw)] = raw
        self._tables, self._tables_at = tables, tables.ctypes.data
        self._first = _whole_lines(8 * (self._dim + 1))  # the results come before
        self._bytes = self._first + code.bytes + ALIGNMENT
        self._free: list[tuple[np.ndarray, int]] = []  # memory that no call uses, and its start
        self._engine = engine(_text(code, offsets))

    def __call__(self, z: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = self.of_numpy(z.detach().numpy())
        slopes = torch.from_numpy(gradient).to(self._dtype)
        return torch.tensor(value, dtype=self._dtype), slopes

    def of_numpy(self, z: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the value at z [p], in any float dtype, and the gradient [p] in float64."""
        z = np.ascontiguousarray(z, dtype=NUMPY[self._dtype])
        try:
            memory, at = self._free.pop()
        except IndexError:  # another thread uses it
            memory = np.empty(self._bytes, dtype=np.uint8)
            at = _whole_lines(memory.ctypes.data)
            memory = memory[at - memory.ctypes.data :]
        self._engine.function(z.ctypes.data, at, at + 8, at + self._first, self._tables_at)
        found = memory[: 8 * (self._dim + 1)].view(np.float64)
        value, gradient = float(found[0]), found[1:].copy()
        self._free.append((memory, at))
        return value, gradient


def _whole_lines(size: int) -> int:
    """Return a number of bytes, rounded up to whole lines of the cache."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def _text(code: _Code, offsets: Sequence[int]) -> str:
    """Return the module of LLVM's language with the function of a graph."""
    pointers = "ptr noalias readonly %x, ptr noalias %value, ptr noalias %gradient"
    lines = [
        f"declare double @{name}({', '.join(['double'] * count)})"
        for name, count in code.writer.called.items()
    ]
    lines += [line for part in code.writer.defined.values() for line in part]
    lines += declared(code.writer.routines)
    memory = "ptr noalias %memory, ptr noalias readonly %tables"
    lines.append(f"define void @density({pointers}, {memory}) {{")
    lines.append("entry:")
    lines += [
        f"  %t{i} = getelementptr inbounds i8, ptr %tables, i64 {start}"
        for i, start in enumerate(offsets)
    ]
    lines.append(f"  %numbers = getelementptr inbounds i8, ptr %tables, i64 {offsets[-1]}")
    lines += [f"  {line}" for line in code.allocated]
    lines += [*code.writer.lines, "  ret void", "}"]
    return "\n".join(lines)


class _Engine:
    """The machine code of a module, which lives as long as this object.

    Args:
        text: The module in LLVM's language.
    """

    _started = threading.Lock()
    _ready = _with_routines = False

    def __init__(self, text: str) -> None:
        import llvmlite.binding as llvm

        with self._started:
            if not _Engine._ready:
                llvm.initialize_native_target()
                llvm.initialize_native_asmprinter()
                for name in OF_LIBRARY:
                    address = library_address(name)
                    if address is not None:
                        llvm.add_symbol(name, address)
                _Engine._ready = True
            if PREFIX in text and not _Engine._with_routines:
                for name, address in addresses().items():
                    llvm.add_symbol(name, address)
                _Engine._with_routines = True
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
        )
        module = llvm.parse_assembly(text)
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        tuning = llvm.create_pipeline_tuning_options(speed_level=2)
        tuning.loop_vectorization = True
        # the time to compile the loops over matrices doubles with it, for no gain at a call
        tuning.loop_unrolling = PREFIX not in text
        tuning.slp_vectorization = False
        builder = llvm.create_pass_builder(machine, tuning)
        builder.getModulePassManager().run(module, builder)
        self._engine = llvm.create_mcjit_compiler(module, machine)
        self._engine.finalize_object()
        kind = ctypes.CFUNCTYPE(None, *(ctypes.c_void_p,) * 5)
        self.function = kind(self._engine.get_function_address("density"))


@lru_cache(maxsize=KEPT)
def engine(text: str) -> _Engine:
    """Return the machine code of a module; data are no part of it, so that other fits share it.

    Args:
        text: The module in LLVM's language.
    """
    return _Engine(text)
