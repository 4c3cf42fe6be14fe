"""Conformal prediction one row after another, for sequences that drift: the level is steered by what was missed."""

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


@dataclass(frozen=True, eq=False)
class Online:
    """What an online method returns.

    Attributes:
        region: the set for each row in time, made before its y was seen.
        errors: [T] bool, rows whose set missed y.
        alphas: [T], the miscoverage that each set was made for (NaN for methods that steer the threshold itself).
        thresholds: [T]
    """

    region: Region
    errors: Tensor
    alphas: Tensor
    thresholds: Tensor

    @property
    def coverage(self) -> float:
        """The share of rows covered."""
        return 1.0 - float(self.errors.double().mean())


DENOMINATOR = 10**9  # alpha_1 is the level as written, not the double next to it
LEAST_STEP = 0.1  # of PID, as a share of the largest recent score


class _Past:
    """Scores seen so far (at most ``window`` of them), and their conformal threshold at any miscoverage."""

    def __init__(self, scores: Sequence[float], window: int | None) -> None:
        self.window = window
        self.line: list[float] = []
        self.ordered: list[float] = []
        for s in scores:
            self.add(s)

    def add(self, score: float) -> None:
        self.line.append(score)
        bisect.insort(self.ordered, score)
        if self.window is not None and len(self.line) > self.window:
            del self.ordered[bisect.bisect_left(self.ordered, self.line.pop(0))]

    def threshold(self, alpha: float) -> float:
        """+inf at alpha <= 0 and -inf (nothing is covered) at alpha >= 1: the long-run bound needs both."""
        if alpha <= 0:
            return math.inf
        if alpha >= 1:
            return -math.inf
        k = math.ceil(
            (len(self.ordered) + 1) * (1 - Fraction(alpha).limit_denominator(DENOMINATOR))
        )
        k = max(k, 1)  # an alpha next to 1 is 1 as a fraction
        return self.ordered[k - 1] if k <= len(self.ordered) else math.inf


def _missed(score: float, threshold: float, floor: float | None) -> float:
    """1 where the row is not covered; a threshold of -inf covers nothing, unless the score's sets are never empty."""
    if floor is not None:
        return float(score > max(threshold, floor))
    return float(score > threshold or threshold == -math.inf)


def _start(
    score: Score, prediction: Prediction, y: Any, level: float, calibration: Any
) -> tuple[Tensor, list[float]]:
    """Scores of the sequence, and of the rows before it; the score itself stays at the nominal level throughout."""
    check_prediction(prediction)
    score.check(prediction)
    if score.sides != 1:
        raise NotApplicable(
            "a score with one side", repr(score), "use Absolute, Normalized, Quantile or PIT"
        )
    y = as_tensor(y, "y")
    if y.shape != (len(prediction),):
        raise DataError(
            f"one y a row ({len(prediction)})",
            f"shape {list(y.shape)}",
            "pass the y of those rows, in their order",
        )
    scores = score.score(prediction, y, level)
    bad = torch.nonzero(torch.isnan(scores)).flatten().tolist()
    if bad:
        raise DataError(
            "finite scores", f"NaN in {listed(bad, 'row')}", "check the predictions of those rows"
        )
    return scores, _before(score, calibration, level)


def _before(score: Score, calibration: Any, level: float) -> list[float]:
    """The scores of the rows before the first.

    Raises:
        SettingError: if they are scores of another kind, which no threshold for this one follows from.
        NotApplicable: if the rows have groups or weights, which play no part here.
    """
    if calibration is None:
        return []
    if calibration.score != score:
        do = "calibrate with the score of the online method"
        raise SettingError(f"calibration rows scored by {score!r}", repr(calibration.score), do)
    if calibration.groups is not None or calibration.weights is not None:
        which = "groups" if calibration.groups is not None else "weights"
        raise NotApplicable("calibration rows that count alike", which, "calibrate without them")
    return calibration.scores(level).tolist()


def _finish(
    score: Score,
    prediction: Prediction,
    scores: Tensor,
    q: list[float],
    alphas: list[float],
    level: float,
    text: str,
) -> Online:
    thresholds = torch.tensor(q, dtype=torch.float64).to(scores)
    if score.floor is not None:
        thresholds = thresholds.clamp_min(score.floor)
        region = score.region(prediction, thresholds, level)
        errors = scores > thresholds
        result = torch.tensor(alphas, dtype=torch.float64)
        return Online(replace(region, guarantee=text), errors, result, thresholds)
    nothing = torch.isneginf(thresholds)  # a set that must be empty, whatever the score
    region = score.region(
        prediction, torch.where(nothing, torch.zeros_like(thresholds), thresholds), level
    )
    if region.labels is not None:
        region = replace(region, labels=region.labels & ~nothing[:, None])
    else:
        lower, upper = (
            torch.where(nothing, sign * torch.inf, end)
            for sign, end in zip((1, -1), region, strict=True)
        )
        pieces = region.pieces and tuple(
            () if empty else row for row, empty in zip(region.pieces, nothing.tolist(), strict=True)
        )
        region = replace(region, lower=lower, upper=upper, pieces=pieces)
    errors = (scores > thresholds) | nothing
    return Online(
        replace(region, guarantee=text),
        errors,
        torch.tensor(alphas, dtype=torch.float64),
        thresholds,
    )


