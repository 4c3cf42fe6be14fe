"""Vecchia's approximation: each row of a Gaussian vector given the nearest rows before it.

Vecchia (1988); Datta et al. (2016); Katzfuss & Guinness (2021). The approximation is the density of
a Gaussian vector itself, whose precision U'U has one sparse row of U for each row of the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from scipy import sparse
from scipy.sparse.linalg import spsolve_triangular
from torch import Tensor

from ...kernels import Kernel
from ...kernels.gram_slopes import PairDistances, gram, has_formulas
from ...numerics.cholesky import LOG_2PI, factor_or_nan
from ...runtime.team import ALONE, Team
from .by_parts import Part, PartBySlopes, by_parts, sum_of_parts

__all__ = [
    "ROWS_AT_ONCE",
    "Covariance",
    "Law",
    "Sets",
    "Whitened",
    "conditional_weights",
    "pairs_below",
    "part_of_new_rows",
    "solve_earlier",
]

ROWS_AT_ONCE = 512  # their covariances stay in the cache of a core
ROWS_AT_ONCE_ON_GPU = 65_536  # whose operations take longer than their start
ROWS_IN_ONE_PASS = 8192  # up to here nothing is computed a second time for the gradient

#: (A [p, 1, d], B [p, 1, d]) -> the covariance [p, 1, 1] of each pair of rows
Covariance = Callable[[Tensor, Tensor], Tensor]
Rows = Sequence[Tensor]


@dataclass(frozen=True)
class Sets:
    """The rows, and the rows that each depends on.

    Attributes:
        members: [n, k], in the order of the rows: the neighbours of each row and last the row
            itself; -1 where a row has fewer neighbours.
    """

    members: Tensor

    @property
    def order(self) -> Tensor:
        """The rows in their order, [n]."""
        return self.members[:, -1].long()

    def share_of(self, team: Team) -> Sets:
        """Return the part of the sets that this rank of a team computes."""
        if team.alone:
            return self
        first, last = (len(self.members) * r // team.size for r in (team.rank, team.rank + 1))
        return Sets(self.members[first:last])


@dataclass(frozen=True)
class Whitened:
    """Rows after multiplication by U, the root of the precision.

    Attributes:
        values: [n, q], in the order of the rows.
        log_weights: [n], twice the log of the diagonal of U.
    """

    values: Tensor
    log_weights: Tensor

    def log_density(self, team: Team = ALONE) -> Tensor:
        """Return the log density of the first column, the others being a trend to integrate out.

        It is that of y ~ N(F beta, (U'U)^-1) without beta, which has a flat prior (REML):
        -((n - p) log 2 pi - log|U'U| + log|F'U'UF| + |Uy - UF beta|^2) / 2 at the least-squares
        beta. Harville (1974), equation 3.

        Args:
            team: The processes that have whitened other rows: the density is that of all.
        """
        r, F = self.values[:, 0], self.values[:, 1:]
        p, n = F.shape[1], self.values.new_tensor(float(len(F)))
        half_log_det, square = 0.5 * self.log_weights.sum(), r.square().sum()
        if not p:
            half_log_det, square, n = team.differentiable_sums(half_log_det, square, n)
            return half_log_det - 0.5 * square - 0.5 * n * LOG_2PI
        if team.alone:
            R, _, square = _reduced(F, r)
            half_log_det_F = R.diagonal().abs().log().sum()
        else:
            half_log_det, n = team.differentiable_sums(half_log_det, n)
            half_log_det_F, square = _of_all_ranks(F, r, team)
        half_log_det = half_log_det - half_log_det_F
        return half_log_det - 0.5 * square - 0.5 * (n - p) * LOG_2PI


def _reduced(F: Tensor, r: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return R and Q'r of F = QR, and the sum of squares of r - QQ'r."""
    Q, R = torch.linalg.qr(F)
    c = Q.mT @ r
    return R, c, (r - Q @ c).square().sum()


def _of_all_ranks(F: Tensor, r: Tensor, team: Team) -> tuple[Tensor, Tensor]:
    """Return log|F'F| / 2 and the sum of squares of r - QQ'r of F = QR, for the rows of all ranks.

    No derivative goes through the QR of a rank's own rows, which may not determine all columns. In
    the columns A = F R^-1 and the residuals e = r - A c of any constant R and c, the two are
    log|R| + log|A'A| / 2 and e'e - e'A (A'A)^-1 A'e. With R and c of the rows of all ranks, A'A is
    the unit matrix and A'e is 0 up to rounding, so that no digits are lost.
    """
    with torch.no_grad():
        R, c, _ = _reduced(*_stacked(*_reduced(F, r)[:2], team))
    A = torch.linalg.solve_triangular(R, F, upper=True, left=False)
    e = r - A @ c
    G, b, square = team.differentiable_sums(A.mT @ A, A.mT @ e, e.square().sum())
    L = factor_or_nan(G)
    explained = torch.linalg.solve_triangular(L, b[:, None], upper=False).square().sum()
    half_log_det = R.diagonal().abs().log().sum() + L.diagonal().log().sum()
    return half_log_det, square - explained


def _stacked(R: Tensor, c: Tensor, team: Team) -> tuple[Tensor, Tensor]:
    """Return the rows of R [p, p] and the numbers of c [p] of all ranks, one after the other.

    A rank of fewer than p rows has rows of 0.
    """
    p = R.shape[1]
    own = torch.cat([R, c[:, None]], 1)
    before, behind = team.rank * p, team.size * p - team.rank * p - len(own)
    every = team.sum(torch.nn.functional.pad(own, (0, 0, before, behind)))
    return every[:, :p], every[:, p]


@cache
def pairs_below(k: int) -> tuple[Tensor, Tensor]:
    """Return the pairs i > j of k variables: the i and the j, each [k (k - 1) / 2]."""
    below = torch.tril_indices(k, k, -1, device="cpu")
    return below[0], below[1]


def pairs_of(k: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return ``pairs_below`` on a device."""
    i, j = pairs_below(k)
    return i.to(device), j.to(device)


def _matrices(covariances: Tensor, variances: Tensor) -> Tensor:
    """Return the matrices [sets, k, k], whose upper triangles are 0."""
    k, sets = variances.shape
    i, j = pairs_below(k)
    diagonal = torch.arange(k, device=i.device) * (k + 1)
    places = torch.cat([i * k + j, diagonal]).to(variances.device)
    entries = torch.cat([covariances, variances])
    # the sets are the last axis, so that each row is copied as one piece
    flat = entries.new_zeros(k * k, sets).index_copy(0, places, entries)
    return flat.T.contiguous().reshape(sets, k, k)


class _ConditionalWeights(torch.autograd.Function):
    """C^-1 e with e = (0, ..., 0, 1), and its derivative -C^-1 dC C^-1 e.

    One Cholesky factorisation serves both; differentiating through the factorisation costs several
    times as much. Where second derivatives are requested, the backward pass recomputes everything
    from C, so that they are right.
    """

    @staticmethod
    def forward(covariances: Tensor, variances: Tensor) -> Any:
        L, info = torch.linalg.cholesky_ex(_matrices(covariances, variances))
        L.diagonal(dim1=-2, dim2=-1).mul_(torch.where(info == 0, 1.0, math.nan)[:, None].to(L))
        # L^-1 e is e over the last diagonal entry
        e = torch.zeros_like(L[:, :, :1])
        e[:, -1, 0] = 1.0 / L[:, -1, -1]
        weights = torch.linalg.solve_triangular(L.mT, e, upper=True).squeeze(-1)
        return weights.T.contiguous(), L

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        weights, L = output
        ctx.mark_non_differentiable(L)
        ctx.save_for_backward(*inputs, weights, L)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        covariances, variances, weights, L = ctx.saved_tensors
        if torch.is_grad_enabled():
            lower = _matrices(covariances, variances)
            L = factor_or_nan(lower + lower.tril(-1).mT)
            weights = conditional_weights(covariances, variances)
        return slopes_of_weights(grad_outputs[0], weights, L)


def slopes_of_weights(slopes: Tensor, weights: Tensor, L: Tensor) -> tuple[Tensor, Tensor]:
    """Return the derivatives in the covariances of pairs and in the variances.

    Args:
        slopes: The derivatives in the weights, [k, sets].
        weights: [k, sets].
        L: The Cholesky factors of the covariances, [sets, k, k].
    """
    solved = -torch.cholesky_solve(slopes.T.unsqueeze(-1), L).squeeze(-1).T.contiguous()
    i, j = pairs_of(len(weights), L.device)
    of_pairs = solved.index_select(0, i) * weights.index_select(0, j)
    of_pairs = of_pairs.addcmul(solved.index_select(0, j), weights.index_select(0, i))
    return of_pairs, solved * weights


def conditional_weights(
    covariances: Float[Tensor, "pairs sets"], variances: Float[Tensor, "k sets"]
) -> Float[Tensor, "k sets"]:
    """Return the last column of the inverse of each covariance matrix C.

    With weights w and variables z ~ N(0, C), the last variable given the others has the variance
    1 / w_k, and (w' z) / w_k is the last variable minus its conditional mean. Its standardised
    residual is (w' z) / sqrt(w_k). Vecchia (1988); Rue & Held (2005), theorem 2.3.

    Args:
        covariances: [k (k - 1) / 2, sets], those of the pairs that ``pairs_below`` lists.
        variances: [k, sets].

    Returns:
        [k, sets], with first and second derivatives; NaN where C is not positive definite.
    """
    outputs: Any = _ConditionalWeights.apply(covariances, variances)
    return outputs[0]


def weights_of_sets(
    covariance: Covariance, diagonal: Tensor, places: Tensor, exist: Tensor | None
) -> Float[Tensor, "k rows"]:
    """Return the last column of the inverse covariance of each set of rows.

    Args:
        covariance: Of pairs of rows.
        diagonal: [k, rows], the variance of each member.
        places: [k, rows, d], where each member is.
        exist: [k, rows], which members exist; the others get the weight 0. None: all.
    """
    i, j = pairs_of(len(diagonal), places.device)
    A, B = (places.index_select(0, pair).flatten(0, 1)[:, None] for pair in (i, j))
    K = covariance(A, B).reshape(len(i), -1)
    return conditional_weights(*_of_existing(K, diagonal, exist))


def _of_existing(K: Tensor, diagonal: Tensor, exist: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the covariances [pairs, rows] and the variances [k, rows] of the members that exist.

    The others are independent of them and have the variance 1. None: all exist.
    """
    if exist is None:
        return K, diagonal
    i, j = pairs_of(len(diagonal), K.device)
    K = torch.where(exist[i] & exist[j], K, torch.zeros_like(K))
    return K, torch.where(exist, diagonal, torch.ones_like(diagonal))


def _sums(w: Tensor, Z: Tensor) -> Tensor:
    """Return the sums over the members of w [k, rows] times Z [k, rows, q], [q, rows]."""
    return torch.stack([(w * column).sum(0) for column in Z.unbind(-1)])


def _existing(members: Tensor) -> Tensor | None:
    """Return which members exist; None if all do."""
    exist = members >= 0
    return None if bool(exist.all()) else exist


@dataclass(frozen=True)
class Law:
    """Covariances of rows, as a function of tensors that may require gradients.

    Attributes:
        kernel: (theta, A [p, 1, d], B [p, 1, d]) -> the covariance [p, 1, 1] of each pair.
        theta: Its hyperparameters.
        variance: [n], of each row, the noise included.
        X: [n, d], all rows.
    """

    kernel: Callable[[Mapping[str, Tensor], Tensor, Tensor], Tensor]
    theta: Mapping[str, Tensor]
    variance: Tensor
    X: Tensor

    def rows_of_root(self, members: Tensor) -> Float[Tensor, "rows k"]:
        """Return rows of U, the root of the precision.

        Args:
            members: [rows, k], the sets of these rows; -1 for none, whose entry is 0.
        """
        rows, covariance = members.T.clamp_min(0).long(), partial(self.kernel, self.theta)
        variance, exist = self.variance[rows], _existing(members.T)
        w = weights_of_sets(covariance, variance, self.X[rows], exist).T
        return w / w[:, -1:].sqrt()

    def weights(self, sets: Sets) -> Float[Tensor, "k n"]:
        """Return the weights of each row and of those that it depends on."""

        def part(members: Tensor, of_rows: Rows, theta: Rows) -> tuple[Tensor]:
            return (self._weights(members, of_rows, theta).T,)

        (w,) = self._computed(by_parts, part, self.X[:, :1].detach(), sets)
        return w.T

    def whitened(self, Z: Tensor, sets: Sets) -> Whitened:
        """Return the columns of Z [n, q] multiplied by U."""

        def part(members: Tensor, of_rows: Rows, theta: Rows) -> tuple[Tensor, Tensor]:
            values, log_weights = self._of_sets(members, of_rows, theta)
            return values.T, log_weights

        def begun(members: Tensor, of_rows: Rows, theta: Rows) -> Any:
            found = self._by_formula(members, of_rows, theta)
            outputs = found.values.T, found.log_weights
            return outputs, lambda of_values, of_logs: found.slopes(of_values.T, of_logs)

        values, logs = self._computed(by_parts, PartBySlopes(part, begun), Z, sets)
        return Whitened(values, logs)

    def log_density(self, z: Tensor, sets: Sets) -> Tensor:
        """Return the log density of z [n], a sum over the sets."""

        def part(members: Tensor, of_rows: Rows, theta: Rows) -> tuple[Tensor]:
            values, log_weights = self._of_sets(members, of_rows, theta)
            return (0.5 * (log_weights - values[0].square() - LOG_2PI),)

        def begun(members: Tensor, of_rows: Rows, theta: Rows) -> Any:
            found = self._by_formula(members, of_rows, theta)
            densities = 0.5 * (found.log_weights - found.values[0].square() - LOG_2PI)
            return (densities,), lambda each: found.slopes(-each * found.values, 0.5 * each)

        return self._computed(sum_of_parts, PartBySlopes(part, begun), z[:, None], sets)

    def log_density_of_batch(self, Z: Tensor) -> Tensor:
        """Return the log density of the last of each k rows given the others, [b].

        Args:
            Z: [b, k], the values of the rows, which come in this order; inf: the row is absent.
        """
        exist = Z.isfinite().T
        diagonal = self.variance.reshape(Z.shape).T
        places = self.X.reshape(*Z.shape, -1).transpose(0, 1)
        w = weights_of_sets(partial(self.kernel, self.theta), diagonal, places, exist)
        residual = (w * torch.where(exist, Z.T, 0.0)).sum(0)
        return 0.5 * (w[-1].log() - residual.square() / w[-1] - LOG_2PI)

    def _of_sets(self, members: Tensor, of_rows: Rows, theta: Rows) -> tuple[Tensor, Tensor]:
        """Return the columns of Z times U [q, rows], and twice the log of the diagonal of U."""
        Z, w = of_rows[2], self._weights(members, of_rows, theta)
        return _sums(w, Z) / w[-1].sqrt(), w[-1].log()

    def _weights(self, members: Tensor, of_rows: Rows, theta: Rows) -> Tensor:
        """Return the weights of the sets, [k, rows]."""
        named = dict(zip(self.theta, theta, strict=True))
        covariance = partial(self.kernel, named)
        return weights_of_sets(covariance, of_rows[1], of_rows[0], _existing(members))

    @property
    def _has_formulas(self) -> bool:
        """Whether the derivatives of the weights are known by formula."""
        kernel, X = self.kernel, self.X
        known = isinstance(kernel, Kernel) and has_formulas(kernel)
        return known and X.dtype == torch.float64 and not X.requires_grad

    def _by_formula(self, members: Tensor, of_rows: Rows, theta: Rows) -> _SetsByFormula:
        """Return the columns of Z times U, with their derivatives by formula."""
        named = dict(zip(self.theta, theta, strict=True))
        return _SetsByFormula(cast(Kernel, self.kernel), named, _existing(members), *of_rows)

    def _computed(self, how: Callable[..., Any], part: Part, Z: Tensor, sets: Sets) -> Any:
        """Compute a function of all sets, some of them at a time.

        Up to ``ROWS_IN_ONE_PASS`` torch keeps what the gradient needs, so that it can be compiled.
        """
        width = ROWS_AT_ONCE if self.X.device.type == "cpu" else ROWS_AT_ONCE_ON_GPU
        pieces = sets.members.T.split(width, 1)
        tables, shared = (self.X, self.variance, Z), tuple(self.theta.values())
        if isinstance(part, PartBySlopes) and not self._has_formulas:
            part = part.outputs
        if len(sets.members) > ROWS_IN_ONE_PASS:
            return how(part, pieces, tables, shared)
        at = (piece.clamp_min(0).long() for piece in pieces)
        computed = [
            part(piece, [t[rows] for t in tables], shared)
            for piece, rows in zip(pieces, at, strict=True)
        ]
        outputs = [torch.cat(each) for each in zip(*computed, strict=True)]
        return outputs[0].sum() if how is sum_of_parts else outputs


class _SetsByFormula:
    """The columns of Z times U for some sets, and their derivatives by formula.

    Args:
        kernel: A kernel that has formulas.
        theta: Its hyperparameters, of one draw.
        exist: [k, rows], which members exist; None: all.
        places: [k, rows, d], where each member is.
        variance: [k, rows], of each member, the noise included.
        Z: [k, rows, q].

    Attributes:
        values: [q, rows].
        log_weights: [rows], twice the log of the diagonal of U.
    """

    def __init__(
        self,
        kernel: Kernel,
        theta: Mapping[str, Tensor],
        exist: Tensor | None,
        places: Tensor,
        variance: Tensor,
        Z: Tensor,
    ) -> None:
        self.pairs = pairs_of(len(variance), places.device)
        self.theta, self.exist, self.Z = theta, exist, Z
        self.gram = gram(kernel, theta, PairDistances(places, self.pairs))
        self.w, self.L = _ConditionalWeights.forward(*_of_existing(self.gram.K, variance, exist))
        self.root = self.w[-1].sqrt()
        self.values = _sums(self.w, Z) / self.root
        self.log_weights = self.w[-1].log()

    def slopes(self, of_values: Tensor, of_logs: Tensor) -> list[Tensor]:
        """Return the derivatives in the places (0), the variances, Z and the hyperparameters.

        Args:
            of_values: The derivatives of a number in ``values``, [q, rows].
            of_logs: Those in ``log_weights``, [rows].
        """
        scaled = of_values / self.root
        in_w = torch.zeros_like(self.w)
        for each, column in zip(scaled, self.Z.unbind(-1), strict=True):
            in_w.addcmul_(each, column)
        last = of_logs - 0.5 * (of_values * self.values).sum(0)
        in_w[-1] += last / self.w[-1]
        of_pairs, of_variances = slopes_of_weights(in_w, self.w, self.L)
        if self.exist is not None:
            i, j = self.pairs
            of_pairs.masked_fill_(~(self.exist[i] & self.exist[j]), 0.0)
            of_variances.masked_fill_(~self.exist, 0.0)
        found = self.gram.slopes(of_pairs, True)
        of_Z = scaled.T * self.w[..., None]
        of_theta = [found.get(name, torch.zeros_like(v)) for name, v in self.theta.items()]
        return [self.Z.new_zeros(()), of_variances, of_Z, *of_theta]


def root_of_precision(w: Tensor, sets: Sets) -> sparse.csr_array:
    """Return U [n, n], whose rows come in the order of the rows, and whose columns are the rows.

    Args:
        w: [k, n], the ``weights`` of all sets.
        sets: The sets.
    """
    k, n = w.shape
    entries = (w / w[-1].sqrt()).T.detach().cpu().numpy()
    members = sets.members.cpu().numpy()
    there = members >= 0
    rows = np.repeat(np.arange(n), k).reshape(n, k)
    return sparse.csr_array((entries[there], (rows[there], members[there])), shape=(n, n))


def part_of_new_rows(rows: Tensor, members: Tensor, n: int) -> Tensor:
    """Return the part of U that multiplies m new rows, lower triangular [m, m].

    Args:
        rows: [m, k], the rows of U of the new rows.
        members: [m, k], to which rows these belong; -1 for none.
        n: The number of training rows, after which the new rows come.
    """
    m = len(rows)
    own = rows.new_zeros(m, m + 1)
    column = torch.where(members >= n, members - n, m).long()
    return own.scatter_add(1, column, rows)[:, :m]


def solve_earlier(w: Tensor, sets: Sets, e: Tensor) -> Tensor:
    """Return U^-1 e [n, q], the rows of N(0, (U'U)^-1) for a standard normal e [n, q]."""
    U = root_of_precision(w, sets)
    order = sets.order.cpu().numpy()
    lower = sparse.csr_array(U[:, order])
    # SuperLU takes indices of 32 bits alone, to which SciPy before 1.17 does not convert
    lower.indices, lower.indptr = lower.indices.astype(np.intc), lower.indptr.astype(np.intc)
    solved = spsolve_triangular(lower, e.detach().cpu().numpy(), lower=True)
    result = np.empty_like(solved)
    result[order] = solved
    return torch.as_tensor(result).to(e)
