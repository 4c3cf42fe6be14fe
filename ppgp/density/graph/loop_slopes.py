"""Record a loop and its derivatives: a loop there, and a loop back."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, fx
from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode

from .bodies import Body, Tensors
from .loop_splitting import split
from .loops import Loop
from .recorder import Layout, Recorder, recorded
from .simplify import by_value, simplified


def looped(
    body: Body,
    recorder: Recorder | None,
    carry: list[Tensor],
    xs: list[Tensor],
    steps: int,
    settled: bool = False,
) -> list[Tensor]:
    """Return the last carry and the stacked results of a loop, recorded as one operation at most.

    Args:
        body: That of the loop.
        recorder: What records the program around it; None where nothing does.
        carry: The first one.
        xs: What the steps take, [steps, ...] each.
        steps: The number of steps.
        settled: See ``split``.
    """

    def in_order(body: Body, carry: list[Tensor], xs: list[Tensor]) -> Sequence[Tensor]:
        if recorder is None:
            return _in_turn(body, carry, xs)
        return _Recorded.apply(body, recorder, *carry, *xs, *body.others)

    return split(body, carry, xs, steps, in_order, settled)


def _in_turn(body: Body, carry: Sequence[Tensor], xs: list[Tensor]) -> list[Tensor]:
    """Return the last carry and the stacked results of a loop that runs now, by autograd."""
    results = []
    for x in zip(*(rows.unbind(0) for rows in xs), strict=True):
        found = body.graph(*carry, *x, *body.others)
        carry = found[: body.n_carry]
        results.append(found[body.n_carry :])
    return [*carry, *(torch.stack(each) for each in zip(*results, strict=True))]


class _Recorded(torch.autograd.Function):
    """A loop, and its derivatives."""

    @staticmethod
    def forward(ctx: Any, body: Body, recorder: Recorder, *inputs: Tensor) -> Tensors:
        n_y = len(body.results) - body.n_carry
        before, same = _carry_in_ys(body, False), _carry_in_ys(body, True)
        keeps = any(ctx.needs_input_grad) and same is None and before is None
        with _disable_current_modes():
            graph = copy.deepcopy(body.graph)
            counts = (body.n_carry, body.n_x, n_y)
            loop = Loop(graph, body.example, counts, keeps, False, recorder.single)
        found = recorder.call(loop, *inputs)
        ctx.body, ctx.recorder = body, recorder
        ctx.past = found[len(body.results) :]
        if before is not None:
            ctx.past = tuple(found[j] for j in before)
        elif same is not None:
            pairs = zip(inputs, same, strict=False)
            ctx.past = tuple(torch.cat([first[None], found[j][:-1]]) for first, j in pairs)
        ctx.save_for_backward(*inputs)
        # a slope of 0 in place of none would give NaN where the derivative of a step is infinite
        ctx.set_materialize_grads(False)
        found = found[: len(body.results)]
        ctx.mark_non_differentiable(*(x for x in found if not x.is_floating_point()))
        return found

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor | None) -> Any:
        if torch.is_grad_enabled() or _get_current_dispatch_mode() is not ctx.recorder:
            raise RuntimeError("a recorded loop has first derivatives alone")
        needed = ctx.needs_input_grad[2:]
        found = _Back(ctx.body, ctx.recorder, needed, ctx.saved_tensors, ctx.past).run(slopes)
        return None, None, *(x if one else None for x, one in zip(found, needed, strict=True))


def _carry_in_ys(body: Body, after: bool) -> list[int] | None:
    """Return, for each part of the carry, the place of a y that equals it; None if one has none.

    ``after`` says whether it is the carry after the step, not before it.
    """
    nodes = list(body.graph.graph.nodes)
    results: list[fx.Node] = list(cast(Any, nodes[-1].args[0]))
    carry = results if after else [node for node in nodes if node.op == "placeholder"]
    places = {node: i for i, node in enumerate(results) if i >= body.n_carry}
    if not all(node in places for node in carry[: body.n_carry]):
        return None
    return [places[node] for node in carry[: body.n_carry]]


@dataclass(frozen=True)
class _StepBack:
    """The derivatives of a step: a graph (*slopes of carry, *carry, *x, *slopes of y, *others).

    Args:
        graph: It returns the slopes of the carry, of x and of the others that have one.
        example: Arguments of the graph.
        of: The places of the arguments of the body that have slopes, in order.
    """

    graph: fx.GraphModule
    example: Tensors
    of: list[int]


class _Back:
    """The loop back. Its carry is the slopes of the carry.

    Which of them exist may change in the last steps, whose carry may not be used. These are
    recorded one by one, and the steps before them, which have the same slopes, as a loop.

    Args:
        body: That of the loop.
        recorder: What records the program around it.
        needed: Which inputs of the loop need slopes.
        inputs: Those of the loop.
        past: The carries before each step.
    """

    def __init__(
        self,
        body: Body,
        recorder: Recorder,
        needed: tuple[bool, ...],
        inputs: Tensors,
        past: Tensors,
    ) -> None:
        self.body, self.recorder, self.past = body, recorder, past
        n, m = body.n_carry, body.n_carry + body.n_x
        self.xs, self.others = inputs[n:m], inputs[m:]
        self.needed = [
            x.is_floating_point() and (i < n or needed[i]) for i, x in enumerate(body.example)
        ]
        self.of_x: dict[
            int, list[tuple[int, Tensor]]
        ] = {}  # slopes from a step on, later ones first
        self.of_others: dict[int, Tensor] = {}

    def run(self, slopes: tuple[Tensor | None, ...]) -> list[Tensor | None]:
        """Return the slopes of the inputs, given those of the results."""
        n, m = self.body.n_carry, self.body.n_carry + self.body.n_x
        carry = {i: slope for i, slope in enumerate(slopes[:n]) if slope is not None}
        ys = {n + i: slope for i, slope in enumerate(slopes[n:]) if slope is not None}
        steps, left = {}, len(self.xs[0])
        while left and (carry or ys):
            given = (*carry, *ys)
            if given not in steps:
                with _disable_current_modes():
                    steps[given] = _step_back(self.body, self.needed, given)
            step = steps[given]
            if [i for i in step.of if i < n] == list(carry):
                carry = self._in_a_loop(step, carry, ys, left)
                left = 0
            else:
                left -= 1
                carry = self._in_one_step(step, carry, ys, left)
        of_xs = [self._slopes_of_x(i) for i in range(n, m)]
        of_others = [self.of_others.get(i) for i in range(m, len(self.body.example))]
        return [*(carry.get(i) for i in range(n)), *of_xs, *of_others]

    def _in_a_loop(
        self, step: _StepBack, carry: dict[int, Tensor], ys: dict[int, Tensor], left: int
    ) -> dict[int, Tensor]:
        """Go back through the first steps, as many as are left; return the slopes of the carry."""
        if not step.of:
            return {}
        n, m = self.body.n_carry, self.body.n_carry + self.body.n_x
        rows = [x[:left] for x in (*self.past, *self.xs, *ys.values())]
        with _disable_current_modes():
            counts = (len(carry), len(rows), sum(n <= i < m for i in step.of))
            loop = Loop(step.graph, step.example, counts, False, True, self.recorder.single)
        found = self.recorder.call(loop, *carry.values(), *rows, *self.others)
        return self._kept(step, found, 0)

    def _in_one_step(
        self, step: _StepBack, carry: dict[int, Tensor], ys: dict[int, Tensor], t: int
    ) -> dict[int, Tensor]:
        """Go back through step t; return the slopes of the carry."""
        n, m = self.body.n_carry, self.body.n_carry + self.body.n_x
        rows = [x[t] for x in (*self.past, *self.xs, *ys.values())]
        found = step.graph(*carry.values(), *rows, *self.others)
        pairs = zip(step.of, found, strict=True)
        return self._kept(step, [x[None] if n <= i < m else x for i, x in pairs], t)

    def _kept(self, step: _StepBack, found: Any, t: int) -> dict[int, Tensor]:
        """Keep the slopes of x, from step t on, and of the others; return those of the carry."""
        n, m = self.body.n_carry, self.body.n_carry + self.body.n_x
        carry: dict[int, Tensor] = {}
        for i, x in zip(step.of, found, strict=True):
            if i < n:
                carry[i] = x
            elif i < m:
                self.of_x.setdefault(i, []).append((t, x))
            else:
                before = self.of_others.get(i)
                self.of_others[i] = x if before is None else before + x
        return carry

    def _slopes_of_x(self, i: int) -> Tensor | None:
        """Return the slopes of an x at all steps, 0 where it has none."""
        x = self.xs[i - self.body.n_carry]
        parts, at = [], 0
        for start, part in reversed(self.of_x.get(i, [])):
            parts += [torch.zeros_like(x[at:start]), part]
            at = start + len(part)
        return torch.cat([*parts, torch.zeros_like(x[at:])]) if parts else None


def _step_back(body: Body, needed: list[bool], given: tuple[int, ...]) -> _StepBack:
    """Return the derivatives of a step.

    Args:
        body: The step.
        needed: Which of its arguments need slopes.
        given: The places of the results that have slopes.
    """
    n, m = body.n_carry, body.n_carry + body.n_x
    slopes = {i: _one(body.results[i]) for i in given}
    of_carry = [slope for i, slope in slopes.items() if i < n]
    of_ys = [slope for i, slope in slopes.items() if i >= n]
    example = (*of_carry, *body.example[:m], *of_ys, *body.example[m:])
    sources = [i for i, one in enumerate(needed) if one]
    of: list[int] = []

    def pull(*arguments: Tensor) -> list[Tensor]:
        first, rest = arguments[: len(of_carry)], arguments[len(of_carry) :]
        last, others = rest[m : m + len(of_ys)], rest[m + len(of_ys) :]
        inputs = [x.detach() for x in (*rest[:m], *others)]
        for i in sources:
            inputs[i].requires_grad_()
        with torch.enable_grad():
            results = body.graph(*inputs)
        pairs = [
            (results[i], slope)
            for i, slope in zip(given, (*first, *last), strict=True)
            if results[i].requires_grad
        ]
        if not pairs:
            return []
        found = torch.autograd.grad(
            [x for x, _ in pairs],
            [inputs[i] for i in sources],
            [slope for _, slope in pairs],
            allow_unused=True,
        )
        of[:] = [i for i, x in zip(sources, found, strict=True) if x is not None]
        return [x for x in found if x is not None]

    graph = by_value(simplified(recorded(pull, example), together=False))
    return _StepBack(graph, example, of)


def _one(layout: Layout) -> Tensor:
    return torch.ones(layout.shape, dtype=layout.dtype, device=layout.device)
