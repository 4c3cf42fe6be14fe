"""The rows that each row depends on: the nearest among those that come earlier in an order."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.spatial import KDTree
from torch import Tensor, from_numpy

from ...errors import SettingError
from ...kernels import Kernel, Product, Sum
from ...kernels.wrappers import maps_of_metrics
from ...priors import Param, under
from ..exact.drift import Drift, places
from ..sites import Theta
from .weights import Law, Sets

__all__ = [
    "ORDERS",
    "Lengths",
    "NearestRows",
    "correlation_lengths",
    "nearest_earlier",
    "nearest_rows",
    "order_of_rows",
]

DEFAULT_NEIGHBOURS = 30
HARDLY = 0.01  # of the mean squared length of a metric, which is added in each direction
MOVED = 2.0  # neighbours are searched again if the ratio of two lengthscales changes so much
ENOUGH = 15  # neighbours from which nothing is checked
MORE = 30  # neighbours to compare with
LARGER = 1.1  # ratio of standard deviations from which there is a warning
ORDERS = ("random", "maximin")
FIRST = 256  # rows of the first block, whose earlier rows are found by comparing all pairs
SPARE = 8  # candidates beyond those that are expected to suffice
HALF = 0.5  # the correlation at the length of a column
DISTANCES = 15  # that are tried for a length in each decade
PASSES = 4  # of that search, each between two distances of the one before it
FINER = 121  # distances of the later passes
REACH = 4  # decades, from below the smallest spread of a column to above the largest
TREE_COLUMNS = 8  # of more, a tree is slower than comparing all rows
COMPARED = 20_000_000  # the most distances at once

#: the length of each coordinate, or the matrix P [d, r] of a full metric
Lengths: TypeAlias = tuple[float, ...] | tuple[tuple[float, ...], ...]


@dataclass(frozen=True, eq=False)
class NearestRows:
    """The neighbours of each row, nearest in columns divided by how far the kernel correlates.

    Under a kernel ``Metric``, which is no term of a sum or product, they are nearest in
    |P'(x - x')|. The attributes are options of ``Vecchia``.

    Attributes:
        kernel: The covariance of f.
        neighbours: How many earlier rows each row depends on; None: 30.
        order: The order of the rows.
        seed: Seed of the order.
        lengths: The length of each coordinate by which neighbours are nearest, or the matrix P of
            the metric; None: 1.
        drift: The functions of the trend, which say what columns are coordinates.
    """

    kernel: Kernel
    neighbours: int | None
    order: str
    seed: int
    lengths: Lengths | None
    drift: Drift = "none"

    def check(self) -> None:
        """Check the options of the recipe.

        Raises:
            SettingError: For a number of neighbours or an order that is none.
        """
        if self.neighbours is not None and (
            type(self.neighbours) is not int or self.neighbours < 1
        ):
            got = repr(self.neighbours)
            raise SettingError("a whole number of neighbours", got, "pass 1 or more")
        if self.order not in ORDERS:
            wanted = f"an order of rows: {' or '.join(ORDERS)}"
            raise SettingError(wanted, repr(self.order), "choose one")

    def refuse_too_many(self, n: int) -> None:
        """Refuse as many neighbours as rows.

        Raises:
            SettingError: For as many, or more.
        """
        if self.neighbours is not None and self.neighbours >= n:
            raise SettingError(
                f"fewer neighbours than the {n} rows",
                str(self.neighbours),
                f"pass at most {n - 1}, which is the exact process, or use GP",
            )

    @property
    def number(self) -> int:
        """The largest number of neighbours of a row."""
        return self.neighbours or DEFAULT_NEIGHBOURS

    def number_for(self, n: int) -> int:
        """Return the number of neighbours of a new row: all n where rows depend on all others."""
        return n if self.number == n - 1 else self.number

    def lengths_at(self, hyper: Theta, where: Tensor) -> Lengths:
        """Return the lengths of the recipe, or without them those of the kernel.

        Args:
            hyper: The hyperparameters of the kernel.
            where: The coordinates of the training rows [n, d].
        """
        if self.lengths is None or len(self.lengths) != where.shape[1]:
            return self.lengths_of(hyper, where)
        return self.lengths

    def lengths_of(self, hyper: Theta, where: Tensor) -> Lengths:
        """Return how far the kernel correlates along each coordinate, or the P of its metric.

        That of a column of codes is infinite: rows are near by their places, whatever the output.
        """
        if self.deep(where.shape[1]):
            return (1.0,) * where.shape[1]
        several = isinstance(self.kernel, Sum | Product)
        maps = [] if several else maps_of_metrics(self.kernel, hyper, where)
        if maps:
            return tuple(tuple(row) for row in maps[0].tolist())
        outputs = self.kernel.output_columns()
        if not outputs:
            return correlation_lengths(self.kernel, hyper, where)
        columns = [c for c in range(where.shape[1]) if c not in outputs]

        def of_one_output(theta: Theta, *tables: Tensor) -> Tensor:
            whole = [where[:1].repeat(len(table), 1) for table in tables]
            for rows, table in zip(whole, tables, strict=True):
                rows[:, columns] = table
            return self.kernel(theta, *whole)

        lengths = iter(correlation_lengths(of_one_output, hyper, where[:, columns]))
        return tuple(math.inf if c in outputs else next(lengths) for c in range(where.shape[1]))

    def deep(self, d: int) -> bool:
        """Return whether the kernel has a network, so that rows are near by their inputs alone."""
        return any(isinstance(s, Param) for s in self.kernel.sites(d).values())

    def scaled(self, X: Tensor) -> Tensor:
        """Return the coordinates in the lengths by which rows are near."""
        where = places(self.drift, X)
        if self.lengths is None:
            return where
        lengths = where.new_tensor(self.lengths)
        return where @ lengths if lengths.ndim == 2 else where / lengths

    def sets(self, X: Tensor) -> Sets:
        """Return the neighbours of the rows; they are searched once for the same rows."""
        known: tuple[Tensor, Sets] | None = vars(self).get("_sets_of")
        if known is not None and (known[0] is X or torch.equal(known[0], X)):
            return known[1]
        scaled = self.scaled(X.detach())
        order = order_of_rows(scaled, self.order, self.seed)
        near = nearest_earlier(scaled[order], self.number)
        members = torch.where(near >= 0, order[near.clamp_min(0)], -1)
        sets = Sets(torch.cat([members, order[:, None]], 1).int())
        vars(self)["_sets_of"] = (X, sets)
        return sets

    def members_after(self, train: Tensor, X: Tensor) -> Tensor:
        """Return the sets of new rows [m, k + 1], numbered after the training rows."""
        n, m = len(train), len(X)
        old, new = self.scaled(train), self.scaled(X)
        number = self.number_for(n)
        near = nearest_rows(old, new, number)
        away = (old[near] - new[:, None]).norm(dim=-1)
        between = torch.cdist(new, new, compute_mode="donot_use_mm_for_euclid_dist")
        later = torch.ones(m, m, dtype=torch.bool, device=X.device).triu()
        between = between.masked_fill(later, torch.inf)
        numbers = torch.cat([near, n + torch.arange(m, device=X.device).expand(m, m)], 1)
        width = min(number, n + m - 1)
        nearest = torch.cat([away, between], 1).topk(width, largest=False)
        members = numbers.gather(1, nearest.indices).masked_fill(nearest.values.isinf(), -1)
        itself = n + torch.arange(m, device=X.device)[:, None]
        return torch.cat([members, itself], 1)

    def outdated(self, theta: Theta, X: Tensor) -> bool:
        """Return whether lengthscales relative to one another have changed by more than 2.

        Under a metric these are those of all directions.
        """
        if self.lengths is None or self.deep(len(self.lengths)):
            return False
        new = self.lengths_of(under("kernel", theta), places(self.drift, X))
        before, after = (torch.tensor(each, dtype=torch.float64) for each in (self.lengths, new))
        if before.ndim == 2 or after.ndim == 2:
            return _turned(before, after)
        pairs = zip(after.tolist(), before.tolist(), strict=True)
        ratios = [a / b for a, b in pairs if math.isfinite(a)] or [1.0]
        return max(ratios) > MOVED * min(ratios)

    def notes(self, theta: Theta, X: Tensor) -> list[str]:
        """Return warnings about neighbours that are no longer the nearest, and about a network."""
        notes = self.kernel.check_fit(under("kernel", theta), places(self.drift, X))
        middle = {name: value.median(0).values for name, value in theta.items()}
        if not self.outdated(middle, X):
            return notes
        sentence = (
            "the ratio of two lengthscales differs by more than a factor of 2 from that by which "
            "neighbours were chosen: fit by MAP, which chooses them again, and then fit its "
            "posterior.model by this method"
        )
        return [*notes, sentence]

    def too_few(self, law: Law, X: Tensor) -> list[str]:
        """Return a warning about few neighbours; [] if there are enough.

        The logarithm of the standard deviation of each row given its neighbours, minus that given
        all rows before it, is on average the Kullback-Leibler divergence per row of the
        approximation from the process. Schafer, Katzfuss & Owhadi (2021). Given more neighbours it
        is smaller, so that the difference between two numbers of neighbours is a lower bound of it.

        Args:
            law: The covariances of the rows.
            X: The training rows [n, d].
        """
        m, more = min(self.number, len(X) - 1), min(MORE, len(X) - 1)
        if m >= min(ENOUGH, more):
            return []
        # the weight of a row itself is one over its variance given its neighbours
        few, many = (
            law.weights(replace(self, neighbours=number).sets(X))[-1].log().mean()
            for number in (m, more)
        )
        ratio = math.exp(0.5 * float(many - few))
        if ratio < LARGER:
            return []
        percent = f"{100 * (ratio - 1):.0f} %"
        return [
            f"given {m} neighbours, the standard deviations of rows are {percent} larger than "
            f"given {more}: a poor approximation; pass neighbours={more}"
        ]


def _turned(before: Tensor, after: Tensor) -> bool:
    """Return whether the ratio of two distances has changed by more than 2 under another metric.

    Directions along which rows are hardly apart under both do not count.

    Args:
        before: The lengths [d], or P [d, r] of a metric.
        after: The others.
    """
    products = []
    for each in (before, after):
        P = each if each.ndim == 2 else torch.diag(1 / each)
        product = P @ P.mT
        floor = HARDLY * product.trace() / len(product)
        products.append(product + floor * torch.eye(len(product)).to(product))
    L = torch.linalg.cholesky(products[0])
    half = torch.linalg.solve_triangular(L, products[1], upper=False)
    whole = torch.linalg.solve_triangular(L, half.mT, upper=False)
    ratios = torch.linalg.eigvalsh(whole)
    return bool(ratios[-1] > MOVED**2 * ratios[0])


def correlation_lengths(
    kernel: Callable[..., Tensor], theta: Mapping[str, Tensor], X: Tensor
) -> tuple[float, ...]:
    """Return the distance along each column at which the correlation with the centre is half.

    A nugget is left out. The distances are from 1e-4 of the smallest spread of a column to 1e4
    times the largest. A column along which the correlation never falls so far has the longest.
    The length is 1 where all rows are equal.

    Args:
        kernel: (theta, X1 [n, d], X2 [m, d]) -> [n, m].
        theta: Its hyperparameters, one draw.
        X: [n, d], the rows.
    """
    centre = X.mean(0)
    spreads = X.amax(0) - X.amin(0)
    if not bool((spreads > 0).any()):
        return (1.0,) * X.shape[1]
    decades = spreads[spreads > 0].log10()
    low, high = float(decades.min()) - REACH, float(decades.max()) + REACH
    count = 1 + math.ceil((high - low) * DISTANCES)
    distances = torch.logspace(low, high, count, dtype=X.dtype, device=X.device)
    lengths = []
    for column in range(X.shape[1]):
        beside = centre[None].clone()
        beside[0, column] += 1e-6 * distances[0]
        of_none = kernel(theta, centre[None], beside).flatten()
        tried, length = distances, float(distances[-1])
        for _ in range(PASSES):
            moved = centre.repeat(len(tried), 1)
            moved[:, column] += tried
            correlation = kernel(theta, centre[None], moved).flatten() / of_none
            below = torch.nonzero(correlation < HALF).flatten()
            first = int(below[0]) if len(below) else len(tried) - 1
            length = float(tried[first])
            if first == 0 or not len(below):
                break
            start, end = tried[first - 1 : first + 1].log10().tolist()
            tried = torch.logspace(start, end, FINER, dtype=X.dtype, device=X.device)
        lengths.append(length)
    return tuple(lengths)


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
    if X.shape[1] > TREE_COLUMNS:
        return _compared(X, X, neighbours, earlier=True)
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
    if X.shape[1] > TREE_COLUMNS:
        return _compared(X, places, k, earlier=False)
    tree = KDTree(X.detach().cpu().numpy())
    _, near = tree.query(places.detach().cpu().numpy(), k)
    return from_numpy(np.asarray(near).reshape(len(places), k)).to(X.device)


def _compared(X: Tensor, places: Tensor, neighbours: int, earlier: bool) -> Int[Tensor, "m k"]:
    """Return the rows of X that are nearest to each place, by comparing all of them.

    Args:
        X: [n, d].
        places: [m, d].
        neighbours: The number k.
        earlier: Whether the places are the rows, and only rows before each of them count.

    Returns:
        [m, k], the nearest first; -1 where fewer rows come before.
    """
    n, device = len(X), X.device
    k = min(neighbours, max(n - 1, 1)) if earlier else neighbours
    found = []
    step = max(1, COMPARED // max(n, 1))
    for start in range(0, len(places), step):
        some = places[start : start + step].detach()
        stop = min(n, start + step) if earlier else n
        away = torch.cdist(some, X[:stop].detach())
        if earlier:
            rows = torch.arange(start, start + len(some), device=device)[:, None]
            away = away.masked_fill(torch.arange(stop, device=device) >= rows, torch.inf)
        width = min(k, stop)
        values, near = away.topk(width, largest=False)
        near = near.masked_fill(values.isinf(), -1)
        found.append(torch.nn.functional.pad(near, (0, k - width), value=-1))
    return torch.cat(found)
