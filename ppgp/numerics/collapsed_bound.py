"""The collapsed bound of sparse GP regression: value and gradient in O(n m^2) time, with rows in chunks in O(m^2) memory.

n rows, m inducing inputs: Kmm [m, m] = L L', A = L^-1 Kmn [m, n], r = y - mean [n], s2 the noise variance, B = I + A A' / s2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import constraints

from .cholesky import LOG_2PI, cholesky, factor_or_nan

__all__ = ["Projection", "SparseMarginal", "inducing_root", "jittered", "project"]

JITTER = 1e-8  # of the mean of the diagonal of Kmm: inducing inputs may lie as close as they like
JITTER_SINGLE = 1e-4  # in float32, whose own rounding is 1e-7
CHUNK_BYTES = 8 * 2**20
STRIP = 128  # columns of A A' that are computed at a time, from the diagonal down

Cross = Callable[..., Tensor]
Inputs = Sequence[Tensor]


def inducing_root(Kmm: Tensor) -> Tensor:
    """L of Kmm with its jitter, NaN where there is none (a sampler takes that for a divergence)."""
    return factor_or_nan(jittered(Kmm))


def jittered(Kmm: Tensor) -> Tensor:
    """Kmm and a jitter that only ever loosens the bound."""
    jitter = (JITTER if Kmm.dtype == torch.float64 else JITTER_SINGLE) * Kmm.diagonal(
        dim1=-2, dim2=-1
    ).mean(-1)
    diagonal = Kmm.diagonal(dim1=-2, dim2=-1) + jitter[..., None]
    return torch.diagonal_scatter(Kmm, diagonal, dim1=-2, dim2=-1)


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
        root = factor_or_nan(eye + self.S / noise)
        e = torch.linalg.solve_triangular(root, self.Ar[:, None], upper=False)[:, 0]
        return (
            self.rr / noise - e.square().sum() / noise.square(),
            2 * root.diagonal().log().sum() + self.n * noise.log(),
        )

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
        root = cholesky(
            torch.eye(len(self.S)).to(self.S) + self.S / noise,
            "posterior precision of the inducing variables",
        )
        mean = torch.cholesky_solve(self.Ar[:, None], root)[:, 0] / noise
        return mean, torch.linalg.solve_triangular(root, torch.eye(len(root)).to(root), upper=False)


def _blocks(X: Tensor, m: int) -> Iterator[slice]:
    """Runs of rows whose Kmn is small enough to go through the caches."""
    size = max(m, CHUNK_BYTES // (m * X.element_size()))
    for i in range(0, len(X), size):
        yield slice(i, min(i + size, len(X)))


def project(
    cross: Cross, inputs: Inputs, L: Tensor, X: Tensor, r: Tensor, diagonal: Tensor
) -> Projection:
    """Go over the rows in chunks; ``cross(X[rows], *inputs)`` is Kmn [m, rows], ``diagonal`` that of Knn [n]."""
    m = len(L)
    strips = [torch.zeros_like(L[i:, i : i + STRIP]) for i in range(0, m, STRIP)]
    Ar = torch.zeros_like(L[0])
    for rows in _blocks(X, m):
        A = torch.linalg.solve_triangular(L, cross(X[rows], *inputs), upper=False)
        strips = [
            torch.addmm(s, A[i * STRIP :], A[i * STRIP : (i + 1) * STRIP].mT)
            for i, s in enumerate(strips)
        ]
        Ar = Ar + A @ r[rows]
    lower = torch.cat([torch.nn.functional.pad(s, (0, 0, m - len(s), 0)) for s in strips], 1).tril()
    return Projection(lower + lower.tril(-1).mT, Ar, r.square().sum(), diagonal.sum(), len(r))


class _Collapsed(torch.autograd.Function):
    """Titsias' lower bound, and its gradient by formula: three products with Kmn in all, and nothing of size m n is kept.

    The backward pass computes each chunk of Kmn again. Where gradients of the gradient are asked for, it differentiates the
    bound as it is written.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(cross, Kmm, X, r, diagonal, noise, *inputs):  # type: ignore[no-untyped-def,override]
        L = factor_or_nan(Kmm)
        rows = project(cross, inputs, L, X, r, diagonal)
        return rows.lower(noise), L, rows.S, rows.Ar

    @staticmethod
    def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
        ctx.cross = inputs[0]
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*inputs[1:], *output[1:])

    @staticmethod
    def backward(ctx, grad, *_):  # type: ignore[no-untyped-def]
        Kmm, X, r, diagonal, noise, *inputs, L, S, Ar = ctx.saved_tensors
        if torch.is_grad_enabled():
            pull = torch.func.vjp(
                lambda *a: _plain(ctx.cross, *a), Kmm, X, r, diagonal, noise, *inputs
            )[1]
            return None, *pull(grad)
        m, n = len(S), len(r)
        eye = torch.eye(m).to(S)
        root = factor_or_nan(eye + S / noise)
        B = torch.cholesky_inverse(root)
        c = B @ Ar
        P = S / noise - eye + B + torch.outer(c, c) / noise.square()
        slope_Kmm = -0.5 * grad * _sandwich(L, P)
        slope_noise = _slope_in_noise(
            Projection(S, Ar, r.square().sum(), diagonal.sum(), n), noise, B, c
        )
        H = grad * _sandwich(L, (eye - B) / noise - torch.outer(c, c) / noise**3)
        h = (
            grad
            * torch.linalg.solve_triangular(L.mT, c[:, None], upper=True)[:, 0]
            / noise.square()
        )
        totals = [torch.zeros_like(a) for a in inputs]
        parts, parts_X = [], []
        apart = (
            0.0 * h[0]
        )  # lest a compiled graph take each chunk for that of the forward pass, and keep them all
        for rows in _blocks(X, m):
            block = X[rows] + apart
            moved = ctx.needs_input_grad[2]  # X is what a network makes of the rows
            if moved:
                K, pull = torch.func.vjp(ctx.cross, block, *inputs)[:2]
            else:
                K, pull = torch.func.vjp(lambda *a: ctx.cross(block, *a), *inputs)[:2]  # noqa: B023
            slopes = pull(torch.addr(H @ K, h, r[rows]))
            if moved:
                parts_X.append(slopes[0])
                slopes = slopes[1:]
            totals = [t + s for t, s in zip(totals, slopes, strict=True)]
            if ctx.needs_input_grad[3]:
                parts.append(h @ K - grad * r[rows] / noise)
        slope_r = torch.cat(parts) if parts else None
        slope_diagonal = (-0.5 * grad / noise).expand(n)
        slope_X = torch.cat(parts_X) if parts_X else None
        return None, slope_Kmm, slope_X, slope_r, slope_diagonal, grad * slope_noise, *totals


