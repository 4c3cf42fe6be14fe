"""Log probabilities log P(Y <= x) and log P(Y > x) of one-dimensional distributions.

Each is computed on its own, since 1 minus the other would lose digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy import special
from torch import Tensor
from torch.distributions import Distribution

from ..errors import NotApplicable
from ..numerics.shapes import broadcast_shapes

LEAST = 1e-280  # SciPy's probabilities lose digits or vanish below it, and series are used instead
SMALL_HAZARD = -30.0  # log of the hazards h whose 1 - exp(-h) is h - h^2 / 2 to rounding
TERMS = 10_000
NEGLIGIBLE = 1e-30
ROUNDING = 4.5e-16  # change by one factor of a continued fraction, which no longer counts

Pair = tuple[Tensor, Tensor]


def log_tails(d: Distribution, x: Tensor) -> Pair:
    """Return (log P(component <= x), log P(component > x)), broadcast over the batch of ``d``.

    They use closed forms, or SciPy's incomplete gamma and beta functions, with series for the
    logarithms where these underflow.

    Raises:
        NotApplicable: If the distribution has no cdf.
    """
    form = next((FORMS[c.__name__] for c in type(d).__mro__ if c.__name__ in FORMS), None)
    lower, upper, inside = _support(d, x)
    below, above = (form or _from_cdf)(d, inside)
    return _outside(below, x, lower, upper, False), _outside(above, x, lower, upper, True)


def log_tail(d: Distribution, x: Tensor, right: bool) -> Tensor:
    """Return one of ``log_tails``, to the last digit, without the other where that saves work.

    Args:
        d: The distribution.
        x: The values.
        right: Whether to return log P(component > x) in place of log P(component <= x).

    Raises:
        NotApplicable: If the distribution has no cdf.
    """
    form = next((SCORES[c.__name__] for c in type(d).__mro__ if c.__name__ in SCORES), None)
    if form is None:
        return log_tails(d, x)[int(right)]
    lower, upper, inside = _support(d, x)
    z = form(d, inside)
    if right:
        z = -z
    return _outside(torch.special.log_ndtr(z), x, lower, upper, right)


def _support(d: Any, x: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor]:
    """Return the ends of the support, None where there is none, and x moved into the support."""
    lower = getattr(d.support, "lower_bound", None)
    upper = getattr(d.support, "upper_bound", None)
    inside = x
    if lower is not None:
        lower = torch.as_tensor(lower).to(x)
        inside = torch.maximum(inside, lower + torch.finfo(x.dtype).tiny)
    if upper is not None:
        upper = torch.as_tensor(upper).to(x)
        inside = torch.minimum(inside, upper)
    return lower, upper, inside


def _outside(
    tail: Tensor, x: Tensor, lower: Tensor | None, upper: Tensor | None, right: bool
) -> Tensor:
    """Return the log probability ``tail``, corrected at and beyond the ends of the support."""
    at_lower, at_upper = torch.full_like(tail, -torch.inf), torch.zeros_like(tail)
    if right:
        at_lower, at_upper = at_upper, at_lower
    if lower is not None:
        tail = torch.where(x <= lower, at_lower, tail)
    if upper is not None:
        tail = torch.where(x >= upper, at_upper, tail)
    return tail


def has_tails(d: Distribution) -> bool:
    """Return whether ``log_tails`` has a form for the distribution."""
    return any(c.__name__ in FORMS for c in type(d).__mro__)


def _from_cdf(d: Distribution, x: Tensor) -> Pair:
    """Return both log probabilities from the distribution's own cdf."""
    try:
        p = d.cdf(x)
    except NotImplementedError:
        raise NotApplicable(
            "a predictive distribution with a cdf",
            type(d).__name__,
            "use log_prob and sample, or a distribution with a cdf in torch or SciPy",
        ) from None
    return p.log(), torch.log1p(-p)


