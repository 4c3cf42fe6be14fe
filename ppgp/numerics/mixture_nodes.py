"""Points of a mixture between which its density hides no mode: where every component begins, peaks and ends, at its own scale."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from . import mixture, univariate

#: places around the mode of a component, in its scales; further apart where the component has little left to say
NEAR = tuple(k / 2 for k in range(9))
FAR = (5.0, 6.0, 8.0, 11.0, 16.0, 24.0, 40.0, 100.0, 1000.0)
OFFSETS = np.array(sorted({s * k for k in (*NEAR, *FAR) for s in (-1.0, 1.0)}))
TAILS = (1e-12, 1e-9, 1e-6, 1e-4, 1e-3, 0.01)
PROBABILITIES = (*TAILS, *(k / 40 for k in range(1, 40)), *(1 - p for p in reversed(TAILS)))
FEW = (
    0.1,
    0.5,
    0.9,
)  # components with the same of these, to a quarter of their distance, have the same landmarks
FINENESS = 4.0  # components closer than a quarter of their scale have the same landmarks

#: families with one mode, at ``loc``, and one ``scale``
CENTRED = ("Normal", "StudentT", "Cauchy", "Laplace", "Logistic", "SoftLaplace", "Gumbel")


def landmarks(law: Distribution) -> tuple[Tensor, Tensor]:
    """(rows [k], x [k]), in the order of rows and x; ``law`` has batch [draw, n]. O(S n log(S n)), and as many as there are scales.

    Raises:
        NotApplicable: if the law has neither a location and a scale nor a cdf.
    """
    found = _components(law)
    nodes = _of_quantiles(law) if found is None else _of_scales(*found)
    rows, x = (np.concatenate(parts) for parts in zip(nodes, _of_support(law), strict=True))
    order = np.lexsort((x, rows))
    like = univariate.like(law)
    return torch.as_tensor(rows[order], device=like.device), torch.as_tensor(x[order]).to(like)


def _components(law: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Modes and scales [components, n], for families that have them."""
    names = {c.__name__ for c in type(law).__mro__}
    if "NormalMixture" in names:
        pair = (v.movedim(-1, 0).flatten(0, 1) for v in (law.loc, law.scale))
    elif "StudentTPlusNormal" in names:
        pair = (v.expand(law.batch_shape) for v in (law.loc, torch.hypot(law.scale, law.spread)))
    elif names & set(CENTRED):
        pair = (v.expand(law.batch_shape) for v in (law.loc, law.scale))
    else:
        return None
    loc, scale = (v.detach().double().cpu().numpy() for v in pair)
    return loc, scale


def _of_scales(loc: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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


def _of_quantiles(law: Distribution) -> tuple[np.ndarray, np.ndarray]:
    """From quantiles of each component, where a family has no single scale; components with the same few quantiles have the same."""
    draws, n = law.batch_shape
    values = {
        name: v.reshape(1, draws * n, *v.shape[2:])
        for name, v in univariate.parameters(law).items()
    }
    each = univariate.rebuilt(law, values)
    rows = np.tile(np.arange(n), draws)
    low, middle, high = _quantiles(each, FEW)
    label = np.stack(
        [_labels(*_cells(rows, x, (high - low) / FINENESS)) for x in (low, middle, high)]
    )
    _, first = np.unique(label, axis=1, return_index=True)
    each, rows = (
        univariate.take(each, torch.as_tensor(first, device=univariate.like(law).device)),
        rows[first],
    )
    x = np.maximum.accumulate(_quantiles(each, PROBABILITIES), 0)
    step = np.diff(x, axis=0)
    width = np.minimum(np.vstack([step[:1], step]), np.vstack([step, step[-1:]]))
    rows = np.broadcast_to(rows, x.shape).ravel()
    kept = _distinct(rows, x.ravel(), width.ravel())
    return rows[kept], x.ravel()[kept]


def _quantiles(each: Distribution, p: tuple[float, ...]) -> np.ndarray:
    """[p, k]: quantiles of k laws, batch [1, k]."""
    like = univariate.like(each)
    column = torch.tensor(p, dtype=torch.float64, device=like.device)[:, None]
    x = univariate.icdf(each, column[:, None])
    if x is None or not bool(torch.isfinite(x).all()):
        return mixture.quantile(each, column.to(like)).double().cpu().numpy()
    return x.squeeze(-2).double().cpu().numpy()


def _of_support(law: Any) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the supports of the components, the numbers next to them, and the ends of the line."""
    draws, n = law.batch_shape
    like = univariate.like(law)
    most = torch.finfo(like.dtype).max
    points = [
        torch.full((1, n), sign * most, dtype=like.dtype, device=like.device)
        for sign in (-1.0, 1.0)
    ]
    for name in ("lower_bound", "upper_bound"):
        bound = getattr(law.support, name, None)
        if bound is not None:
            end = torch.as_tensor(bound).to(like).expand(draws, n)
            end = torch.unique(end, dim=0)
            inf = torch.full_like(end, torch.inf)
            points += [end, torch.nextafter(end, inf), torch.nextafter(end, -inf)]
    x = torch.cat(points).double().cpu().numpy()
    return np.broadcast_to(np.arange(n), x.shape).ravel(), x.ravel()


def _distinct(rows: np.ndarray, x: np.ndarray, width: np.ndarray) -> np.ndarray:
    """Indices of one point of each cell, the cells of a row being as wide as the powers of 2 next below the widths asked for."""
    order, new = _cells(rows, x, width)
    return order[new]


def _cells(rows: np.ndarray, x: np.ndarray, width: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The order of the points by cell, and whether each, in that order, is the first of its cell."""
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
    """The number of each point's cell."""
    label = np.empty(len(order), dtype=np.int64)
    label[order] = np.cumsum(new)
    return label
