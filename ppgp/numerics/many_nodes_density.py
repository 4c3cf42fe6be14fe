"""The estimated log density of ``many_nodes`` as a distribution with derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import constraints

from .kronecker import rotated
from .many_nodes import GridSums, estimate

__all__ = ["ManyNodesMarginal", "estimated_log_density"]

STEP = 1e-4  # relative to each input, by which second derivatives are differences of slopes


class _Slopes(torch.autograd.Function):
    """The slopes of the estimate. Their derivative is a central difference along a direction."""

    @staticmethod
    def forward(ctx: Any, sums: Any, *inputs: Any) -> Any:
        ctx.sums = sums
        ctx.save_for_backward(*inputs)
        noise, Wr, rr, *Ls = inputs
        return estimate(sums, noise, Wr, rr, Ls).slopes

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
            noise, Wr, rr, *Ls = moved
            ends.append(estimate(ctx.sums, noise, Wr, rr, Ls).slopes)
        return None, *((ahead - behind) / (2 * step) for ahead, behind in zip(*ends, strict=True))


class _Estimated(torch.autograd.Function):
    """The estimated log density with its explicit gradient."""

    @staticmethod
    def forward(ctx: Any, sums: Any, *inputs: Any) -> Any:
        noise, Wr, rr, *Ls = inputs
        found = estimate(sums, noise, Wr, rr, Ls)
        ctx.sums, ctx.count = sums, len(inputs)
        ctx.save_for_backward(*inputs, *found.slopes)
        return found.value

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        inputs, slopes = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
        if torch.is_grad_enabled():
            of_inputs: Any = _Slopes.apply(ctx.sums, *inputs)
            slopes = of_inputs
        return None, *(grad_outputs[0] * slope for slope in slopes)


def estimated_log_density(
    sums: GridSums, noise: Tensor, Wr: Tensor, rr: Tensor, Ls: Sequence[Tensor]
) -> Tensor:
    """Return the value of ``many_nodes.estimate``, with first and second derivatives."""
    value: Any = _Estimated.apply(sums, noise, Wr, rr, *Ls)
    return value


class ManyNodesMarginal(dist.TorchDistribution):
    """N(mean, W K W' + noise I) over all rows at once, its log density estimated.

    Args:
        mean: [], the constant mean.
        Ls: the root of the covariance of the nodes along each axis, [n_i, n_i].
        noise: [], the variance of the noise.
        n: the number of rows.
        sums: y [n] and the mean -> those of the rows, and W'r [m] and r'r [] of the residuals r.
        interpolated: f at the nodes [m] -> f at the rows [n].
    """

    arg_constraints: Any = {"mean_of_rows": constraints.real}
    support: Any = constraints.real_vector

    def __init__(
        self,
        mean: Tensor,
        Ls: Sequence[Tensor],
        noise: Tensor,
        n: int,
        sums: Callable[[Tensor, Tensor], tuple[GridSums, Tensor, Tensor]],
        interpolated: Callable[[Tensor], Tensor],
    ) -> None:
        self.mean_of_rows, self.Ls, self.noise = mean, tuple(Ls), noise
        self.n, self.sums, self.interpolated = n, sums, interpolated
        super().__init__(torch.Size(), torch.Size([n]), validate_args=False)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> ManyNodesMarginal:
        if len(tuple(batch_shape)):
            raise NotImplementedError("ManyNodesMarginal has no batch shape")
        return self

    def log_prob(self, value: Tensor) -> Tensor:
        sums, Wr, rr = self.sums(value, self.mean_of_rows)
        return estimated_log_density(sums, self.noise, Wr, rr, self.Ls)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = torch.Size(sample_shape)
        with torch.no_grad():
            draws = []
            for _ in range(shape.numel()):
                white = torch.randn([len(L) for L in self.Ls]).to(self.noise)
                draws.append(self.interpolated(rotated(white, self.Ls).reshape(-1)))
            f = torch.stack(draws).reshape(*shape, self.n)
            return self.mean_of_rows + f + self.noise.sqrt() * torch.randn_like(f)
