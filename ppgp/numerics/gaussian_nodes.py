"""Nodes of averages over z ~ N(0, 1), dense where the other factor of an integrand is narrow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .cholesky import LOG_2PI

REACH = 12  # sds of z beyond which no peak is looked for
FINER = 4  # how much closer the points are in each search than in the one before
SEARCHES = 16
FALL = 2.0  # nats by which an integrand falls, at most, from its peak to the next points
DEPTH = 45.0  # nats below the peak at which it is negligible
NODES = 64  # of an integral that is negligible away from the peak
MANY = 128  # of one over all z
FARTHEST = 8.0  # from 0, of the place around which the latter are dense

TURNING_NODES = 48
ENDS = 8.0  # standard deviations on either side of the mean
TURN = 2.0  # the width of a turn; log ndtr is analytic for imaginary parts below 2.8
SPREAD = 2.0  # how much faster u grows through the turn than through an sd far from it
NEWTON = 7  # steps to the root of a convex function, from above

LogFactor = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Peak:
    """Where an integrand has its peak, per element: [*batch].

    Args:
        centre: The peak.
        width: About the distance at which the integrand has fallen by half a nat.
        lowest: A point below the peak; the integrand is negligible below it.
        highest: A point above the peak; the integrand is negligible above it.
    """

    centre: Tensor
    width: Tensor
    lowest: Tensor
    highest: Tensor

    def narrowest(self) -> Peak:
        """Return the narrowest of the peaks along the first axis, between the ends of all."""
        width, index = self.width.min(0)
        centre = self.centre.gather(0, index[None])[0]
        return Peak(centre, width, self.lowest.amin(0), self.highest.amax(0))

    def nodes(self, over_all: bool, times: float = 1.0) -> tuple[Tensor, Tensor]:
        """Return z and the logs of weights of an average over N(0, 1), [node, *batch].

        Args:
            over_all: Whether what is averaged changes at the peak, but has no limit of 0 on either
                side. The sum of the weights is then 1.
            times: By what to multiply the number of nodes.
        """
        if not over_all:
            return _spaced(self.centre, self.width, self.lowest, self.highest, int(NODES * times))
        centre = self.centre.clamp(-FARTHEST, FARTHEST)
        end = torch.full_like(centre, REACH)
        z, log_weights = _spaced(centre, self.width, -end, end, int(MANY * times))
        return z, log_weights - torch.logsumexp(log_weights, 0)


def _spaced(
    centre: Tensor, width: Tensor, lowest: Tensor, highest: Tensor, count: int
) -> tuple[Tensor, Tensor]:
    """Return the nodes of the trapezoidal rule in asinh((z - centre) / (2 width))."""
    unit = 2 * width
    low, high = torch.asinh((lowest - centre) / unit), torch.asinh((highest - centre) / unit)
    step = (high - low) / (count - 1)
    v = low + step * _column(torch.arange(count), width)
    z = centre + unit * v.sinh()
    return z, (unit * step * v.cosh()).log() - 0.5 * (LOG_2PI + z.square())


def _column(numbers: Tensor, like: Tensor) -> Tensor:
    return numbers.to(like).reshape(-1, *(1,) * like.ndim)


def find_peak(log_factor: LogFactor, like: Tensor) -> Peak:
    """Return the peak of exp(log_factor(z)) times the density of z ~ N(0, 1).

    Around the best point of a grid a finer one is laid, and so on, until the integrand falls little
    from that point to the next ones; a coarser one if it is the last. The integrand has to rise to
    one peak and to fall beyond it.

    Args:
        log_factor: Maps z [count, *batch] to a tensor of that shape.
        like: A tensor of the shape, dtype and device of the batch.
    """
    with torch.no_grad():
        distance = torch.ones_like(like)
        found = _search(log_factor, torch.zeros_like(like), distance, REACH)
        for _ in range(SEARCHES):
            narrow = found.fall.amax(0) > FALL
            moves = found.last | narrow
            if not bool(moves.any()):
                break
            finer = torch.where(narrow, distance / FINER, distance)
            distance = torch.where(found.last, 2 * distance, finer)
            found = found.updated(_search(log_factor, found.best, distance, FINER), moves)
        below, above = found.fall.clamp_max(4 * FALL)
        total = (below + above).clamp_min(1.0)
        centre = found.best + distance * (below - above) / (2 * total)  # of a parabola
        lowest = torch.maximum(found.lowest, centre - REACH)
        highest = torch.minimum(found.highest, centre + REACH)
        return Peak(centre, distance / total.sqrt(), lowest, highest)


@dataclass(frozen=True)
class _Found:
    """What searches have found.

    Args:
        best: The best point.
        fall: By how much the integrand falls to the points below and above it, [2, *batch].
        last: Whether it is the first or the last point of the search.
        lowest: The nearest point below it where the integrand is negligible, or -inf.
        highest: The nearest one above it, or inf.
    """

    best: Tensor
    fall: Tensor
    last: Tensor
    lowest: Tensor
    highest: Tensor

    def updated(self, new: _Found, moves: Tensor) -> _Found:
        """Return what is known after a further search, which counts where ``moves``."""
        return _Found(
            torch.where(moves, new.best, self.best),
            torch.where(moves, new.fall, self.fall),
            moves & new.last,
            torch.where(moves, torch.maximum(self.lowest, new.lowest), self.lowest),
            torch.where(moves, torch.minimum(self.highest, new.highest), self.highest),
        )


def _search(log_factor: LogFactor, centre: Tensor, distance: Tensor, reach: int) -> _Found:
    """Search ``reach`` points on either side of a point."""
    z = centre + distance * _column(torch.arange(-reach, reach + 1), centre)
    values = log_factor(z).nan_to_num(-torch.inf, neginf=-torch.inf)
    nowhere = torch.isneginf(values.amax(0))
    values = torch.where(nowhere, torch.zeros_like(values), values) - 0.5 * z.square()
    top, index = values.max(0, keepdim=True)
    best, inner = z.gather(0, index), index.clamp(1, 2 * reach - 1)
    sides = torch.cat([values.gather(0, inner - 1), values.gather(0, inner + 1)])
    negligible = values < top - DEPTH
    none = torch.full_like(z, torch.inf)
    return _Found(
        best[0],
        (top - sides).clamp_min(0.0),
        (index != inner)[0],
        torch.where(negligible & (z < best), z, -none).amax(0),
        torch.where(negligible & (z > best), z, none).amin(0),
    )


def turning_nodes(
    mean: Tensor, sd: Tensor, turn: Tensor, width: float = TURN, count: int = TURNING_NODES
) -> tuple[Tensor, Tensor]:
    """Return nodes z and weights of E h(mean + sd Z), Z ~ N(0, 1), for an h with one turn.

    h changes within a few units of f at the turn c, and slowly far from it, as the log of a normal
    cdf does, which is a parabola for f < 0 and 0 for f > 0, nearly. The rule is the trapezoidal
    rule in

        u = asinh((f - c) / width) + (f - mean) / (2 sd),

    whose nodes are close at the turn, and further apart in proportion to the distance from it, but
    not further than the Gaussian needs. The average of the log of a normal cdf is accurate to 1e-8
    for every mean and sd.

    Args:
        mean: The mean of f, [*batch].
        sd: Its standard deviation, positive, [*batch].
        turn: The turn c, of a shape that broadcasts with [*batch].
        width: In how many units of f an h with a sharper turn changes.
        count: The number of nodes. It grows with the log of 1 / width.

    Returns:
        The nodes and the weights, [count, *batch] each, without gradients. The weights have sum 1.
    """
    mean, sd, turn = (x.detach() for x in torch.broadcast_tensors(mean, sd, turn))
    place, bend = (turn - mean) / sd, width / sd  # in units of the sd, as z
    ratio = bend / SPREAD

    def along(z: Tensor) -> Tensor:
        return torch.asinh((z - place) / bend) + (z - place) / SPREAD

    first, last = along(torch.full_like(place, -ENDS)), along(torch.full_like(place, ENDS))
    share = torch.linspace(0, 1, count, dtype=place.dtype, device=place.device)
    u = first + (last - first) * share.reshape((-1,) + (1,) * place.ndim)
    # z = place + bend sinh v, where v + ratio sinh v = u; Newton's method takes v >= 0, from above
    goal = u.abs()
    v = torch.minimum(goal, torch.asinh(goal / ratio))
    for _ in range(NEWTON):
        v = v - (v + ratio * torch.sinh(v) - goal) / (1 + ratio * torch.cosh(v))
    z = place + bend * torch.sinh(v) * torch.sign(u)
    cosh = torch.cosh(v)
    weight = bend * cosh / (1 + ratio * cosh) * torch.exp(-0.5 * z.square())
    return z, weight / weight.sum(0)
