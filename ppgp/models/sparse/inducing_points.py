"""Selection of inducing inputs: m of n rows, or cluster centres of the rows."""

from __future__ import annotations

import torch
from torch import Tensor

from ...errors import SettingError, UnknownName
from ...numerics.different_rows import different_rows, random_subset, require_different
from ...runtime.libraries import settings_unchanged
from ...runtime.process_locks import silenced
from .greedy_selection import GREEDY, Covariance

__all__ = ["SELECTIONS", "select"]

KMEANS_ROWS = 20_000  # k-means runs on a random sample of this many rows at most


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


def _random(m: int, X: Tensor, generator: torch.Generator) -> Tensor:
    return random_subset(m, different_rows(X), generator)


def _kmeans(m: int, X: Tensor, generator: torch.Generator) -> Tensor:
    """Return the centres of k-means started by k-means++ (Arthur & Vassilvitskii 2007)."""
    with settings_unchanged():
        from sklearn.cluster import KMeans

    different = different_rows(X)
    different = random_subset(min(KMEANS_ROWS, len(different)), different, generator)
    require_different(m, different)
    # scikit-learn runs k-means++ once
    state = int(torch.randint(2**31 - 1, (1,), generator=generator, device="cpu"))
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


SELECTIONS = ("kmeans", "random", *GREEDY)
