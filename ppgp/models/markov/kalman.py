"""Linear Gaussian Markov processes: the density of observations, its slopes, smoothing, and draws.

x_i = F_i x_(i-1) + N(0, Q_i), y_i = H_i'x_i + N(0, R_i), with x_0 ~ N(0, P0) just before the
first row. Sarkka & Solin (2019), chapter 10; the backward recursion and the slopes are those of
Koopman & Shephard (1992). Matrices are in lanes, see ``parallel_scan``.

A row may also have a precision c_i / R_i, of any sign, in place of 1 / R_i: its log density is then
(y_i f_i - c_i f_i^2 / 2) / R_i with f_i = H_i'x_i, up to a constant.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import torch
from torch import Tensor

from ...numerics.small_matrices import (
    block_product,
    blocks_of_product,
    identity,
    inverse,
    outer,
    product,
    times_vector,
)
from .parallel_scan import Element, Ends, joined, update

LOG_2PI = math.log(2 * math.pi)


@dataclass(frozen=True)
class Row:
    """The observation H of a row: the sum of some states, and of the last ones times numbers.

    Attributes:
        states: The states whose weight is 1.
        columns: The weights of the last r states, [r, *many]; None: r is 0.
    """

    states: tuple[int, ...]
    columns: Tensor | None = None

    def of(self, x: Tensor) -> Tensor:
        """Return H'x for x [s, *many]."""
        total = x[self.states[0]]
        for i in self.states[1:]:
            total = total + x[i]
        if self.columns is not None:
            for weight, value in zip(self.columns, x[len(x) - len(self.columns) :], strict=True):
                total = total + weight * value
        return total

    def vector(self, like: Tensor) -> Tensor:
        """Return H in the shape of ``like`` [s, *many]."""
        one, zero = torch.ones_like(like[0]), torch.zeros_like(like[0])
        h = torch.stack([one if i in self.states else zero for i in range(len(like))])
        if self.columns is None:
            return h
        r = len(self.columns)
        weights = self.columns.reshape(r, *(1,) * (like.ndim - self.columns.ndim), -1)
        return torch.cat([h[: len(h) - r], weights.expand(r, *like.shape[1:])])


@dataclass(frozen=True)
class Observed(Row):
    """The observation of all rows.

    Attributes:
        seen: The coefficient c, 1 where there is an observation and 0 where there is none, [steps,
            lanes], or any numbers [*b, steps, lanes].
        blocks: The sizes of the blocks of F, which is block-diagonal.
    """

    seen: Tensor = field(kw_only=True)
    blocks: tuple[int, ...] = field(kw_only=True)

    def rows(self) -> Iterator[Row]:
        """Yield the observation of each step, with columns [r, lanes]."""
        if self.columns is None:
            return repeat(Row(self.states), self.seen.shape[-2])
        return (Row(self.states, columns) for columns in self.columns.unbind(-2))

    def moved(self, F: Tensor, FP: Tensor) -> Tensor:
        """Return F P F' for symmetric P, from F and F P [s, s, *many]."""
        return block_product(F, FP.transpose(0, 1), self.blocks)


@dataclass(frozen=True)
class Forward:
    """The filter: each is a list over steps.

    Attributes:
        m, P: mean and covariance of the state given the rows before.
        F_P: F times the covariance of the state before, given the rows up to there.
        before: The mean of the state before, given the rows up to there.
        k: The covariance of state and observation, P H.
        w: 1 / variance of the observation; 0 where there is none.
        v: The observation less its mean, times w.
        S: The product of c and the variance of f, plus R.
        last: Mean and covariance of the state at the end of each lane, given its rows.
    """

    m: list[Tensor]
    P: list[Tensor]
    F_P: list[Tensor]
    before: list[Tensor]
    k: list[Tensor]
    w: list[Tensor]
    v: list[Tensor]
    S: list[Tensor]
    last: tuple[Tensor, Tensor]


def runs(F: Tensor, Q: Tensor, P0: Tensor, R: Tensor, y: Tensor, observed: Observed) -> Element:
    """Return each lane as one element; the first of them begins with the prior."""
    e = Element.empty(Q[..., 0, :])
    b, eta, J = e.b, e.eta, e.J
    # given its state, the first row without noise would have no density
    A = torch.cat([torch.zeros_like(e.A[..., :1]), e.A[..., 1:]], -1)
    C = torch.cat([P0[..., None], e.C[..., 1:]], -1)
    steps = zip(F.unbind(-2), Q.unbind(-2), R.unbind(-2), y.unbind(-2), strict=True)
    o = observed
    for (F_t, Q_t, R_t, y_t), seen_t, H in zip(steps, o.seen.unbind(-2), o.rows(), strict=True):
        A, b = block_product(F_t, A, o.blocks), times_vector(F_t, b)
        C = o.moved(F_t, block_product(F_t, C, o.blocks)) + Q_t
        a, k = H.of(A), H.of(C)
        inverse_S = 1 / (seen_t * H.of(k) + R_t)
        w = seen_t * inverse_S
        v = (y_t - seen_t * H.of(b)) * inverse_S
        aw = a * w
        eta, J = torch.addcmul(eta, a, v), torch.addcmul(J, a[:, None], aw)
        b, A = torch.addcmul(b, k, v), torch.addcmul(A, k[:, None], aw, value=-1)
        C = update(C, k, w)
    return Element(A, b, C, eta, J)


