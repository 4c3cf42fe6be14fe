"""Split conformal prediction: scores of calibration rows give a threshold with a guarantee.

The guarantee holds for finite samples, where no calibration row was used in the fit. The rank of
the score that is the threshold is computed in exact arithmetic.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.dataset import Dataset
from ..data.entries.arrays import advice_on_targets, as_tensor
from ..data.stream.stream import Stream
from ..display.user_warnings import warn
from ..errors import DataError, DataWarning, NotApplicable, SettingError, counted_are, listed
from ..numerics.finite import all_finite
from ..posterior.posterior import Posterior
from ..posterior.prediction import Origin, Prediction, training_rows
from ..posterior.region import Region
from ..runtime.fingerprint import fingerprint
from ..runtime.levels import exact_level
from .calibration_checks import (
    check_codes,
    group_labels,
    groups_missing,
    if_not_used,
    refuse_names,
)
from .scores.base import Score, made_otherwise, not_a_prediction, not_a_score, raised_at_ties
from .weights import Decay, check_weights

__all__ = ["Calibrator", "StreamCalibrator", "calibrate", "rank", "smallest_n", "threshold"]

LEVEL = 0.9  # of a stream, where none is given
ROWS_AT_ONCE = 65_536  # a multiple of the blocks in which models predict, which fixes the rounding
SHOWN = 5  # groups that a message names


def calibrate(
    score: Score,
    prediction: Prediction | Posterior,
    y: Any,
    *,
    groups: Any = None,
    weights: Any = None,
    level: float = LEVEL,
) -> Calibrator:
    """Compute the conformal scores of calibration rows from their predictions and true y.

    The guarantee (coverage >= level; Vovk et al. 2005) holds for rows that are exchangeable with
    the new ones and that no part of the fit has used. For one-sided scores that are distinct and
    not conservative, without groups or weights, coverage is also <= level + 1/(n+1) (Lei et al.
    2018). Training rows are recognised: there is a DataWarning, and the sentence of every Region
    then begins with "heuristic".

    Calibration rows in files are a ``ppgp.stream`` with the target: ``calibrate(score, posterior,
    stream)`` predicts them in chunks and keeps their scores alone, 8 bytes a row. The threshold is
    the same order statistic. Scores equal those in memory where the model predicts a row alike in
    every batch, else up to rounding (``Score.roundings``).

    Args:
        score: The conformal score, such as ``Absolute()``.
        prediction: Of the n calibration rows; for a stream the posterior, which predicts them.
        y: [n], their true values, in the units of the data; or the stream.
        groups: [n], one label per row, fixed before y is observed: coverage is then guaranteed in
            each group. Vovk et al. (2005).
        weights: [n], one weight per row, the ratio of the density of new rows to that of these
            (covariate shift; Tibshirani et al. 2019), or ``Decay`` for rows in the order of time
            (Barber et al. 2023).
        level: Of the one pass over a stream. A score that depends on the level takes a further pass
            for each other level that is asked for. Rows in memory have no level here: pass it to
            the calibrator.

    Returns:
        A Calibrator: call it on the prediction of new rows.

    Raises:
        NotApplicable: If the score is not for such a y, or is no score, or the prediction is no
            Prediction.
        DataError: If y, groups or weights do not fit the prediction.
        SettingError: If level does not lie in (0, 1), or is another than 0.9 for rows in memory.

    Examples:
        Of the errors 1, ..., 9 of nine rows, the interval at level 0.8 has the 8th smallest, as
        8 = ceil((9 + 1) 0.8), on either side of the prediction:

        >>> import torch
        >>> from torch.distributions import Normal
        >>> import ppgp
        >>> from ppgp import conformal
        >>> prediction = ppgp.Prediction(Normal(torch.zeros(9), torch.ones(9)))
        >>> y = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0])
        >>> calibrator = ppgp.calibrate(conformal.Absolute(), prediction, y)
        >>> new = ppgp.Prediction(Normal(torch.tensor([20.0]), torch.ones(1)))
        >>> region = calibrator(new, level=0.8)
        >>> region.lower, region.upper
        (tensor([12.]), tensor([28.]))
        >>> region.guarantee
        'marginal coverage >= 0.8 (exchangeable rows)'

        Nine rows are too few for a finite interval at level 0.95:

        >>> calibrator(new, level=0.95).infinite
        tensor([True])
    """
    if not isinstance(score, Score):
        raise not_a_score(score)
    if isinstance(y, Stream) or level is not LEVEL:
        exact_level(level)
    if isinstance(y, Stream):
        return _of_stream(score, prediction, y, {"groups": groups, "weights": weights}, level)
    if level != LEVEL:
        do = f"leave it out, and write calibrator(prediction, level={level})"
        raise SettingError("a level for a stream alone", f"level={level} for rows in memory", do)
    if not isinstance(prediction, Prediction):
        raise not_a_prediction(prediction)
    n, kind = len(prediction), prediction.kind
    score.check(prediction)
    if isinstance(y, Dataset):
        raise DataError("y [n] of the calibration rows", "a Dataset", "pass its .y")
    if kind == "classes":
        refuse_names(y)
    y = as_tensor(y, "y")
    if y.shape != (n,):
        expected = f"one y per calibration row ({n})"
        do = advice_on_targets(y, n, "y", "pass the y of those rows")
        raise DataError(expected, f"shape {list(y.shape)}", do)
    finite = torch.isfinite(y)
    if not bool(finite.all()):
        bad = torch.nonzero(~finite).flatten().tolist()
        got = f"NaN or infinity in {listed(bad, 'row')}"
        raise DataError("finite y in the calibration rows", got, "drop those rows")
    if kind == "classes":
        check_codes(y, prediction.probabilities.shape[-1])
    labels = None
    if groups is not None:
        labels = group_labels(groups, n)
    if weights is not None and not isinstance(weights, Decay):
        weights = check_weights(weights, n)
    calibrator = Calibrator(score, prediction, y, labels, weights)
    if calibrator.n_in_training:
        _warn_of_training_rows(calibrator)
    return calibrator


def _of_stream(
    score: Score, posterior: Any, rows: Stream, given: dict[str, Any], level: float
) -> StreamCalibrator:
    """Return the calibrator of a stream."""
    if not isinstance(posterior, Posterior) or not posterior.data.is_table:
        wanted = "the posterior of a model on a table, to predict the rows of a stream"
        raise NotApplicable(
            wanted, f"{posterior!r:.60}", "write calibrate(score, posterior, stream)"
        )
    some = [name for name, value in given.items() if value is not None]
    if rows.weights_name is not None:
        some.append("weights")
    if some:
        do = "calibrate on rows in memory, or leave them out"
        raise NotApplicable("a stream without groups and weights", some[0], do)
    calibrator = StreamCalibrator(score, posterior, rows, level)
    if calibrator.n_in_training:
        _warn_of_training_rows(calibrator)
    return calibrator


def _warn_of_training_rows(calibrator: Calibrator) -> None:
    """Warn that calibration rows were also used in the fit."""
    rows = f"{calibrator.n_in_training} of {len(calibrator)} calibration rows"
    warn(
        f"{rows} were also used in the fit: their residuals are too small, and no coverage is "
        "guaranteed; calibrate on rows that the fit did not use",
        DataWarning,
    )


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
    def _in_training(self) -> tuple[int, int]:
        """How many calibration rows the fit used, and how many equal a training row."""
        used, alike = training_rows(self.prediction, self.y)
        return int(used.sum()), int(alike.sum())

    @property
    def n_in_training(self) -> int:
        """The number of calibration rows that were also used in the fit."""
        return self._in_training[0]

    @property
    def n_alike(self) -> int:
        """The number of calibration rows that equal a training row, whether by chance or not."""
        return self._in_training[1]

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
        scores = self.score.score(self.prediction, self.y, level)
        if not all_finite(scores):
            _refuse_nan(scores)
        return scores

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
        if not isinstance(new_prediction, Prediction):
            raise not_a_prediction(new_prediction)
        self.score.check(new_prediction)
        if all(given is None for given in (self.groups, self.weights, groups, weights)):
            q, guarantee = self._for_all_rows(level)
        else:
            m = len(new_prediction)
            labels, pair = self._labels(groups, m), self._weights(weights, m)
            scores = self.scores(level)
            q = self._thresholds(scores, level, labels, pair, m)
            q = raised_at_ties(q, scores, self.score.roundings)
            declared = isinstance(self.weights, Decay) and not isinstance(weights, tuple)
            guarantee = self._guarantee(level, pair and pair[0], declared)
        region = self.score.region(new_prediction, q, level)
        sentence = made_otherwise(new_prediction.origin, self.origin)
        if sentence is None or self._in_training[0]:
            sentence = guarantee
        region = copy(region)  # without the checks of its ends once more
        vars(region).update(guarantee=sentence, n_calibration=len(self))
        return region

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
        import pandas as pd

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
        n, (used, alike) = len(self), self._in_training
        if used:
            rows = f"{used} of {n} calibration rows"
            return f"heuristic: {rows} were also used in the fit"
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
        elif self.groups is not None:
            import pandas as pd

            need = smallest_n(level, self.score.sides)
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
        else:
            sentence = f"marginal coverage >= {level} (exchangeable rows)"
            if rank(n, level, self.score.sides) > n:
                rows_are = counted_are(n, "calibration row")
                need = smallest_n(level, self.score.sides)
                sentence += f": infinite, as {rows_are} fewer than the {need} a finite set needs"
        if not alike or alike < (1 - level) * (n + 1):  # they move no quantile
            return sentence
        return f"{sentence}, {if_not_used(alike, n)}"

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


def _refuse_nan(scores: Tensor) -> None:
    """Raise DataError if a calibration score [n] or [n, 2] is NaN; it names the rows."""
    here = torch.isnan(scores).reshape(len(scores), -1).any(1)
    bad = torch.nonzero(here).flatten().tolist()
    if bad:
        raise DataError(
            "finite calibration scores",
            f"NaN in {listed(bad, 'row')}",
            "check the predictions of those rows",
        )


class StreamCalibrator(Calibrator):
    """A score, and its values for the n rows of a stream in their order.

    There is one pass over the stream, which predicts the rows in chunks. A score that depends on
    the level takes one for each further level.

    Args:
        score: The conformal score.
        posterior: What predicts the rows.
        stream: The calibration rows, without weights.
        level: The level of the first pass.

    Raises:
        NotApplicable: If the score is not for such a y.
        DataError: If the labels of the stream are not those of the fit, or a score is NaN.
    """

    posterior: Any
    stream: Stream
    _scores: dict[float | None, Tensor]

    def __init__(self, score: Score, posterior: Any, stream: Stream, level: float) -> None:
        vars(self).update(score=score, posterior=posterior, stream=stream, _found={}, _scores={})
        vars(self)["_in_training"] = self._pass(level)

    def __len__(self) -> int:
        return self.stream.n

    @property
    def origin(self) -> Origin | None:
        return Origin(self.posterior, "predict")

    @property
    def prediction(self) -> Prediction:  # type: ignore[override]
        """It is not kept."""
        raise _not_kept("the predictions")

    @property
    def y(self) -> Tensor:  # type: ignore[override]
        """It is not kept."""
        raise _not_kept("the y")

    def scores(self, level: float) -> Tensor:
        key = self._key(level)
        if key not in self._scores:
            self._pass(level)
        return self._scores[key]

    def _key(self, level: float) -> float | None:
        """Return what scores are kept under: the level, for a score that depends on it."""
        return level if self.score.of_level else None

    def _pass(self, level: float) -> tuple[int, int]:
        """Go over the rows once and keep their scores.

        Returns:
            How many are training rows, and how many equal a training row, by chance or not.
        """
        parts: list[Tensor] = []
        repeated = alike = 0
        for table in self.stream.chunks(ROWS_AT_ONCE):
            prediction = self.posterior.predict(table)
            kind = prediction.kind
            self.score.check(prediction)
            y = self._codes(table.y)
            if kind == "classes":
                check_codes(y, prediction.probabilities.shape[-1])
            parts.append(self.score.score(prediction, y, level))
            used, equal = training_rows(prediction, y)
            repeated, alike = repeated + int(used.sum()), alike + int(equal.sum())
        scores = torch.cat(parts)
        if not all_finite(scores):
            _refuse_nan(scores)
        self._scores[self._key(level)] = scores
        return repeated, alike

    def _codes(self, y: Tensor) -> Tensor:
        """Return targets of the stream, labels by their codes in the fit.

        Raises:
            DataError: If the stream has labels that the training rows do not have.
        """
        known, own = self.posterior.data.classes, self.stream.classes
        if own is None or own == known or (known is None and own == (False, True)):
            return y
        if known is None:
            wanted = f"numbers in {self.stream.target_name}, as in the training rows"
            raise DataError(wanted, "labels", "name another column as target")
        strange = [label for label in own if label not in known]
        if strange:
            wanted = f"labels among {', '.join(map(str, known))}"
            do = "the training rows do not have it: drop its rows"
            raise DataError(wanted, str(strange[0]), do)
        return y.new_tensor([known.index(label) for label in own])[y.long()]


def _not_kept(what: str) -> NotApplicable:
    """Return the error for what is asked of calibration rows that are not in memory."""
    do = "write calibrate(score, posterior.predict(X), y)"
    return NotApplicable(f"{what} of calibration rows in memory", "a stream", do)


def rank(n: int, level: float, sides: int = 1) -> int:
    """Return k = ceil((n + 1) level): the k-th smallest score is the threshold.

    The arithmetic is exact, from the level as written. Floating point would sometimes give k off by
    one.
    """
    return math.ceil((n + 1) * (1 - (1 - exact_level(level)) / sides))


def smallest_n(level: float, sides: int = 1) -> int:
    """Return how many calibration rows a finite set needs: ceil(sides / alpha) - 1."""
    return math.ceil(Fraction(sides) / (1 - exact_level(level))) - 1


def threshold(scores: Tensor, level: float) -> Tensor:
    """Return the k-th smallest score, or +inf where k > n.

    It is never clipped to the largest score. The shape is [] for scores [n], and [2] for [n, 2].
    """
    columns = scores.reshape(len(scores), -1)
    k = rank(len(scores), level, columns.shape[1])
    if k > len(scores):
        q = torch.full(columns.shape[1:], torch.inf, dtype=scores.dtype, device=scores.device)
    else:
        q = columns.kthvalue(k, 0).values
    return q.reshape(scores.shape[1:])


def weighted_threshold(scores: Tensor, level: float, weights: Tensor, new: Tensor) -> Tensor:
    """Return the weighted conformal threshold for each new weight, [m] or [m, 2].

    It is the smallest score whose weight, with all below, reaches the level of the total. The total
    counts the new row, at a score of +infinity. Tibshirani, Barber, Candes & Ramdas (2019), lemma
    3. The cost is O((n + m) log n). Only ratios of weights matter: both are divided by the largest
    of the calibration rows, in double precision.

    Args:
        scores: [n], or [n, 2] with one column per side.
        level: The coverage wanted, in (0, 1).
        weights: [n], of the calibration rows.
        new: [m], of the new rows.
    """
    weights, new = weights.double(), new.double()
    largest = weights.new_ones(())
    if len(weights):
        largest = weights.max().clamp_min(torch.finfo(torch.float64).tiny)
    weights, new = weights / largest, new / largest
    columns = scores.reshape(len(scores), -1)
    side = 1 - (1 - exact_level(level)) / columns.shape[1]
    result = []
    for column in columns.T:
        ordered, order = column.sort()
        total = weights[order].cumsum(0)
        wanted = float(side) * (total[-1] + new)
        # equal weights must give the exact rank, and a sum of n of them has n rounding errors
        index = torch.searchsorted(total, wanted * (1 - 4 * torch.finfo(total.dtype).eps))
        index = torch.where(wanted > 0, index, len(ordered))  # no weight anywhere: infinite
        padded = torch.cat([ordered, ordered.new_full((1,), torch.inf)])
        result.append(padded[index])
    return torch.stack(result, -1).reshape(len(new), *scores.shape[1:])
