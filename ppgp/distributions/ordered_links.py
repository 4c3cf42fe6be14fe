"""Probabilities of ordered classes under three links, without cancellation in the tails.

z [..., K - 1, n] are the cutpoints minus f. Class k has the probability F(z_k) - F(z_(k - 1)), and
the first and last class F(z_0) and 1 - F(z_(K - 2)). McCullagh (1980).
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from ..numerics.cholesky import LOG_2PI
from .standard_normal import hazard_excess
from .tails import log1mexp

ROOT_2 = math.sqrt(2.0)
ROOT_HALF_PI = math.sqrt(0.5 * math.pi)
SMALL = 0.03  # below it the series of D / expm1(D) is used
LARGEST = 700.0  # the largest argument of expm1
LEAST = -20.0  # the log of d below which log(1 - exp(-d)) is log d - d / 2 to rounding
GREATEST = 7.0  # the log of d above which 1 - exp(-d) is 1
FARTHEST = 36.0  # the inverse of Mills' ratio underflows below minus this
NARROW = 0.5  # a class up to so wide, on the scale of the density too, is integrated by quadrature
NODES = (0.2386191860831969, 0.6612093864662645, 0.932469514203152)  # of Gauss-Legendre, positive
WEIGHTS = (0.467913934572691, 0.3607615730481386, 0.1713244923791704)


class Link:
    """A cdf F of cutpoints minus f."""

    name: ClassVar[str] = ""

    def log_masses(self, z: Tensor) -> Tensor:
        """Return the log probabilities of the classes, [..., K, n]."""
        first, last = self.log_cdf(z[..., :1, :]), self.log_survival(z[..., -1:, :])
        middle = self.log_between(z[..., :-1, :], z[..., 1:, :])
        return torch.cat([first, middle, last], -2)

    def slopes(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the first and second derivative of ``log_masses`` by f, [..., K, n] each."""
        raise NotImplementedError

    def log_cdf(self, z: Tensor) -> Tensor:
        raise NotImplementedError

    def log_survival(self, z: Tensor) -> Tensor:
        raise NotImplementedError

    def log_between(self, low: Tensor, high: Tensor) -> Tensor:
        """Return log(F(high) - F(low)), low < high."""
        raise NotImplementedError

    def log_pdf(self, z: Tensor) -> Tensor:
        """Return log F'(z)."""
        raise NotImplementedError

    def log_pdf_slope(self, z: Tensor) -> Tensor:
        """Return the derivative of ``log_pdf``."""
        raise NotImplementedError

    def quantile(self, p: Tensor) -> Tensor:
        """Return z with F(z) = p."""
        raise NotImplementedError


class Logit(Link):
    """F(z) = 1 / (1 + exp(-z))."""

    name = "logit"

    def log_cdf(self, z: Tensor) -> Tensor:
        return logsigmoid(z)

    def log_survival(self, z: Tensor) -> Tensor:
        return logsigmoid(-z)

    def log_between(self, low: Tensor, high: Tensor) -> Tensor:
        # sigmoid(b) - sigmoid(a) = sigmoid(b) sigmoid(-a) (1 - exp(a - b))
        return logsigmoid(high) + logsigmoid(-low) + log1mexp(low - high)

    def slopes(self, z: Tensor) -> tuple[Tensor, Tensor]:
        lower, upper = torch.sigmoid(z), torch.sigmoid(-z)
        none = torch.zeros_like(z[..., :1, :])
        width = lower * upper
        first = torch.cat([none, lower], -2) - torch.cat([upper, none], -2)
        return first, -torch.cat([none, width], -2) - torch.cat([width, none], -2)

    def log_pdf(self, z: Tensor) -> Tensor:
        return logsigmoid(z) + logsigmoid(-z)

    def log_pdf_slope(self, z: Tensor) -> Tensor:
        return -torch.tanh(0.5 * z)

    def quantile(self, p: Tensor) -> Tensor:
        return torch.logit(p)


