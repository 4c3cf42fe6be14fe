"""The distribution of a Student-t plus a Gaussian variable, by quadrature.

y = f + scale t, where f ~ N(mean, variance) and t has Student's distribution with df degrees of
freedom. Either width may be any multiple of the other. The average of the log density of y given f
is here too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import StudentT, constraints

from ..numerics.cholesky import LOG_2PI
from ..numerics.shapes import broadcast_shapes

__all__ = ["StudentTPlusNormal", "expected_log_density"]

NODES = 64
DEPTH = 34.0  # nats below the peak at which an integrand is negligible
NEWTON = 12  # Newton steps to the roots of a cubic, which need not be exact
TAIL = 0.02  # probabilities below it are integrated with nodes placed for the value


# -- E log p(y given f)
# ------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _decades() -> tuple[np.ndarray, np.ndarray]:
    """Return nodes t and weights of the integral over log t in ``expected_log_density``.

    Nodes are closer where all integrands change, and wider where they decay like t^2 (left) and
    t^-1/2 (right).
    """
    u = np.linspace(-1.8588, 4.8123, NODES)  # log t from -9 to 50
    log_t = 0.5 * np.sinh(u) + 4.0 * u
    return np.exp(log_t), (u[1] - u[0]) * (0.5 * np.cosh(u) + 4.0)


def expected_log_density(
    df: Tensor, scale: Tensor, mean: Tensor, variance: Tensor, y: Tensor
) -> Tensor:
    """Compute E log p(y given f), row by row, to 1e-8 (df + 1) for any ratio of the widths.

    With a = df scale^2 and c = a + E z^2 for the residual z = y - f,

        E log(a + z^2) = log c - integral of (E exp(-(a + z^2) t / c) - exp(-t)) dt / t

    (Frullani). The mean of the exponential has a closed form, and the three shares of c sum to 1.
    One rule in log t, the same for all rows, is therefore accurate both for the spike of log(a +
    z^2) at f = y and for the Gaussian.

    Args:
        df: The degrees of freedom.
        scale: The scale of the Student-t variable.
        mean: The mean of f.
        variance: The variance of f.
        y: The value.
    """
    square, a = (y - mean).square(), df * scale.square()
    size = a + variance + square
    noise, spread, distance = a / size, variance / size, square / size
    column = (-1,) + (1,) * size.ndim
    t, weight = (torch.as_tensor(x).to(size).reshape(column) for x in _decades())
    shrunk = 1 / (1 + 2 * spread * t)
    inside = shrunk.sqrt() * torch.exp(-t * (noise + distance * shrunk)) - torch.exp(-t)
    gap = (weight * inside).sum(0)  # log E - E log, by Jensen's inequality not below 0
    half = 0.5 * (df + 1)
    normaliser = torch.lgamma(half) - torch.lgamma(0.5 * df) - 0.5 * (math.pi * a).log()
    return normaliser - half * (torch.log1p((variance + square) / a) - gap)


# -- log E p(y given f)
# ------------------------------------------------------------------------------------------


def _peaks(df: Tensor, square: Tensor, variance: Tensor, scale2: Tensor) -> tuple[Tensor, Tensor]:
    """Return the log precisions at the one or two modes of f given y.

    At the first mode the Student-t variable explains the residual, at the second f does. The
    residual z = r y of a mode solves r^3 - r^2 + b r - c = 0 on [0, 1]. Newton's method from either
    end converges monotonically to the nearest of three roots, or to a single one on its side of
    1/3.
    """
    size = torch.maximum(square, 1e-8 * (df * scale2 + variance))
    b, c = (df * scale2 + (df + 1) * variance) / size, df * scale2 / size

    def cubic(r: Tensor) -> Tensor:
        return ((r - 1) * r + b) * r - c

    turn = (1 - 3 * b).clamp_min(0.0).sqrt()
    three = (b < 1 / 3) & (cubic((1 - turn) / 3) >= 0) & (cubic((1 + turn) / 3) <= 0)
    ends = torch.stack([torch.zeros_like(b), torch.ones_like(b)])
    for _ in range(NEWTON):
        ends = (ends - cubic(ends) / ((3 * ends - 2) * ends + b)).clamp(0.0, 1.0)
    low, high = ends
    only = torch.where(cubic(torch.full_like(b, 1 / 3)) > 0, low, high)
    roots = torch.where(three, high, only), torch.where(three, low, only)
    t_explains, f_explains = (
        torch.log((df + 1) / (df + r.square() * size / scale2)) for r in roots
    )
    return t_explains, f_explains


def _nodes(df: Tensor, square: Tensor, variance: Tensor, scale2: Tensor) -> tuple[Tensor, Tensor]:
    """Return the log precisions and weights, [*batch, NODES] each, for one value of y.

    The nodes are centre + sinh u (width^2 + (apart / cosh u)^2)^1/2 at equal steps of u. They are
    dense around centre - apart and centre + apart, the two peaks, and sparser beyond.
    """
    low, high = _peaks(df, square, variance, scale2)
    width = (2 / (df + 1)).sqrt()
    centre, apart = 0.5 * (low + high), 0.5 * (high - low)
    last = torch.minimum((4 * DEPTH / df).sqrt(), torch.log(2 + 4 * DEPTH / df))
    left = torch.asinh((centre - low + 2 * DEPTH / df) / width + 9)
    right = torch.asinh((last - centre).clamp_min(0.0) / width + 1)
    share = torch.linspace(0, 1, NODES, dtype=df.dtype, device=df.device)
    u = (left + right)[..., None] * share - left[..., None]
    square_of_width, apart = width.square()[..., None], apart[..., None]
    growth = u.exp()
    cosh, sinh = 0.5 * (growth + 1 / growth), 0.5 * (growth - 1 / growth)
    part = (apart / cosh).square()
    radius = (square_of_width + part).sqrt()
    slope = (square_of_width * cosh.square() + part) / (cosh * radius)
    return centre[..., None] + sinh * radius, slope * ((left + right) / (NODES - 1))[..., None]


def _same_nodes(df: Tensor) -> tuple[Tensor, Tensor]:
    """Return log precisions and weights, [*batch, NODES] each; the weights have sum 1.

    The nodes cover the distribution of the precision itself.
    """
    width = 3 * (2 / (df + 1)).sqrt()
    last = torch.minimum((4 * DEPTH / df).sqrt(), torch.log(2 + 4 * DEPTH / df))
    left, right = torch.asinh(2 * DEPTH / df / width + 3), torch.asinh(last / width + 0.5)
    share = torch.linspace(0, 1, NODES, dtype=df.dtype, device=df.device)
    u = (left + right)[..., None] * share - left[..., None]
    x = width[..., None] * u.sinh()
    weight = torch.exp(_log_gamma(df[..., None], x, x.exp())) * u.cosh()
    return x, weight / weight.sum(-1, keepdim=True)


def _log_gamma(df: Tensor, x: Tensor, precision: Tensor) -> Tensor:
    """Return the log density of x = log(precision), where the precision is Gamma(df / 2, df / 2).

    df and x broadcast.
    """
    half = 0.5 * df
    return half * (x - (precision - 1)) + (half * (half.log() - 1) - torch.lgamma(half))


class StudentTPlusNormal(dist.TorchDistribution):
    """The distribution of y = f + scale t with f ~ N(loc, spread^2).

    Density and both tails are accurate to 1e-6 of their logarithm, for any df and ratio of widths.
    t is normal given a precision of Gamma(df / 2, df / 2), so that y is normal given the precision.
    The integral over the log of the precision uses nodes around the values at which t and at which
    f explains y.

    Args:
        df: [*batch], the degrees of freedom of t.
        loc: [*batch], the mean of f.
        scale: [*batch], the scale of t.
        spread: [*batch], the standard deviation of f, which may be 0.
        validate_args: Whether to check arguments, as in torch.
    """

    arg_constraints: Any = {
        "df": constraints.positive,
        "loc": constraints.real,
        "scale": constraints.positive,
        "spread": constraints.nonnegative,
    }
    support: Any = constraints.real

    def __init__(
        self,
        df: Tensor,
        loc: Tensor,
        scale: Tensor,
        spread: Tensor,
        validate_args: bool | None = None,
    ) -> None:
        self.df, self.loc, self.scale, self.spread = torch.broadcast_tensors(df, loc, scale, spread)
        super().__init__(self.loc.shape, torch.Size(), validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> StudentTPlusNormal:
        shape = torch.Size(batch_shape)
        df, loc, scale, spread = (
            x.expand(shape) for x in (self.df, self.loc, self.scale, self.spread)
        )
        return StudentTPlusNormal(df, loc, scale, spread, validate_args=False)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        own = self.scale.square() * torch.where(self.df > 2, self.df / (self.df - 2), torch.inf)
        return self.spread.square() + own

    def _at(self, value: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return df, (value - loc)^2, spread^2 and scale^2, broadcast."""
        parts = self.df, (value - self.loc).square(), self.spread.square(), self.scale.square()
        df, square, variance, scale2 = torch.broadcast_tensors(*parts)
        return df, square, variance, scale2

    def log_prob(self, value: Tensor) -> Tensor:
        parts = self._at(value)
        with torch.no_grad():  # the integral does not depend on where the nodes are
            x, weight = _nodes(*parts)
            precision = x.exp()
        df, square, variance, scale2 = (part[..., None] for part in parts)
        size = variance * precision + scale2  # the variance of y times the precision
        inside = 0.5 * ((df + 1) * x - df * (precision - 1) - square * precision / size)
        top = inside.detach().amax(-1, keepdim=True)
        total = (weight * size.rsqrt() * torch.exp(inside - top)).sum(-1)
        half = 0.5 * parts[0]
        normaliser = half * (half.log() - 1) - torch.lgamma(half) - 0.5 * LOG_2PI
        return total.log() + top[..., 0] + normaliser

    def cdf(self, value: Tensor) -> Tensor:
        """Return P(Y <= value).

        The nodes are the same for all values of one df, except in the tails, where they are placed
        for each value.
        """
        with torch.no_grad():
            value = value.expand(broadcast_shapes(value.shape, self.batch_shape))
            constant = self.df.ndim > 0 and self.df.stride(-1) == 0
            df = self.df[..., :1] if constant else self.df
            x, weight = _same_nodes(df)
            longest = torch.exp(-x).clamp_max(torch.finfo(x.dtype).max ** 0.5)
            sd = (self.spread.square()[..., None] + self.scale.square()[..., None] * longest).sqrt()
            z = (value - self.loc)[..., None] / sd
            p = (weight * torch.special.ndtr(z)).sum(-1).clamp(0.0, 1.0)
            p = torch.where(torch.isposinf(value), torch.ones_like(p), p)
            far = ((p < TAIL) | (p > 1 - TAIL)) & torch.isfinite(value)
            if not bool(far.any()):
                return p
            tail = self._log_tail(value, far).exp()
            p[far] = torch.where(value[far] < self.loc.expand_as(value)[far], tail, 1 - tail)
            return p

    def log_cdf(self, value: Tensor) -> Tensor:
        """Return log P(Y <= value), as accurate far in the lower tail as elsewhere."""
        below = value < self.loc
        tail = self._log_tail(value, torch.ones_like(below))
        tail = tail.reshape(below.shape)
        return torch.where(below, tail, torch.log1p(-tail.exp()))

    def _log_tail(self, value: Tensor, where: Tensor) -> Tensor:
        """Return log(P(|Y - loc| >= |value - loc|) / 2) of the entries ``where``, flat."""
        parts = [part[where] for part in self._at(value)]
        x, weight = _nodes(*parts)
        df, square, variance, scale2 = (part[..., None] for part in parts)
        z = square.sqrt() / (variance + scale2 * torch.exp(-x)).sqrt()
        inside = _log_gamma(df, x, x.exp()) + torch.special.log_ndtr(-z) + weight.log()
        return torch.logsumexp(inside, -1)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with torch.no_grad():
            shape = torch.Size(sample_shape)
            t = StudentT(self.df, validate_args=False).sample(shape)
            e = torch.randn(shape + self.batch_shape, dtype=self.loc.dtype, device=self.loc.device)
            return self.loc + self.scale * t + self.spread * e
