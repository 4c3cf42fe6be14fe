"""Where inducing inputs go: m of n rows, or centres among them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError, SettingError, UnknownName
from .libraries import unchanged
from .process_locks import silenced

__all__ = ["SELECTIONS", "different_rows", "select"]

KMEANS_ROWS = 20_000  # more are thinned out: centres of a sample of that size serve
CANDIDATES = 64  # rows looked at for each place of the greedy bound
TINY = 1e-10  # of the mean variance: below it a row is spanned by those before

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
    """Z [m, d] for rows X [n, d]; fewer where a greedy selection finds fewer rows that the kernel tells apart.

    Args:
        how: a name in ``SELECTIONS``.
        kernel: (X1, X2) -> [n1, n2] at the hyperparameters to select by; ``diagonal`` [n] its diagonal at X. Of ``features``, where
            these are given.
        y: residuals [n], for "bound" alone.
        noise: variance, for "bound" alone.
        features: [n, q], the rows as the kernel sees them: what a network makes of them, or they themselves in another precision.
            "kmeans" then looks for centres among them, and takes the row next to each: no image belongs to a mean of features.

    Raises:
        SettingError: if m is not in 1 .. n.
        DataError: if there are fewer different rows than m.
        UnknownName: if there is no such selection.
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
        return centres if features is None else X[_next_to(features, centres)]


def different_rows(X: Tensor) -> Tensor:
    """Each different row of X [n, d] once, in lexicographic order, as ``torch.unique(X, dim=0)`` has it, which makes a tensor of
    every row: several times the memory of X."""
    table = X.detach().cpu().numpy()
    order = np.argsort(table[:, 0], kind="stable")
    first = np.ones(
        len(table), dtype=bool
    )  # of a run of rows that are the same as far as the columns go that were looked at
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
    return _some(m, different_rows(X), generator)


def _some(m: int, different: Tensor, generator: torch.Generator) -> Tensor:
    if len(different) < m:
        raise DataError(
            f"at least {m} different rows to take inducing inputs from",
            str(len(different)),
            "lower inducing",
        )
    return different[torch.randperm(len(different), generator=generator)[:m].to(different.device)]


def _kmeans(m: int, X: Tensor, generator: torch.Generator) -> Tensor:
    """Centres of k-means from k-means++ (Arthur & Vassilvitskii 2007)."""
    with unchanged():
        from sklearn.cluster import KMeans

    different = different_rows(X)
    different = _some(min(KMEANS_ROWS, len(different)), different, generator)
    if len(different) < m:
        raise DataError(
            f"at least {m} different rows to take inducing inputs from",
            str(len(different)),
            "lower inducing",
        )
    # scikit-learn starts k-means++ once
    state = int(torch.randint(2**31 - 1, (1,), generator=generator))
    with silenced():  # centres that have not settled to the last digit serve as well
        found = KMeans(m, max_iter=30, random_state=state).fit(different.double().cpu().numpy())
    return torch.from_numpy(found.cluster_centers_).to(X)


def _next_to(features: Tensor, centres: Tensor) -> Tensor:
    """For each centre the nearest row that no other centre has, [m]."""
    distances = torch.cdist(
        centres.double(), features.double()
    )  # single precision has lost the nearest far from 0
    found = []
    for row in distances:
        found.append(int(row.argmin()))
        distances[:, found[-1]] = torch.inf
    return torch.tensor(found, device=features.device)


def _conditional_variance(
    m: int,
    X: Tensor,
    y: object,
    kernel: Covariance,
    diagonal: Tensor,
    noise: float,
    generator: torch.Generator,
) -> list[int]:
    """The row of largest variance given those chosen, again and again: pivoted Cholesky. Burt, Rasmussen & van der Wilk (2020)."""
    chosen: list[int] = []
    left = diagonal.clone()
    A = torch.zeros(m, len(X)).to(X)
    for j in range(m):
        i = int(left.argmax())
        if not float(left[i]) > TINY * float(diagonal.mean()):
            break  # those chosen determine all others
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
    """Of some rows drawn anew for each place, the one that raises the collapsed bound most. Titsias (2009), section 3.1.

    The change is in closed form from C^-1 applied to the candidates' columns, C = Q + noise I kept as its Woodbury factor: no
    bound is evaluated.
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
        V = (kernel(X[some], X) - known[:, some].mT @ known) / left[some].sqrt()[
            :, None
        ]  # [candidates, n]
        if j:
            B = torch.eye(j).to(X) + known @ known.mT / noise
            inner = torch.linalg.solve(B, torch.cat([known @ V.mT, (known @ y)[:, None]], 1))
            solved = (V - (known.mT @ inner[:, :-1]).mT / noise) / noise
            target = (y - known.mT @ inner[:, -1] / noise) / noise
        else:
            solved, target = V / noise, y / noise
        growth = 1 + (V * solved).sum(1)
        gain = (
            -growth.log() + (V @ target).square() / growth + V.square().sum(1) / noise
        )  # twice the rise of the bound
        best = int(gain.argmax())
        chosen.append(int(some[best]))
        A[j] = V[best]
        left = (left - A[j].square()).clamp_min(0.0)
        left[chosen[-1]] = 0.0
    return chosen


def _column(A: Tensor, i: int, X: Tensor, kernel: Covariance) -> Tensor:
    """Covariances of row i with all rows, given the inducing inputs behind A."""
    return kernel(X[i : i + 1], X)[0] - A[:, i] @ A


#: those that go by the kernel, and name rows
GREEDY: dict[str, Callable[..., list[int]]] = {
    "conditional_variance": _conditional_variance,
    "bound": _bound,
}
SELECTIONS = ("kmeans", "random", *GREEDY)
