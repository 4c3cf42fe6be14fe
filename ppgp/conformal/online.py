"""Online conformal prediction, for sequences that drift: past misses steer the sets."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.arrays import as_tensor
from ..errors import DataError, NotApplicable, SettingError, counted, listed
from ..posterior.prediction import Prediction
from ..posterior.region import Region, exact_level
from .scores.base import Score, check_prediction, check_score

DENOMINATOR = 10**9  # alpha_1 is the level as written, not the double next to it
LEAST_STEP = 0.1  # of PID, as a share of the largest recent score


@dataclass(frozen=True, eq=False)
class Online:
    """The result of an online method.

    Attributes:
        region: the set for each row in time, made before its y was observed.
        errors: [T] bool, whether the set of the row missed y.
        alphas: [T], the miscoverage that each set was made for (NaN for methods that steer the
            threshold itself).
        thresholds: [T], the threshold of the score for each set.
    """

    region: Region
    errors: Tensor
    alphas: Tensor
    thresholds: Tensor

    @property
    def coverage(self) -> float:
        """The share of rows covered."""
        return 1.0 - float(self.errors.double().mean())


class _PastScores:
    """The past scores (at most ``window`` of them), and their conformal threshold."""

    def __init__(self, scores: Sequence[float], window: int | None) -> None:
        self.window = window
        self.in_time: list[float] = []
        self.ordered: list[float] = []
        for s in scores:
            self.add(s)

    def add(self, score: float) -> None:
        self.in_time.append(score)
        bisect.insort(self.ordered, score)
        if self.window is not None and len(self.in_time) > self.window:
            del self.ordered[bisect.bisect_left(self.ordered, self.in_time.pop(0))]

    def threshold(self, alpha: float) -> float:
        """Return the threshold at miscoverage alpha, which may lie outside (0, 1).

        It is +inf at alpha <= 0 and -inf (nothing is covered) at alpha >= 1: the long-run bound
        needs both.
        """
        if alpha <= 0:
            return math.inf
        if alpha >= 1:
            return -math.inf
        share = 1 - Fraction(alpha).limit_denominator(DENOMINATOR)
        k = max(math.ceil((len(self.ordered) + 1) * share), 1)  # an alpha next to 1 rounds to 1
        return self.ordered[k - 1] if k <= len(self.ordered) else math.inf


def _missed(score: float, threshold: float, floor: float | None) -> float:
    """Return 1 where the row is not covered, else 0.

    A threshold of -inf covers nothing, unless the score's sets are never empty.
    """
    if floor is not None:
        return float(score > max(threshold, floor))
    return float(score > threshold or threshold == -math.inf)


def _scores(
    score: Score, prediction: Prediction, y: Any, level: float, calibration: Any
) -> tuple[Tensor, list[float]]:
    """Return the scores of the sequence, and of the rows before it, at the nominal level."""
    check_prediction(prediction)
    score.check(prediction)
    if score.sides != 1:
        do = "use Absolute, Normalized, Quantile or PIT"
        raise NotApplicable("a score with one side", repr(score), do)
    y = as_tensor(y, "y")
    if y.shape != (len(prediction),):
        do = "pass the y of those rows, in their order"
        raise DataError(f"one y per row ({len(prediction)})", f"shape {list(y.shape)}", do)
    scores = score.score(prediction, y, level)
    bad = torch.nonzero(torch.isnan(scores)).flatten().tolist()
    if bad:
        got = f"NaN in {listed(bad, 'row')}"
        raise DataError("finite scores", got, "check the predictions of those rows")
    return scores, _earlier_scores(score, calibration, level)


def _earlier_scores(score: Score, calibration: Any, level: float) -> list[float]:
    """Return the scores of the rows before the first.

    Raises:
        SettingError: if they are scores of another kind, from which no threshold for this one
            follows.
        NotApplicable: if the rows have groups or weights, which online methods do not use.
    """
    if calibration is None:
        return []
    if calibration.score != score:
        do = "calibrate with the score of the online method"
        raise SettingError(f"calibration rows scored by {score!r}", repr(calibration.score), do)
    for name in ("groups", "weights"):
        if getattr(calibration, name) is not None:
            expected = "calibration rows that all count alike"
            raise NotApplicable(expected, name, "calibrate without them")
    return calibration.scores(level).tolist()


def _result(
    score: Score,
    prediction: Prediction,
    scores: Tensor,
    thresholds: list[float],
    alphas: list[float],
    level: float,
    sentence: str,
) -> Online:
    """Return the sets at these thresholds, with the rows that they missed."""
    q = torch.tensor(thresholds, dtype=torch.float64).to(scores)
    each_alpha = torch.tensor(alphas, dtype=torch.float64)
    if score.floor is not None:
        q = q.clamp_min(score.floor)
        region = score.region(prediction, q, level)
        return Online(replace(region, guarantee=sentence), scores > q, each_alpha, q)
    nothing = torch.isneginf(q)  # a set that must be empty, whatever the score
    region = score.region(prediction, torch.where(nothing, torch.zeros_like(q), q), level)
    region = replace(_emptied(region, nothing), guarantee=sentence)
    return Online(region, (scores > q) | nothing, each_alpha, q)


def _emptied(region: Region, rows: Tensor) -> Region:
    """Return the sets, those of ``rows`` [T] (bool) replaced by the empty set."""
    if region.labels is not None:
        return replace(region, labels=region.labels & ~rows[:, None])
    lower, upper = region
    lower, upper = torch.where(rows, torch.inf, lower), torch.where(rows, -torch.inf, upper)
    pieces = region.pieces
    if pieces:
        each = zip(pieces, rows.tolist(), strict=True)
        pieces = tuple(() if empty else row for row, empty in each)
    return replace(region, lower=lower, upper=upper, pieces=pieces)


def _check_settings(score: Score, level: float, rates: Sequence[float], window: Any) -> None:
    check_score(score)
    exact_level(level)
    for rate in rates:
        if not (isinstance(rate, int | float) and rate > 0 and math.isfinite(rate)):
            raise SettingError("a rate above 0", repr(rate), "for example 0.01")
    if window is None:
        return
    if isinstance(window, bool) or not isinstance(window, int) or window < 1:
        expected = "a window of at least one score, or None"
        raise SettingError(expected, repr(window), "for example 100")


@dataclass(frozen=True)
class ACI:
    """Adaptive conformal inference: alpha_{t+1} = alpha_t + rate (alpha - missed_t).

    Gibbs & Candes (2021), equation 2. ``ACI(score, level)(prediction, y, calibration=None) ->
    Online``, with rows in the order of time; each set uses earlier rows alone.

    For any sequence, |share missed - alpha| <= (max(alpha_1, 1 - alpha_1) + rate) / (rate T). Sets
    are empty where alpha_t >= 1: the bound needs it. A score whose sets are never empty
    (``LAC(keep_best=True)``, ``Quantile(widen_only=True)``) keeps them so; alpha_t then stops at 1,
    and the share missed is bounded from above alone.

    Args:
        score: the conformal score, with one side; it is computed at the nominal level, and the
            threshold moves.
        level: the long-run coverage.
        rate: how fast alpha_t moves.
        window: how many past scores count; None: all.
    """

    score: Score
    level: float = 0.9
    rate: float = 0.01
    window: int | None = None

    def __post_init__(self) -> None:
        _check_settings(self.score, self.level, [self.rate], self.window)

    def bound(self, rows: int) -> float:
        """Return the largest possible |share missed - (1 - level)| after so many rows."""
        alpha = float(1 - exact_level(self.level))
        return (max(alpha, 1 - alpha) + self.rate) / (self.rate * rows)

    def __call__(self, prediction: Prediction, y: Any, calibration: Any = None) -> Online:
        """Return the set for each row of the sequence, and which of them missed y.

        Args:
            prediction: of the T rows, in the order of time.
            y: [T], their true values.
            calibration: a Calibrator with the same score, whose rows come before the first; None:
                no earlier rows.

        Returns:
            The Online result, whose sentence holds for any sequence.

        Raises:
            NotApplicable: if the score has two sides or is not for such a y, or the calibration
                rows have groups or weights.
            SettingError: if the calibration rows have another score.
            DataError: if y does not match the prediction, or a score is NaN.
        """
        scores, earlier = _scores(self.score, prediction, y, self.level, calibration)
        past, alpha = _PastScores(earlier, self.window), float(1 - exact_level(self.level))
        thresholds: list[float] = []
        alphas: list[float] = []
        now, floor = alpha, self.score.floor
        highest = math.inf if floor is None else 1.0
        for s in scores.tolist():
            thresholds.append(past.threshold(now))
            alphas.append(now)
            now = min(now + self.rate * (alpha - _missed(s, thresholds[-1], floor)), highest)
            past.add(s)
        text = _long_run(self.level, self.bound(len(scores)), len(scores), floor is None)
        return _result(self.score, prediction, scores, thresholds, alphas, self.level, text)


def _long_run(level: float, bound: float, rows: int, both_sides: bool) -> str:
    """Return what is guaranteed of any sequence; nothing is, where the bound reaches coverage 0."""
    over = f"over {counted(rows, 'row')}"
    if not bound < level:
        which = f"the long-run bound of {bound:.2g} on |coverage - {level}|"
        return f"heuristic: {over} {which} says nothing"
    if both_sides:
        return f"long-run coverage {level} +- {bound:.2g} {over}, whatever the sequence"
    return f"long-run coverage >= {level} - {bound:.2g} {over}, whatever the sequence"


@dataclass(frozen=True)
class AgACI:
    """ACI at several rates at once, their alphas averaged by past pinball loss.

    Zaffran et al. (2022). The alphas of the experts, one per rate, are combined by Bernstein online
    aggregation (Wintenberger 2017); no long-run bound is known.

    Args:
        score: the conformal score, with one side; it is computed at the nominal level.
        level: the coverage wanted.
        rates: how fast the alpha of each expert moves.
        window: how many past scores count; None: all.
    """

    score: Score
    level: float = 0.9
    rates: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03, 0.1)
    window: int | None = None

    def __post_init__(self) -> None:
        _check_settings(self.score, self.level, self.rates, self.window)

    def __call__(self, prediction: Prediction, y: Any, calibration: Any = None) -> Online:
        """Return the set for each row of the sequence; arguments and errors as in ``ACI``."""
        scores, earlier = _scores(self.score, prediction, y, self.level, calibration)
        past, alpha = _PastScores(earlier, self.window), float(1 - exact_level(self.level))
        rates, floor = np.array(self.rates), self.score.floor
        highest = math.inf if floor is None else 1.0
        experts = np.full(len(rates), alpha)
        regret, variance, largest = (np.zeros(len(rates)) for _ in range(3))
        thresholds: list[float] = []
        alphas: list[float] = []
        for s in scores.tolist():
            eta = np.minimum(
                0.5 / np.maximum(largest, 1e-12),
                np.sqrt(np.log(len(rates) + 1) / np.maximum(variance, 1e-12)),
            )
            weights = eta * np.exp(eta * regret - (eta * regret).max())
            weights /= weights.sum()
            now = float(weights @ experts)
            thresholds.append(past.threshold(now))
            alphas.append(now)
            # the level at which this score would just have been covered: the experts' best answer
            beta = 1.0 - bisect.bisect_left(past.ordered, s) / (len(past.ordered) + 1)
            loss = (experts - beta) * ((beta < experts) - alpha)
            excess = float(weights @ loss) - loss
            variance += excess**2
            largest = np.maximum(largest, np.abs(excess))
            regret += excess * (1 - eta * excess)
            missed = np.array([_missed(s, past.threshold(a), floor) for a in experts])
            experts = np.minimum(experts + rates * (alpha - missed), highest)
            past.add(s)
        text = "none: experts averaged, for sequences that drift (heuristic)"
        return _result(self.score, prediction, scores, thresholds, alphas, self.level, text)


@dataclass(frozen=True)
class PID:
    """Conformal PID control: q_{t+1} = q_t + rate_t (missed_t - alpha) + integral.

    The threshold itself follows the misses. Angelopoulos, Candes & Tibshirani (2023). The
    proportional rate is ``rate`` times the range of the last ``window`` scores; the integrator is
    the paper's tangent with constant ``saturation``.

    Without the integrator the coverage of a sequence is bounded for steps of any size
    (Angelopoulos, Barber & Bates 2024, theorem 2): over T rows, with steps e_t and scores that span
    B, |share missed - alpha| <= (B + max e_t) / T * (1 / e_1 + sum over t of
    |1 / e_t - 1 / e_{t - 1}|). Steps that follow a changing scale make the bound large. Where it
    exceeds the level, and with the integrator, the sentence is "heuristic".

    Args:
        score: the conformal score, with one side; it is computed at the nominal level.
        level: the long-run coverage.
        rate: the proportional rate, as a share of the range of recent scores.
        window: how many recent scores set the range.
        saturation: the constant of the integrator; None: no integrator.
    """

    score: Score
    level: float = 0.9
    rate: float = 0.1
    window: int = 100
    saturation: float | None = None

    def __post_init__(self) -> None:
        _check_settings(self.score, self.level, [self.rate], self.window)

    def __call__(self, prediction: Prediction, y: Any, calibration: Any = None) -> Online:
        """Return the set for each row of the sequence; arguments and errors as in ``ACI``."""
        scores, earlier = _scores(self.score, prediction, y, self.level, calibration)
        alpha, floor = float(1 - exact_level(self.level)), self.score.floor
        lowest = -math.inf if floor is None else floor
        past = list(earlier)
        track, total = self._first_threshold(earlier, alpha), 0.0
        thresholds: list[float] = []
        steps: list[float] = []
        for t, s in enumerate(scores.tolist(), start=1):
            thresholds.append(track + self._integral(total, t, past))
            missed = _missed(s, thresholds[-1], floor)
            past.append(s)
            steps.append(self._step(past))
            track = max(track + steps[-1] * (missed - alpha), lowest)
            total += missed - alpha
        rows = len(thresholds)
        text = "heuristic: no bound is known for the integrator over finitely many rows"
        if self.saturation is None:
            values = [thresholds[0], *scores.tolist()]
            if floor is not None:
                values.append(floor)
            text = self._sentence(bound_of_steps(steps, values), rows)
        alphas = [math.nan] * rows
        return _result(self.score, prediction, scores, thresholds, alphas, self.level, text)

    def _first_threshold(self, earlier: list[float], alpha: float) -> float:
        """Return the conformal threshold of the earlier rows, or their largest score; else 0."""
        if not earlier:
            return 0.0
        first = _PastScores(earlier, None).threshold(alpha)
        return first if math.isfinite(first) else max(earlier)

    def _step(self, past: list[float]) -> float:
        """Return the step size after these scores.

        Equal scores have no range, and a step of 0 would freeze the threshold for ever.
        """
        recent = [v for v in past[-self.window :] if math.isfinite(v)]
        if not recent:
            return self.rate
        spread = max(max(recent) - min(recent), LEAST_STEP * max(map(abs, recent)))
        return self.rate * (spread or 1.0)

    def _sentence(self, bound: float, rows: int) -> str:
        over = f"over {counted(rows, 'row')}"
        if not bound < self.level:
            return f"heuristic: the step size varied too much for a bound {over}"
        if self.score.floor is not None:
            coverage = f"long-run coverage >= {self.level} - {bound:.2g}"
        else:
            coverage = f"long-run coverage {self.level} +- {bound:.2g}"
        return f"{coverage} {over}, for scores in the range seen"

    def _integral(self, total: float, t: int, past: list[float]) -> float:
        """Return the integrator's part of the threshold, in units of the largest recent score."""
        if self.saturation is None or not past:
            return 0.0
        x = total * math.log(t + 1) / (self.saturation * (t + 1))
        scale = max((abs(v) for v in past[-self.window :] if math.isfinite(v)), default=1.0)
        if abs(x) < math.pi / 2:
            return scale * math.tan(x)
        return scale * math.copysign(1e6, x)


def bound_of_steps(steps: Sequence[float], values: Sequence[float]) -> float:
    """Return the largest |share missed - alpha| possible with these steps.

    The rule is q_{t+1} = q_t + steps_t (missed_t - alpha). Angelopoulos, Barber & Bates (2024),
    theorem 2: thresholds stay within max(steps) of the range of ``values``, and summation by parts
    turns the sum of misses into differences of thresholds.

    Args:
        steps: the step sizes, in the order of time.
        values: the scores, the first threshold, and the floor of the score where it has one.

    Returns:
        The bound; inf where there are no steps or a value is infinite.
    """
    span = max(values) - min(values)
    if not steps or not math.isfinite(span):
        return math.inf
    inverse = [1 / step for step in steps]
    variation = inverse[0] + sum(abs(b - a) for a, b in pairwise(inverse))
    return (span + max(steps)) * variation / len(steps)