def forward(
    F: Tensor, Q: Tensor, R: Tensor, y: Tensor, observed: Observed, m: Tensor, P: Tensor
) -> Forward:
    """Run the filter over each lane from its start N(m, P)."""
    ms, Ps, FPs, before, ks, ws, vs, Ss = ([] for _ in range(8))
    steps = zip(F.unbind(-2), Q.unbind(-2), R.unbind(-2), y.unbind(-2), strict=True)
    o = observed
    for (F_t, Q_t, R_t, y_t), seen_t, H in zip(steps, o.seen.unbind(-2), o.rows(), strict=True):
        before.append(m)
        FP = block_product(F_t, P, o.blocks)
        m, P = times_vector(F_t, m), o.moved(F_t, FP) + Q_t
        k = H.of(P)
        S = seen_t * H.of(k) + R_t
        inverse_S = 1 / S
        w = seen_t * inverse_S
        v = (y_t - seen_t * H.of(m)) * inverse_S
        for kept, value in ((ms, m), (Ps, P), (FPs, FP), (ks, k), (ws, w), (vs, v), (Ss, S)):
            kept.append(value)
        m, P = torch.addcmul(m, k, v), update(P, k, w)
    return Forward(ms, Ps, FPs, before, ks, ws, vs, Ss, (m, P))


@dataclass(frozen=True)
class Backward:
    """What later rows say: each is a list over steps, except ``start``.

    Attributes:
        r, N: of this row and the later ones, about the state before this row was seen: the slope
            of the log density in the mean of that state, and minus the second derivative.
        u: Minus the slope of the log density in y.
        d: Minus the second derivative in y: the diagonal of the inverse covariance.
        start: The adjoints r and N of the state before the first step, [s, *b, lanes].
    """

    r: list[Tensor]
    N: list[Tensor]
    u: list[Tensor]
    d: list[Tensor]
    start: tuple[Tensor, Tensor]


def backward(F: Tensor, observed: Observed, filtered: Forward, r: Tensor, N: Tensor) -> Backward:
    """Run back over each lane, from what the lanes after it say about the state at its end."""
    rs, Ns, us, ds = ([] for _ in range(4))
    H, rows = observed, list(observed.rows())
    for t, F_t in reversed(list(enumerate(F.unbind(-2)))):
        k, w = filtered.k[t], filtered.w[t]
        K = k * w
        n = times_vector(N, K)
        u = filtered.v[t] - (K * r).sum(0)
        d = w + (K * n).sum(0)
        h = rows[t].vector(r)
        r = torch.addcmul(r, h, u)
        half = n - 0.5 * d * h
        N = N - outer(h, half) - outer(half, h)
        rs.append(r)
        Ns.append(N)
        us.append(u)
        ds.append(d)
        r = times_vector(F_t.transpose(0, 1), r)
        N = H.moved(F_t.transpose(0, 1), block_product(F_t.transpose(0, 1), N, H.blocks))
    return Backward(rs[::-1], Ns[::-1], us[::-1], ds[::-1], (r, N))


def ends_of(F: Tensor, Q: Tensor, P0: Tensor, R: Tensor, y: Tensor, observed: Observed) -> Ends:
    """Return the ends of each lane."""
    if F.shape[-1] > 1:
        return joined(runs(F, Q, P0, R, y, observed), P0)
    P = P0[..., None]
    zero = torch.zeros_like(P)
    return Ends(zero[0], P, zero[0], zero)


def slopes_at_ends(ends: Ends, m: Tensor, P: Tensor) -> tuple[Tensor, Tensor]:
    """Return r and N about the state at the end of each lane, N(m, P) given its rows."""
    E = inverse(identity(P) + product(ends.J, P))
    return times_vector(E, ends.eta - times_vector(ends.J, m)), product(E, ends.J)


def passes(
    F: Tensor, Q: Tensor, P0: Tensor, R: Tensor, y: Tensor, observed: Observed
) -> tuple[Forward, Backward]:
    """Return the filter and the run back over all rows."""
    ends = ends_of(F, Q, P0, R, y, observed)
    filtered = forward(F, Q, R, y, observed, ends.m, ends.P)
    r, N = ends.eta, ends.J
    if F.shape[-1] > 1:
        r, N = slopes_at_ends(ends, *filtered.last)
    return filtered, backward(F, observed, filtered, r, N)