def log1mexp(a: Tensor) -> Tensor:
    """Return log(1 - exp(a)) for a <= 0. Maechler (2012)."""
    small = a > -math.log(2)
    near = torch.log(-torch.expm1(torch.where(small, a, torch.full_like(a, -1.0))))
    far = torch.log1p(-torch.exp(torch.where(small, torch.full_like(a, -1.0), a)))
    return torch.where(small, near, far)


def _pair(lower: Tensor, upper: Tensor) -> Pair:
    """Return the logs of two probabilities with sum 1, each from the smaller of the two."""
    below = torch.where(lower < 0.5, lower.log(), torch.log1p(-upper))
    above = torch.where(upper < 0.5, upper.log(), torch.log1p(-lower))
    return below, above


def _survival(log_survival: Tensor) -> Pair:
    """Return both log probabilities from the log of a survival function."""
    return log1mexp(log_survival), log_survival


def _gaussian(z: Tensor) -> Pair:
    return torch.special.log_ndtr(z), torch.special.log_ndtr(-z)


def _half_normal(d: Any, x: Tensor) -> Pair:
    z = x / (d.scale * math.sqrt(2))
    below = _pair(torch.erf(z), torch.erfc(z))[0]
    return below, math.log(2) + torch.special.log_ndtr(-x / d.scale)


def _laplace(d: Any, x: Tensor) -> Pair:
    z = (x - d.loc) / d.scale
    near = math.log(0.5) - z.abs()
    far = torch.log1p(-0.5 * torch.exp(-z.abs()))
    return torch.where(z < 0, near, far), torch.where(z < 0, far, near)


def _angle(z: Tensor) -> Tensor:
    """Return P(Z > z) of a Cauchy variable, as the angle from z to infinity."""
    return torch.atan2(torch.ones_like(z), z) / math.pi


def _cauchy(d: Any, x: Tensor) -> Pair:
    z = (x - d.loc) / d.scale
    return _pair(_angle(-z), _angle(z))


def _half_cauchy(d: Any, x: Tensor) -> Pair:
    z = x / d.scale
    return _pair(torch.atan(z) * (2 / math.pi), 2 * _angle(z))


def _logistic(d: Any, x: Tensor) -> Pair:
    z = (x - d.loc) / d.scale
    return torch.nn.functional.logsigmoid(z), torch.nn.functional.logsigmoid(-z)


def _soft_laplace(d: Any, x: Tensor) -> Pair:
    """Return both log probabilities, from P(Z > z) = (2 / pi) atan(exp(-z))."""
    z = (x - d.loc) / d.scale
    below, above = _pair(*(torch.atan(torch.exp(t)) * (2 / math.pi) for t in (z, -z)))
    far = z.abs() > 30  # where atan(exp(t)) equals exp(t) to the last digit
    line = math.log(2 / math.pi) - z.abs()
    return torch.where(far & (z < 0), line, below), torch.where(far & (z > 0), line, above)


def _asymmetric_laplace(d: Any, x: Tensor) -> Pair:
    z = x - d.loc
    left, right = d.left_scale, d.right_scale
    total = left + right
    lower = (left / total).log() + z / left
    upper = (right / total).log() - z / right
    below = torch.where(z < 0, lower, log1mexp(torch.minimum(upper, torch.zeros_like(upper))))
    above = torch.where(z < 0, log1mexp(torch.minimum(lower, torch.zeros_like(lower))), upper)
    return below, above


def _gumbel(d: Any, x: Tensor) -> Pair:
    log_hazard = -(x - d.loc) / d.scale
    return -log_hazard.exp(), _log_complement(log_hazard)


def _weibull(d: Any, x: Tensor) -> Pair:
    log_hazard = d.concentration * (x / d.scale).log()
    return _log_complement(log_hazard), -log_hazard.exp()


def _log_complement(log_hazard: Tensor) -> Tensor:
    """Return log(1 - exp(-h)) for log h, also where h is below the smallest number."""
    small = log_hazard < SMALL_HAZARD
    series = log_hazard - 0.5 * log_hazard.exp()
    return torch.where(small, series, log1mexp(-log_hazard.clamp_min(SMALL_HAZARD).exp()))


