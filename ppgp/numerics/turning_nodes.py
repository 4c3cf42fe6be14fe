"""Nodes of averages over a Gaussian that follow the integrand."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["turning_nodes"]

NODES = 48
REACH = 8.0  # standard deviations on either side of the mean
TURN = 2.0  # the width of a turn; log ndtr is analytic for imaginary parts below 2.8
SPREAD = 2.0  # how much faster u grows through the turn than through an sd far from it
NEWTON = 7  # steps to the root of a convex function, from above


def turning_nodes(
    mean: Tensor, sd: Tensor, turn: Tensor, width: float = TURN, count: int = NODES
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

    first, last = along(torch.full_like(place, -REACH)), along(torch.full_like(place, REACH))
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
