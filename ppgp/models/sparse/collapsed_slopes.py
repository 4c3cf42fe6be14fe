"""The slopes of the collapsed bound by what it is made of, given its sums over rows.

The notation is that of ``collapsed_bound``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...numerics.cholesky import factor_or_nan
from ...numerics.projection import Projection, derivative_in_noise
from ...numerics.triangles import between_inverses

__all__ = ["Slopes", "slopes_of"]


@dataclass(frozen=True, eq=False)
class Slopes:
    """The derivatives of the lower bound.

    Attributes:
        Kmm: By Kmm [m, m].
        noise: By s2 in all that is not a row.
        H: [m, m]. The derivative by the columns K [m, rows] of Kmn is H K + h r'.
        h: [m].
        precision: 1 / s2. The derivative by r is h'K - r / s2, and by the diagonal of Knn it is
            -1 / (2 s2).
    """

    Kmm: Tensor
    noise: Tensor
    H: Tensor
    h: Tensor
    precision: Tensor

    def of_rows(self, K: Tensor, r: Tensor, diagonal: Tensor) -> Tensor:
        """Return a number with the derivatives of the bound by what some rows have.

        Args:
            K: Their columns of Kmn [m, rows].
            r: Their residuals [rows].
            diagonal: Their part of the diagonal of Knn [rows].
        """
        with torch.no_grad():
            by_K = torch.addr(self.H @ K, self.h, r)
            by_r = self.h @ K - r * self.precision
        return (K * by_K).sum() + r @ by_r - 0.5 * self.precision * diagonal.sum()

    def of_shared(self, Kmm: Tensor, noise: Tensor) -> Tensor:
        """Return a number with the derivatives of the bound by Kmm [m, m] and s2."""
        return (Kmm * self.Kmm).sum() + noise * self.noise


def slopes_of(sums: Projection, L: Tensor, noise: Tensor) -> Slopes:
    """Return the derivatives of the bound.

    Args:
        sums: The sums over all rows.
        L: [m, m], the Cholesky factor of Kmm.
        noise: The variance s2 of the noise.
    """
    eye = torch.eye(len(L)).to(L)
    B = torch.cholesky_inverse(factor_or_nan(eye + sums.S / noise))
    c = B @ sums.Ar
    P = sums.S / noise - eye + B + torch.outer(c, c) / noise.square()
    solved = torch.linalg.solve_triangular(L.mT, c[:, None], upper=True)[:, 0]
    return Slopes(
        Kmm=-0.5 * between_inverses(L, P),
        noise=derivative_in_noise(sums, noise, B, c),
        H=between_inverses(L, (eye - B) / noise - torch.outer(c, c) / noise**3),
        h=solved / noise.square(),
        precision=1 / noise,
    )
