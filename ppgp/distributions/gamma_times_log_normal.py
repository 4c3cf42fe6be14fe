"""The product of a log-normal variable and a power of a gamma one, by quadrature.

y = exp(f) (G / a)^(1 / k), where f ~ N(loc, spread^2) and G ~ Gamma(a, 1). It is the gamma
distribution of mean exp(f) for k = 1, that of Weibull for a = 1, and the exponential for both,
averaged over f. Either factor may be much narrower than the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import constraints

from .gamma_functions import HALF_LOG_2PI, log_gamma_rest, log_rising

NODES = 64
MANY = 128  # nodes over the gamma variable, where the integrand is cheap
DEPTH = 50.0  # nats below the peak at which an integrand is negligible
REACH = 10.0  # sds of f at which its density is negligible
NEWTON = 8  # Newton steps to the mode, which need not be exact
LEAST = 1e-12  # the smallest ratio of the widths

# below, x = log(G / a), s = k spread and w = k (log y - loc) = x + s z with z ~ N(0, 1)


def _mode(a: Tensor, s: Tensor, w: Tensor) -> Tensor:
    """Return x at the mode of its density given w.

    v = log(s^2 a) + x solves v + exp(v) = c. From above Newton's method converges monotonically.
    """
    square = s.square() * a
    c = w + square + square.log()
    v = torch.where(c > 1, c.clamp_min(1.0).log(), c)
    for _ in range(NEWTON):
        growth = v.exp()
        v = v - (v + growth - c) / (1 + growth)
    return v - square.log()


def _ends(rate: Tensor) -> tuple[Tensor, Tensor]:
    """Return bounds of d, below and above 0, beyond which rate (e^d - 1 - d) exceeds DEPTH."""
    ratio = DEPTH / rate
    below = 0.5 * (ratio + (ratio.square() + 8 * ratio).sqrt())
    return below, torch.log1p(ratio + (2 * ratio).sqrt())


def _spaced(left: Tensor, right: Tensor, width: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return nodes from -left to right and weights, [*batch, count], dense within the width."""
    low, high = torch.asinh(left / width), torch.asinh(right / width)
    share = torch.linspace(0, 1, count, dtype=width.dtype, device=width.device)
    v = (low + high)[..., None] * share - low[..., None]
    step = width * (low + high) / (count - 1)
    return width[..., None] * v.sinh(), step[..., None] * v.cosh()