class Cloglog(Link):
    """F(z) = 1 - exp(-exp(z))."""

    name = "cloglog"

    def log_cdf(self, z: Tensor) -> Tensor:
        return _log_of_step(z)

    def log_survival(self, z: Tensor) -> Tensor:
        return -z.exp()

    def log_between(self, low: Tensor, high: Tensor) -> Tensor:
        return _log_of_step(_log_step(low, high)) - low.exp()

    def slopes(self, z: Tensor) -> tuple[Tensor, Tensor]:
        rate = z.exp()
        none = torch.zeros_like(rate[..., :1, :])
        low = torch.cat([none, rate], -2)
        steps = _log_step(z[..., :-1, :], z[..., 1:, :]).exp()
        share, bend = _of_step(torch.cat([rate[..., :1, :], steps], -2))
        return low - torch.cat([share, none], -2), torch.cat([bend, none], -2) - low

    def log_pdf(self, z: Tensor) -> Tensor:
        return z - z.exp()

    def log_pdf_slope(self, z: Tensor) -> Tensor:
        return -torch.expm1(z)

    def quantile(self, p: Tensor) -> Tensor:
        return (-torch.log1p(-p)).log()


def _log_step(low: Tensor, high: Tensor) -> Tensor:
    """Return log(exp(high) - exp(low))."""
    return high + log1mexp(low - high)


def _log_of_step(log_d: Tensor) -> Tensor:
    """Return log(1 - exp(-d)), also where d underflows."""
    small = log_d < LEAST
    low = torch.where(small, log_d, LEAST)
    near = low - 0.5 * low.exp()
    return torch.where(small, near, log1mexp(-log_d.clamp(LEAST, GREATEST).exp()))


def _of_step(d: Tensor) -> tuple[Tensor, Tensor]:
    """Return g = d / expm1(d), and d times its derivative, g (1 - g - d)."""
    safe = d.clamp(SMALL, LARGEST)
    near = d.clamp_max(SMALL)
    square = near.square()
    loss = near * (0.5 - near * (1 / 12 - square * (1 / 720 - square / 30240)))  # 1 - g
    g = torch.where(d < SMALL, 1 - loss, safe / torch.expm1(safe))
    rest = torch.where(d < SMALL, loss - near, 1 - g - d.clamp_max(2 * LARGEST))
    return g, g * rest


class Probit(Link):
    """F is the standard normal cdf."""

    name = "probit"

    def log_cdf(self, z: Tensor) -> Tensor:
        low = z.clamp_max(0.0)
        tail = -0.5 * low.square() + torch.log(0.5 * torch.special.erfcx(-low / ROOT_2))
        return torch.where(z < 0, tail, torch.log1p(-0.5 * torch.erfc(z.clamp_min(0.0) / ROOT_2)))

    def log_survival(self, z: Tensor) -> Tensor:
        return self.log_cdf(-z)

    def log_between(self, low: Tensor, high: Tensor) -> Tensor:
        low, high = _mirrored(low, high)
        narrow, thin, _, _ = _narrow(low, high)
        high = torch.where(narrow, low + 1.0, high)
        a = low.clamp_min(0.0)  # both on the right: by Mills' ratio
        far = torch.log(_mills(a) - _shrink(a, high) * _mills(high))
        far = far - 0.5 * (a.square() + LOG_2PI)
        b = low.clamp_max(0.0)  # on both sides of 0
        inside = 0.5 * (torch.erf(high / ROOT_2) - torch.erf(b / ROOT_2))
        outside = 0.5 * (torch.erfc(high / ROOT_2) + torch.erfc(-b / ROOT_2))
        wide = inside > 0.5
        near = torch.where(
            wide,
            torch.log1p(-torch.where(wide, outside, torch.zeros_like(outside))),
            torch.where(wide, torch.ones_like(inside), inside).log(),
        )
        return torch.where(narrow, thin, torch.where(low > 0, far, near))

    def slopes(self, z: Tensor) -> tuple[Tensor, Tensor]:
        top, bottom = z[..., :1, :], z[..., -1:, :]
        below, above = 1 / _mills(-top), 1 / _mills(bottom)  # hazards of the end classes
        low, high = z[..., :-1, :], z[..., 1:, :]
        flipped = low + high < 0
        a, b = _mirrored(low, high)
        narrow, _, thin_first, thin_second = _narrow(a, b)
        b = torch.where(narrow, a + 1.0, b)
        # the densities at both ends relative to the probability between them
        at_a = 1 / (_mills(a) - _shrink(a, b) * _mills(b))
        at_b = at_a * _shrink(a, b)
        first = at_a - at_b
        second = torch.where(narrow, thin_second, at_a * (a - first) - at_b * (b - first))
        first = torch.where(narrow, thin_first, first)
        first = torch.where(flipped, -first, first)
        ends = (-below * hazard_excess(-top), -above * hazard_excess(bottom))
        return (
            torch.cat([-below, first, above], -2),
            torch.cat([ends[0], second, ends[1]], -2),
        )

    def log_pdf(self, z: Tensor) -> Tensor:
        return -0.5 * (z.square() + LOG_2PI)

    def log_pdf_slope(self, z: Tensor) -> Tensor:
        return -z

    def quantile(self, p: Tensor) -> Tensor:
        return torch.special.ndtri(p)


