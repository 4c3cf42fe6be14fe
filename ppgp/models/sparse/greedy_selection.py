"""Greedy selection of inducing inputs by the kernel, one row after the other."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...errors import SettingError
from ...runtime.seeding import permutation

CANDIDATES = 64  # rows evaluated for each step of the greedy selection by the bound
TINY = 1e-10  # relative to the mean variance: below it a row depends on the rows chosen before

Covariance = Callable[[Tensor, Tensor], Tensor]


def _conditional_variance(
    m: int,
    X: Tensor,
    y: object,
    kernel: Covariance,
    diagonal: Tensor,
    noise: float,
    generator: torch.Generator,
) -> list[int]:
    """Choose repeatedly the row of largest variance given the rows chosen: pivoted Cholesky.

    Burt, Rasmussen & van der Wilk (2020).
    """
    chosen: list[int] = []
    left = diagonal.clone()
    A = torch.zeros(m, len(X)).to(X)
    for j in range(m):
        i = int(left.argmax())
        if not float(left[i]) > TINY * float(diagonal.mean()):
            break  # the rows chosen determine all others
        chosen.append(i)
        A[j] = _column(A[:j], i, X, kernel) / left[i].sqrt()
        left = (left - A[j].square()).clamp_min(0.0)
        left[i] = 0.0
    return chosen


def _bound(
    m: int,
    X: Tensor,
    y: Tensor | None,
    kernel: Covariance,
    diagonal: Tensor,
    noise: float,
    generator: torch.Generator,
) -> list[int]:
    """Choose repeatedly the row that raises the collapsed bound most. Titsias (2009), section 3.1.

    At each step, ``CANDIDATES`` rows are drawn at random. With A the whitened columns of the rows
    chosen and C = A'A + noise I, the change of the bound has a closed form in v'C^-1 v and v'C^-1 y
    for the whitened column v of a candidate. By Woodbury's identity both come from the Cholesky
    factor of B = I + AA' / noise, which grows by one row at each step.
    """
    if y is None:
        raise SettingError(
            "y to select by the bound",
            "none",
            "prepare the model with data, or use 'conditional_variance'",
        )
    chosen: list[int] = []
    left = diagonal.clone()
    A = torch.zeros(m, len(X)).to(X)
    factor = torch.zeros(m, m).to(X)  # of B
    fit = torch.zeros(m).to(X)  # factor^-1 A y
    for j in range(m):
        open_rows = torch.nonzero(left > TINY * diagonal.mean()).flatten()
        if not len(open_rows):
            break
        some = open_rows[permutation(generator, len(open_rows))[:CANDIDATES].to(X.device)]
        known = A[:j]
        residual = kernel(X[some], X) - known[:, some].mT @ known  # [candidates, n]
        V = residual / left[some].sqrt()[:, None]
        half = torch.linalg.solve_triangular(factor[:j, :j], known @ V.mT, upper=False)
        squares = V.square().sum(1)
        growth = 1 + ((squares - half.square().sum(0) / noise) / noise).clamp_min(0.0)
        along = (V @ y - fit[:j] @ half / noise) / noise
        # twice the change of the bound
        gain = -growth.log() + along.square() / growth + squares / noise
        best = int(gain.argmax())
        chosen.append(int(some[best]))
        A[j] = V[best]
        factor[j, :j] = half[:, best] / noise
        factor[j, j] = growth[best].sqrt()
        fit[j] = noise * along[best] / factor[j, j]
        left = (left - A[j].square()).clamp_min(0.0)
        left[chosen[-1]] = 0.0
    return chosen


def _column(A: Tensor, i: int, X: Tensor, kernel: Covariance) -> Tensor:
    """Return the covariances of row i with all rows, given the inducing inputs behind A."""
    return kernel(X[i : i + 1], X)[0] - A[:, i] @ A


#: selections by the kernel, which return indices of rows
GREEDY: dict[str, Callable[..., list[int]]] = {
    "conditional_variance": _conditional_variance,
    "bound": _bound,
}
