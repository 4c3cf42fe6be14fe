"""The log density of a Gaussian process that is interpolated from a grid, at any number of rows.

The covariance of n rows is W K W' + s2 I, with weights W [n, m] and the covariance K = L L' of the
nodes. With B = I + L'G L / s2 the density depends on the rows through ``GridStatistics`` alone,
and costs O(m^3). Wilson & Nickisch (2015); Stanton, Maddox, Delbridge & Wilson (2021).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import constraints

from ...numerics.cholesky import factor_or_nan, jittered
from ...numerics.projection import Projection, derivative_in_noise
from ...runtime.team import ALONE, Team
from .grid_statistics import GridStatistics, spread

__all__ = ["GridSpaceMarginal", "projected"]


def projected(L: Tensor, G: Tensor, Wr: Tensor, rr: Tensor, n: int) -> Projection:
    """Return the sums in the coordinates of L: L'G L, L'W'r and r'r, without a gap.

    The gap is that of the rows whose covariance is W K W', so that nothing is left out.
    """
    S = L.mT @ (G @ L)
    S = 0.5 * (S + S.mT)
    return Projection(S, L.mT @ Wr, rr, S.diagonal().sum(), n)


class _GridSpace(torch.autograd.Function):
    """log N(r; 0, W K W' + s2 I) with an explicit gradient in G, K, s2, W'r and r'r.

    Where second derivatives are requested, it differentiates the density as it is written.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(n: Any, G: Any, K: Any, noise: Any, Wr: Any, rr: Any) -> Any:
        L = factor_or_nan(K)
        sums = projected(L, G, Wr, rr, n)
        return sums.lower(noise), L, sums.S, sums.Ar

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.n = inputs[0]
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*inputs[1:], *output[1:])

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        grad = grad_outputs[0]
        G, K, noise, Wr, rr, L, S, Ar = ctx.saved_tensors
        if torch.is_grad_enabled():
            n = ctx.n
            vector_jacobian = torch.func.vjp(partial(_plain, n), G, K, noise, Wr, rr)[1]
            return None, *vector_jacobian(grad)
        eye = torch.eye(len(S)).to(S)
        root = factor_or_nan(eye + S / noise)
        B = torch.cholesky_inverse(root)
        c = B @ Ar
        # h = W'C^-1 r and T = W'C^-1 W, by differences of sums that need no inverse of L
        m = L @ c / noise
        h = (Wr - G @ m) / noise
        GL = torch.linalg.solve_triangular(root, L.mT @ G, upper=False)
        T = (G - GL.mT @ GL / noise) / noise
        gradient_K = 0.5 * grad * torch.addr(-T, h, h)
        sums = Projection(S, Ar, rr, S.diagonal().sum(), ctx.n)
        gradient_noise = grad * derivative_in_noise(sums, noise, B, c)
        gradient_G = None
        if ctx.needs_input_grad[1]:  # the weights may depend on a network
            half = torch.linalg.solve_triangular(root, L.mT, upper=False)
            gradient_G = -0.5 * grad * torch.addr(half.mT @ half, m, m) / noise
        gradient_Wr, gradient_rr = grad * m / noise, -0.5 * grad / noise
        return None, gradient_G, gradient_K, gradient_noise, gradient_Wr, gradient_rr


def _plain(n: int, G: Tensor, K: Tensor, noise: Tensor, Wr: Tensor, rr: Tensor) -> Tensor:
    """Return the density without the explicit gradient, for second derivatives."""
    return projected(factor_or_nan(K), G, Wr, rr, n).lower(noise)


class GridSpaceMarginal(dist.TorchDistribution):
    """N(mean, W K W' + noise I) over all rows at once.

    Args:
        mean: [], a constant mean, or [n].
        K: [m, m], the covariance of the nodes.
        noise: [], the variance of the noise.
        at: [n, 4^d], the nodes that each row reads; for ``sample`` and where the mean is [n].
        weights: [n, 4^d], their weights.
        sums: The function y [n] -> the ``GridStatistics`` of the rows of all ranks with these
            targets.
        team: The processes that hold other rows: the density is that of the rows of all.
    """

    arg_constraints: Any = {"mean_of_rows": constraints.real}
    support: Any = constraints.real_vector

    def __init__(
        self,
        mean: Tensor,
        K: Tensor,
        noise: Tensor,
        at: Tensor,
        weights: Tensor,
        sums: Callable[[Tensor], GridStatistics],
        team: Team = ALONE,
    ) -> None:
        self.mean_of_rows, self.K, self.noise = mean, K, noise
        self.at, self.weights, self.sums, self.team = at, weights, sums, team
        super().__init__(torch.Size(), at.shape[:1], validate_args=False)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> GridSpaceMarginal:
        if len(tuple(batch_shape)):
            raise NotImplementedError("GridSpaceMarginal has no batch shape")
        return self

    def sums_of_residuals(self, y: Tensor) -> tuple[GridStatistics, Tensor, Tensor]:
        """Return the sums of the rows, and W'r [m] and r'r for r = y - mean."""
        sums, mean = self.sums(y), self.mean_of_rows
        if mean.ndim:
            r = y - mean
            Wr = spread(r, self.at, self.weights, len(self.K))
            Wr, rr = self.team.differentiable_sums(Wr, r.square().sum())
            return sums, Wr, rr
        return sums, *sums.about(mean)

    def log_prob(self, value: Tensor) -> Tensor:
        sums, Wr, rr = self.sums_of_residuals(value)
        outputs: Any = _GridSpace.apply(sums.n, sums.G, jittered(self.K), self.noise, Wr, rr)
        return outputs[0]

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = torch.Size(sample_shape)
        with torch.no_grad():
            L = factor_or_nan(jittered(self.K))
            u = torch.randn(*shape, len(L), dtype=L.dtype, device=L.device) @ L.mT
            f = (u[..., self.at] * self.weights).sum(-1)
            return self.mean_of_rows + f + self.noise.sqrt() * torch.randn_like(f)
