"""The grid of a ``SKI``: how many nodes each column needs, and whether a fit needs more."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ...errors import NotApplicable, SettingError, counted
from ...kernels import Deep, Kernel
from ...networks.layers import RADIUS
from ...networks.networks import width
from ..advice.advice import instead_of
from .cubic_interpolation import Axis, cubic_weights
from .product_kernels import is_product

MOST_COLUMNS = 4
MOST_FEATURES = 2  # of a network
NODES_OF_FEATURES = {1: 64, 2: 32}  # per feature, as the lengthscale of features is near 1
MOST_NODES = 5000  # of dense algebra, whose time grows with their cube
MOST_IN_ALL = 100_000  # of a product kernel
MOST_ALONG = 2000  # in one column, past dense algebra
CHOSEN_NODES = 1024  # the most that are chosen without being asked for
FEW_NODES = 256  # are chosen for any number of rows; more, only up to that number
FEWEST = 6  # nodes of a column
LEFT_OUT = 3e-4  # share of the variance that interpolation may leave out between nodes
NEIGHBOURS = 0.965  # correlation of neighbouring nodes, that of RBF at a quarter lengthscale
FINER = 1.1  # ratio of the numbers of nodes that are tried one after the other

Theta = Mapping[str, Tensor]


def checked(grid: object) -> None:
    """Check the option ``grid``.

    Raises:
        SettingError: If it is neither None nor one or several numbers of nodes.
    """
    if grid is None:
        return
    given = grid if isinstance(grid, tuple) else (grid,)
    whole = [k for k in given if isinstance(k, int) and not isinstance(k, bool)]
    if not whole or len(whole) < len(given) or min(whole) < FEWEST:
        got, do = repr(grid), "for example grid=32 or grid=(64, 32)"
        if any(hasattr(k, "shape") for k in given):
            got, do = "arrays", f"pass their lengths, {do}: the nodes are evenly spaced"
        raise SettingError(
            f"grid=None, or whole numbers of nodes from {FEWEST} on, one or one per column", got, do
        )


def check_columns(d: int) -> None:
    """Raise NotApplicable for more columns than a grid suits."""
    if d > MOST_COLUMNS:
        raise NotApplicable(
            f"at most {MOST_COLUMNS} columns of X for SKI, as the nodes of a grid multiply",
            str(d),
            instead_of("SKI", d),
        )


def features(kernel: Kernel, d: int) -> int | None:
    """Return the number of features of a deep kernel; None for a kernel of the columns themselves.

    Raises:
        NotApplicable: For more than two features, or features of a network that are not bounded.
    """
    if not isinstance(kernel, Deep):
        return None
    q = width(kernel.network, d)
    if q > MOST_FEATURES or not getattr(kernel.network, "bounded", False):
        unbounded = "a network whose features are not bounded"
        raise NotApplicable(
            f"at most {MOST_FEATURES} bounded features of a network in SKI",
            unbounded if q <= MOST_FEATURES else f"{q} features",
            f"use MLP(hidden, out=2), or {instead_of('SKI', d, kernel=kernel)}",
        )
    return q


def axes_of_features(q: int, grid: int | Sequence[int] | None) -> tuple[Axis, ...]:
    """Return axes over the box in which all features of a bounded network lie."""
    given = NODES_OF_FEATURES[q] if grid is None else grid
    counts = (given,) * q if isinstance(given, int) else tuple(given)
    end = RADIUS / math.sqrt(q)
    if math.prod(counts) > MOST_NODES:
        do = "use a coarser grid"
        got = f"{math.prod(counts):,}"
        raise NotApplicable(f"at most {MOST_NODES:,} nodes for the features of a network", got, do)
    box = torch.tensor([[-end] * q, [end] * q], dtype=torch.float64)
    return axes_of(box, counts, 0.0)


def axis_of(low: float, high: float, margin: float, nodes: int) -> Axis:
    """Return equally spaced nodes that interpolate from low to high, and a margin beyond."""
    spread = (high - low) or 1.0
    spacing = spread * (1 + 2 * margin) / (nodes - 3)
    return Axis(low - margin * spread - spacing, spacing, nodes)


def fine_enough(kernel: Kernel, theta: Theta, centre: Tensor, column: int, spacing: float) -> bool:
    """Return whether interpolation at this spacing of a column leaves out little of f.

    The first condition is on the variance of f(x) - w'f(nodes) between two nodes, with the nodes of
    this column alone. The second, on the correlation of neighbours, is stricter for smooth kernels.

    Args:
        kernel: The kernel.
        theta: Its hyperparameters, one draw.
        centre: A place in the middle of the rows [d].
        column: The column.
        spacing: The distance between nodes.
    """
    step = torch.zeros_like(centre)
    step[column] = spacing
    offsets = torch.arange(-1, 3).to(centre)
    nodes = centre + offsets[:, None] * step
    t = torch.linspace(0.0, 1.0, 9).to(centre)[1:-1]
    rows, w = centre + t[:, None] * step, cubic_weights(t)
    with torch.no_grad():
        K, cross = kernel.shared(theta, nodes), kernel(theta, rows, nodes)
        total = kernel.shared(theta, rows).diagonal()
    left = total - 2 * (w * cross).sum(1) + ((w @ K) * w).sum(1)
    correlation = K[1, 2] / (K[1, 1] * K[2, 2]).sqrt()
    return bool((left <= LEFT_OUT * total).all()) and bool(correlation >= NEIGHBOURS)


def nodes_needed(
    kernel: Kernel,
    theta: Theta,
    centre: Tensor,
    column: int,
    low: float,
    high: float,
    margin: float,
) -> int | None:
    """Return the smallest number of nodes that is fine enough; None if ``MOST_NODES`` is not."""
    nodes = FEWEST
    while nodes <= MOST_NODES:
        if fine_enough(kernel, theta, centre, column, axis_of(low, high, margin, nodes).spacing):
            return nodes
        nodes = math.ceil(FINER * nodes)
    return None


def chosen(kernel: Kernel, theta: Theta, X: Tensor, margin: float) -> tuple[int, ...]:
    """Return a number of nodes per column for a fit that may end at shorter lengthscales.

    One or two columns get twice the nodes that theta needs. More nodes than there are rows, or than
    ``CHOSEN_NODES``, are reduced alike in all columns.
    """
    d, centre = X.shape[1], X.mean(0)
    counts = []
    for k in range(d):
        low, high = float(X[:, k].min()), float(X[:, k].max())
        wanted = nodes_needed(kernel, theta, centre, k, low, high, margin) or MOST_NODES
        counts.append(2 * wanted if d <= 2 else wanted)
    total, most = math.prod(counts), min(CHOSEN_NODES, max(FEW_NODES, len(X)))
    if total > most:
        share = (most / total) ** (1 / d)
        counts = [max(FEWEST, math.floor(share * k)) for k in counts]
    return tuple(counts)


def axes_of(X: Tensor, counts: Sequence[int], margin: float) -> tuple[Axis, ...]:
    """Return the axes of a grid around the rows of X.

    Raises:
        SettingError: If there is not one number per column.
        NotApplicable: If the nodes are too many.
    """
    d = X.shape[1]
    if len(counts) != d:
        raise SettingError(
            f"grid with {counted(d, 'number')} of nodes, one per column",
            repr(tuple(counts)),
            "pass one number for all columns, or one per column",
        )
    most = _most_nodes(counts)
    if math.prod(counts) > most:
        raise NotApplicable(
            f"at most {most:,} nodes in SKI",
            f"{math.prod(counts):,}",
            f"use a coarser grid, or {instead_of('SKI', d, len(X))}",
        )
    ends = zip(X.amin(0).tolist(), X.amax(0).tolist(), counts, strict=True)
    return tuple(axis_of(low, high, margin, nodes) for low, high, nodes in ends)


def many(axes: Sequence[Sequence[float]]) -> bool:
    """Return whether a grid has more nodes than dense algebra takes."""
    return math.prod(int(axis[2]) for axis in axes) > MOST_NODES


def _most_nodes(counts: Sequence[int]) -> int:
    """Return the most nodes that a grid of this shape may have, of a product kernel."""
    return MOST_IN_ALL if len(counts) > 1 and max(counts) <= MOST_ALONG else MOST_NODES


def too_coarse(
    kernel: Kernel, theta: Theta, X: Tensor, axes: Sequence[Axis], margin: float
) -> str | None:
    """Return a warning if the spacing is too coarse at theta, with the nodes that would do."""
    centre = X.mean(0)
    coarse = [
        k for k, axis in enumerate(axes) if not fine_enough(kernel, theta, centre, k, axis.spacing)
    ]
    if not coarse:
        return None
    counts: list[int | None] = []
    for k, axis in enumerate(axes):
        low, high = float(X[:, k].min()), float(X[:, k].max())
        counts.append(axis.nodes)
        if k in coarse:
            counts[-1] = nodes_needed(kernel, theta, centre, k, low, high, margin)
    grid = " x ".join(str(axis.nodes) for axis in axes)
    found = [k for k in counts if k is not None]
    said = f"the grid of {grid} nodes is too coarse for the fitted kernel in column"
    where = f"{said}{'s' if len(coarse) > 1 else ''} {', '.join(map(str, coarse))}"
    most = MOST_NODES
    if len(found) == len(counts) and is_product(kernel, theta, axes, X):
        most = _most_nodes(found)
    if len(found) < len(counts) or math.prod(found) > most:
        wanted = "more nodes than SKI takes"
        if len(found) == len(counts):
            wanted = f"{' x '.join(map(str, found))} nodes, more than SKI takes"
        do = instead_of("SKI", X.shape[1], len(X), kernel=kernel)
        return f"{where}: it needs {wanted}; {do}"
    numbers = str(found[0]) if len(found) == 1 else repr(tuple(found))
    return f"{where}: use SKI(kernel, grid={numbers})"
