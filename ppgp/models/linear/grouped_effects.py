"""Gaussian coefficients of groups, integrated out of rows that depend on one function value each.

Row i has f_i = mean_i + z_i' u_g(i), and u ~ N(0, S^2) with a diagonal S. With u = S e the integral
over e is Laplace's, block by block; it is exact where the rows are Gaussian, and then equals the
Woodbury form of the density of y ~ N(mean, noise + Z S^2 Z').
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from ...numerics.latent_mode import RowDensity
from ...numerics.newton import allowed_descent, at_rounding

__all__ = ["Blocks", "EffectsGivenRows", "effects_given_rows", "grouped_log_evidence"]

UNROLLED = 3  # coefficients of a block whose equations are written out, faster than LAPACK's
STEPS = 200
HALVINGS = 30
#: Gain of a step, in nats, after which the next one would gain its square.
SMALL, SMALL_SINGLE = 1e-14, 1e-9


@dataclass(frozen=True)
class Blocks:
    """The matrix Z of the coefficients of groups, which rows of different blocks do not share.

    Attributes:
        block: The block of each row, [n].
        features: The row of Z within its block, [n, m].
        count: The number of blocks B.
    """

    block: Tensor
    features: Tensor
    count: int

    def of_rows(self, u: Tensor) -> Tensor:
        """Return Z u [n], given u [B, m]."""
        return (self.features * u[self.block]).sum(-1)

    def sums(self, r: Tensor) -> Tensor:
        """Return Z' r [B, m], given r [n]."""
        zero = r.new_zeros(self.count, self.features.shape[1])
        return zero.index_add(0, self.block, r[:, None] * self.features)

    def gram(self, w: Tensor) -> Tensor:
        """Return the blocks of Z' W Z [B, m, m], given the diagonal w: [n], or [1] if all equal."""
        if len(w) < len(self.features):  # a constant of the rows, times a number
            return w * self.gram(torch.ones_like(self.features[:, 0]))
        weighted = w[:, None] * self.features
        if self.count == 1:
            return (weighted.mT @ self.features)[None]
        m = self.features.shape[1]
        outer = weighted[:, :, None] * self.features[:, None, :]
        return w.new_zeros(self.count, m, m).index_add(0, self.block, outer)

    def root(self, sd: Tensor, w: Tensor) -> Tensor:
        """Return the Cholesky factors of I + S Z' W Z S [B, m, m], NaN where there are none.

        Args:
            sd: The diagonal of S, [B, m] or [1, m].
            w: The diagonal of W, as in ``gram``.
        """
        return root_of_blocks(_scaled(self.gram(w), sd))


def _scaled(gram: Tensor, sd: Tensor) -> Tensor:
    eye = torch.eye(gram.shape[-1], dtype=sd.dtype, device=sd.device)
    return eye + sd[:, :, None] * gram * sd[:, None, :]


def root_of_blocks(B: Tensor) -> Tensor:
    """Return the Cholesky factors of B [B, m, m], NaN where there are none."""
    if B.shape[-1] > UNROLLED:
        L, info = torch.linalg.cholesky_ex(B)
        return torch.where((info == 0)[:, None, None], L, math.nan)
    m = B.shape[-1]
    zero = torch.zeros_like(B[:, 0, 0])
    root = [[zero] * m for _ in range(m)]
    for j in range(m):
        pivot = B[:, j, j]
        for k in range(j):
            pivot = pivot - root[j][k].square()
        root[j][j] = pivot.sqrt()  # NaN for a negative one
        for i in range(j + 1, m):
            entry = B[:, i, j]
            for k in range(j):
                entry = entry - root[i][k] * root[j][k]
            root[i][j] = entry / root[j][j]
    return _stacked(root)