@dataclass(frozen=True)
class ACI:
    """Adaptive conformal inference: alpha_{t+1} = alpha_t + rate (alpha - missed_t). Gibbs & Candes (2021), equation 2.

    ``ACI(score, level)(prediction, y, calibration=None) -> Online``: rows in the order of time; each set uses earlier rows alone.
    For any sequence whatever, |share missed - alpha| <= (max(alpha_1, 1 - alpha_1) + rate) / (rate T). Sets are empty where
    alpha_t >= 1: the bound needs it. A score whose sets are never empty (``LAC(keep_best=True)``, ``Quantile(widen_only=True)``)
    keeps them so; alpha_t then stops at 1, and the share missed is bounded from above alone.

    Args:
        score: with one side; it stays at the nominal level, the threshold moves.
        level: long-run coverage.
        rate: how fast alpha_t moves.
        window: how many past scores count; None: all.
    """

    score: Score
    level: float = 0.9
    rate: float = 0.01
    window: int | None = None

    def __post_init__(self) -> None:
        check_score(self.score)
        exact_level(self.level)
        _check_rates(self.rate)
        _check_window(self.window)

    def bound(self, rows: int) -> float:
        """What |share missed - (1 - level)| cannot exceed after so many rows."""
        alpha = float(1 - exact_level(self.level))
        return (max(alpha, 1 - alpha) + self.rate) / (self.rate * rows)

    def __call__(self, prediction: Prediction, y: Any, calibration: Any = None) -> Online:
        """``calibration``: a Calibrator with the same score, whose rows come before the first."""
        scores, before = _start(self.score, prediction, y, self.level, calibration)
        past, alpha = _Past(before, self.window), float(1 - exact_level(self.level))
        now, q, alphas, floor = alpha, [], [], self.score.floor
        for s in scores.tolist():
            q.append(past.threshold(now))
            alphas.append(now)
            now += self.rate * (alpha - _missed(s, q[-1], floor))
            now = now if floor is None else min(now, 1.0)
            past.add(s)
        text = _long_run(self.level, self.bound(len(scores)), len(scores), floor is None)
        return _finish(self.score, prediction, scores, q, alphas, self.level, text)


def _long_run(level: float, bound: float, rows: int, both_sides: bool) -> str:
    """What is guaranteed of any sequence; nothing is, where the bound reaches down to a coverage of 0."""
    if not bound < level:
        return f"heuristic: over {counted(rows, 'row')} the long-run bound of {bound:.2g} on |coverage - {level}| says nothing"
    if both_sides:
        return f"long-run coverage {level} +- {bound:.2g} over {counted(rows, 'row')}, whatever the sequence"
    return f"long-run coverage >= {level} - {bound:.2g} over {counted(rows, 'row')}, whatever the sequence"


def _check_window(window: int | None) -> None:
    if window is not None and (
        isinstance(window, bool) or not isinstance(window, int) or window < 1
    ):
        raise SettingError(
            "a window of at least one score, or None", repr(window), "for example 100"
        )


def _check_rates(*rates: float) -> None:
    for rate in rates:
        if not (isinstance(rate, int | float) and rate > 0 and math.isfinite(rate)):
            raise SettingError("a rate above 0", repr(rate), "for example 0.01")


@dataclass(frozen=True)
class AgACI:
    """ACI at several rates at once, their alphas averaged by how well each has done under the pinball loss. Zaffran et al. (2022).

    Bernstein online aggregation (Wintenberger 2017) of the experts' alphas; no long-run bound is known.
    """

    score: Score
    level: float = 0.9
    rates: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03, 0.1)
    window: int | None = None

    def __post_init__(self) -> None:
        check_score(self.score)
        exact_level(self.level)
        _check_rates(*self.rates)
        _check_window(self.window)

    def __call__(self, prediction: Prediction, y: Any, calibration: Any = None) -> Online:
        scores, before = _start(self.score, prediction, y, self.level, calibration)
        past, alpha = _Past(before, self.window), float(1 - exact_level(self.level))
        experts = np.full(len(self.rates), alpha)
        rates = np.array(self.rates)
        floor = self.score.floor
        regret, variance, largest = (np.zeros(len(rates)) for _ in range(3))
        q, alphas = [], []
        for s in scores.tolist():
            eta = np.minimum(
                0.5 / np.maximum(largest, 1e-12),
                np.sqrt(np.log(len(rates) + 1) / np.maximum(variance, 1e-12)),
            )
            weights = eta * np.exp(eta * regret - (eta * regret).max())
            weights /= weights.sum()
            now = float(weights @ experts)
            q.append(past.threshold(now))
            alphas.append(now)
            # the level at which this score would just have been covered: what the experts should have said
            beta = 1.0 - bisect.bisect_left(past.ordered, s) / (len(past.ordered) + 1)
            loss = (experts - beta) * ((beta < experts) - alpha)
            excess = float(weights @ loss) - loss
            variance += excess**2
            largest = np.maximum(largest, np.abs(excess))
            regret += excess * (1 - eta * excess)
            experts = experts + rates * (
                alpha - np.array([_missed(s, past.threshold(a), floor) for a in experts])
            )
            experts = experts if floor is None else np.minimum(experts, 1.0)
            past.add(s)
        return _finish(
            self.score,
            prediction,
            scores,
            q,
            alphas,
            self.level,
            "none: experts averaged, for sequences that drift (heuristic)",
        )


