"""Calibrator: a conformal score with the rows that it is measured on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ..errors import DataError, NotApplicable, counted_are, listed
from ..numerics.finite import all_finite
from ..posterior.origin import Origin
from ..posterior.prediction import Prediction
from ..posterior.region import Region, exact_level
from ..runtime.fingerprint import fingerprint
from .calibration_checks import group_labels, groups_missing, if_not_used
from .ranks import rank, smallest_n, threshold
from .scores.base import Score, check_prediction, made_otherwise, raised_at_ties
from .weighted_threshold import check_weights, weighted_threshold
from .weights import Decay

__all__ = ["Calibrator", "without_nan"]

SHOWN = 5  # groups that a message names


@dataclass(frozen=True, eq=False)
class Calibrator:
    """A score with the calibration rows it is measured on; call it on new predictions.

    ``calibrate`` returns it, and ``calibrator(new_prediction, level=0.9) -> Region``. The threshold
    of a one-sided score without weights is its k-th smallest value in n rows, with
    k = ceil((n + 1) level), in the units of the score. Papadopoulos et al. (2002); Vovk, Gammerman
    & Shafer (2005). Given the calibration rows, the coverage is Beta(k, n + 1 - k) for distinct
    scores and i.i.d. rows (Vovk 2012); ``coverage_band`` is the central part of this distribution.

    Attributes:
        score: The conformal score.
        prediction: Of the n calibration rows.
        y: [n], their true values, in the units of the data.
        groups: [n], one label per row, or None.
        weights: [n], one weight per row, or ``Decay``, or None.

    Raises:
        NotApplicable: By a call, if the argument is no Prediction, or the score is not for such a
            y.
        SettingError: By a call, if the level does not lie in (0, 1).
        DataError: By a call, if groups or weights do not fit, or a score is NaN.

    Examples:
        With 99 calibration rows and level 0.9, the 90th smallest residual is the half-width:

        >>> import ppgp
        >>> from ppgp import conformal
        >>> calibration = ppgp.Prediction.from_points([0.0] * 99)
        >>> y = [float(i) for i in range(1, 100)]
        >>> calibrator = ppgp.calibrate(conformal.Absolute(), calibration, y)
        >>> calibrator
        <Calibrator Absolute() on 99 rows>
        >>> region = calibrator(ppgp.Prediction.from_points([0.0, 500.0]), level=0.9)
        >>> region.lower.tolist(), region.upper.tolist()
        ([-90.0, 410.0], [90.0, 590.0])
        >>> region.guarantee
        'marginal coverage >= 0.9 (exchangeable rows)'
        >>> low, high = calibrator.coverage_band(0.9, confidence=0.9)
        >>> round(low, 3), round(high, 3)
        (0.847, 0.944)

        With groups, each has its own threshold:

        >>> groups = ["city"] * 50 + ["farm"] * 49
        >>> calibrator = ppgp.calibrate(conformal.Absolute(), calibration, y, groups=groups)
        >>> new = ppgp.Prediction.from_points([0.0, 0.0])
        >>> calibrator(new, level=0.9, groups=["city", "farm"]).upper.tolist()
        [46.0, 95.0]
    """

    score: Score
    prediction: Prediction
    y: Tensor
    groups: np.ndarray | None = None
    weights: Tensor | Decay | None = None
    _found: dict[float, tuple[Tensor, str]] = field(default_factory=dict, init=False, repr=False)

    def __len__(self) -> int:
        return len(self.y)

    @cached_property
    def n_in_training(self) -> int:
        """The number of calibration rows that were also used in the fit."""
        return int(self.prediction.in_training_with(self.y).sum())

    @cached_property
    def n_alike(self) -> int:
        """The number of calibration rows that equal a training row, whether by chance or not."""
        return int(self.prediction.alike_with(self.y).sum())

    @property
    def origin(self) -> Origin | None:
        """The fit and the method that predicted the calibration rows."""
        return self.prediction.origin

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.score!r} on {len(self)} rows>"

    def scores(self, level: float) -> Tensor:
        """Return the calibration scores [n], or [n, 2] with one column per side.

        A score of +inf stays (it is the largest); NaN is an error.

        Raises:
            DataError: If a score is NaN; it names the rows.
        """
        return without_nan(self.score.score(self.prediction, self.y, level))

    def __call__(
        self,
        new_prediction: Prediction,
        level: float = 0.9,
        groups: Any = None,
        weights: Any = None,
    ) -> Region:
        """Return the set for each new row, with the sentence that is guaranteed.

        Args:
            new_prediction: Of the m new rows, by the same fit and method as that of the
                calibration rows; the sets are heuristic otherwise.
            level: The coverage wanted, in (0, 1).
            groups: [m], one label per new row, where the calibration rows have labels (Mondrian
                conformal prediction): each group has its own threshold.
            weights: [m], one weight per new row, where the calibration rows have weights; or
                (weights of the calibration rows, weights of the new rows), which replaces those of
                ``calibrate``.

        Returns:
            The Region of the m rows.

        Raises:
            NotApplicable: If the score is not for such a y.
            SettingError: If level does not lie in (0, 1).
            DataError: If groups or weights do not fit, or a group has no calibration rows.
        """
        exact_level(level)
        check_prediction(new_prediction)
        self.score.check(new_prediction)
        m = len(new_prediction)
        labels = self._labels(groups, m)
        pair = self._weights(weights, m)
        if labels is None and pair is None:
            q, guarantee = self._for_all_rows(level)
        else:
            scores = self.scores(level)
            q = self._thresholds(scores, level, labels, pair, m)
            q = raised_at_ties(q, scores, self.score.roundings)
            declared = isinstance(self.weights, Decay) and not isinstance(weights, tuple)
            guarantee = self._guarantee(level, pair and pair[0], declared)
        region = self.score.region(new_prediction, q, level)
        sentence = made_otherwise(new_prediction.origin, self.origin)
        if sentence is None or self.n_in_training:
            sentence = guarantee
        return replace(region, guarantee=sentence, n_calibration=len(self))

    def identity(self, level: float) -> str:
        """Return a digest of what the sets of new rows depend on besides their predictions.

        Calibrators with one digest give the same sets.

        Raises:
            NotApplicable: If the sets depend on groups or weights of the new rows.
        """
        both = {"groups": self.groups, "weights": self.weights}
        given = [name for name, value in both.items() if value is not None]
        if given:
            do = "calibrate without them, or predict and call the calibrator for parts of the rows"
            raise NotApplicable(
                "a calibrator without groups and weights", f"one with {given[0]}", do
            )
        return fingerprint(repr(self.score), len(self), *self._for_all_rows(level))

    def _for_all_rows(self, level: float) -> tuple[Tensor, str]:
        """Return the one threshold of all new rows, raised at ties, and the guarantee.

        They are kept, so that many chunks of new rows do not rank the scores again.
        """
        if level not in self._found:
            scores = self.scores(level)
            q = raised_at_ties(threshold(scores, level), scores, self.score.roundings)
            self._found[level] = q, self._guarantee(level, None, False)
        return self._found[level]

    def _thresholds(
        self,
        scores: Tensor,
        level: float,
        labels: np.ndarray | None,
        pair: tuple[Tensor, Tensor] | None,
        m: int,
    ) -> Tensor:
        """Return one threshold per new row, where groups or weights count."""
        if labels is None:
            assert pair is not None
            return weighted_threshold(scores, level, *pair).to(scores)
        q = scores.new_full((m, *scores.shape[1:]), torch.inf)
        for label in pd.unique(labels):
            here, ours = torch.as_tensor(labels == label), torch.as_tensor(self.groups == label)
            if pair is None:
                q[here] = threshold(scores[ours], level)
            else:
                old, new = pair
                q[here] = weighted_threshold(scores[ours], level, old[ours], new[here])
        return q

    def _labels(self, groups: Any, m: int) -> np.ndarray | None:
        """Return the checked group labels of the new rows; None where there are no groups."""
        if self.groups is None:
            if groups is None:
                return None
            raise groups_missing("calibration", "new")
        if groups is None:
            raise groups_missing("new", "calibration")
        labels = group_labels(groups, m)
        empty = sorted(set(labels.tolist()) - set(self.groups.tolist()), key=str)
        if empty:
            raise DataError(
                "calibration rows in every group",
                f"none in {', '.join(map(str, empty[:SHOWN]))}",
                "merge groups, or calibrate without them",
            )
        return labels

    def _weights(self, weights: Any, m: int) -> tuple[Tensor, Tensor] | None:
        """Return the weights of the calibration rows and of the new rows, or None."""
        old = self.weights
        if old is None and weights is None:
            return None
        device = self.y.device
        if isinstance(weights, tuple):
            old, weights = check_weights(weights[0], len(self)), weights[1]
        if isinstance(old, Decay):
            if weights is not None:
                expected = "no weights for the new rows, as Decay gives them 1"
                raise DataError(expected, "some", "leave them out")
            ones = torch.ones(m, dtype=torch.float64, device=device)
            return old.of(len(self)).to(device), ones
        if old is None or weights is None:
            raise DataError(
                "weights for both the calibration rows and the new ones",
                "one of the two",
                "pass calibrate(..., weights=) and calibrator(..., weights=), "
                "or here the pair (calibration, new)",
            )
        return old.to(device), check_weights(weights, m, new=True).to(device)

    def _guarantee(self, level: float, weights: Tensor | None, decay: bool) -> str:
        """Return the sentence that holds; ``decay``: whether ``Decay`` gave the weights."""
        n = len(self)
        if self.n_in_training:
            rows = f"{self.n_in_training} of {n} calibration rows"
            return f"heuristic: {rows} were also used in the fit"
        sentence = self._if_new(level, weights, decay)
        if not self.n_alike or self.n_alike < (1 - level) * (n + 1):  # they move no quantile
            return sentence
        return f"{sentence}, {if_not_used(self.n_alike, n)}"

    def _if_new(self, level: float, weights: Tensor | None, decay: bool) -> str:
        """Return the sentence that holds for rows that the fit did not use."""
        n, need = len(self), smallest_n(level, self.score.sides)
        if weights is not None:
            if decay:
                drift = "the total-variation distance when a row and the new one trade places"
                weighted = f"averaged with the weights {self.weights!r}"
                sentence = f"coverage >= {level} minus the drift ({drift}, {weighted})"
            else:
                share = weights / weights.max()
                size = float(share.sum().square() / share.square().sum())
                given = f"if the weights are exact (n_eff = {size:.0f} of {n})"
                sentence = f"marginal coverage >= {level} {given}"
            if self.groups is not None:
                sentence += ", given the group"
            return sentence
        if self.groups is not None:
            counts = pd.Series(self.groups).value_counts()
            small = sorted(str(name) for name, count in counts.items() if count < need)
            given = "given the group, groups fixed beforehand (exchangeable rows)"
            sentence = f"coverage >= {level} {given}"
            if small:
                names = ", ".join(small[:SHOWN])
                if len(small) > SHOWN:
                    names += f" and {len(small) - SHOWN} more"
                reason = f"with fewer than the {need} rows a finite set needs"
                sentence += f": infinite in {names}, {reason}"
            return sentence
        sentence = f"marginal coverage >= {level} (exchangeable rows)"
        if n < need:
            rows_are = counted_are(n, "calibration row")
            sentence += f": infinite, as {rows_are} fewer than the {need} a finite set needs"
        return sentence

    def ties(self, level: float) -> bool:
        """Return whether calibration scores repeat, so that ``coverage_band`` does not hold."""
        ordered = self.scores(level).reshape(len(self), -1).sort(0).values
        margin = self.score.roundings * torch.finfo(ordered.dtype).eps * ordered[1:].abs()
        return bool((~(ordered.diff(dim=0) > margin)).any())

    def coverage_band(
        self, level: float, confidence: float = 0.9, rows: int | None = None
    ) -> tuple[float, float]:
        """Return where the coverage lies, given these calibration rows.

        It is the central band of Beta(k, n + 1 - k), for distinct scores (see ``ties``) and i.i.d.
        rows; with ``rows``, that of the share covered among so many test rows, which is
        beta-binomial.

        Args:
            level: The nominal coverage, in (0, 1).
            confidence: The probability of the band, in (0, 1).
            rows: How many test rows; None: infinitely many.

        Returns:
            The lower and the upper end.

        Raises:
            NotApplicable: For a score with two sides, a score whose sets only grow, groups,
                weights, or calibration rows that were used in the fit: their coverage has another
                distribution.
        """
        from scipy.stats import beta, betabinom

        exclusions = {
            f"{self.score!r}, which has {self.score.sides} sides": self.score.sides != 1,
            f"{self.score!r}, whose sets only grow beyond the model's own": self.score.conservative,
            "groups": self.groups is not None,
            "weights": self.weights is not None,
            "calibration rows that were used in the fit": bool(self.n_in_training),
        }
        reasons = [name for name, holds in exclusions.items() if holds]
        if reasons:
            do = "measure the coverage on test rows: ppgp.metrics.coverage(region, y)"
            raise NotApplicable("one threshold from exchangeable rows for the band", reasons[0], do)

        n, k = len(self), rank(len(self), level)
        if k > n:
            return 1.0, 1.0
        tail = (1 - float(exact_level(confidence))) / 2
        if rows is None:
            return float(beta.ppf(tail, k, n + 1 - k)), float(beta.ppf(1 - tail, k, n + 1 - k))
        low, high = (float(betabinom.ppf(p, rows, k, n + 1 - k)) for p in (tail, 1 - tail))
        return low / rows, high / rows


def without_nan(scores: Tensor) -> Tensor:
    """Return calibration scores [n] or [n, 2], none of which is NaN.

    Raises:
        DataError: If one is; the message names the rows.
    """
    if not all_finite(scores) and bool(torch.isnan(scores).any()):
        here = torch.isnan(scores).reshape(len(scores), -1).any(1)
        bad = torch.nonzero(here).flatten().tolist()
        raise DataError(
            "finite calibration scores",
            f"NaN in {listed(bad, 'row')}",
            "check the predictions of those rows",
        )
    return scores