def slopes(
    F: Tensor, Q: Tensor, P0: Tensor, R: Tensor, y: Tensor, observed: Observed
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the log density [*b], and its slopes in F, Q, P0, R and y."""
    filtered, back = passes(F, Q, P0, R, y, observed)
    S, v = in_steps(filtered.S), in_steps(filtered.v)
    value = -0.5 * (observed.seen * (S.log() + LOG_2PI) + v * v * S).sum((-2, -1))
    r, N = in_steps(back.r), in_steps(back.N)
    rr_N = outer(r, r) - N
    r_before = blocks_of_product(r[:, None], in_steps(filtered.before)[None], observed.blocks)
    by_F = blocks_of_product(rr_N, in_steps(filtered.F_P), observed.blocks) + r_before
    u, d = in_steps(back.u), in_steps(back.d)
    r0, N0 = (value[..., 0] for value in back.start)
    by_P0 = 0.5 * (outer(r0, r0) - N0)
    return value, (by_F, 0.5 * rr_N, by_P0, 0.5 * (u * u - d), -u)


def in_steps(values: Sequence[Tensor]) -> Tensor:
    """Return a list over steps as one tensor [..., steps, lanes]."""
    return torch.stack(list(values), -2)


class _LogDensity(torch.autograd.Function):
    """The log density, with the slopes of ``slopes``.

    Where second derivatives are requested, the backward pass recomputes the slopes from the
    inputs by operations that are differentiable themselves.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(F: Tensor, Q: Tensor, P0: Tensor, R: Tensor, y: Tensor, observed: Observed) -> Any:
        value, each = slopes(F, Q, P0, R, y, observed)
        return value, *each

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        *tensors, ctx.observed = inputs
        _, *each = output
        ctx.mark_non_differentiable(*each)
        ctx.save_for_backward(*tensors, *each)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        grad, saved = grad_outputs[0], ctx.saved_tensors
        F, Q, P0, R, y, *each = saved
        if torch.is_grad_enabled():
            _, each = slopes(F, Q, P0, R, y, ctx.observed)
        by_F, by_Q, by_P0, by_R, by_y = each
        wide = grad[..., None, None]
        return by_F * wide, by_Q * wide, by_P0 * grad, by_R * wide, by_y * wide, None


def log_density(
    F: Tensor, Q: Tensor, P0: Tensor, R: Tensor, y: Tensor, observed: Observed
) -> Tensor:
    """Return log p(y), [*b], in time linear in the number of rows.

    Args:
        F: The transitions [s, s, *b, steps, lanes].
        Q: The covariances of what they add, of the same shape.
        P0: The covariance of the state before the first row, of mean 0, [s, s, *b].
        R: The noise variances [*b, steps, lanes]; positive where nothing is observed.
        y: The observations [*b, steps, lanes]; 0 where there is none.
        observed: What each row observes.
    """
    outputs: Any = _LogDensity.apply(F, Q, P0, R, y, observed)
    return outputs[0]


def root(Q: Tensor) -> Tensor:
    """Return B with B B' = Q, for covariances Q [s, s, *many] that may be singular.

    Each is scaled to a unit diagonal first: the variances of a short step differ by many orders
    of magnitude.
    """
    sd = Q.diagonal(dim1=0, dim2=1).movedim(-1, 0).clamp_min(0.0).sqrt()
    if len(Q) == 1:
        return sd[None]
    by = torch.where(sd > 0, sd, torch.ones_like(sd))
    values, vectors = torch.linalg.eigh((Q / by[:, None] / by).movedim((0, 1), (-2, -1)))
    roots = vectors * values.clamp_min(0.0).sqrt().unsqueeze(-2)
    return roots.movedim((-2, -1), (0, 1)) * sd[:, None]


def simulated(F: Tensor, Q: Tensor, P0: Tensor, z0: Tensor, z: Tensor) -> Tensor:
    """Return a draw of the state at each row, [s, *b, steps, lanes].

    Args:
        F: The transitions [s, s, *b, steps, lanes].
        Q: The covariances of what they add.
        P0: The covariance of the state before the first row [s, s, *b].
        z0: Standard normal numbers [s, *b].
        z: Standard normal numbers [s, *b, steps, lanes].
    """
    moves = times_vector(root(Q), z).unbind(-2)
    x, A = torch.zeros_like(moves[0]), identity(F[..., 0, :])
    xs, As = [], []
    for F_t, e in zip(F.unbind(-2), moves, strict=True):
        x, A = times_vector(F_t, x) + e, product(F_t, A)
        xs.append(x)
        As.append(A)
    start, starts = times_vector(root(P0), z0), []
    for lane in range(F.shape[-1]):
        starts.append(start)
        start = x[..., lane] + times_vector(A[..., lane], start)
    first = torch.stack(starts, -1)
    return torch.stack(xs, -2) + times_vector(torch.stack(As, -2), first.unsqueeze(-2))
