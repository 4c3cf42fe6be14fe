"""Points between which the density of a mixture hides no mode.

They cover where every component begins, peaks and ends, at the component's own scale.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from . import mixture, univariate
from .rows_on_demand import RowsOnDemand

#: offsets from the mode of a component, in its scales; further apart where the component has little
#: mass
NEAR = tuple(k / 2 for k in range(9))
FAR = (5.0, 6.0, 8.0, 11.0, 16.0, 24.0, 40.0, 100.0, 1000.0)
OFFSETS = np.array(sorted({s * k for k in (*NEAR, *FAR) for s in (-1.0, 1.0)}))
TAILS = (1e-12, 1e-9, 1e-6, 1e-4, 1e-3, 0.01)
PROBABILITIES = (*TAILS, *(k / 40 for k in range(1, 40)), *(1 - p for p in reversed(TAILS)))
#: components share landmarks if these quantiles agree to a quarter of their distance
FEW = (0.1, 0.5, 0.9)
FINENESS = 4.0  # components closer than a quarter of their scale share landmarks

#: families with one mode, at ``loc``, and one ``scale``
CENTRED = ("Normal", "StudentT", "Cauchy", "Laplace", "Logistic", "SoftLaplace", "Gumbel")


def landmarks(distribution: Distribution) -> tuple[Tensor, Tensor]:
    """Return the landmarks of every row, in O(S n log(S n)) for S components and n rows.

    The number of landmarks grows with the number of different scales.

    Args:
        distribution: Of batch [draw, n].

    Returns:
        (rows [k], x [k]), sorted by rows and then x.

    Raises:
        NotApplicable: If the distribution has neither a location and a scale nor a cdf.
    """
    if isinstance(distribution, RowsOnDemand):
        distribution = distribution.whole
    modes_and_scales = _components(distribution)
    if modes_and_scales is None:
        nodes = _of_quantiles(distribution)
    else:
        nodes = _of_scales(*modes_and_scales)
    ends = _of_support(distribution)
    rows, x = (np.concatenate(parts) for parts in zip(nodes, ends, strict=True))
    order = np.lexsort((x, rows))
    like = univariate.like(distribution)
    return torch.as_tensor(rows[order], device=like.device), torch.as_tensor(x[order]).to(like)


def _components(distribution: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Return modes and scales [components, n], or None for families without them."""
    names = {c.__name__ for c in type(distribution).__mro__}
    if "NormalMixture" in names:
        pair = (v.movedim(-1, 0).flatten(0, 1) for v in (distribution.loc, distribution.scale))
    elif "StudentTPlusNormal" in names:
        pair = (
            v.expand(distribution.batch_shape)
            for v in (distribution.loc, torch.hypot(distribution.scale, distribution.spread))
        )
    elif names & set(CENTRED):
        pair = (v.expand(distribution.batch_shape) for v in (distribution.loc, distribution.scale))
    else:
        return None
    loc, scale = (v.detach().double().cpu().numpy() for v in pair)
    return loc, scale


def _of_scales(loc: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (rows, x) around the modes of components that have a location and a scale.

    Args:
        loc: [components, n].
        scale: [components, n].
    """
    rows = np.broadcast_to(np.arange(loc.shape[1]), loc.shape).ravel()
    loc, scale = loc.ravel(), scale.ravel()
    first = _distinct(rows, loc, scale / FINENESS)
    rows, loc, scale = rows[first], loc[first], scale[first]
    gaps = np.minimum(np.diff(OFFSETS, prepend=-np.inf), np.diff(OFFSETS, append=np.inf))
    x = (loc[:, None] + scale[:, None] * OFFSETS).ravel()
    width = (scale[:, None] * gaps).ravel()
    rows = rows.repeat(len(OFFSETS))
    kept = _distinct(rows, x, width)
    return rows[kept], x[kept]


def _of_quantiles(distribution: Distribution) -> tuple[np.ndarray, np.ndarray]:
    """Return (rows, x) from quantiles of each component, for families without a single scale.

    Components with nearly the same few quantiles share landmarks.
    """
    draws, n = distribution.batch_shape
    values = {}
    for name, v in univariate.parameters(distribution).items():
        values[name] = v.reshape(1, draws * n, *v.shape[2:])
    each = univariate.rebuilt(distribution, values)
    rows = np.tile(np.arange(n), draws)
    low, middle, high = _quantiles(each, FEW)
    width = (high - low) / FINENESS
    label = np.stack([_labels(*_cells(rows, x, width)) for x in (low, middle, high)])
    _, first = np.unique(label, axis=1, return_index=True)
    device = univariate.like(distribution).device
    each = univariate.take(each, torch.as_tensor(first, device=device))
    rows = rows[first]
    x = np.maximum.accumulate(_quantiles(each, PROBABILITIES), 0)
    step = np.diff(x, axis=0)
    width = np.minimum(np.vstack([step[:1], step]), np.vstack([step, step[-1:]]))
    rows = np.broadcast_to(rows, x.shape).ravel()
    kept = _distinct(rows, x.ravel(), width.ravel())
    return rows[kept], x.ravel()[kept]


def _quantiles(each: Distribution, p: tuple[float, ...]) -> np.ndarray:
    """Return the quantiles [p, k] of k distributions of batch [1, k]."""
    like = univariate.like(each)
    column = torch.tensor(p, dtype=torch.float64, device=like.device)[:, None]
    x = univariate.icdf(each, column[:, None])
    if x is None or not bool(torch.isfinite(x).all()):
        return mixture.quantile(each, column.to(like)).double().cpu().numpy()
    return x.squeeze(-2).double().cpu().numpy()


def _of_support(distribution: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return (rows, x) for the ends of the components' supports and of the line.

    The numbers next to the ends of a support are included.
    """
    draws, n = distribution.batch_shape
    like = univariate.like(distribution)
    most = torch.finfo(like.dtype).max
    whole = torch.full((1, n), most, dtype=like.dtype, device=like.device)
    points = [-whole, whole]
    for name in ("lower_bound", "upper_bound"):
        bound = getattr(distribution.support, name, None)
        if bound is not None:
            end = torch.as_tensor(bound).to(like).expand(draws, n)
            end = torch.unique(end, dim=0)
            inf = torch.full_like(end, torch.inf)
            points += [end, torch.nextafter(end, inf), torch.nextafter(end, -inf)]
    x = torch.cat(points).double().cpu().numpy()
    return np.broadcast_to(np.arange(n), x.shape).ravel(), x.ravel()


def _distinct(rows: np.ndarray, x: np.ndarray, width: np.ndarray) -> np.ndarray:
    """Return the indices of one point per cell.

    The width of a cell is the largest power of 2 that does not exceed the requested width.
    """
    order, new = _cells(rows, x, width)
    return order[new]


def _cells(rows: np.ndarray, x: np.ndarray, width: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the order of the points by cell, and which points in that order begin a cell."""
    with np.errstate(all="ignore"):
        octave = np.floor(np.log2(width))
        cell = np.floor(x / np.exp2(octave))
    order = np.lexsort((cell, octave, rows))
    new = np.zeros(len(order), dtype=bool)
    new[:1] = True
    for key in (rows, octave, cell):
        ordered = key[order]
        new[1:] |= ordered[1:] != ordered[:-1]
    return order, new


def _labels(order: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Return the number of each point's cell."""
    label = np.empty(len(order), dtype=np.int64)
    label[order] = np.cumsum(new)
    return label