def solved(root: Tensor, b: Tensor) -> Tensor:
    """Return the solutions [B, m] of L L' x = b, given L [B, m, m] and b [B, m]."""
    m = b.shape[-1]
    if m > UNROLLED:
        return torch.cholesky_solve(b[:, :, None], root)[:, :, 0]
    x = list(b.unbind(-1))
    for i in range(m):
        for k in range(i):
            x[i] = x[i] - root[:, i, k] * x[k]
        x[i] = x[i] / root[:, i, i]
    for i in reversed(range(m)):
        for k in range(i + 1, m):
            x[i] = x[i] - root[:, k, i] * x[k]
        x[i] = x[i] / root[:, i, i]
    return torch.stack(x, -1)


def inverses(root: Tensor) -> Tensor:
    """Return the inverses of L L' [B, m, m], given L [B, m, m]."""
    m = root.shape[-1]
    if m > UNROLLED:
        return torch.cholesky_inverse(root)
    zero = torch.zeros_like(root[:, 0, 0])
    of_root = [[zero] * m for _ in range(m)]
    for j in range(m):
        of_root[j][j] = 1 / root[:, j, j]
        for i in range(j + 1, m):
            entry = root[:, i, j] * of_root[j][j]
            for k in range(j + 1, i):
                entry = entry + root[:, i, k] * of_root[k][j]
            of_root[i][j] = -entry / root[:, i, i]
    found = [[zero] * m for _ in range(m)]
    for i in range(m):
        for j in range(i + 1):
            entry = of_root[i][i] * of_root[i][j]
            for k in range(i + 1, m):
                entry = entry + of_root[k][i] * of_root[k][j]
            found[i][j] = found[j][i] = entry
    return _stacked(found)


def _stacked(entries: list[list[Tensor]]) -> Tensor:
    """Return matrices [B, m, m] of entries [B] each."""
    m = len(entries)
    return torch.stack([one for row in entries for one in row], -1).unflatten(-1, (m, m))


@runtime_checkable
class GaussianRowDensity(Protocol):
    """Row densities that are quadratic in f."""

    def quadratic(self, parameters: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor]:
        """Return y [n], the precisions [n], or [1] if equal, and the log density at f = y, []."""
        ...


@dataclass(frozen=True)
class EffectsGivenRows:
    """The Gaussian approximation of u given the rows, exact for Gaussian rows.

    Attributes:
        mean: [B, m], of u.
        scale: [B, m], the sds of u before the rows.
        root: [B, m, m], the Cholesky factors L in the covariance S (L L')^-1 S of u.
        f: The function values at the mean, [n].
        slope: The derivative of the log density of each row there, [n].
        precision: Minus its second derivative, [n].
    """

    mean: Tensor
    scale: Tensor
    root: Tensor
    f: Tensor
    slope: Tensor
    precision: Tensor

    @cached_property
    def covariance(self) -> Tensor:
        """[B, m, m], of u."""
        return self.scale[:, :, None] * inverses(self.root) * self.scale[:, None, :]

    def moments(self, at: Blocks) -> tuple[Tensor, Tensor]:
        """Return the mean and the variance of z' u at other rows, [m] each."""
        z = at.features
        spread = (self.covariance[at.block] @ z[:, :, None])[:, :, 0]
        return at.of_rows(self.mean), (z * spread).sum(-1).clamp_min(0.0)

    def covariance_of(self, at: Blocks) -> Tensor:
        """Return the covariance of z' u between other rows, [m, m]."""
        z = at.features
        spread = (self.covariance[at.block] @ z[:, :, None])[:, :, 0]
        same = at.block[:, None] == at.block[None, :]
        return torch.where(same, spread @ z.mT, 0.0)

    def at_standard_normal(self, e: Tensor) -> Tensor:
        """Return the draw of u that belongs to a draw e of N(0, I), [B, m] both."""
        around = torch.linalg.solve_triangular(self.root.mT, e[:, :, None], upper=True)[:, :, 0]
        return self.mean + self.scale * around

    def without_each_row(self, at: Blocks) -> tuple[Tensor, Tensor]:
        """Return the moments of each f_i without its own row; Vehtari et al. (2016), section 3."""
        _, variance = self.moments(at)
        cavity = variance / (1 - self.precision * variance)
        return self.f - cavity * self.slope, cavity


