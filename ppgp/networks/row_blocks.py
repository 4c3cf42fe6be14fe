"""Evaluate a network in blocks of rows, and again in the backward pass, to keep no activations.

The gradient of a network over n rows needs the activations of all of them, which take gigabytes for
a convolution of images. In place of keeping them, the backward pass evaluates each block of rows
again. Chen, Xu, Zhang & Guestrin (2016).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch._C._functorch import peek_interpreter_stack
from torch.func import functional_call
from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode

from ..runtime.dispatch_mode import DispatchMode
from ..runtime.seeding import replayed, stream, stream_state

__all__ = ["Rows", "evaluated", "rows_at_once"]

KEPT = 2**29  # bytes of activations of all rows that are kept
BLOCK = 2**27  # bytes of activations of one block of rows
NUMBERS = BLOCK // 8  # computed at once: too many to do several points abreast
PROBED = 6  # rows at which a network is examined
Run = Callable[..., Tensor]
_COSTS: WeakKeyDictionary[nn.Module, dict[Any, float | None]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Rows:
    """(X [n, d], *weights) -> outputs [n, q], a block of rows at a time, without derivatives.

    Two of them are equal if they compute the same, so that a graph does it once.

    Args:
        run: (X, *weights) -> outputs. The output of a row depends on that row alone.
        rows: Rows per block.
        random: Whether ``run`` draws random numbers.
    """

    run: Run
    rows: int
    random: bool = False
    __name__ = "rows_in_blocks"
    numbers = NUMBERS

    @property
    def pure(self) -> bool:
        """Whether the results depend on the arguments alone."""
        return not self.random

    def __call__(self, X: Tensor, *weights: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.cat([self.run(block, *weights) for block in X.split(self.rows)])

    def with_states(self, X: Tensor, *weights: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the outputs, and the state of the random numbers before each block."""
        found, states = [], []
        for block in X.split(self.rows):
            states.append(stream_state(X.device))
            found.append(self.run(block, *weights))
        return torch.cat(found), states

    def again(self, i: int, X: Tensor, weights: list[Tensor], states: list[Tensor]) -> Tensor:
        """Return the outputs of block i, whose rows are X, from the same random numbers."""
        if not states:
            return self.run(X, *weights)
        with replayed(states[i], X.device):
            return self.run(X, *weights)


