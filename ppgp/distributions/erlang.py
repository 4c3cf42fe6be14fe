"""The distribution functions of Erlang's laws: the incomplete gamma function of whole shapes."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

SMALL = 2.0  # below it, the sum of the terms that 1 - exp(-x) (1 + x + ...) leaves over
LARGE = 1000.0  # exp(-x) is 0 beyond it, and a power of x could overflow
TERMS = 24  # SMALL^TERMS / TERMS! is below the rounding error of float64


class _Erlang(torch.autograd.Function):
    """P(k, x), with derivative exp(-x) x^(k - 1) / (k - 1)!, accurate in relative terms."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, k: int) -> Tensor:
        series, partial = torch.ones_like(x), torch.ones_like(x)
        for j in range(TERMS, 0, -1):
            series = 1 + series * x / (k + j)
        for j in range(k - 1, 0, -1):
            partial = 1 + partial * x / j
        decay = torch.exp(-x)
        below = decay * x**k * (series / math.factorial(k))
        return torch.where(x < SMALL, below, 1 - decay * partial)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, ctx.k = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grad_outputs[0] * difference(ctx.k - 1, x), None


def difference(k: int, x: Tensor) -> Tensor:
    """Return P(k, x) - P(k + 1, x) = exp(-x) x^k / k!, the mass of Poisson's law at k."""
    return torch.exp(-x) * x**k / math.factorial(k)


def erlang(k: int, x: Tensor) -> list[Tensor]:
    """Return P(1, x), ..., P(k, x), where P(j, x) = 1 - exp(-x) (1 + x + ... + x^(j-1) / (j-1)!).

    Each is accurate in relative terms, also where x is small and P(j, x) is about x^j / j!.

    Args:
        k: The largest shape, at least 1.
        x: Any shape, not negative.
    """
    x = x.clamp_max(LARGE)
    top: Any = _Erlang.apply(x, k)
    values = [top]
    for j in range(k - 1, 0, -1):
        values.append(values[-1] + difference(j, x))
    return values[::-1]
