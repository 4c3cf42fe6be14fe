"""The collapsed bound of sparse GP regression: value and gradient in O(n m^2) time.

Rows are processed in chunks, so that the memory is O(m^2). Notation, for n rows and m inducing
inputs: Kmm [m, m] = L L', A = L^-1 Kmn [m, n], r = y - mean [n], s2 is the noise variance, and
B = I + A A' / s2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import constraints

from ...numerics.cholesky import factor_or_nan, inducing_root, jittered
from ...numerics.projection import Projection, derivative_in_noise
from ...numerics.triangles import between_inverses, solved
from ...runtime.team import ALONE, Team

CHUNK_BYTES = 8 * 2**20  # of a processor's caches
CHUNK_BYTES_OF_GPU = 512 * 2**20  # whose operations take longer than their start
STRIP = 128  # columns of A A' computed at a time, from the diagonal down

Cross = Callable[..., Tensor]
Inputs = Sequence[Tensor]


def _blocks(X: Tensor, m: int) -> Iterator[slice]:
    """Yield chunks of rows for which Kmn fits in the processor's caches, larger ones on a GPU."""
    chunk = CHUNK_BYTES if X.device.type == "cpu" else CHUNK_BYTES_OF_GPU
    size = max(m, chunk // (m * X.element_size()))
    for i in range(0, len(X), size):
        yield slice(i, min(i + size, len(X)))


def project(
    cross: Cross, inputs: Inputs, L: Tensor, X: Tensor, r: Tensor, diagonal: Tensor
) -> Projection:
    """Compute the sums over rows, in chunks of rows.

    Args:
        cross: ``cross(X[rows], *inputs)`` is Kmn [m, rows].
        inputs: The tensors that Kmn depends on.
        L: [m, m], the Cholesky factor of Kmm.
        X: [n, d], the rows.
        r: [n], the residuals.
        diagonal: [n], the diagonal of Knn.
    """
    m = len(L)
    strips = [torch.zeros_like(L[i:, i : i + STRIP]) for i in range(0, m, STRIP)]
    Ar = torch.zeros_like(L[0])
    for rows in _blocks(X, m):
        A = solved(L, cross(X[rows], *inputs))
        strips = [
            torch.addmm(s, A[i * STRIP :], A[i * STRIP : (i + 1) * STRIP].mT)
            for i, s in enumerate(strips)
        ]
        Ar = Ar + A @ r[rows]
    padded = [torch.nn.functional.pad(s, (0, 0, m - len(s), 0)) for s in strips]
    lower = torch.cat(padded, 1).tril()
    return Projection(lower + lower.tril(-1).mT, Ar, r.square().sum(), diagonal.sum(), len(r))


@dataclass(frozen=True, eq=False)
class Slopes:
    """The derivatives of the lower bound.

    Attributes:
        Kmm: By Kmm [m, m].
        noise: By s2 in all that is not a row.
        H: [m, m]. The derivative by the columns K [m, rows] of Kmn is H K + h r'.
        h: [m].
        precision: 1 / s2. The derivative by r is h'K - r / s2, and by the diagonal of Knn it is
            -1 / (2 s2).
    """

    Kmm: Tensor
    noise: Tensor
    H: Tensor
    h: Tensor
    precision: Tensor

    def of_rows(self, K: Tensor, r: Tensor, diagonal: Tensor) -> Tensor:
        """Return a number with the derivatives of the bound by what some rows have.

        Args:
            K: Their columns of Kmn [m, rows].
            r: Their residuals [rows].
            diagonal: Their part of the diagonal of Knn [rows].
        """
        with torch.no_grad():
            by_K = torch.addr(self.H @ K, self.h, r)
            by_r = self.h @ K - r * self.precision
        return (K * by_K).sum() + r @ by_r - 0.5 * self.precision * diagonal.sum()

    def of_shared(self, Kmm: Tensor, noise: Tensor) -> Tensor:
        """Return a number with the derivatives of the bound by Kmm [m, m] and s2."""
        return (Kmm * self.Kmm).sum() + noise * self.noise


def slopes_of(sums: Projection, L: Tensor, noise: Tensor) -> Slopes:
    """Return the derivatives of the bound.

    Args:
        sums: The sums over all rows.
        L: [m, m], the Cholesky factor of Kmm.
        noise: The variance s2 of the noise.
    """
    eye = torch.eye(len(L)).to(L)
    B = torch.cholesky_inverse(factor_or_nan(eye + sums.S / noise))
    c = B @ sums.Ar
    P = sums.S / noise - eye + B + torch.outer(c, c) / noise.square()
    solved = torch.linalg.solve_triangular(L.mT, c[:, None], upper=True)[:, 0]
    return Slopes(
        Kmm=-0.5 * between_inverses(L, P),
        noise=derivative_in_noise(sums, noise, B, c),
        H=between_inverses(L, (eye - B) / noise - torch.outer(c, c) / noise**3),
        h=solved / noise.square(),
        precision=1 / noise,
    )


class _Collapsed(torch.autograd.Function):
    """Titsias' lower bound with an explicit gradient.

    Value and gradient take three products with Kmn in all, and nothing of size m n is kept: the
    backward pass computes each chunk of Kmn again. Where second derivatives are requested, it
    differentiates the bound as it is written.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        cross: Any, team: Any, Kmm: Any, X: Any, r: Any, diagonal: Any, noise: Any, *inputs: Any
    ) -> Any:
        L = factor_or_nan(Kmm)
        rows = project(cross, inputs, L, X, r, diagonal).over_ranks(team)
        n = rows.rr.new_tensor(float(rows.n))
        return rows.lower(noise), L, rows.S, rows.Ar, rows.rr, rows.trace, n

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.cross, ctx.team = inputs[:2]
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*inputs[2:], *output[1:])

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        grad = grad_outputs[0]
        Kmm, X, r, diagonal, noise, *inputs, L, S, Ar, rr, trace, total = ctx.saved_tensors
        if torch.is_grad_enabled():
            if not ctx.team.alone:
                free = [Kmm, X, r, diagonal, noise, *inputs]
                needed = ctx.needs_input_grad[2:]
                return None, None, *_slopes_of_plain(ctx.cross, ctx.team, free, needed, grad)
            vector_jacobian = torch.func.vjp(
                lambda *a: _plain(ctx.cross, *a), Kmm, X, r, diagonal, noise, *inputs
            )[1]
            return None, None, *vector_jacobian(grad)
        m, n = len(S), len(r)
        slopes = slopes_of(Projection(S, Ar, rr, trace, total), L, noise)
        # the gradient is the mean over the ranks, and each has slopes of its own rows alone
        of_rows = grad * ctx.team.size
        H, h = of_rows * slopes.H, of_rows * slopes.h
        totals = [torch.zeros_like(a) for a in inputs]
        parts, parts_X = [], []
        # makes each chunk differ from that of the forward pass: a compiled graph would otherwise
        # identify the two and keep all chunks
        distinct = 0.0 * h[0]
        for rows in _blocks(X, m):
            block = X[rows] + distinct
            needs_X = ctx.needs_input_grad[3]  # X may be the output of a network
            if needs_X:
                K, vector_jacobian = torch.func.vjp(ctx.cross, block, *inputs)[:2]
            else:
                at_rows = partial(ctx.cross, block)
                K, vector_jacobian = torch.func.vjp(at_rows, *inputs)[:2]
            gradients = vector_jacobian(torch.addr(H @ K, h, r[rows]))
            if needs_X:
                parts_X.append(gradients[0])
                gradients = gradients[1:]
            totals = [t + s for t, s in zip(totals, gradients, strict=True)]
            if ctx.needs_input_grad[4]:
                parts.append(h @ K - of_rows * r[rows] / noise)
        gradient_r = torch.cat(parts) if parts else None
        gradient_diagonal = (-0.5 * of_rows / noise).expand(n)
        gradient_X = torch.cat(parts_X) if parts_X else None
        return (
            None,
            None,
            grad * slopes.Kmm,
            gradient_X,
            gradient_r,
            gradient_diagonal,
            grad * slopes.noise,
            *totals,
        )


def _plain(
    cross: Cross,
    Kmm: Tensor,
    X: Tensor,
    r: Tensor,
    diagonal: Tensor,
    noise: Tensor,
    *inputs: Tensor,
) -> Tensor:
    """Return the lower bound without the explicit gradient, for second derivatives."""
    return project(cross, inputs, factor_or_nan(Kmm), X, r, diagonal).lower(noise)


def _slopes_of_plain(
    cross: Cross, team: Team, free: Sequence[Tensor], needed: Sequence[bool], grad: Tensor
) -> list[Tensor | None]:
    """Return the slopes of the bound of a team as differentiable functions.

    Args:
        cross: As of ``project``.
        team: The processes that hold the rows.
        free: Kmm, X, r, the diagonal of Knn, the noise, and the inputs of ``cross``.
        needed: Which of them need a slope.
        grad: The slope of the result by the bound.
    """
    # views, as Kmm is itself a function of the inputs of ``cross``
    free = [value.view_as(value) for value in free]
    Kmm, X, r, diagonal, noise, *inputs = free
    own = project(cross, inputs, factor_or_nan(Kmm), X, r, diagonal)
    flat = [part.reshape(-1) for part in (own.S, own.Ar, own.rr, own.trace)]
    total = team.differentiable_sum(torch.cat([*flat, own.rr.new_tensor([float(own.n)])]))
    m = len(own.Ar)
    S, Ar, rr, trace, n = total.split([m * m, m, 1, 1, 1])
    sums = Projection(S.reshape(m, m), Ar, rr[0], trace[0], round(float(n.detach())))
    some = [value for value, need in zip(free, needed, strict=True) if need]
    slopes = torch.autograd.grad(
        sums.lower(noise), some, grad, create_graph=True, materialize_grads=True
    )
    left = iter(slopes)
    return [next(left) if need else None for need in needed]


class SparseMarginal(dist.TorchDistribution):
    """A distribution of y [n] whose log density is Titsias' lower bound.

    Samples come from N(loc, Q + s2 I).

    Args:
        loc: [n], the mean.
        Kmm: [m, m], the covariance of the inducing variables.
        kernel: Maps (hyperparameters, Z, rows of X) to Kmn [m, rows].
        hyper: ``{name: tensor}``, the hyperparameters.
        Z: [m, d], the inducing inputs.
        X: [n, d], the rows.
        diagonal: [n], the diagonal of Knn.
        noise: [], the noise variance s2.
        team: The processes that hold other rows: the bound is that of the rows of all.
    """

    arg_constraints: Any = {"loc": constraints.real_vector}
    support: Any = constraints.real_vector

    def __init__(
        self,
        loc: Tensor,
        Kmm: Tensor,
        kernel: Callable[[Mapping[str, Tensor], Tensor, Tensor], Tensor],
        hyper: Mapping[str, Tensor],
        Z: Tensor,
        X: Tensor,
        diagonal: Tensor,
        noise: Tensor,
        team: Team = ALONE,
    ) -> None:
        names = tuple(hyper)
        self.team = team

        def cross(rows: Tensor, Z: Tensor, *values: Tensor) -> Tensor:
            return kernel(dict(zip(names, values, strict=True)), Z, rows)

        self.loc, self.Kmm, self.X = loc, Kmm, X
        # Kmn of some rows as a function of the tensors that it depends on
        self.cross, self.inputs = cross, (Z, *hyper.values())
        self.diagonal, self.noise = diagonal, noise
        super().__init__(torch.Size(), loc.shape[-1:], validate_args=False)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> SparseMarginal:
        if len(tuple(batch_shape)):
            raise NotImplementedError("SparseMarginal has no batch shape")
        return self

    def project(self, value: Tensor, L: Tensor) -> Projection:
        """Return the sums over rows for y = ``value``, given L = ``inducing_root(Kmm)``."""
        own = project(self.cross, self.inputs, L, self.X, value - self.loc, self.diagonal)
        return own.over_ranks(self.team)

    def log_prob(self, value: Tensor) -> Tensor:
        r, Kmm = value - self.loc, jittered(self.Kmm)
        outputs: Any = _Collapsed.apply(
            self.cross, self.team, Kmm, self.X, r, self.diagonal, self.noise, *self.inputs
        )
        return outputs[0]

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = torch.Size(sample_shape)
        with torch.no_grad():
            L = inducing_root(self.Kmm)
            v = torch.randn(*shape, len(L), 1, dtype=L.dtype, device=L.device)
            # the covariance of Knm L^-T v is Q
            u = torch.linalg.solve_triangular(L.mT, v, upper=True)
            parts = []
            for rows in _blocks(self.X, len(L)):
                Knm = self.cross(self.X[rows], *self.inputs).mT
                parts.append((Knm @ u).squeeze(-1))
            f = torch.cat(parts, -1)
            return self.loc + f + self.noise.sqrt() * torch.randn_like(f)