@dataclass(frozen=True, eq=False)
class _Back:
    """(slopes [n, q], X [n, d], *weights) -> slopes of those inputs that need one.

    Args:
        rows: What computes the outputs.
        needed: Whether X and each of the weights needs a slope.
        states: Those of the random numbers before each block; none if it draws none.
    """

    rows: Rows
    needed: tuple[bool, ...]
    states: list[Tensor]
    __name__ = "rows_in_blocks_back"
    numbers = NUMBERS

    def __call__(self, slope: Tensor, X: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        needs_x, of_weights = self.needed[0], self.needed[1:]
        size = self.rows.rows
        # a compiled graph runs in inference mode, whose tensors autograd does not take: copies
        with torch.inference_mode(False), torch.enable_grad():
            own = [w.detach().clone() for w in weights]
            sources = [w.requires_grad_() for w, one in zip(own, of_weights, strict=True) if one]
            totals: list[Tensor | None] = [None] * len(sources)
            of_x: list[Tensor] = []
            for i, (x, s) in enumerate(zip(X.split(size), slope.split(size), strict=True)):
                block = x.detach().clone().requires_grad_(needs_x)
                out = self.rows.again(i, block, own, self.states)
                given = [block, *sources] if needs_x else sources
                slopes = list(_slopes(out, given, s.clone()))
                if needs_x:
                    of_x.append(slopes.pop(0))
                totals = [_sum(a, b) for a, b in zip(totals, slopes, strict=True)]
        found = [torch.cat(of_x)] if needs_x else []
        return (*found, *(total for total in totals if total is not None))


class _InBlocks(torch.autograd.Function):
    """Outputs of a network with their derivatives, without activations in between."""

    @staticmethod
    def forward(ctx: Any, rows: Rows, X: Tensor, *weights: Tensor) -> Tensor:
        ctx.rows, ctx.states = rows, []
        ctx.save_for_backward(X, *weights)
        if rows.random:
            found, ctx.states = rows.with_states(X, *weights)
            return found
        return _called(rows, X, *weights)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        needed = ctx.needs_input_grad[1:]
        inputs = ctx.saved_tensors
        if torch.is_grad_enabled():
            found = _with_graph(ctx.rows, inputs, needed, ctx.states, slopes[0])
        else:
            found = _called(_Back(ctx.rows, needed, ctx.states), slopes[0], *inputs)
        given = iter(found)
        return None, *(next(given) if one else None for one in needed)


def _with_graph(
    rows: Rows,
    inputs: tuple[Tensor, ...],
    needed: tuple[bool, ...],
    states: list[Tensor],
    slope: Tensor,
) -> tuple[Tensor, ...]:
    """Return the slopes of the inputs that need one, with a graph of their own derivatives."""
    # the slopes of views: one input may be computed from another
    X, *weights = (x.view_as(x) for x in inputs)
    blocks = [rows.again(i, x, weights, states) for i, x in enumerate(X.split(rows.rows))]
    sources = [x for x, one in zip((X, *weights), needed, strict=True) if one]
    return _slopes(torch.cat(blocks), sources, slope, create_graph=True)


def _slopes(
    out: Tensor, sources: list[Tensor], slope: Tensor, create_graph: bool = False
) -> tuple[Tensor, ...]:
    """Return the slopes of the sources, 0 where the outputs do not depend on one."""
    if not out.requires_grad:
        return tuple(torch.zeros_like(x) for x in sources)
    return torch.autograd.grad(
        out, sources, slope, create_graph=create_graph, materialize_grads=True
    )


def _sum(total: Tensor | None, part: Tensor) -> Tensor:
    return part if total is None else total + part


def _called(function: Callable[..., Any], *tensors: Tensor) -> Any:
    """Return what a function returns, as one operation where a graph is recorded."""
    mode = _get_current_dispatch_mode()
    if isinstance(mode, DispatchMode):
        return mode.call(function, *tensors)
    return function(*tensors)


def evaluated(rows: Rows, X: Tensor, weights: tuple[Tensor, ...]) -> Tensor:
    """Return the outputs [n, q] of a network at X [n, d], with derivatives of any order.

    Args:
        rows: What computes them.
        X: The rows.
        weights: Those of the network.
    """
    mode = _get_current_dispatch_mode()
    inputs = (X, *weights)
    if isinstance(mode, DispatchMode):
        varying = [x for x in inputs if x.requires_grad or mode.varies(x)]
        if not varying:
            with _disable_current_modes():
                return rows(X, *weights)  # a constant of the graph
    return _InBlocks.apply(rows, *inputs)


def rows_at_once(
    module: nn.Module, state: dict[str, Tensor], X: Tensor, random: bool
) -> int | None:
    """Return how many rows of X make a block; None where all are evaluated at once.

    It is None where the activations of all rows take up to ``KEPT`` bytes, where the output of a
    row depends on other rows, where the network changes its buffers or draws random numbers in
    evaluation mode, inside transforms of ``torch.func`` and in the step of a recorded loop.

    Args:
        module: The network.
        state: Its weights and buffers.
        X: The rows [n, d].
        random: Whether it drops units out at random.
    """
    n = len(X)
    if n <= PROBED or peek_interpreter_stack() is not None:
        return None
    mode = _get_current_dispatch_mode()
    if isinstance(mode, DispatchMode) and mode.records and (random or not mode.takes_calls):
        return None
    costs = _COSTS.setdefault(module, {})
    key = X.dtype, X.device
    if key not in costs:
        with _disable_current_modes(), torch.inference_mode(False):
            some = torch.linspace(0, n - 1, PROBED, device=X.device).long()
            own = {name: value.detach().clone() for name, value in state.items()}
            costs[key] = _bytes_per_row(module, own, X.detach()[some].clone())
    each = costs[key]
    if each is None or n * each <= KEPT:
        return None
    rows = max(1, int(BLOCK // each))
    return rows if rows < n else None


def _bytes_per_row(module: nn.Module, state: dict[str, Tensor], X: Tensor) -> float | None:
    """Return the activations that autograd keeps per row; None if rows cannot be told apart."""
    probe = copy.deepcopy(module)
    try:
        with stream(0, X.device):
            sizes = [_bytes_kept(probe, state, X[:n]) for n in (PROBED // 3, PROBED)]
            if not _by_row(probe.eval(), state, X):
                return None
    except Exception:  # of a user's network: it takes all rows at once, or says what it is
        return None
    return (sizes[1] - sizes[0]) / (PROBED - PROBED // 3)


def _bytes_kept(module: nn.Module, state: dict[str, Tensor], X: Tensor) -> int:
    """Return the bytes that autograd keeps of an evaluation."""
    kept: dict[int, Tensor] = {}

    def keep(x: Tensor) -> Tensor:
        kept[x.untyped_storage().data_ptr()] = x
        return x

    trained = dict(module.named_parameters())
    own = {name: x.clone().requires_grad_(name in trained) for name, x in state.items()}
    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x)
    with torch.enable_grad(), hooks:
        out = functional_call(module, own, (X,))
    del out
    return sum(x.untyped_storage().nbytes() for x in kept.values())


def _by_row(module: nn.Module, state: dict[str, Tensor], X: Tensor) -> bool:
    """Return whether a network in evaluation mode maps each row by itself, and stays the same."""
    before = [value.clone() for value in (*state.values(), *module.buffers())]
    random_numbers = stream_state(X.device)
    with torch.no_grad():
        whole = functional_call(module, state, (X,))
        parts = [functional_call(module, state, (x,)) for x in (X[:1], X[1:])]
    unchanged = all(
        torch.equal(a, b) for a, b in zip(before, (*state.values(), *module.buffers()), strict=True)
    )
    if not unchanged or not torch.equal(random_numbers, stream_state(X.device)):
        return False
    tolerance = torch.finfo(X.dtype).eps ** 0.5
    slack = tolerance * float(whole.abs().max())
    return torch.allclose(whole, torch.cat(parts), rtol=tolerance, atol=slack)
