"""Operations under vmap for which torch has no rule, by others for which it has one.

Torch has no rule for 47 operations in place, such as ``clamp_``. It then warns, and takes the
elements of the batch one by one. Other operations have a rule that is wrong where some arguments
are batched and others are not: their result is first made too small.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx
from torch._C._functorch import get_unwrapped, is_batchedtensor, maybe_get_bdim
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode

from .recorder import DATA, fill_where, is_masked

__all__ = ["Batched", "BatchedOperations", "MixedCondition", "has_rule"]

aten = torch.ops.aten
RULES = ("FuncTorchBatched", "FuncTorchBatchedDecomposition", "CompositeImplicitAutograd")
OTHER_KINDS = {torch.Tag.inplace_view, torch.Tag.nondeterministic_seeded}

OUTER_PRODUCTS = (aten.addr.default, aten.addr_.default)  # torch has no rule for them


class BatchedOperations(fx.Interpreter):
    """Run a graph under vmap."""

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        if target in OUTER_PRODUCTS:
            return _with_outer_product(*args, **kwargs, in_place=target is aten.addr_.default)
        functional = _functional(target) if isinstance(target, OpOverload) else None
        if functional is not None:
            return args[0].copy_(functional(*args, **kwargs))
        if target is aten.log_sigmoid_backward.default:
            slope, x, *others = args
            args = (slope * torch.ones_like(x), x, *others)
        return super().call_function(target, args, kwargs)


#: methods that fill new memory with random numbers, which vmap does not know, and their parameters
DRAWN = {
    "normal_": (0.0, 1.0),
    "uniform_": (0.0, 1.0),
    "exponential_": (1.0, 0.0),
    "cauchy_": (0.0, 1.0),
}
#: who calls them on memory of which only the result is used, with numbers that have no name
LAWS = ("torch.distributions.", "pyro.distributions.")
CHECKS = ("typecheck", "jaxtyping.", "<@beartype")


class MixedCondition(Exception):
    """A condition of the program holds at some of the points of vmap and not at others.

    Args:
        truth: Whether it holds, [point].
    """

    def __init__(self, truth: Tensor) -> None:
        super().__init__("a condition that holds at some points")
        self.truth = truth


class Batched(TorchFunctionMode):
    """Context manager: what torch is asked for inside runs under vmap.

    A condition, as that of an ``if``, has its truth value if it is the same at all points, and
    raises ``MixedCondition`` otherwise. Where random numbers were drawn before, it raises a
    RuntimeError: to draw again where conditions differ, and not where they agree, would change
    their distribution.
    """

    def __enter__(self) -> Batched:
        self.streams = _streams()
        self.own_stream = False  # whether a torch.Generator was used
        super().__enter__()
        return self

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func == DATA:  # torch refuses it under vmap
            return args[0].detach()
        self.own_stream = self.own_stream or kwargs.get("generator") is not None
        name = getattr(func, "__name__", "")
        if name in ("__bool__", "item") and args[0].dtype == torch.bool:
            truth = _at_points(args[0])
            if truth is not None:
                if self.own_stream or truth.device.type != "cpu" or _streams() != self.streams:
                    raise RuntimeError("a condition after random numbers")
                if bool((truth != truth[0]).any()):
                    raise MixedCondition(truth)
                return bool(truth[0])
        if func is Tensor.__setitem__ and is_masked(*args):
            return fill_where(*args)
        if name in DRAWN and kwargs.get("generator") is None:
            if not _module_that_calls(sys._getframe(1)).startswith(LAWS):
                # the memory may be used afterwards, which has one number for all points
                raise RuntimeError(f"{name} has no rule under vmap")
            return _drawn(name, *args)
        if _lacks_rule_in_place(name):
            return args[0].copy_(getattr(Tensor, name.removesuffix("_"))(*args, **kwargs))
        if name == "binomial" and len(args) > 1:
            count, p, *others = args
            args = (count * torch.ones_like(p), p * torch.ones_like(count), *others)
        return func(*args, **kwargs)


def _streams() -> tuple[Any, ...]:
    """Return the states of the random numbers of torch on the CPU, of NumPy and of Python."""
    state: Any = np.random.get_state()  # noqa: NPY002 # of the stream that programs share
    of_numpy = [x.tobytes() if isinstance(x, np.ndarray) else x for x in state]
    return torch.get_rng_state().numpy().tobytes(), of_numpy, random.getstate()


def _at_points(x: Tensor) -> Tensor | None:
    """Return the one number of a tensor at each point of vmap, [point]; None outside of vmap."""
    if not is_batchedtensor(x) or x.numel() != 1:
        return None
    inside = get_unwrapped(x)
    if is_batchedtensor(inside):  # of a vmap in the program
        return None
    return inside.movedim(maybe_get_bdim(x), 0).reshape(-1)


def _module_that_calls(frame: Any) -> str:
    """Return the module of a frame, or of the next one outside of what checks types in tests."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if not (name.startswith(CHECKS) or frame.f_code.co_filename.startswith(CHECKS)):
            return name
        frame = frame.f_back
    return ""


def _drawn(name: str, x: Tensor, first: float | None = None, second: float | None = None) -> Tensor:
    """Return random numbers in place of x, by the method of this name with its parameters."""
    a, b = DRAWN[name]
    a, b = a if first is None else first, b if second is None else second
    if name == "normal_":
        return a + b * torch.randn(x.shape, dtype=x.dtype, device=x.device)
    u = torch.rand(x.shape, dtype=x.dtype, device=x.device)  # in [0, 1)
    if name == "uniform_":
        return a + (b - a) * u
    if name == "exponential_":  # above 0, as torch's own: a density may take the logarithm
        return -torch.log1p(-u.clamp_min(torch.finfo(u.dtype).eps / 2)) / a
    return a + b * torch.tan(math.pi * (u - 0.5))


def has_rule(target: Any) -> bool:
    """Return whether an operation of a graph runs under vmap, for all points at once."""
    if not isinstance(target, OpOverload) or target in OUTER_PRODUCTS:
        return True
    return _has_own_rule(target) or _functional(target) is not None


def _with_outer_product(
    matrix: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1, in_place: bool
) -> Tensor:
    """Return beta matrix + alpha a b', as ``addr`` does."""
    total = beta * matrix + alpha * a[:, None] * b[None, :]
    return matrix.copy_(total) if in_place else total


@cache
def _has_own_rule(operation: OpOverload) -> bool:
    name = operation.name()
    if not torch._C._dispatch_has_kernel(name):  # it is none of a graph
        return True
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in RULES)


@cache
def _functional(operation: OpOverload) -> OpOverload | None:
    """Return the operation not in place, of one in place without a rule, if it has a rule."""
    name = operation._schema.name.removeprefix("aten::")
    other_kind = not OTHER_KINDS.isdisjoint(operation.tags)
    if not name.endswith("_") or name.endswith("__") or other_kind or _has_own_rule(operation):
        return None
    packet = getattr(aten, name.removesuffix("_"), None)
    found = getattr(packet, operation._overloadname, None)
    return found if found is not None and _has_own_rule(found) else None


@cache
def _lacks_rule_in_place(name: str) -> bool:
    """Return whether a method in place, such as ``clamp_``, has no rule in one of its forms."""
    if not name.endswith("_") or name.startswith("_") or not hasattr(aten, name):
        return False
    packet = getattr(aten, name)
    forms = [getattr(packet, form) for form in packet.overloads()]
    return any(_functional(form) is not None for form in forms)
