"""The state spaces of the Matern kernels: f and its derivatives, in units of the lengthscale."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from ..distributions.erlang import erlang
from .state_space import StateSpace, stacked, times

Values = Callable[[int], Mapping[str, Tensor]]


def matern_states(nu: float, values: Values) -> StateSpace:
    """Return the state space of a Matern kernel of nu = 1/2, 3/2 or 5/2.

    The states are f, f'/rate, ..., with rate = sqrt(2 nu) / lengthscale. The covariance Q of a
    step u = rate dt is the integral over (0, u) of exp(-2 s) times polynomials of s, so that its
    entries are sums of the incomplete gamma functions P(j, 2 u). Computed as P - F P F', Q would
    lose all digits where u is small.

    Hartikainen & Sarkka (2010), section 3.2.

    Args:
        nu: The smoothness.
        values: From a number of axes to the hyperparameters "variance" and "lengthscale" with
            these axes at the end.
    """
    root = math.sqrt(2 * nu)
    move, spread = {0.5: (_move1, _spread1), 1.5: (_move2, _spread2), 2.5: (_move3, _spread3)}[nu]

    def transition(dt: Tensor) -> tuple[Tensor, Tensor]:
        h = values(dt.ndim)
        u = root * dt / h["lengthscale"]
        v = h["variance"]
        F = torch.exp(-u) * move(u)
        return F, times(spread(2 * u), v)

    def covariance(t: Tensor) -> Tensor:
        one, zero = torch.ones_like(t), torch.zeros_like(t)
        third = one / 3.0
        matrix = {
            0.5: [[one]],
            1.5: [[one, zero], [zero, one]],
            2.5: [[one, zero, -third], [zero, third, zero], [-third, zero, one]],
        }[nu]
        return times(stacked(matrix), values(t.ndim)["variance"])

    observation = (1.0,) + (0.0,) * round(nu - 0.5)
    signs = (1.0, -1.0, 1.0)[: len(observation)]
    return StateSpace(transition, covariance, observation, signs=signs)


def _move1(u: Tensor) -> Tensor:
    return torch.ones_like(u)[None, None]


def _move2(u: Tensor) -> Tensor:
    return stacked([[1 + u, u], [-u, 1 - u]])


def _move3(u: Tensor) -> Tensor:
    w = u * u
    h = w / 2
    return stacked(
        [[1 + u + h, u + w, h], [-h, 1 + u - w, u - h], [h - u, w - 3 * u, 1 - 2 * u + h]]
    )


def _spread1(x: Tensor) -> Tensor:
    return erlang(1, x)[0][None, None]


def _spread2(x: Tensor) -> Tensor:
    p1, p2, p3 = erlang(3, x)
    return stacked([[p3, p2 - p3], [p2 - p3, 2 * p1 - 2 * p2 + p3]])


def _spread3(x: Tensor) -> Tensor:
    p1, p2, p3, p4, p5 = erlang(5, x)
    q12 = p4 - p5
    q13 = 2 / 3 * p3 - 2 * p4 + p5
    q22 = 4 / 3 * p3 - 2 * p4 + p5
    q23 = 4 / 3 * p2 - 10 / 3 * p3 + 3 * p4 - p5
    q33 = 8 / 3 * p1 - 16 / 3 * p2 + 20 / 3 * p3 - 4 * p4 + p5
    return stacked([[p5, q12, q13], [q12, q22, q23], [q13, q23, q33]])
