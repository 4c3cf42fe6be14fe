"""A scan over rows in parallel: runs of rows of a linear Gaussian Markov process can be joined.

An element (A, b, C, eta, J) says, of the rows after state x_i up to state x_j:
p(x_j given x_i, y) = N(A x_i + b, C), and p(y given x_i) is proportional to
exp(eta'x_i - x_i'J x_i / 2). Sarkka & Garcia-Fernandez (2021), section IV.

Rows in order of time are cut into lanes of equal length, which are processed abreast: row
``lane * steps + step`` is at [step, lane]. The axes of matrices come first, the lanes last.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ...numerics.small_matrices import (
    identity,
    inverse,
    product,
    product_of_transpose,
    product_with_transpose,
    times_vector,
)

FEWEST = 16  # rows, below which one lane is as fast as several
MOST = 4096  # lanes, so that the vectors of one step stay in the cache


def lanes_for(n: int) -> int:
    """Return the number of lanes for n rows, a power of 2: about 6 sqrt(n), and at most n / 3."""
    if n < FEWEST:
        return 1
    return 2 ** min(round(math.log2(6 * math.sqrt(n))), int(math.log2(n / 3)), int(math.log2(MOST)))


def in_lanes(rows: Tensor, lanes: int, fill: float = 0.0) -> Tensor:
    """Return rows [*b, n] as [*b, steps, lanes], with ``fill`` after the last."""
    steps = -(-rows.shape[-1] // lanes)
    padded = torch.nn.functional.pad(rows, (0, steps * lanes - rows.shape[-1]), value=fill)
    return padded.reshape(*rows.shape[:-1], lanes, steps).mT.contiguous()


def in_rows(values: Tensor, n: int) -> Tensor:
    """Return values [*b, steps, lanes] as rows [*b, n]."""
    return values.mT.reshape(*values.shape[:-2], -1)[..., :n]


@dataclass(frozen=True)
class Element:
    """Runs of rows, one for each lane; matrices are [s, s, *b, lanes], vectors [s, *b, lanes]."""

    A: Tensor
    b: Tensor
    C: Tensor
    eta: Tensor
    J: Tensor

    @classmethod
    def empty(cls, matrix: Tensor) -> Element:
        """Return runs of no rows, in the shape of ``matrix`` [s, s, *b, lanes]."""
        zero = torch.zeros_like(matrix)
        return cls(identity(matrix), zero[0], zero, zero[0], zero)

    def of_lanes(self, which: slice) -> Element:
        """Return the runs of some lanes."""
        return Element(*(v[..., which] for v in (self.A, self.b, self.C, self.eta, self.J)))

    def then(self, after: Element) -> Element:
        """Return these runs and the runs after them as one."""
        E = inverse(identity(self.C) + product(self.C, after.J))
        AE = product(after.A, E)
        b = times_vector(AE, self.b + times_vector(self.C, after.eta)) + after.b
        C = product_with_transpose(product(AE, self.C), after.A) + after.C
        eta, J = self.before(E, after.eta, after.J)
        return Element(product(AE, self.A), b, _even(C), eta, J)

    def before(self, E: Tensor, eta: Tensor, J: Tensor) -> tuple[Tensor, Tensor]:
        """Return what the rows from here on say about the state before these runs.

        Args:
            E: (I + C J)^-1.
            eta: What the rows after these runs say about the state after them, with J.
            J: See eta.
        """
        EA = product(E, self.A)
        first = self.eta + times_vector(EA.transpose(0, 1), eta - times_vector(J, self.b))
        return first, _even(product_of_transpose(EA, product(J, self.A)) + self.J)

    def forward(self, m: Tensor, P: Tensor) -> tuple[Tensor, Tensor]:
        """Return the state after these runs, N(m, P) before them."""
        AE = product(self.A, inverse(identity(P) + product(P, self.J)))
        after = times_vector(AE, m + times_vector(P, self.eta)) + self.b
        return after, _even(product_with_transpose(product(AE, P), self.A) + self.C)

    def backward(self, eta: Tensor, J: Tensor) -> tuple[Tensor, Tensor]:
        """Return what rows say about the state before these runs; see ``before``."""
        return self.before(inverse(identity(J) + product(self.C, J)), eta, J)


@dataclass(frozen=True)
class Ends:
    """What the other lanes say about each lane.

    Attributes:
        m: The mean of the state before the lane given the lanes before it, [s, *b, lanes].
        P: Its covariance [s, s, *b, lanes].
        eta: With J, what the lanes after it say about the state at its end, [s, *b, lanes].
        J: [s, s, *b, lanes].
    """

    m: Tensor
    P: Tensor
    eta: Tensor
    J: Tensor


def joined(lanes: Element, P0: Tensor) -> Ends:
    """Return the ends of lanes, a power of 2 in number, in 2 log2(lanes) steps.

    Args:
        lanes: One run for each lane.
        P0: The prior covariance of the first state, of mean 0, [s, s, *b].
    """
    levels = [lanes]
    while levels[-1].A.shape[-1] > 1:
        last = levels[-1]
        levels.append(last.of_lanes(slice(0, None, 2)).then(last.of_lanes(slice(1, None, 2))))
    P = P0[..., None]
    m, eta, J = torch.zeros_like(P[0]), torch.zeros_like(P[0]), torch.zeros_like(P)
    for level in levels[-2::-1]:
        left, right = level.of_lanes(slice(0, None, 2)), level.of_lanes(slice(1, None, 2))
        m2, P2 = left.forward(m, P)
        eta1, J1 = right.backward(eta, J)
        m, P, eta, J = _woven(m, m2), _woven(P, P2), _woven(eta1, eta), _woven(J1, J)
    return Ends(m, P, eta, J)


def _woven(even: Tensor, odd: Tensor) -> Tensor:
    return torch.stack([even, odd], -1).flatten(-2)


def _even(C: Tensor) -> Tensor:
    """Return the symmetric part of C."""
    return 0.5 * (C + C.transpose(0, 1))


def update(C: Tensor, k: Tensor, w: Tensor) -> Tensor:
    """Return C - w k k'."""
    return torch.addcmul(C, k[:, None], k * w, value=-1)
