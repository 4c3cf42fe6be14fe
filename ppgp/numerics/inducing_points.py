"""Selection of inducing inputs: m of n rows, or cluster centres of the rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError, SettingError, UnknownName
from .libraries import settings_unchanged
from .process_locks import silenced

__all__ = ["SELECTIONS", "different_rows", "select"]

KMEANS_ROWS = 20_000  # k-means runs on a random sample of this many rows at most
CANDIDATES = 64  # rows evaluated for each step of the greedy selection by the bound
TINY = 1e-10  # relative to the mean variance: below it a row depends on the rows chosen before

Covariance = Callable[[Tensor, Tensor], Tensor]


def select(
    how: str,
    m: int,
    X: Tensor,
    y: Tensor | None,
    kernel: Covariance,
    diagonal: Tensor,
    noise: float,
    seed: int = 0,
    features: Tensor | None = None,
) -> Tensor:
    """Select inducing inputs for the rows X.

    Args:
        how: A name in ``SELECTIONS``.
        m: The number of inducing inputs.
        X: [n, d], the rows.
        y: [n], residuals, for "bound" alone.
        kernel: Maps (X1, X2) to the covariance [n1, n2] at the hyperparameters to select by. It is
            applied to ``features`` where these are given.
        diagonal: [n], the diagonal of the covariance at X.
        noise: The noise variance, for "bound" alone.
        seed: The seed of random choices.
        features: [n, q], the rows as the kernel sees them: the output of a network, or X in another
            precision. "kmeans" then computes centres of the features, and takes the nearest row to
            each, since a mean of features need not correspond to any input.

    Returns:
        Z [m, d]. A greedy selection returns fewer rows where the kernel cannot distinguish m rows.

    Raises:
        SettingError: If m is not in 1 .. n.
        DataError: If there are fewer different rows than m.
        UnknownName: If there is no such selection.
    """
    if how not in SELECTIONS:
        raise UnknownName("selection", how, SELECTIONS)
    if not 1 <= m <= len(X):
        raise SettingError(f"between 1 and n = {len(X)} inducing inputs", str(m), "lower inducing")
    if m == len(X):
        return X.clone()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        rows = X if features is None else features
        if how in GREEDY:
            return X[GREEDY[how](m, rows, y, kernel, diagonal, noise, generator)]
        if how == "random":
            return _random(m, X, generator)
        centres = _kmeans(m, rows, generator)
        if features is None:
            return centres
        return X[_nearest_rows(features, centres)]


def different_rows(X: Tensor) -> Tensor:
    """Return the different rows of X [n, d] in lexicographic order.

    The result is that of ``torch.unique(X, dim=0)``, which makes a tensor per row and needs several
    times the memory of X.
    """
    table = X.detach().cpu().numpy()
    order = np.argsort(table[:, 0], kind="stable")
    # marks the first row of each run of rows that are equal in the columns compared so far
    first = np.ones(len(table), dtype=bool)
    first[1:] = np.diff(table[order, 0]) != 0
    for column in table.T[1:]:
        run = np.cumsum(first)
        tied = np.nonzero(np.bincount(run)[run] > 1)[0]
        if not len(tied):
            break
        order[tied] = order[tied][np.lexsort((column[order[tied]], run[tied]))]
        first[tied[1:]] |= np.diff(column[order[tied]]) != 0
    return torch.from_numpy(table[order[first]]).to(X)


def _random(m: int, X: Tensor, generator: torch.Generator) -> Tensor:
    return _random_subset(m, different_rows(X), generator)


def _random_subset(m: int, different: Tensor, generator: torch.Generator) -> Tensor:
    """Return m of the different rows at random."""
    _require_different(m, different)
    return different[torch.randperm(len(different), generator=generator)[:m].to(different.device)]


def _require_different(m: int, different: Tensor) -> None:
    """Raise DataError if there are fewer than m different rows."""
    if len(different) < m:
        raise DataError(
            f"at least {m} different rows to take inducing inputs from",
            str(len(different)),
            "lower inducing",
        )


def _kmeans(m: int, X: Tensor, generator: torch.Generator) -> Tensor:
    """Return the centres of k-means started by k-means++ (Arthur & Vassilvitskii 2007)."""
    with settings_unchanged():
        from sklearn.cluster import KMeans

    different = different_rows(X)
    different = _random_subset(min(KMEANS_ROWS, len(different)), different, generator)
    _require_different(m, different)
    # scikit-learn runs k-means++ once
    state = int(torch.randint(2**31 - 1, (1,), generator=generator))
    with silenced():  # centres that have not fully converged serve as well
        clusters = KMeans(m, max_iter=30, random_state=state)
        clusters.fit(different.double().cpu().numpy())
    return torch.from_numpy(clusters.cluster_centers_).to(X)


def _nearest_rows(features: Tensor, centres: Tensor) -> Tensor:
    """Return for each centre the nearest row that no earlier centre has taken, [m]."""
    # in single precision, distances between points far from 0 would be lost
    distances = torch.cdist(centres.double(), features.double())
    nearest = []
    for row in distances:
        nearest.append(int(row.argmin()))
        distances[:, nearest[-1]] = torch.inf
    return torch.tensor(nearest, device=features.device)


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
SELECTIONS = ("kmeans", "random", *GREEDY)