@dataclass(frozen=True)
class PID:
    """Conformal PID: the threshold itself follows the misses, q_{t+1} = q_t + rate_t (missed_t - alpha) + integral. Angelopoulos, Candes & Tibshirani (2023).

    The proportional rate is ``rate`` times the range of the last ``window`` scores; the integrator is the paper's tangent with
    constant ``saturation``. Without the integrator the coverage of a sequence is bounded for steps of any size
    (Angelopoulos, Barber & Bates 2024, theorem 2): over T rows, with steps e_t and scores that span B,
    |share missed - alpha| <= (B + max e_t) / T * (1 / e_1 + sum over t of |1 / e_t - 1 / e_{t - 1}|). Steps that follow a scale
    that changes make it large; where it says nothing, and with the integrator, the sentence is "heuristic".
    """

    score: Score
    level: float = 0.9
    rate: float = 0.1
    window: int = 100
    saturation: float | None = None

    def __post_init__(self) -> None:
        check_score(self.score)
        exact_level(self.level)
        _check_rates(self.rate)
        _check_window(self.window)

    def __call__(self, prediction: Prediction, y: Any, calibration: Any = None) -> Online:
        scores, before = _start(self.score, prediction, y, self.level, calibration)
        alpha = float(1 - exact_level(self.level))
        line = list(before)
        track = _Past(before, None).threshold(alpha) if before else 0.0
        track = track if math.isfinite(track) else max(before)
        q, steps, total, floor = [], [], 0.0, self.score.floor
        for t, s in enumerate(scores.tolist(), start=1):
            q.append(track + self._integral(total, t, line))
            missed = _missed(s, q[-1], floor)
            line.append(s)
            recent = [v for v in line[-self.window :] if math.isfinite(v)]
            # equal scores have no range; a step of 0 would freeze the threshold for ever
            spread = (
                max(max(recent) - min(recent), LEAST_STEP * max(map(abs, recent)))
                if recent
                else 0.0
            )
            steps.append(self.rate * (spread or 1.0))
            track += steps[-1] * (missed - alpha)
            track = track if floor is None else max(track, floor)
            total += missed - alpha
        text = "heuristic: no bound is known for the integrator over finitely many rows"
        if self.saturation is None:
            seen = [q[0], *scores.tolist(), *([] if floor is None else [floor])]
            text = self._sentence(bound_of_steps(steps, seen), len(q))
        return _finish(self.score, prediction, scores, q, [math.nan] * len(q), self.level, text)

    def _sentence(self, bound: float, rows: int) -> str:
        if not bound < self.level:
            return (
                f"heuristic: the step size varied too much for a bound over {counted(rows, 'row')}"
            )
        if self.score.floor is not None:
            return f"long-run coverage >= {self.level} - {bound:.2g} over {counted(rows, 'row')}, for scores in the range seen"
        return f"long-run coverage {self.level} +- {bound:.2g} over {counted(rows, 'row')}, for scores in the range seen"

    def _integral(self, total: float, t: int, line: list[float]) -> float:
        if self.saturation is None or not line:
            return 0.0
        x = total * math.log(t + 1) / (self.saturation * (t + 1))
        scale = max((abs(v) for v in line[-self.window :] if math.isfinite(v)), default=1.0)
        return scale * (math.tan(x) if abs(x) < math.pi / 2 else math.copysign(1e6, x))


def bound_of_steps(steps: Sequence[float], values: Sequence[float]) -> float:
    """What |share missed - alpha| cannot exceed under q_{t+1} = q_t + steps_t (missed_t - alpha); inf where a value is infinite.

    Angelopoulos, Barber & Bates (2024), theorem 2: thresholds stay within max(steps) of the range of ``values``, the scores and
    the first threshold, and summation by parts turns the sum of misses into differences of thresholds.
    """
    span = max(values) - min(values)
    if not steps or not math.isfinite(span):
        return math.inf
    inverse = [1 / step for step in steps]
    variation = inverse[0] + sum(abs(b - a) for a, b in pairwise(inverse))
    return (span + max(steps)) * variation / len(steps)
