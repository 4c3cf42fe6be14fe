"""Split conformal prediction: scores of rows that the fit has not seen give a threshold with a finite-sample guarantee."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ..data.arrays import as_tensor
from ..errors import DataError, DataWarning, NotApplicable, Renamed, counted_are, listed
from ..posterior.prediction import Prediction
from ..posterior.region import Region, exact_level
from .scores.base import Score, check_prediction, check_score, eased
from .weights import Decay, check_weights, weighted_threshold


def side_level(level: float, sides: int = 1) -> Fraction:
    """The level that each of so many sides is held to, for all of them to hold at ``level``: 1 - (1 - level) / sides, exactly."""
    return 1 - (1 - exact_level(level)) / sides


def rank(n: int, level: float, sides: int = 1) -> int:
    """k = ceil((n + 1) level) in exact arithmetic, from the level as written: the k-th smallest score is the threshold.

    In floating point it is off by one for 288 of the 49,995 pairs of n and level in steps of 0.01.
    """
    return math.ceil((n + 1) * side_level(level, sides))


def smallest_n(level: float, sides: int = 1) -> int:
    """How many calibration rows a finite set needs: ceil(sides / alpha) - 1."""
    return math.ceil(Fraction(sides) / (1 - exact_level(level))) - 1


def threshold(scores: Tensor, level: float) -> Tensor:
    """The k-th smallest score, or +inf where k > n: never clipped to the largest score. [] for scores [n], [2] for [n, 2]."""
    columns = scores.reshape(len(scores), -1)
    k = rank(len(scores), level, columns.shape[1])
    if k > len(scores):
        q = torch.full(columns.shape[1:], torch.inf, dtype=scores.dtype, device=scores.device)
    else:
        q = columns.kthvalue(k, 0).values
    return q.reshape(scores.shape[1:])


@dataclass(frozen=True, eq=False)
class Calibrator:
    """A score with the calibration rows it is measured on; call it on new predictions.

    ``calibrator(new_prediction, level=0.9) -> Region``
    """

    score: Score
    prediction: Prediction
    y: Tensor
    groups: np.ndarray | None = None
    weights: Tensor | Decay | None = None

    def __len__(self) -> int:
        return len(self.y)

    seen = Renamed("n_in_training")

    @property
    def n_in_training(self) -> int:
        """How many calibration rows the fit has seen."""
        return int(self.prediction.in_training_with(self.y).sum())

    def __repr__(self) -> str:
        return f"<Calibrator {self.score!r} on {len(self)} rows>"

    def scores(self, level: float) -> Tensor:
        """The calibration scores [n] (or [n, 2], one column a side); +inf stays (it counts as strange), NaN is refused.

        Raises:
            DataError: naming the rows whose score is NaN.
        """
        scores = self.score.score(self.prediction, self.y, level)
        bad = torch.nonzero(torch.isnan(scores).reshape(len(scores), -1).any(1)).flatten().tolist()
        if bad:
            raise DataError(
                "finite calibration scores",
                f"NaN in {listed(bad, 'row')}",
                "check the predictions of those rows",
            )
        return scores

    def __call__(
        self,
        new_prediction: Prediction,
        level: float = 0.9,
        groups: Any = None,
        weights: Any = None,
    ) -> Region:
        """The set for each row of ``new_prediction``, with the sentence that is guaranteed.

        Args:
            level: at which the sets shall cover.
            groups: one label a new row, where the calibration rows have labels (Mondrian): one threshold a group.
            weights: one a new row, where the calibration rows have weights; or the pair (of the calibration rows, of the new).

        Raises:
            SettingError: if level does not lie in (0, 1).
            DataError: if groups or weights do not fit, or a group has no calibration rows.
        """
        exact_level(level)
        check_prediction(new_prediction)
        self.score.check(new_prediction)
        scores, m = self.scores(level), len(new_prediction)
        labels = self._labels(groups, m)
        old, new = self._weights(weights, m)
        if labels is None and old is None:
            q = threshold(scores, level)
        else:
            q = scores.new_full((m, *scores.shape[1:]), torch.inf)
            for label in [None] if labels is None else pd.unique(labels):
                here = slice(None) if labels is None else torch.as_tensor(labels == label)
                ours = slice(None) if labels is None else torch.as_tensor(self.groups == label)
                if old is None or new is None:
                    q[here] = threshold(scores[ours], level)
                else:
                    q[here] = weighted_threshold(scores[ours], level, old[ours], new[here])
        region = self.score.region(new_prediction, eased(q, scores, self.score.roundings), level)
        return replace(
            region, guarantee=self._guarantee(level, old, weights), n_calibration=len(self)
        )

    def _labels(self, groups: Any, m: int) -> np.ndarray | None:
        if (groups is None) != (self.groups is None):
            here, there = ("new", "calibration") if groups is None else ("calibration", "new")
            raise DataError(
                "groups for both the calibration rows and the new ones",
                f"none for the {here} rows",
                f"pass groups as for the {there} ones",
            )
        if groups is None:
            return None
        labels = _group_labels(groups, m)
        empty = sorted(set(labels.tolist()) - set(self.groups.tolist()), key=str)  # type: ignore[union-attr]
        if empty:
            raise DataError(
                "calibration rows in every group",
                f"none in {', '.join(map(str, empty[:5]))}",
                "merge groups, or calibrate without them",
            )
        return labels

    def _weights(self, weights: Any, m: int) -> tuple[Tensor | None, Tensor | None]:
        old = self.weights
        if isinstance(weights, tuple):
            old, weights = check_weights(weights[0], len(self)), weights[1]
        if isinstance(old, Decay):
            if weights is not None:
                raise DataError(
                    "no weights for the new rows, as Decay gives them 1", "some", "leave them out"
                )
            return old.of(len(self)).to(self.y.device), torch.ones(
                m, dtype=torch.float64, device=self.y.device
            )
        if (weights is None) != (old is None):
            raise DataError(
                "weights for both the calibration rows and the new ones",
                "one of the two",
                "pass calibrate(..., weights=) and calibrator(..., weights=), or here the pair (calibration, new)",
            )
        if weights is None:
            return None, None
        new = check_weights(weights, m, new=True)
        return old.to(self.y.device), new.to(self.y.device)  # type: ignore[union-attr]

    def _guarantee(self, level: float, weights: Tensor | None, given: Any) -> str:
        n, need = len(self), smallest_n(level, self.score.sides)
        if self.n_in_training:
            return (
                f"heuristic: {self.n_in_training} of {n} calibration rows were also used in the fit"
            )
        if weights is not None:
            if isinstance(self.weights, Decay) and not isinstance(given, tuple):
                return f"coverage >= {level} minus the rows' drift, weighted by {self.weights!r}"
            share = weights / weights.max()
            size = float(share.sum().square() / share.square().sum())
            sentence = (
                f"marginal coverage >= {level} if the weights are exact (n_eff = {size:.0f} of {n})"
            )
            return sentence if self.groups is None else f"{sentence}, given the group"
        if self.groups is not None:
            counts = pd.Series(self.groups).value_counts()
            small = sorted(str(name) for name, count in counts.items() if count < need)
            sentence = (
                f"coverage >= {level} given the group, groups fixed beforehand (exchangeable rows)"
            )
            if small:
                sentence += f": infinite in {', '.join(small[:5])}, with fewer than the {need} rows a finite set needs"
            return sentence
        sentence = f"marginal coverage >= {level} (exchangeable rows)"
        if n < need:
            return f"{sentence}: infinite, as {counted_are(n, 'calibration row')} fewer than the {need} a finite set needs"
        return sentence

    def coverage_band(
        self, level: float, confidence: float = 0.9, rows: int | None = None
    ) -> tuple[float, float]:
        """Where the coverage lies given these calibration rows, for a score with one side (distinct scores, i.i.d. rows).

        The central band of Beta(k, n + 1 - k); with ``rows``, that of the share covered among so many test rows, beta-binomial.

        Raises:
            NotApplicable: for a score with two sides, or whose sets only grow, groups, weights, or rows that the fit has seen:
                their coverage follows another law.
        """
        from scipy.stats import beta, betabinom

        others = {
            f"{self.score!r}, which has {self.score.sides} sides": self.score.sides != 1,
            f"{self.score!r}, whose sets only grow beyond the model's own": self.score.conservative,
            "groups": self.groups is not None,
            "weights": self.weights is not None,
            "calibration rows that were used in the fit": bool(self.n_in_training),
        }
        odd = [name for name, holds in others.items() if holds]
        if odd:
            do = "measure the coverage on test rows: ppgp.metrics.coverage(region, y)"
            raise NotApplicable("one threshold from exchangeable rows for the band", odd[0], do)

        n, k = len(self), rank(len(self), level)
        if k > n:
            return 1.0, 1.0
        tail = (1 - float(exact_level(confidence))) / 2
        if rows is None:
            return float(beta.ppf(tail, k, n + 1 - k)), float(beta.ppf(1 - tail, k, n + 1 - k))
        return tuple(float(betabinom.ppf(p, rows, k, n + 1 - k)) / rows for p in (tail, 1 - tail))  # type: ignore[return-value]


def _group_labels(groups: Any, n: int) -> np.ndarray:
    """One label per row, none of them missing.

    Raises:
        DataError: naming the rows without a label.
    """
    labels = np.asarray(groups)
    if labels.shape != (n,):
        raise DataError(
            f"one group per row ({n})",
            f"shape {list(labels.shape)}",
            "pass the groups of those rows",
        )
    missing = np.flatnonzero(pd.isna(labels)).tolist()
    if missing:
        got = f"None or NaN in {listed(missing, 'row')}"
        raise DataError(
            "a group for every row", got, "drop those rows, or give them a group of their own"
        )
    return labels


def calibrate(
    score: Score, prediction: Prediction, y: Any, *, groups: Any = None, weights: Any = None
) -> Calibrator:
    """Measure ``score`` on calibration rows: their predictions and their true y.

    The guarantee (coverage >= level, and <= level + 1/(n+1) where scores are distinct; Vovk et al. 2005, Lei et al. 2018)
    holds for rows exchangeable with the new ones that no part of the fit has seen. Rows that the fit was trained on are
    noticed: a warning, and the sentence of every Region says "heuristic".

    Args:
        groups: one label a row, fixed before y is seen: coverage is then guaranteed in each group. Vovk et al. (2005).
        weights: one a row, the ratio of the density of new rows to that of these (covariate shift; Tibshirani et al. 2019), or
            ``Decay`` for rows in the order of time (Barber et al. 2023).

    Raises:
        NotApplicable: if the score is not for such a y, or is no score, or the prediction no Prediction.
        DataError: if y, groups or weights do not fit the prediction.
    """
    check_score(score)
    check_prediction(prediction)
    score.check(prediction)
    y = as_tensor(y, "y")
    if y.shape != (len(prediction),):
        raise DataError(
            f"one y a calibration row ({len(prediction)})",
            f"shape {list(y.shape)}",
            "pass the y of those rows",
        )
    bad = torch.nonzero(~torch.isfinite(y)).flatten().tolist()
    if bad:
        raise DataError(
            "finite y in the calibration rows",
            f"NaN or infinity in {listed(bad, 'row')}",
            "drop those rows",
        )
    labels = None if groups is None else _group_labels(groups, len(y))
    if weights is not None and not isinstance(weights, Decay):
        weights = check_weights(weights, len(y))
    calibrator = Calibrator(score, prediction, y, labels, weights)
    if calibrator.n_in_training:
        warnings.warn(
            f"{calibrator.n_in_training} of {len(prediction)} calibration rows were also used in the fit: "
            "their residuals are too small, and no coverage is guaranteed; calibrate on rows the fit has not seen",
            DataWarning,
            stacklevel=2,
        )
    return calibrator
