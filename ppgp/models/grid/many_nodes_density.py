"""The estimated log density of ``many_nodes`` as a distribution with derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import constraints

from ...numerics.known_slopes import with_known_slopes
from ...numerics.kronecker import rotated
from .many_nodes import GridSums, estimate

__all__ = ["ManyNodesMarginal", "estimated_log_density"]


def estimated_log_density(
    sums: GridSums, noise: Tensor, Wr: Tensor, rr: Tensor, Ls: Sequence[Tensor]
) -> Tensor:
    """Return the value of ``many_nodes.estimate``, with first and second derivatives."""

    def evaluate(noise: Tensor, Wr: Tensor, rr: Tensor, *Ls: Tensor) -> tuple[Tensor, Any]:
        found = estimate(sums, noise, Wr, rr, Ls)
        return found.value, found.slopes

    return with_known_slopes(evaluate, noise, Wr, rr, *Ls)


class ManyNodesMarginal(dist.TorchDistribution):
    """N(mean, W K W' + noise I) over all rows at once, its log density estimated.

    Args:
        mean: [], a constant mean, or [n].
        Ls: The root of the covariance of the nodes along each axis, [n_i, n_i].
        noise: [], the variance of the noise.
        n: The number of rows.
        sums: The function of y [n] and the mean -> the sums of the rows, with W'r [m] and r'r []
            of the residuals r.
        interpolated: The function f at the nodes [m] -> f at the rows [n].
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
