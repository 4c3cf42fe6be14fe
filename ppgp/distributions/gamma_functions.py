"""The log gamma function without its leading terms, and the incomplete gamma function.

Differences of the log gamma function and its derivatives at large arguments keep their digits if
the leading terms, which cancel, are subtracted by hand. DLMF 5.11.1 and 5.11.2. The incomplete
gamma functions of torch have no gradient by the parameter. Five-point differences of them are exact
to about 1e-11.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

import numpy as np
import scipy
import torch
from scipy import special
from torch import Tensor

Array = TypeVar("Array", Tensor, np.ndarray)

LARGE = 12.0  # from here on six terms of the series are exact to rounding
HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
#: B_2k / (2k (2k - 1)), k = 1, 2, ...: the coefficients of x^(1 - 2k)
TERMS = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)
SMALL = 0.3  # below it log(1 + d) - d is summed
ATANH = tuple(1 / (2 * k + 3) for k in range(12))
STEP = 2e-3  # of differences: of log shapes, and of a parameter relative to its scale
LOWEST, HIGHEST, SPACING = -8.0, 16.0, 0.02  # log shapes of the table of the CRPS metric
TAIL = 1e-18
#: limits of the columns of the table at small shapes a: log entries less log a, and correlation,
#: to which ``gamma_crps_metric`` goes from the ends of the table
SMALL_SHAPES = np.array([0.0, 0.0, 2 * math.log(2) - 1])
LEAST_LOG = -45.0  # log z below which z^(2 a + 1) is negligible


def log_gamma_rest(x: Tensor) -> Tensor:
    """Return log Gamma(x) - ((x - 1/2) log x - x + log(2 pi) / 2), for x > 0."""
    low, inverse = x.clamp_max(LARGE), 1 / x.clamp_min(LARGE)
    direct = torch.lgamma(low) - ((low - 0.5) * low.log() - low + HALF_LOG_2PI)
    series = inverse * polynomial(TERMS, inverse.square())
    return torch.where(x < LARGE, direct, series)


def digamma_rest(x: Tensor) -> Tensor:
    """Return digamma(x) - (log x - 1 / (2 x)), for x > 0."""
    low, square = x.clamp_max(LARGE), x.clamp_min(LARGE) ** -2
    direct = torch.digamma(low) - low.log() + 0.5 / low
    terms = [(1 - 2 * k) * c for k, c in enumerate(TERMS, 1)]
    return torch.where(x < LARGE, direct, square * polynomial(terms, square))


def trigamma_rest(x: Tensor) -> Tensor:
    """Return trigamma(x) - (1 / x + 1 / (2 x^2)), for x > 0."""
    low, inverse = x.clamp_max(LARGE), 1 / x.clamp_min(LARGE)
    # the zeta function of Hurwitz: torch's trigamma has a relative error of 1e-9
    direct = torch.special.zeta(2.0, low) - 1 / low - 0.5 / low.square()
    terms = [2 * k * (2 * k - 1) * c for k, c in enumerate(TERMS, 1)]
    series = inverse**3 * polynomial(terms, inverse.square())
    return torch.where(x < LARGE, direct, series)


def digamma_gap(x: Tensor) -> Tensor:
    """Return digamma(x) - log x, for x > 0."""
    return digamma_rest(x) - 0.5 / x


def trigamma_gap(x: Tensor) -> Tensor:
    """Return trigamma(x) - 1 / x, for x > 0."""
    return trigamma_rest(x) + 0.5 / x.square()


def scaled_digamma_gap(x: Tensor) -> Tensor:
    """Return x (digamma(x) - log x), for x >= 0, where it is -1."""
    low, high = x.clamp_max(LARGE), x.clamp_min(LARGE)
    positive = low.clamp_min(torch.finfo(x.dtype).tiny)
    direct = low * (torch.digamma(1 + low) - positive.log()) - 1
    return torch.where(x < LARGE, direct, high * digamma_rest(high) - 0.5)


def scaled_trigamma_gap(x: Tensor) -> Tensor:
    """Return x^2 (trigamma(x) - 1 / x), for x >= 0, where it is 1."""
    low, high = x.clamp_max(LARGE), x.clamp_min(LARGE)
    direct = 1 - low + low.square() * torch.special.zeta(2.0, 1 + low)
    return torch.where(x < LARGE, direct, high.square() * trigamma_rest(high) + 0.5)


def log_rising(t: Tensor, y: Tensor) -> Tensor:
    """Return log(Gamma(t + y) / Gamma(t)) - y log t, which is 0 in the limit of large t."""
    rest = log_gamma_rest(t + y) - log_gamma_rest(t)
    return (t + y - 0.5) * torch.log1p(y / t) - y + rest


def log1p_excess(d: Tensor, log1p: Tensor) -> Tensor:
    """Return log(1 + d) - d.

    Args:
        d: Numbers above -1.
        log1p: The value of log(1 + d), which is used where d is not small.
    """
    near = torch.where(d.abs() < SMALL, d, torch.zeros_like(d))
    r = near / (2 + near)  # log(1 + d) = 2 atanh(r)
    series = 2 * r**3 * polynomial(ATANH, r.square()) - r * near
    return torch.where(d.abs() < SMALL, series, log1p - d)


def polynomial(coefficients: tuple[float, ...] | list[float], x: Tensor) -> Tensor:
    """Return c_0 + c_1 x + c_2 x^2 + ..."""
    value = torch.full_like(x, coefficients[-1])
    for c in coefficients[-2::-1]:
        value = value * x + c
    return value


def five_points(of: Callable[[Array], Array], at: Array, step: Array | float) -> Array:
    """Return the derivative of a smooth function at a point, with error of order step^4.

    Args:
        of: The function, of each element of a tensor or array.
        at: Points, of any shape.
        step: A step for each point, or one for all.
    """
    near = of(at + step) - of(at - step)
    far = of(at + 2 * step) - of(at - 2 * step)
    return (8 * near - far) / (12 * step)


def lower_by_parameter(b: Tensor, u: Tensor) -> Tensor:
    """Return d/db of the integral of t^(b - 1) e^-t over t from 0 to u."""
    step = STEP * torch.minimum(b, b.sqrt())
    by_b = five_points(lambda c: torch.special.gammainc(c, u), b, step)
    share = torch.special.gammainc(b, u)
    return torch.lgamma(b).exp() * (by_b + torch.digamma(b) * share)


@lru_cache(maxsize=1)
def _crps_metric() -> scipy.interpolate.CubicSpline:
    """Return the CRPS metric of the gamma law of mean 1, as a function of log shape.

    The columns are the log of the entry (log mean, log mean), the log of (log shape, log shape),
    and the correlation of the two.
    """
    log_a = np.arange(LOWEST, HIGHEST + SPACING, SPACING)
    a = np.exp(log_a)
    low = np.maximum(np.log(special.gammaincinv(a, TAIL) / a + 1e-300), LEAST_LOG)
    high = np.log(special.gammainccinv(a, TAIL) / a)
    log_z = low + (high - low) * np.linspace(0, 1, 801)[:, None]
    z, width = np.exp(log_z), (high - low) / 800

    def cdf(log_shape: np.ndarray) -> np.ndarray:
        shape = np.exp(log_shape)
        return special.gammainc(shape, shape * z)

    by_shape = five_points(cdf, log_a, STEP)
    log_density = a * log_a + (a - 1) * log_z - a * z - special.gammaln(a)
    by_mean = -z * np.exp(log_density)
    entries = [
        2 * (first * second * z).sum(0) * width
        for first, second in ((by_mean, by_mean), (by_shape, by_shape), (by_mean, by_shape))
    ]
    correlation = entries[2] / np.sqrt(entries[0] * entries[1])
    columns = np.stack([np.log(entries[0]), np.log(entries[1]), correlation], -1)
    return scipy.interpolate.CubicSpline(log_a, columns)


def gamma_crps_metric(shape: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return 2 integral (dF/df_i)(dF/df_j) dz of the gamma law of mean 1.

    Args:
        shape: The shapes, of any number of axes.

    Returns:
        The entries of (log mean, log mean), (log shape, log shape) and (log mean, log shape). They
        are interpolated in a table with a relative error below 1e-7 for shapes from e^-8 to e^16.
        Beyond it they approach their limits, with a relative error below 1e-6 for large shapes and
        1e-3 for small ones.
    """
    log_shape = np.log(shape.detach().double().cpu().numpy())
    table = _crps_metric()(np.clip(log_shape, LOWEST, HIGHEST))
    # At large shapes a the law tends to the normal of sd a^(-1/2). The entries of log mean and log
    # shape are then proportional to a^(1/2) and a^(-1/2), and their correlation too to a^(-1/2).
    above = np.maximum(log_shape - HIGHEST, 0.0)[..., None]
    table = table * np.exp(above * (0.0, 0.0, -0.5)) + above * (0.5, -0.5, 0.0)
    small = log_shape[..., None] < LOWEST
    share = np.exp(np.minimum(log_shape - LOWEST, 0.0))[..., None]
    limit = log_shape[..., None] * (1.0, 1.0, 0.0) + SMALL_SHAPES
    gap = table - LOWEST * np.array([1.0, 1.0, 0.0]) - SMALL_SHAPES
    table = np.where(small, limit + share * gap, table)
    log_mean, log_shapes, correlation = (torch.as_tensor(table[..., i]).to(shape) for i in range(3))
    both = correlation * torch.exp(0.5 * (log_mean + log_shapes))
    return log_mean.exp(), log_shapes.exp(), both


def reciprocal_beta(a: Tensor) -> Tensor:
    """Return 1 / (a B(1 / 2, a))."""
    return torch.exp(torch.lgamma(a + 0.5) - torch.lgamma(a) - 0.5 * math.log(math.pi)) / a