def _uniform(d: Any, x: Tensor) -> Pair:
    width = d.high - d.low
    return _pair((x - d.low) / width, (d.high - x) / width)


def _mixture(d: Any, x: Tensor) -> Pair:
    z = (x[..., None] - d.loc) / d.scale
    weight = d.proportion.log()
    below, above = (torch.logsumexp(weight + tail, -1) for tail in _gaussian(z))
    return below.clamp_max(0.0), above.clamp_max(0.0)


def _student_plus_normal(d: Any, x: Tensor) -> Pair:
    loc = d.loc.expand(broadcast_shapes(x.shape, d.loc.shape))
    left = x < loc
    near = d.log_cdf(torch.where(left, x, 2 * loc - x))  # the distribution is symmetric
    far = log1mexp(near.clamp_max(0.0))
    return torch.where(left, near, far), torch.where(left, far, near)


# -- through SciPy, in double precision
# --------------------------------------------------------------------------------


def _numpy(
    function: Callable[..., tuple[np.ndarray, np.ndarray]], x: Tensor, *parameters: Tensor
) -> Pair:
    """Return both log probabilities from a function of arrays in double precision."""
    values = torch.broadcast_tensors(x, *parameters)
    arrays = [v.detach().double().cpu().numpy() for v in values]
    with np.errstate(all="ignore"):
        below, above = function(*arrays)
    return torch.as_tensor(below).to(x), torch.as_tensor(above).to(x)


