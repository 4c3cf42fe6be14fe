"""Greedy selection of inducing inputs by the kernel, one row after the other."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..errors import SettingError

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

    At each step, ``CANDIDATES`` rows are drawn at random. The change of the bound has a closed form
    in C^-1 applied to the candidates' columns, where C = Q + noise I is kept as its Woodbury
    factor, so that no bound is evaluated.
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
    for j in range(m):
        open_rows = torch.nonzero(left > TINY * diagonal.mean()).flatten()
        if not len(open_rows):
            break
        some = open_rows[
            torch.randperm(len(open_rows), generator=generator)[:CANDIDATES].to(X.device)
        ]
        known = A[:j]
        residual = kernel(X[some], X) - known[:, some].mT @ known  # [candidates, n]
        V = residual / left[some].sqrt()[:, None]
        if j:
            B = torch.eye(j).to(X) + known @ known.mT / noise
            inner = torch.linalg.solve(B, torch.cat([known @ V.mT, (known @ y)[:, None]], 1))
            solved = (V - (known.mT @ inner[:, :-1]).mT / noise) / noise
            target = (y - known.mT @ inner[:, -1] / noise) / noise
        else:
            solved, target = V / noise, y / noise
        growth = 1 + (V * solved).sum(1)
        # twice the change of the bound
        gain = -growth.log() + (V @ target).square() / growth + V.square().sum(1) / noise
        best = int(gain.argmax())
        chosen.append(int(some[best]))
        A[j] = V[best]
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