def grouped_log_evidence(
    blocks: Blocks,
    sd: Tensor,
    mean: Tensor,
    rows: RowDensity,
    parameters: tuple[Tensor, ...] = (),
    gaussian: bool = False,
) -> Tensor:
    """Return the log density of all rows with u integrated out.

    It is differentiable twice in the sds, the mean and the parameters. It is NaN where the second
    derivatives at the end of the search are not those of a mode.

    Args:
        blocks: The matrix Z.
        sd: [B, m], the sds of u; the first axis may be 1.
        mean: [n], f without u.
        rows: The log densities of the rows.
        parameters: Those of ``rows``.
        gaussian: Whether the log density of each row is quadratic in f, so that this is exact;
            ``rows`` are then a ``GaussianRowDensity``.
    """
    if gaussian:
        assert isinstance(rows, GaussianRowDensity)
        y, precision, at_y = rows.quadratic(parameters)
        return at_y + _log_integral(blocks, sd, y - mean, precision)
    with torch.no_grad():
        e = _mode(blocks, sd, mean, rows, parameters)
    # Newton's steps from the mode stay there, and move as the mode does: the error of k steps
    # is of order 2^k in a change of theta, so that two serve two derivatives
    for _ in range(2):
        e = _newton(blocks, sd, mean, e, rows, parameters)[0]
    f = mean + blocks.of_rows(sd * e)
    _, second = rows.slopes(f, parameters)
    root = blocks.root(sd, -second)
    half_log_det = root.diagonal(dim1=-2, dim2=-1).log().sum()
    return rows.log_prob(f, parameters).sum() - 0.5 * e.square().sum() - half_log_det


def effects_given_rows(
    blocks: Blocks,
    sd: Tensor,
    mean: Tensor,
    rows: RowDensity,
    parameters: tuple[Tensor, ...] = (),
    gaussian: bool = False,
) -> EffectsGivenRows:
    """Return the distribution of u given all rows; arguments as of ``grouped_log_evidence``."""
    with torch.no_grad():
        e = mean.new_zeros(blocks.count, blocks.features.shape[1])
        if gaussian:
            e = _newton(blocks, sd, mean, e, rows, parameters)[0]
        else:
            e = _mode(blocks, sd, mean, rows, parameters)
        f = mean + blocks.of_rows(sd * e)
        first, second = rows.slopes(f, parameters)
        root = blocks.root(sd, -second)
        return EffectsGivenRows(sd * e, sd.expand(e.shape), root, f, first, -second)


def _newton(
    blocks: Blocks, sd: Tensor, mean: Tensor, e: Tensor, rows: Any, parameters: tuple[Tensor, ...]
) -> tuple[Tensor, Tensor]:
    """Return e after a whole Newton step with the observed curvature, and the gradient before."""
    first, second = rows.slopes(mean + blocks.of_rows(sd * e), parameters)
    gradient = sd * blocks.sums(first) - e
    root = blocks.root(sd, -second)
    return e + solved(root, gradient), gradient


def _mode(
    blocks: Blocks, sd: Tensor, mean: Tensor, rows: Any, parameters: tuple[Tensor, ...]
) -> Tensor:
    """Maximise log p(rows given f) - e'e / 2 over e, NaN if a step is not finite.

    Where the log density of a row is not concave, its ``step_curvature`` takes the place of the
    observed one. A step that does not ascend is halved.
    """

    def height(e: Tensor) -> Tensor:
        f = mean + blocks.of_rows(sd * e)
        return rows.log_prob(f, parameters).sum() - 0.5 * e.square().sum()

    e = mean.new_zeros(blocks.count, blocks.features.shape[1])
    value = height(e)
    small = SMALL if e.dtype == torch.float64 else SMALL_SINGLE
    gain = math.inf
    for _ in range(STEPS):
        f = mean + blocks.of_rows(sd * e)
        first, second = rows.slopes(f, parameters)
        W = -second
        newton = not bool((second > 0).any())
        if not newton:
            W = torch.where(second <= 0, W, rows.step_curvature(f, parameters))
        gradient = sd * blocks.sums(first) - e
        step = solved(blocks.root(sd, W), gradient)
        before, gain = gain, float((gradient * step).sum())
        if not math.isfinite(gain):
            return torch.full_like(e, math.nan)
        e, value, moved = _ascended(height, e, step, value)
        if gain <= small or not moved or at_rounding(gain, before, value):
            break
    return e


