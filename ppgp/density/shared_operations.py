"""Do equal operations on the same tensors once, as those of the steps of a Markov chain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_PURE = """
__getitem__ __add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __div__
__rdiv__ __pow__ __rpow__ __neg__ __matmul__ __rmatmul__ __eq__ __ne__ __lt__ __le__ __gt__
__ge__ __and__ __or__ __xor__ __invert__ __rand__ __ror__ __mod__ __abs__ add sub subtract rsub
mul multiply div divide true_divide pow neg negative matmul mm bmm mv dot addmm einsum tensordot
eq ne lt le gt ge logical_and logical_or logical_not logical_xor bitwise_and bitwise_or exp log
log1p expm1 log2 sqrt rsqrt square reciprocal abs absolute sigmoid tanh relu softplus softmax
log_softmax logsigmoid logit lgamma digamma erf erfc erfinv sin cos floor ceil round sign clamp
clamp_min clamp_max minimum maximum where sum mean prod cumsum cumprod logsumexp amax amin all
any max min reshape view flatten squeeze unsqueeze expand expand_as broadcast_to transpose
permute movedim t swapaxes repeat stack cat concat concatenate gather index_select
take_along_dim diagonal flip roll tile one_hot linear embedding elu gelu silu to type type_as
float double long int bool half cpu contiguous detach clone xlogy isnan isfinite nan_to_num
"""
#: operations whose result depends on their arguments alone
PURE = frozenset(_PURE.split())
READS, WRITES, SHARED = range(3)
_KINDS: dict[Any, int] = {}  # of each function of torch


def _kind(name: str) -> int:
    """Return whether a function of this name is shared, or may write into its arguments."""
    if name in PURE:
        return SHARED
    in_place = name.endswith("_") and not name.endswith("__")
    operator = name.startswith("__i") and name not in ("__index__", "__invert__", "__int__")
    return WRITES if in_place or operator or name in ("__setitem__", "__set__") else READS


class SharedOperations(TorchFunctionMode):
    """Inside the block, an operation on the same tensors returns the same tensor.

    Derivatives then flow through it once. A program that writes into such a tensor would see what
    another of its steps wrote.

    Of a program in a loop, nine calls in ten read a shape or the like, and are passed on at once.

    Args:
        active: Whether operations are shared at all.

    Attributes:
        written: Whether the block wrote into a tensor that was shared.
    """

    def __init__(self, active: bool = True) -> None:
        super().__init__()
        self.active, self.written = active, False
        # the arguments are kept, so that no other tensor gets their id
        self._known: dict[Any, tuple[Tensor, list[Tensor]]] = {}
        self._memory: set[int] = set()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kind = _KINDS.get(func) if self.active else READS
        if kind is None:
            kind = _KINDS[func] = _kind(getattr(func, "__name__", ""))
        if kind == READS:
            return func(*args, **kwargs) if kwargs else func(*args)
        kwargs = dict(kwargs or {})
        if kind == WRITES or "out" in kwargs:
            if any(self._is_shared(x) for x in (*args, *kwargs.values())):
                self.written, self.active = True, False
            return func(*args, **kwargs)
        tensors: list[Tensor] = []
        try:
            key = (func, torch.is_grad_enabled(), _key(args, tensors), _key(kwargs, tensors))
            known = self._known.get(key)
        except TypeError:  # an argument without a hash
            return func(*args, **kwargs)
        if not tensors:
            return func(*args, **kwargs)
        if known is not None:
            return known[0]
        result = func(*args, **kwargs)
        if isinstance(result, Tensor):
            self._known[key] = result, tensors
            self._memory.add(_memory(result))
        return result

    def _is_shared(self, x: Any) -> bool:
        return isinstance(x, Tensor) and _memory(x) in self._memory


def _memory(x: Tensor) -> int:
    """Return what tensors have in common that share memory."""
    with torch._C.DisableTorchFunction():
        try:
            return x.untyped_storage()._cdata
        except (NotImplementedError, RuntimeError):  # under vmap, or sparse
            return id(x)


def _key(value: Any, tensors: list[Tensor]) -> Any:
    """Return an argument as a key, and add its tensors to the list."""
    kind = type(value)
    if isinstance(value, Tensor):
        tensors.append(value)
        return ("tensor", id(value), value._version)
    if kind is tuple or kind is list:
        return (kind, *(_key(part, tensors) for part in value))
    if kind is dict:
        return (kind, *((name, _key(part, tensors)) for name, part in value.items()))
    if kind is slice:
        return (kind, *(_key(part, tensors) for part in (value.start, value.stop, value.step)))
    return (kind, value)
