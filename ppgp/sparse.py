"""The collapsed bound of sparse GP regression: value and gradient in O(n m^2) time, with rows in chunks in O(m^2) memory.

n rows, m inducing inputs: Kmm [m, m] = L L', A = L^-1 Kmn [m, n], r = y - mean [n], s2 the noise variance, B = I + A A' / s2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import constraints
from torch.utils.checkpoint import checkpoint

from .linalg import LOG_2PI, cholesky

__all__ = ["Projection", "SparseMarginal", "inducing_root", "jittered", "project"]

JITTER = 1e-8  # of the mean of the diagonal of Kmm: inducing inputs may lie as close as they like
JITTER_SINGLE = 1e-4  # in float32, whose own rounding is 1e-7
MEMORY_BUDGET = 256 * 2**20  # bytes of Kmn that are kept for the gradient; beyond, its chunks are computed again
CHUNK_BYTES = 32 * 2**20

Cross = Callable[[slice], Tensor]


def jittered(Kmm: Tensor) -> Tensor:
    """Kmm and a jitter that only ever loosens the bound."""
    jitter = (JITTER if Kmm.dtype == torch.float64 else JITTER_SINGLE) * Kmm.diagonal(dim1=-2, dim2=-1).mean(-1)
    diagonal = Kmm.diagonal(dim1=-2, dim2=-1) + jitter[..., None]
    return torch.diagonal_scatter(Kmm, diagonal, dim1=-2, dim2=-1)


def inducing_root(Kmm: Tensor) -> Tensor:
    """L of Kmm with its jitter, NaN where there is none (a sampler takes that for a divergence)."""
    L, failed = torch.linalg.cholesky_ex(jittered(Kmm))
    return L * torch.where(failed == 0, 1.0, math.nan)[..., None, None].to(L)


class _Projected(torch.autograd.Function):
    """(A A', A r) of A = L^-1 Kmn, with a gradient that is one product with Kmn: nothing of size n is kept but Kmn."""

    generate_vmap_rule = True

    @staticmethod
    def forward(Kmn: Tensor, L: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        A = torch.linalg.solve_triangular(L, Kmn, upper=False)
        return A @ A.mT, (A @ r.unsqueeze(-1)).squeeze(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(*inputs, *output)

    @staticmethod
    def backward(ctx, G, g):  # type: ignore[no-untyped-def]
        Kmn, L, r, S, Ar = ctx.saved_tensors
        G = G + G.mT
        upper = L.mT
        left = torch.linalg.solve_triangular(upper, G, upper=True)  # L^-T G
        h = torch.linalg.solve_triangular(upper, g.unsqueeze(-1), upper=True)
        H = torch.linalg.solve_triangular(L, left, upper=False, left=False)  # L^-T G L^-1
        slope_K = H @ Kmn + h @ r.unsqueeze(-2)
        slope_L = -(left @ S + h @ Ar.unsqueeze(-2)).tril()
        return slope_K, slope_L, (Kmn.mT @ h).squeeze(-1)


@dataclass(frozen=True, eq=False)
class Projection:
    """All that the bounds and q(u) need of n rows: S = A A' [m, m], Ar [m], r'r, the trace of Knn, n."""

    S: Tensor
    Ar: Tensor
    rr: Tensor
    trace: Tensor
    n: int

    def _quadratic(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """r' (Q + noise I)^-1 r and log|Q + noise I|, Q = A' A."""
        eye = torch.eye(len(self.S)).to(self.S)
        root, failed = torch.linalg.cholesky_ex(eye + self.S / noise)
        root = root * torch.where(failed == 0, 1.0, math.nan).to(root)
        e = torch.linalg.solve_triangular(root, self.Ar[:, None], upper=False)[:, 0]
        return self.rr / noise - e.square().sum() / noise.square(), 2 * root.diagonal().log().sum() + self.n * noise.log()

    @property
    def gap(self) -> Tensor:
        """tr(Knn - Qnn): what the inducing inputs leave unexplained."""
        return self.trace - self.S.diagonal().sum()

    def lower(self, noise: Tensor) -> Tensor:
        """log N(r; 0, Q + s2 I) - tr(Knn - Q) / (2 s2) <= log p(y). Titsias (2009), equation 9."""
        square, log_det = self._quadratic(noise)
        return -0.5 * (square + log_det + self.n * LOG_2PI + self.gap / noise)

    def upper(self, noise: Tensor) -> Tensor:
        """-n/2 log 2 pi - log|Q + s2 I| / 2 - r' (Q + (s2 + tr(Knn - Q)) I)^-1 r / 2 >= log p(y). Titsias (2014)."""
        _, log_det = self._quadratic(noise)
        square, _ = self._quadratic(noise + self.gap.clamp_min(0.0))
        return -0.5 * (square + log_det + self.n * LOG_2PI)

    def posterior(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [m] and a root W [m, m] of the covariance W' W of the optimal q(v), u = L v: B^-1 Ar / s2 and B^-1."""
        root = cholesky(torch.eye(len(self.S)).to(self.S) + self.S / noise, "posterior precision of the inducing variables")
        mean = torch.cholesky_solve(self.Ar[:, None], root)[:, 0] / noise
        return mean, torch.linalg.solve_triangular(root, torch.eye(len(root)).to(root), upper=False)


def project(cross: Cross, L: Tensor, r: Tensor, diagonal: Tensor) -> Projection:
    """Go over the rows in chunks; ``cross(rows)`` is Kmn [m, rows], ``diagonal`` that of Knn [n].

    Where all of Kmn is larger than ``MEMORY_BUDGET``, the gradient computes each chunk again.
    """
    n, m = len(r), len(L)
    size = n if n * m * r.element_size() <= CHUNK_BYTES else max(m, CHUNK_BYTES // (m * r.element_size()))
    again = n * m * r.element_size() > MEMORY_BUDGET and torch.is_grad_enabled()

    def chunk(rows: slice, L: Tensor) -> tuple[Tensor, Tensor]:
        return _Projected.apply(cross(rows), L, r[rows])  # type: ignore[return-value]

    S, Ar = torch.zeros_like(L), torch.zeros_like(L[0])
    for i in range(0, n, size):
        rows = slice(i, min(i + size, n))
        if again:
            one, other = checkpoint(chunk, rows, L, use_reentrant=False)  # type: ignore[misc]
        else:
            one, other = chunk(rows, L)
        S, Ar = S + one, Ar + other
    return Projection(S, Ar, r.square().sum(), diagonal.sum(), n)


class SparseMarginal(dist.TorchDistribution):
    """A law of y [n] whose log density is Titsias' lower bound; it draws from N(loc, Q + noise I).

    Args:
        loc: [n].
        Kmm: [m, m].
        cross: rows -> Kmn [m, rows].
        diagonal: of Knn, [n].
        noise: [].
    """

    arg_constraints = {"loc": constraints.real_vector}  # type: ignore[assignment]
    support = constraints.real_vector  # type: ignore[assignment]

    def __init__(self, loc: Tensor, Kmm: Tensor, cross: Cross, diagonal: Tensor, noise: Tensor) -> None:
        self.loc, self.Kmm, self.cross, self.diagonal, self.noise = loc, Kmm, cross, diagonal, noise
        super().__init__(torch.Size(), loc.shape[-1:], validate_args=False)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> SparseMarginal:
        if len(tuple(batch_shape)):
            raise NotImplementedError("SparseMarginal has one law at a time")
        return self

    def project(self, value: Tensor) -> Projection:
        return project(self.cross, inducing_root(self.Kmm), value - self.loc, self.diagonal)

    def log_prob(self, value: Tensor) -> Tensor:
        return self.project(value).lower(self.noise)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = torch.Size(sample_shape)
        with torch.no_grad():
            n, L = len(self.loc), inducing_root(self.Kmm)
            v = torch.randn(*shape, len(L), 1, dtype=L.dtype, device=L.device)
            u = torch.linalg.solve_triangular(L.mT, v, upper=True)  # L^-T v: Knm L^-T v has covariance Q
            size = max(1, CHUNK_BYTES // (len(L) * L.element_size()))
            parts = [(self.cross(slice(i, min(i + size, n))).mT @ u).squeeze(-1) for i in range(0, n, size)]
            f = torch.cat(parts, -1)
            return self.loc + f + self.noise.sqrt() * torch.randn_like(f)
