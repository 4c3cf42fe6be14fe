"""Venn-Abers prediction: two probabilities for each row, one of which is perfectly calibrated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.entries.arrays import as_tensor
from ..errors import DataError, listed


@dataclass(frozen=True, eq=False)
class VennAbers:
    """Isotonic regression on calibration rows and the new one, labelled once 0 and once 1.

    ``VennAbers(scores, labels)(new_scores) -> (p0, p1)``. Any score that rises with the probability
    of label 1 can be used, in any units. Vovk & Petej (2014).

    Args:
        scores: [n], of the calibration rows.
        labels: [n], 0 or 1.

    Raises:
        DataError: If shapes differ, a score is not finite, or a label is not 0 or 1; by the call,
            if a new score is NaN.

    Examples:
        >>> from ppgp import conformal
        >>> venn = conformal.VennAbers([1, 2, 3, 4, 5, 6], [0, 0, 1, 0, 1, 1])
        >>> p0, p1 = venn([2.5, 4.5])  # the fit with the new row labelled 0, and labelled 1
        >>> [round(p, 3) for p in p0.tolist()], [round(p, 3) for p in p1.tolist()]
        ([0.0, 0.333], [0.667, 1.0])
        >>> [round(p, 3) for p in venn.probability([2.5, 4.5]).tolist()]
        [0.4, 0.6]
    """

    scores: Any
    labels: Any

    def __post_init__(self) -> None:
        s, y = as_tensor(self.scores, "scores"), as_tensor(self.labels, "labels")
        if s.ndim != 1 or s.shape != y.shape or not len(s):
            got = f"{list(s.shape)} and {list(y.shape)}"
            raise DataError("scores [n] and labels [n]", got, "pass one of each per row")
        if not bool(((y == 0) | (y == 1)).all()) or not bool(torch.isfinite(s).all()):
            raise DataError("labels 0 and 1 and finite scores", "others", "recode the labels")
        object.__setattr__(self, "scores", s.double())
        object.__setattr__(self, "labels", y.double())

    def __call__(self, new: Any) -> tuple[Tensor, Tensor]:
        """Return (p0, p1), each [m], with p0 <= p1.

        The cost is O(n log n + m log n). Vovk, Petej & Fedorova (2015).

        Args:
            new: [m], the scores of the new rows.

        Raises:
            DataError: If a new score is NaN.
        """
        values, inverse = np.unique(self.scores.numpy(), return_inverse=True)
        counts = np.bincount(inverse).astype(float)
        ones = np.bincount(inverse, weights=self.labels.numpy())
        upper = np.append(_fits(counts, ones), 1.0)
        lower = np.append(1.0 - _fits(counts[::-1], (counts - ones)[::-1])[::-1], 0.0)
        x = as_tensor(new, "scores").double().cpu().numpy()
        if np.isnan(x).any():
            got = f"NaN in {listed(np.flatnonzero(np.isnan(x)).tolist(), 'row')}"
            raise DataError("new scores that are numbers", got, "drop them")
        # a new row between two values is pooled with the next above where it is labelled 1,
        # and with the next below where it is labelled 0
        p1 = upper[np.searchsorted(values, x, "left")]
        p0 = lower[np.searchsorted(values, x, "right") - 1]
        return torch.as_tensor(p0), torch.as_tensor(p1)

    def probability(self, new: Any) -> Tensor:
        """Return one probability per row, [m]: both merged for the log loss, p1 / (1 - p0 + p1)."""
        p0, p1 = self(new)
        return p1 / (1 - p0 + p1)


def _fits(counts: np.ndarray, ones: np.ndarray) -> np.ndarray:
    """Return the isotonic fit at each of k values, [k], with one more row labelled 1 there.

    Algorithms 1 and 2 of the 2015 paper. The fit is a slope of the greatest convex minorant of the
    cumulative sums; one more row labelled 1 at value i shifts the points below i by (-1, -1). From
    i to i + 1 one point moves, and the minorant is repaired at its left end: O(k) in all.
    """
    x, y = counts.cumsum().tolist(), ones.cumsum().tolist()
    # the minorant from the edge at i rightwards; its left end is last
    hull: list[tuple[float, float]] = []

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