def _logs(lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the same as ``_pair``, for arrays of NumPy."""
    below = np.where(lower < 0.5, np.log(lower), np.log1p(-upper))
    above = np.where(upper < 0.5, np.log(upper), np.log1p(-lower))
    return below, above


def _student(z: np.ndarray, df: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    lower, upper = special.stdtr(df, -np.abs(z)), special.stdtr(df, np.abs(z))
    cauchy = np.arctan2(1.0, np.abs(z)) / np.pi  # SciPy's has 8 digits there at df = 1
    near, far = _logs(np.where(df == 1, cauchy, lower), np.where(df == 1, 1 - cauchy, upper))
    tiny = np.isfinite(z) & (near < math.log(LEAST))
    if tiny.any():
        v, t = df[tiny], np.abs(z[tiny])
        log_ratio = 2 * (np.log(t) - 0.5 * np.log(v))  # of t^2 / df
        log_w, log_rest = -np.logaddexp(0, log_ratio), -np.logaddexp(0, -log_ratio)
        near[tiny] = math.log(0.5) + _log_beta_tail(0.5 * v, np.full_like(v, 0.5), log_w, log_rest)
    return np.where(z < 0, near, far), np.where(z < 0, far, near)


def _log_beta_tail(
    a: np.ndarray, b: np.ndarray, log_w: np.ndarray, log_rest: np.ndarray
) -> np.ndarray:
    """Return log I_w(a, b) for values close to 0.

    It uses the continued fraction of the incomplete beta function (DLMF 8.17.22).

    Args:
        a: The first parameter.
        b: The second parameter.
        log_w: Log w.
        log_rest: The value of log(1 - w).
    """
    w = np.exp(log_w)
    c, d = np.ones_like(w), 1 / (1 - (a + b) * w / (a + 1))
    h = d.copy()
    for m in range(1, TERMS):
        factors = (
            m * (b - m) * w / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * w / ((a + 2 * m) * (a + 2 * m + 1)),
        )
        for each in factors:
            d, c = 1 / (1 + each * d), 1 + each / c
            h = h * c * d
        if not np.any(np.abs(c * d - 1) >= ROUNDING):  # NaN ends too
            break
    return a * log_w + b * log_rest - np.log(a) - special.betaln(a, b) + np.log(h)


def _gamma(x: np.ndarray, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    below, above = _logs(special.gammainc(a, x), special.gammaincc(a, x))
    low = (x > 0) & (below < math.log(LEAST))
    if low.any():
        below[low] = _log_gamma_series(x[low], a[low])
    high = np.isfinite(x) & (above < math.log(LEAST))
    if high.any():
        above[high] = _log_gamma_fraction(x[high], a[high])
    return below, above


def _log_gamma_series(x: np.ndarray, a: np.ndarray) -> np.ndarray:
    """Return log P(a, x) by its power series (DLMF 8.7.1), for x well below a."""
    term, total = np.ones_like(x), np.ones_like(x)
    for k in range(1, TERMS):
        term = term * x / (a + k)
        total += term
        if not np.any(term >= 1e-17 * total):
            break
    return a * np.log(x) - x - special.gammaln(a + 1) + np.log(total)


def _log_gamma_fraction(x: np.ndarray, a: np.ndarray) -> np.ndarray:
    """Return log Q(a, x) by its continued fraction (DLMF 8.9.2), for x well above a."""
    b = x + 1 - a
    c, d = np.full_like(x, 1 / NEGLIGIBLE), 1 / b
    h = d.copy()
    for k in range(1, TERMS):
        each, b = -k * (k - a), b + 2
        d, c = 1 / (each * d + b), b + each / c
        h = h * c * d
        if not np.any(np.abs(c * d - 1) >= ROUNDING):  # NaN ends too
            break
    return a * np.log(x) - x - special.gammaln(a) + np.log(h)


def _beta(x: np.ndarray, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    below, above = _logs(special.betainc(a, b, x), special.betaincc(a, b, x))
    low = (x > 0) & (below < math.log(LEAST))
    if low.any():
        below[low] = _log_beta_tail(a[low], b[low], np.log(x[low]), np.log1p(-x[low]))
    high = (x < 1) & (above < math.log(LEAST))
    if high.any():
        above[high] = _log_beta_tail(b[high], a[high], np.log1p(-x[high]), np.log(x[high]))
    return below, above


def _inverse_gamma(d: Any, x: Tensor) -> Pair:
    below, above = _numpy(_gamma, d.rate / x, d.concentration)
    return above, below


#: changes of variable that make a distribution standard normal
SCORES: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "Normal": lambda d, x: (x - d.loc) / d.scale,
    "LogNormal": lambda d, x: (x.log() - d.loc) / d.scale,
}
FORMS: dict[str, Callable[[Any, Tensor], Pair]] = {
    "Normal": lambda d, x: _gaussian(SCORES["Normal"](d, x)),
    "LogNormal": lambda d, x: _gaussian(SCORES["LogNormal"](d, x)),
    "HalfNormal": _half_normal,
    "Laplace": _laplace,
    "AsymmetricLaplace": _asymmetric_laplace,
    "SoftLaplace": _soft_laplace,
    "Logistic": _logistic,
    "Cauchy": _cauchy,
    "HalfCauchy": _half_cauchy,
    "StudentT": lambda d, x: _numpy(_student, (x - d.loc) / d.scale, d.df),
    "Gumbel": _gumbel,
    "Exponential": lambda d, x: _survival(-d.rate * x),
    "Weibull": _weibull,
    "Pareto": lambda d, x: _survival(d.alpha * (d.scale.log() - x.log())),
    "Kumaraswamy": lambda d, x: _survival(d.concentration0 * torch.log1p(-(x**d.concentration1))),
    "Uniform": _uniform,
    "Gamma": lambda d, x: _numpy(_gamma, d.rate * x, d.concentration),
    "InverseGamma": _inverse_gamma,
    "Beta": lambda d, x: _numpy(_beta, x, d.concentration1, d.concentration0),
    "MeanBeta": lambda d, x: _numpy(_beta, x, d.concentration1, d.concentration0),
    "NormalMixture": _mixture,
    "StudentTPlusNormal": _student_plus_normal,
    "GammaTimesLogNormal": lambda d, x: d.log_tails(x),
}
