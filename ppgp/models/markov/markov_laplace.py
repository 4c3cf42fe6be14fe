"""Laplace's approximation of a latent function of time that is part of a Markov process, in O(n).

Each step of the search for the mode is a filter and a smoother over Gaussian rows. Nickisch, Solin
& Grigorevskiy (2018). Rows enter by their precision W, which may be 0 or negative, and never by the
variance 1 / W. See ``kalman`` for the process, and ``latent_mode`` for the approximation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...numerics.small_matrices import blocks_of_product, outer
from .kalman import Backward, Forward, Observed, in_steps, passes
from .parallel_scan import in_lanes, in_rows

__all__ = ["MarkovConditioned", "MarkovPrior"]


@dataclass(frozen=True)
class MarkovPrior:
    """The distribution N(0, K) of f at n rows in order of time; see ``latent_mode.LatentPrior``.

    Attributes:
        F: The transitions [s, s, steps, lanes].
        Q: The covariances of what they add, of the same shape.
        P0: The covariance of the state before the first row, of mean 0, [s, s].
        observed: What each row observes.
        n: The number of rows.
    """

    F: Tensor
    Q: Tensor
    P0: Tensor
    observed: Observed
    n: int

    def rough_step(self, W: Tensor, b: Tensor) -> None:
        """Return None: no step is faster than that of ``given``."""

    def given(self, W: Tensor, b: Tensor, *, differentiable: bool = False) -> MarkovConditioned:
        """Return h given Gaussian rows; every result can be differentiated."""
        filtered, back = self.passes(W, b)
        return MarkovConditioned(self, W, filtered, back, *self.means(filtered, back))

    def passes(self, W: Tensor, b: Tensor) -> tuple[Forward, Backward]:
        """Return the filter and the run back over rows of log density b f - W f^2 / 2."""
        b, W = in_lanes(b, self.F.shape[-1]), in_lanes(W, self.F.shape[-1])
        observed = replace(self.observed, seen=W)
        return passes(self.F, self.Q, self.P0, torch.ones_like(W), b, observed)

    def means(self, filtered: Forward, back: Backward) -> tuple[Tensor, Tensor]:
        """Return K^-1 times the mean of f given all rows, and that mean, [n]."""
        each = zip(self.observed.rows(), filtered.m, filtered.k, back.r, strict=False)
        means = [H.of(m) + (k * r).sum(0) for H, m, k, r in each]
        return in_rows(in_steps(back.u), self.n), in_rows(in_steps(means), self.n)


@dataclass(frozen=True)
class MarkovConditioned:
    """h given Gaussian rows; see ``latent_mode.Conditioned``.

    Attributes:
        prior: The distribution of h.
        W: The precision of each row, [n].
        filtered: The filter over the rows.
        back: The run back over them.
        a: [n].
        h: [n].
    """

    prior: MarkovPrior
    W: Tensor
    filtered: Forward
    back: Backward
    a: Tensor
    h: Tensor

    def _rows(self, values: list[Tensor]) -> Tensor:
        return in_rows(in_steps(values), self.prior.n)

    def half_log_det(self) -> Tensor:
        """Return log|I + K W| / 2; NaN where the determinant is not positive."""
        S = in_steps(self.filtered.S)
        positive = bool(S.sign().prod() > 0)
        total = 0.5 * S.abs().log().sum()
        return total if positive else total * math.nan

    def variance(self) -> Tensor:
        """Return the variance of each h_i, [n].

        It is a difference from the variance given the rows before, or from that of the row itself,
        1 / W, whichever is less.
        """
        k, N = self.filtered.k, self.back.N
        rows = self.prior.observed.rows()
        before = self._rows([H.of(k_t) for H, k_t in zip(rows, k, strict=False)])
        told = self._rows([_square(N_t, k_t) for N_t, k_t in zip(N, k, strict=True)])
        precise = self.W * before > 1
        W = torch.where(precise, self.W, torch.ones_like(self.W))
        by_row = (1 - self._rows(self.back.d) / W) / W
        return torch.where(precise, by_row, before - told)

    def slopes(self, u: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """Return c and K c, and the slopes in F, Q and P0, those of Koopman & Shephard (1992).

        That part of a slope which is a square of b is (b + u)^2 - u^2 here.
        """
        prior = self.prior
        filtered, back = prior.passes(self.W, u)
        r, r_u, N = in_steps(self.back.r), in_steps(back.r), in_steps(self.back.N)
        before, before_u = in_steps(self.filtered.before), in_steps(filtered.before)
        rr_N = _product(r, r_u) - N
        blocks = prior.observed.blocks
        by_F = blocks_of_product(rr_N, in_steps(self.filtered.F_P), blocks)
        of_means = outer(r + r_u, before) + outer(r, before_u)
        by_F = by_F + _kept(of_means, blocks)
        (r0, N0), (r0_u, _) = self.back.start, back.start
        by_P0 = 0.5 * (_product(r0, r0_u) - N0)[..., 0]
        return *prior.means(filtered, back), (by_F, 0.5 * rr_N, by_P0)


def _square(N: Tensor, k: Tensor) -> Tensor:
    """Return k'N k."""
    return ((N * k).sum(1) * k).sum(0)


def _product(r: Tensor, u: Tensor) -> Tensor:
    """Return (r + u)(r + u)' - u u'."""
    cross = outer(r, u)
    return outer(r, r) + cross + cross.transpose(0, 1)


def _kept(M: Tensor, blocks: tuple[int, ...]) -> Tensor:
    """Return the diagonal blocks of M, and 0 elsewhere."""
    eye = torch.block_diag(*(torch.ones(size, size) for size in blocks)).to(M)
    return M * eye.reshape(*eye.shape, *(1,) * (M.ndim - 2))
