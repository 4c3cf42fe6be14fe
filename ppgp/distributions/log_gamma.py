"""The log gamma function and its derivatives without their leading terms.

Differences of these functions at large arguments keep their digits if the leading terms, which
cancel, are subtracted by hand. DLMF 5.11.1 and 5.11.2.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

LARGE = 12.0  # from here on six terms of the series are exact to rounding
HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
#: B_2k / (2k (2k - 1)), k = 1, 2, ...: the coefficients of x^(1 - 2k)
TERMS = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)
SMALL = 0.3  # below it log(1 + d) - d is summed
ATANH = tuple(1 / (2 * k + 3) for k in range(12))


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