def _ascended(height: Any, e: Tensor, step: Tensor, value: Tensor) -> tuple[Tensor, Tensor, bool]:
    """Return e + t step for the first of t = 1, 1/2, 1/4, ... that does not descend."""
    t, least = 1.0, value - allowed_descent(value)
    for _ in range(HALVINGS):
        found = height(e + t * step)
        if bool(found >= least):
            return e + t * step, found, True
        t /= 2
    return e, value, False


def _log_integral(blocks: Blocks, sd: Tensor, r: Tensor, precision: Tensor) -> Tensor:
    """Return the log of the integral of exp(-(r - Z S e)' W (r - Z S e) / 2) over e ~ N(0, I).

    It is -q / 2 - log|B| / 2 with B = I + S Z' W Z S and q the least of (r - Z S e)' W (r - Z S e)
    + e'e. It is differentiable twice, and NaN where B is not finite.

    Args:
        blocks: The matrix Z.
        sd: The diagonal of S, [B, m] or [1, m].
        r: [n].
        precision: The diagonal of W, [n], or [1] if all are equal.
    """
    found: Any = _LogIntegral.apply(blocks, sd, r, precision)
    return found[0]


def _least(
    blocks: Blocks, sd: Tensor, r: Tensor, precision: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the Cholesky factors of B, the e of the least q, and r - Z S e."""
    root = blocks.root(sd, precision)
    e = solved(root, sd * blocks.sums(precision * r))
    return root, e, r - blocks.of_rows(sd * e)


class _LogIntegral(torch.autograd.Function):
    """The integral over Gaussian rows, with the gradient by formula.

    Autograd would follow the factorisations and solves, at several times the cost. The formulas are
    those of a maximum: at the most probable coefficients the slope by them is 0.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        blocks, sd, r, precision = args
        root, e, rest = _least(blocks, sd, r, precision)
        least = (precision * rest.square()).sum() + e.square().sum()
        half_log_det = root.diagonal(dim1=-2, dim2=-1).log().sum()
        return -0.5 * least - half_log_det, root, e, rest

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        blocks, *tensors = inputs
        ctx.blocks = blocks
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*tensors, *output[1:])

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        grad, blocks = grad_outputs[0], ctx.blocks
        sd, r, precision, root, e, rest = ctx.saved_tensors
        if torch.is_grad_enabled():  # for second derivatives
            root, e, rest = _least(blocks, sd, r, precision)
        pull = precision * rest
        inverse = inverses(root)
        # the diagonals of Z' W Z S B^-1, of which the sum is half the slope of log|B| by log S
        bent = (blocks.gram(precision) * sd[:, None, :] * inverse).sum(-1)
        of_sd = e * blocks.sums(pull) - bent
        if len(sd) < len(of_sd):
            of_sd = of_sd.sum(0, keepdim=True)
        if len(precision) < len(r):
            spread = (sd * bent).sum() / precision
            of_precision = -0.5 * (rest.square().sum() + spread)
        else:
            scaled = sd[:, :, None] * inverse * sd[:, None, :]
            z = blocks.features
            spread = (z * (scaled[blocks.block] @ z[:, :, None])[:, :, 0]).sum(-1)
            of_precision = -0.5 * (rest.square() + spread)
        return None, grad * of_sd, -grad * pull, grad * of_precision
