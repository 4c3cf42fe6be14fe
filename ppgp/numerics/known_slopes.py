"""A function whose slopes are computed together with it, as one that torch differentiates twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["with_known_slopes"]

STEP = 1e-4  # relative to each input, by which second derivatives are differences of slopes

#: inputs -> the value [] and its slope in each input
Evaluate = Callable[..., tuple[Tensor, Sequence[Tensor]]]


def with_known_slopes(evaluate: Evaluate, *inputs: Tensor) -> Tensor:
    """Return the value, with first and second derivatives in the inputs.

    A second derivative is a central difference of slopes along the direction asked for.

    Args:
        evaluate: Inputs -> the value [] and its slope in each input.
        inputs: The tensors that it depends on.
    """
    value: Any = _Value.apply(evaluate, *inputs)
    return value


class _Value(torch.autograd.Function):
    """The value with its slopes."""

    @staticmethod
    def forward(ctx: Any, evaluate: Any, *inputs: Any) -> Any:
        value, slopes = evaluate(*inputs)
        ctx.evaluate, ctx.count = evaluate, len(inputs)
        ctx.save_for_backward(*inputs, *slopes)
        return value

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        inputs, slopes = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
        if torch.is_grad_enabled():
            of_inputs: Any = _Slopes.apply(ctx.evaluate, *inputs)
            slopes = of_inputs
        return None, *(grad_outputs[0] * slope for slope in slopes)


class _Slopes(torch.autograd.Function):
    """The slopes. Their derivative is a central difference along a direction."""

    @staticmethod
    def forward(ctx: Any, evaluate: Any, *inputs: Any) -> Any:
        ctx.evaluate = evaluate
        ctx.save_for_backward(*inputs)
        return tuple(evaluate(*inputs)[1])

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        # the second derivatives are symmetric, so that they act on the direction itself
        inputs = ctx.saved_tensors
        reach = max(
            float(d.abs().max() / x.abs().max().clamp_min(torch.finfo(x.dtype).tiny))
            for d, x in zip(grad_outputs, inputs, strict=True)
        )
        if not reach > 0:
            return None, *(torch.zeros_like(x) for x in inputs)
        step = STEP / reach
        ends = []
        for signed in (step, -step):
            moved = [x + signed * d for x, d in zip(inputs, grad_outputs, strict=True)]
            ends.append(ctx.evaluate(*moved)[1])
        return None, *((ahead - behind) / (2 * step) for ahead, behind in zip(*ends, strict=True))
