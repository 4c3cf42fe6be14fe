"""Orders of rows, and the nearest rows among those that come earlier in an order."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from scipy.spatial import KDTree
from torch import Tensor, from_numpy

from ...errors import SettingError

__all__ = ["ORDERS", "nearest_earlier", "nearest_rows", "order_of_rows"]

ORDERS = ("random", "maximin")
FIRST = 256  # rows of the first block, whose earlier rows are found by comparing all pairs
SPARE = 8  # candidates beyond those that are expected to suffice


def order_of_rows(X: Float[Tensor, "n d"], order: str, seed: int) -> Int[Tensor, " n"]:
    """Return the rows in a random order, or so that each is far from those before it.

    "maximin" approximates the maximum-minimum-distance order of Guinness (2018), in which each row
    is the one farthest from the rows before it. Here the distance of each row to those before it
    is at least half of the largest possible one, up to the ties of equal rows.

    Args:
        X: [n, d], the rows.
        order: "random" or "maximin".
        seed: The seed of the random order, in which "maximin" visits the rows of each level.

    Returns:
        [n], row numbers.

    Raises:
        SettingError: For another order.
    """
    if order not in ORDERS:
        raise SettingError(f"an order of rows: {' or '.join(ORDERS)}", repr(order), "choose one")
    shuffled = np.random.default_rng(seed).permutation(len(X))
    if order == "random":
        return from_numpy(shuffled).to(X.device)
    return from_numpy(_maximin(X.detach().cpu().numpy(), shuffled)).to(X.device)


def _maximin(X: np.ndarray, shuffled: np.ndarray) -> np.ndarray:
    """Return the rows level by level; the radius that separates them halves from level to level.

    A level takes each row that is farther than its radius from all rows taken so far, so that
    after it every row is within the radius of one that was taken.
    """
    points = X[shuffled]
    tree = KDTree(points)
    away = np.linalg.norm(points - points[0], axis=1)  # from the nearest row taken so far
    taken = [np.array([0])]
    waiting = np.flatnonzero(away > 0)
    radius = float(away.max(initial=0.0)) / 2
    while len(waiting):
        level = []
        for row in waiting[away[waiting] > radius]:
            if away[row] <= radius:  # a row of this level is near
                continue
            near = np.asarray(tree.query_ball_point(points[row], 2 * radius))
            np.minimum.at(away, near, np.linalg.norm(points[near] - points[row], axis=1))
            level.append(row)
        taken.append(np.array(level, dtype=int))
        waiting = waiting[away[waiting] > 0]
        radius /= 2
    first = np.concatenate(taken)
    equal = np.setdiff1d(np.arange(len(points)), first)
    return shuffled[np.concatenate([first, equal])]


def nearest_earlier(X: Float[Tensor, "n d"], neighbours: int) -> Int[Tensor, "n k"]:
    """Return for each row the nearest rows among those before it, by Euclidean distance.

    Rows come in blocks that double in length. The candidates of a block are the nearest of all
    rows up to its end, of which at least half come before each of its rows; where too few do, twice
    as many are searched.

    Args:
        X: [n, d], the rows in their order.
        neighbours: The number k, how many at most.

    Returns:
        [n, k], row numbers, the nearest first; -1 where fewer rows come before.
    """
    points, n = X.detach().cpu().numpy(), len(X)
    k = min(neighbours, max(n - 1, 1))
    found = np.full((n, k), -1, dtype=np.int64)
    start = min(n, max(FIRST, 2 * k))
    distance = np.linalg.norm(points[:start, None] - points[None, :start], axis=-1)
    distance[np.triu_indices(start)] = np.inf
    nearest = np.argsort(distance, axis=1, kind="stable")[:, :k]
    enough = np.arange(k)[None] < np.arange(start)[:, None]
    found[:start, : nearest.shape[1]] = np.where(enough, nearest, -1)
    while start < n:
        stop = min(n, 2 * start)
        tree = KDTree(points[:stop])
        rows, width = np.arange(start, stop), 2 * k + SPARE
        while len(rows):
            width = min(width, stop)
            candidates = np.asarray(tree.query(points[rows], width)[1])
            earlier = candidates < rows[:, None]
            enough = earlier.sum(1) >= k
            # a stable sort of booleans keeps the candidates in the order of their distances
            first = np.argsort(~earlier[enough], axis=1, kind="stable")[:, :k]
            found[rows[enough]] = np.take_along_axis(candidates[enough], first, axis=1)
            rows, width = rows[~enough], 2 * width
        start = stop
    return from_numpy(found).to(X.device)


def nearest_rows(
    X: Float[Tensor, "n d"], places: Float[Tensor, "m d"], neighbours: int
) -> Int[Tensor, "m k"]:
    """Return the rows of X that are nearest to each place, the nearest first: [m, k]."""
    k = min(neighbours, len(X))
    tree = KDTree(X.detach().cpu().numpy())
    _, near = tree.query(places.detach().cpu().numpy(), k)
    return from_numpy(np.asarray(near).reshape(len(places), k)).to(X.device)
