"""Venn-Abers: two probabilities for each row, one of which is perfectly calibrated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.arrays import as_tensor
from ..errors import DataError, listed


@dataclass(frozen=True, eq=False)
class VennAbers:
    """Isotonic regression on calibration rows and the new one, once labelled 0 and once 1. Vovk & Petej (2014).

    ``VennAbers(scores, labels)(new_scores) -> (p0, p1)``; any score that rises with the probability of label 1 serves.

    Raises:
        DataError: if labels are not 0 and 1.
    """

    scores: Any
    labels: Any

    def __post_init__(self) -> None:
        s, y = as_tensor(self.scores, "scores"), as_tensor(self.labels, "labels")
        if s.ndim != 1 or s.shape != y.shape or not len(s):
            raise DataError(
                "scores [n] and labels [n]",
                f"{list(s.shape)} and {list(y.shape)}",
                "pass one of each a row",
            )
        if not bool(((y == 0) | (y == 1)).all()) or not bool(torch.isfinite(s).all()):
            raise DataError("labels 0 and 1 and finite scores", "others", "recode the labels")
        object.__setattr__(self, "scores", s.double())
        object.__setattr__(self, "labels", y.double())

    def __call__(self, new: Any) -> tuple[Tensor, Tensor]:
        """(p0, p1), each [m], p0 <= p1. O(n log n + m log n) after Vovk, Petej & Fedorova (2015)."""
        values, inverse = np.unique(self.scores.numpy(), return_inverse=True)
        counts = np.bincount(inverse).astype(float)
        ones = np.bincount(inverse, weights=self.labels.numpy())
        upper = np.append(_fits(counts, ones), 1.0)
        lower = np.append(1.0 - _fits(counts[::-1], (counts - ones)[::-1])[::-1], 0.0)
        x = as_tensor(new, "scores").double().cpu().numpy()
        if np.isnan(x).any():
            raise DataError(
                "new scores that are numbers",
                f"NaN in {listed(np.flatnonzero(np.isnan(x)).tolist(), 'row')}",
                "drop them",
            )
        # a row between two values is pooled with the next above where it is labelled 1, with the next below where 0
        p1 = upper[np.searchsorted(values, x, "left")]
        p0 = lower[np.searchsorted(values, x, "right") - 1]
        return torch.as_tensor(p0), torch.as_tensor(p1)

    def probability(self, new: Any) -> Tensor:
        """[m]: the two merged for the log loss, p1 / (1 - p0 + p1)."""
        p0, p1 = self(new)
        return p1 / (1 - p0 + p1)


def _fits(counts: np.ndarray, ones: np.ndarray) -> np.ndarray:
    """[k]: the isotonic fit at each of k values if one more row labelled 1 stood there. Algorithms 1 and 2 of the 2015 paper.

    The fit is a slope of the greatest convex minorant of the cumulative sums; one more row labelled 1 at value i shifts the
    points below i by (-1, -1). From i to i + 1 one point moves, and the minorant is mended at its left end: O(k) in all.
    """
    x, y = counts.cumsum().tolist(), ones.cumsum().tolist()
    hull: list[
        tuple[float, float]
    ] = []  # the minorant from the edge at i rightwards; its left end is last

    def push(point: tuple[float, float]) -> None:
        while len(hull) > 1 and not _left_turn(point, hull[-1], hull[-2]):
            hull.pop()
        hull.append(point)

    for point in [*zip(x[::-1], y[::-1], strict=True), (-1.0, -1.0)]:
        push(point)
    fits = np.empty(len(counts))
    for i in range(len(counts)):
        (x0, y0), (x1, y1) = hull[-1], hull[-2]
        fits[i] = (y1 - y0) / (x1 - x0)
        moved = (x[i] - 1.0, y[i] - 1.0)
        if (moved[1] - y0) * (x1 - x0) < (y1 - y0) * (moved[0] - x0) and i + 1 < len(counts):
            hull.pop()
            push(moved)
    return fits


def _left_turn(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    return (b[0] - a[0]) * (c[1] - a[1]) > (b[1] - a[1]) * (c[0] - a[0])
