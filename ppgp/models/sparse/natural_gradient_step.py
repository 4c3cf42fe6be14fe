"""A natural-gradient step of a whitened sparse variational GP.

The notation is that of ``whitened``: q(v) = N(loc, W W'), A = L^-1 Kmn, with m inducing inputs, b
rows, and [*k] latent functions that share A.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...runtime.team import Team


def precision_root(P: Tensor) -> tuple[Tensor, Tensor]:
    """Return the lower triangular W with W W' = P^-1, and whether there is none, [*k].

    With P = U U' and U upper triangular, W = U^-T.
    """
    flipped, failed = torch.linalg.cholesky_ex(P.flip(-2, -1))
    eye = torch.eye(P.shape[-1]).to(P)
    inverse = torch.linalg.solve_triangular(flipped.flip(-2, -1), eye.expand_as(P), upper=True)
    return inverse.mT, failed != 0


class Moments:
    """The sums over rows that a natural-gradient step needs, added up chunk by chunk.

    They are A diag(-2 h) A' and A (g - 2 h mean), where g and h are the derivatives of the expected
    log likelihood in the mean and the variance of f. Khan & Lin (2017), equation 11.

    With t1 = S^-1 loc and the precision S^-1 as natural parameters, a step of rate r is a convex
    combination: the precision becomes (1 - r) S^-1 + r (I + A diag(-2 h) A'), and t1 becomes
    (1 - r) t1 + r A (g - 2 h mean).

    Args:
        loc: [*k, m], a tensor whose shape, dtype and device the sums have.
    """

    def __init__(self, loc: Tensor) -> None:
        self.precision = torch.zeros(*loc.shape, loc.shape[-1]).to(loc)
        self.shift = torch.zeros_like(loc)

    def add(self, A: Tensor, mean: Tensor, g: Tensor, h: Tensor) -> None:
        """Add a chunk of rows.

        Args:
            A: [m, b].
            mean: [*k, b], the mean of f.
            g: [*k, b], the derivative in the mean.
            h: [*k, b], the derivative in the variance.
        """
        self.precision += (A * (-2 * h).unsqueeze(-2)) @ A.mT
        self.shift += (g - 2 * h * mean) @ A.mT

    def over_ranks(self, team: Team, weight: float) -> float:
        """Replace the sums by the means over the ranks of a team, times each rank's weight.

        Args:
            team: The team.
            weight: The factor of this rank's sums over rows.

        Returns:
            The weight that the sums then have.
        """
        if team.alone:
            return weight
        m = self.shift.shape[-1]
        i, j = torch.tril_indices(m, m, device=self.shift.device)
        lower, shift = team.means(weight * self.precision[..., i, j], weight * self.shift)
        self.precision[..., i, j] = lower
        self.precision[..., j, i] = lower
        self.shift = shift
        return 1.0

    def step(self, loc: Tensor, W: Tensor, weight: float, rate: float) -> tuple[Tensor, Tensor]:
        """Return loc and W after a step.

        The rate is halved until the precision is positive definite, which likelihoods that are not
        log-concave do not guarantee.

        Args:
            loc: [*k, m].
            W: [*k, m, m].
            weight: The factor of the sums over rows, n / b.
            rate: The rate of the step, in (0, 1].
        """
        eye = torch.eye(loc.shape[-1]).to(loc)
        inverse = torch.linalg.solve_triangular(W, eye.expand_as(W), upper=False)
        old = inverse.mT @ inverse
        first = (old @ loc.unsqueeze(-1)).squeeze(-1)
        for _ in range(20):
            precision = (1 - rate) * old + rate * (eye + weight * self.precision)
            new, failed = precision_root(precision)
            if not bool(failed.any()) and bool(torch.isfinite(new).all()):
                t1 = ((1 - rate) * first + rate * weight * self.shift).unsqueeze(-1)
                return (new @ (new.mT @ t1)).squeeze(-1), new
            rate *= 0.5
        return loc, W