def cutpoint_slopes(link: Link, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the log probability of each row's class, and its derivatives by f and cutpoints.

    Args:
        link: The link.
        z: The cutpoints minus f, [K - 1, n].
        y: The classes, [n].

    Returns:
        The log probabilities [n], their gradients [K, n] and their Hessians [K, K, n]; f comes
        first, and the cutpoints follow.
    """
    code = y.long()[None]
    log_mass = link.log_masses(z).gather(0, code)[0]
    first, second = (one.gather(0, code)[0] for one in link.slopes(z))
    cutpoint = torch.arange(len(z), device=z.device)[:, None]
    # densities at the cutpoints relative to the probability, 0 for those of other classes
    share = torch.exp(link.log_pdf(z) - log_mass)
    none = torch.zeros_like(share)
    above, below = (
        torch.where(cutpoint == code, share, none),
        torch.where(cutpoint == code - 1, share, none),
    )
    by_cut = above - below
    own = by_cut * link.log_pdf_slope(z)
    H = -by_cut[:, None] * by_cut[None]
    H = H + torch.diag_embed(own.mT).movedim(0, -1)
    cross = -H.sum(1)
    gradient = torch.cat([first[None], by_cut])
    top = torch.cat([second[None], cross])
    return log_mass, gradient, torch.cat([top[None], torch.cat([cross[:, None], H], 1)])


def _mirrored(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Return the interval, or its mirror image, whose middle is not negative."""
    flipped = low + high < 0
    return torch.where(flipped, -high, low), torch.where(flipped, -low, high)


def _narrow(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return where an interval is narrow, its log probability, and the derivatives of that by f.

    Differences of the two ends lose digits there. With m the middle and s the distance from it,
    the probability is pdf(m) times the integral of exp(-m s - s^2 / 2), and the derivatives are
    m + E s and Var s - 1.
    """
    middle, width = 0.5 * (low + high), high - low
    narrow = (width < NARROW) & (width * middle.abs() < NARROW)
    m = torch.where(narrow, middle, torch.zeros_like(middle))
    w = torch.where(narrow, width, torch.ones_like(width))
    column = (-1,) + (1,) * m.ndim
    positive, each = m.new_tensor(NODES), 0.5 * m.new_tensor(WEIGHTS)
    s = 0.5 * w * torch.cat([-positive, positive]).reshape(column)
    density = torch.cat([each, each]).reshape(column) * torch.exp(-s * (m + 0.5 * s))
    total = density.sum(0)
    mean = (density * s).sum(0) / total
    spread = (density * (s - mean).square()).sum(0) / total
    value = w.log() + total.log() - 0.5 * (m.square() + LOG_2PI)
    return narrow, value, m + mean, spread - 1


def _mills(x: Tensor) -> Tensor:
    """Return P(Z > x) / pdf(x)."""
    return ROOT_HALF_PI * torch.special.erfcx(x.clamp_min(-FARTHEST) / ROOT_2)


def _shrink(low: Tensor, high: Tensor) -> Tensor:
    """Return pdf(high) / pdf(low)."""
    return torch.exp(-0.5 * (high - low) * (high + low))


LINKS: dict[str, Link] = {one.name: one for one in (Logit(), Probit(), Cloglog())}