def _nodes(a: Tensor, s: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Return z and weights, [*batch, NODES], around the mode of z given w."""
    x = _mode(a, s, w)
    rate = a * x.exp()
    centre = torch.where(s > 1e-3, (w - x) / s, s * a * torch.expm1(x))
    below, above = _ends(rate)
    most = (2 * DEPTH) ** 0.5
    width = 3 * torch.minimum((1 + s.square() * rate).rsqrt(), 1 / s)
    # z falls where x rises
    offset, weight = _spaced((above / s).clamp_max(most), (below / s).clamp_max(most), width, NODES)
    return centre[..., None] + offset, weight


def _over_normal(a: Tensor, s: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Return both log tails, the tails of G averaged over nodes of z."""
    z = torch.linspace(-REACH, REACH, NODES, dtype=w.dtype, device=w.device)
    weight = torch.softmax(-0.5 * z.square(), 0)
    g = a[..., None] * torch.exp(w[..., None] - s[..., None] * z)
    if bool((a == 1).all()):
        tails = -torch.expm1(-g), torch.exp(-g)
    else:
        tails = torch.special.gammainc(a[..., None], g), torch.special.gammaincc(a[..., None], g)
    below, above = ((weight * tail).sum(-1).log() for tail in tails)
    return below, above


def _over_gamma(a: Tensor, s: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Return both log tails, the tails of z averaged over nodes of x."""
    left, right = _ends(a)
    x, weight = _spaced(left, right, 3 * a.rsqrt().clamp_max(1.0), MANY)
    log_weight = weight.log() + a[..., None] * (x - torch.expm1(x))
    log_weight = log_weight - torch.logsumexp(log_weight, -1, keepdim=True)
    z = (w[..., None] - x) / s[..., None]
    below, above = (torch.logsumexp(log_weight + torch.special.log_ndtr(t), -1) for t in (z, -z))
    return below, above


class GammaTimesLogNormal(dist.TorchDistribution):
    """The distribution of y = exp(f) (G / a)^(1 / k) with f ~ N(loc, spread^2).

    The nodes of the log density are placed for each value. The tails average those of the wider
    factor over nodes of the narrower one.

    Args:
        concentration: [*batch], a, the concentration of G.
        power: [*batch], k.
        loc: [*batch], the mean of f.
        spread: [*batch], the standard deviation of f, which may be 0.
        validate_args: Whether to check arguments, as in torch.
    """

    arg_constraints: Any = {
        "concentration": constraints.positive,
        "power": constraints.positive,
        "loc": constraints.real,
        "spread": constraints.nonnegative,
    }
    support: Any = constraints.positive

    def __init__(
        self,
        concentration: Tensor,
        power: Tensor,
        loc: Tensor,
        spread: Tensor,
        validate_args: bool | None = None,
    ) -> None:
        parts = torch.broadcast_tensors(concentration, power, loc, spread)
        self.concentration, self.power, self.loc, self.spread = parts
        super().__init__(self.loc.shape, torch.Size(), validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> GammaTimesLogNormal:
        parts = (self.concentration, self.power, self.loc, self.spread)
        shape = torch.Size(batch_shape)
        return GammaTimesLogNormal(*(x.expand(shape) for x in parts), validate_args=False)

    def _log_moment(self, order: float) -> Tensor:
        """Return log E (G / a)^(order / k)."""
        return log_rising(self.concentration, order / self.power)

    @property
    def mean(self) -> Tensor:
        return torch.exp(self.loc + 0.5 * self.spread.square() + self._log_moment(1.0))

    @property
    def variance(self) -> Tensor:
        excess = self._log_moment(2.0) - 2 * self._log_moment(1.0)
        return self.mean.square() * torch.expm1(self.spread.square() + excess)

    def _at(self, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return a, s and w, broadcast."""
        s = (self.power * self.spread).clamp_min(LEAST)
        w = self.power * (value.log() - self.loc)
        a, s, w = torch.broadcast_tensors(self.concentration, s, w)
        return a, s, w

    def log_prob(self, value: Tensor) -> Tensor:
        a, s, w = self._at(value)
        with torch.no_grad():  # the integral does not depend on where the nodes are
            z, weight = _nodes(a, s, w)
        x = w[..., None] - s[..., None] * z
        inside = a[..., None] * (x - torch.expm1(x)) - 0.5 * z.square()
        top = inside.detach().amax(-1, keepdim=True)
        total = (weight * torch.exp(inside - top)).sum(-1)
        normaliser = 0.5 * a.log() - 2 * HALF_LOG_2PI - log_gamma_rest(a)
        return total.log() + top[..., 0] + normaliser + self.power.log() - value.log()

    def log_tails(self, value: Tensor) -> tuple[Tensor, Tensor]:
        """Return log P(Y <= value) and log P(Y > value)."""
        with torch.no_grad():
            a, s, w = self._at(value)
            below, above = torch.empty_like(w), torch.empty_like(w)
            narrow = s * a.clamp_min(1.0).sqrt() < 1.5
            for where, of in ((narrow, _over_normal), (~narrow, _over_gamma)):
                if bool(where.any()):
                    below[where], above[where] = of(a[where], s[where], w[where])
            return below.clamp_max(0.0), above.clamp_max(0.0)

    def cdf(self, value: Tensor) -> Tensor:
        return self.log_tails(value)[0].exp()

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with torch.no_grad():
            shape = self._extended_shape(torch.Size(sample_shape))
            e = torch.randn(shape, dtype=self.loc.dtype, device=self.loc.device)
            g = dist.Gamma(self.concentration, self.concentration, validate_args=False)
            ratio = g.sample(torch.Size(sample_shape)) ** (1 / self.power)
            return torch.exp(self.loc + self.spread * e) * ratio