def _plain(
    cross: Cross,
    Kmm: Tensor,
    X: Tensor,
    r: Tensor,
    diagonal: Tensor,
    noise: Tensor,
    *inputs: Tensor,
) -> Tensor:
    return project(cross, inputs, factor_or_nan(Kmm), X, r, diagonal).lower(noise)


def _sandwich(L: Tensor, M: Tensor) -> Tensor:
    """L^-T M L^-1."""
    left = torch.linalg.solve_triangular(L.mT, M, upper=True)
    return torch.linalg.solve_triangular(L, left, upper=False, left=False)


def _slope_in_noise(rows: Projection, noise: Tensor, B: Tensor, c: Tensor) -> Tensor:
    """Of the lower bound; B^-1 is passed as ``B``, and c = B^-1 Ar."""
    log_det = (rows.n - len(B) + B.diagonal().sum()) / noise
    square = -rows.rr + (2 * (rows.Ar @ c) - c @ (rows.S @ c) / noise) / noise
    return -0.5 * (log_det + (square - rows.gap) / noise.square())


class SparseMarginal(dist.TorchDistribution):
    """A law of y [n] whose log density is Titsias' lower bound; it draws from N(loc, Q + noise I).

    Args:
        loc: [n].
        Kmm: [m, m].
        cross: (rows of X, *inputs) -> Kmn [m, rows].
        inputs: the tensors that Kmn depends on: inducing inputs, hyperparameters.
        X: [n, d].
        diagonal: of Knn, [n].
        noise: [].
    """

    arg_constraints = {"loc": constraints.real_vector}  # type: ignore[assignment]
    support = constraints.real_vector  # type: ignore[assignment]

    def __init__(
        self,
        loc: Tensor,
        Kmm: Tensor,
        cross: Cross,
        inputs: Inputs,
        X: Tensor,
        diagonal: Tensor,
        noise: Tensor,
    ) -> None:
        self.loc, self.Kmm, self.cross, self.inputs, self.X = loc, Kmm, cross, tuple(inputs), X
        self.diagonal, self.noise = diagonal, noise
        super().__init__(torch.Size(), loc.shape[-1:], validate_args=False)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> SparseMarginal:
        if len(tuple(batch_shape)):
            raise NotImplementedError("SparseMarginal has one law at a time")
        return self

    def project(self, value: Tensor, L: Tensor) -> Projection:
        """What the rows say, given ``inducing_root(Kmm)``."""
        return project(self.cross, self.inputs, L, self.X, value - self.loc, self.diagonal)

    def log_prob(self, value: Tensor) -> Tensor:
        r, Kmm = value - self.loc, jittered(self.Kmm)
        return _Collapsed.apply(
            self.cross, Kmm, self.X, r, self.diagonal, self.noise, *self.inputs
        )[0]  # type: ignore[index]

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = torch.Size(sample_shape)
        with torch.no_grad():
            L = inducing_root(self.Kmm)
            v = torch.randn(*shape, len(L), 1, dtype=L.dtype, device=L.device)
            u = torch.linalg.solve_triangular(
                L.mT, v, upper=True
            )  # L^-T v: Knm L^-T v has covariance Q
            f = torch.cat(
                [
                    (self.cross(self.X[rows], *self.inputs).mT @ u).squeeze(-1)
                    for rows in _blocks(self.X, len(L))
                ],
                -1,
            )
            return self.loc + f + self.noise.sqrt() * torch.randn_like(f)
