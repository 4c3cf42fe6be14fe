"""Conformal PID control, for sequences that drift: past misses steer the threshold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from ..errors import SettingError, counted
from ..posterior.prediction import Prediction
from ..runtime.levels import exact_level
from .online import (
    Online,
    PastScores,
    check_settings,
    in_dtype,
    is_missed,
    online_result,
    sequence_scores,
)
from .rounding import rounded_up
from .scores.base import Score

LEAST_STEP = 0.1  # as a share of the largest recent score


@dataclass(frozen=True)
class PID:
    """Conformal PID control: the threshold itself follows the misses.

    The threshold is track_t + integral_t, with track_{t+1} = track_t + rate_t (missed_t - alpha).
    Angelopoulos, Candes & Tibshirani (2023). The proportional rate is ``rate`` times the range of
    the last ``window`` scores; the integrator is the paper's tangent with constant ``saturation``.
    ``PID(score, level)(prediction, y, calibration=None) -> Online``, with y [T] in the order of
    time, as in ``ACI``.

    Without the integrator the coverage of a sequence is bounded for steps of any size
    (Angelopoulos, Barber & Bates 2024, theorem 2): over T rows, with steps e_t and scores that span
    B, |share missed - alpha| <= (B + max e_t) / T * (1 / e_1 + sum over t of
    |1 / e_t - 1 / e_{t - 1}|). Steps that follow a changing scale make the bound large. Where it
    exceeds the level, and with the integrator, the sentence is "heuristic".

    Args:
        score: The conformal score, with one side; it is computed at the nominal level.
        level: The long-run coverage, a probability in (0, 1).
        rate: The proportional rate, as a share of the range of recent scores: the units of the
            threshold are those of the score.
        window: How many recent scores set the range.
        saturation: The constant of the integrator, above 0 and without a unit; None: no integrator.

    Raises:
        NotApplicable: If ``score`` is no score, such as the class of one.
        SettingError: If the level does not lie in (0, 1), the rate or the saturation is not above
            0, or the window holds no score.

    Examples:
        Each miss raises the threshold by 0.9 steps, and each other row lowers it by 0.1 steps:

        >>> import ppgp
        >>> from ppgp import conformal
        >>> pid = conformal.PID(conformal.Absolute(), level=0.9, rate=0.1)
        >>> y = [0.0, 10.0, 0.0, 0.0]
        >>> online = pid(ppgp.Prediction.from_points([0.0] * 4), y)
        >>> online.errors.tolist()
        [False, True, False, False]
        >>> [round(q, 2) for q in online.thresholds.tolist()]
        [0.0, -0.01, 0.89, 0.79]
        >>> online.region.guarantee
        'heuristic: the step size varied too much for a bound over 4 rows'
    """

    score: Score
    level: float = 0.9
    rate: float = 0.1
    window: int = 100
    saturation: float | None = None

    def __post_init__(self) -> None:
        check_settings(self.score, self.level, [self.rate], self.window)
        if self.window is None:
            expected = "a window of at least one score in PID"
            raise SettingError(expected, "None", "for example 100")
        saturation = self.saturation
        if saturation is not None and not (_is_number(saturation) and saturation > 0):
            expected = "a saturation above 0, or None"
            raise SettingError(expected, repr(saturation), "for example 1.0")

    def __call__(self, prediction: Prediction, y: Any, calibration: Any = None) -> Online:
        """Return the set for each row of the sequence; arguments and errors as in ``ACI``."""
        scores, earlier = sequence_scores(self.score, prediction, y, self.level, calibration)
        alpha, floor = float(1 - exact_level(self.level)), self.score.floor
        lowest = -math.inf if floor is None else floor
        past = list(earlier)
        track, total = self._first_threshold(earlier, alpha), 0.0
        thresholds: list[float] = []
        steps: list[float] = []
        for t, s in enumerate(scores.tolist(), start=1):
            thresholds.append(in_dtype(track + self._integral(total, t, past), scores.dtype))
            missed = is_missed(s, thresholds[-1], floor)
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
            if scores.dtype != torch.float64:  # a track just below all scores may round up to one
                size = max(map(abs, values))
                values.append(min(values) - torch.finfo(scores.dtype).eps * size)
            text = self._sentence(bound_of_steps(steps, values), rows)
        alphas = [math.nan] * rows
        return online_result(self.score, prediction, scores, thresholds, alphas, self.level, text)

    def _first_threshold(self, earlier: list[float], alpha: float) -> float:
        """Return the conformal threshold of the earlier rows, or their largest score; else 0."""
        if not earlier:
            return 0.0
        first = PastScores(earlier, None).threshold(alpha)
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
            coverage = f"long-run coverage >= {self.level} - {rounded_up(bound, 2)}"
        else:
            coverage = f"long-run coverage {self.level} +- {rounded_up(bound, 2)}"
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


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def bound_of_steps(steps: Sequence[float], values: Sequence[float]) -> float:
    """Return the largest |share missed - alpha| possible with these steps.

    The rule is q_{t+1} = q_t + steps_t (missed_t - alpha). Angelopoulos, Barber & Bates (2024),
    theorem 2: thresholds stay within max(steps) of the range of ``values``, and summation by parts
    turns the sum of misses into differences of thresholds.

    Args:
        steps: The step sizes, in the order of time.
        values: The scores, the first threshold, and the floor of the score where it has one.

    Returns:
        The bound; inf where there are no steps or a value is infinite.
    """
    span = max(values) - min(values)
    if not steps or not math.isfinite(span):
        return math.inf
    inverse = [1 / step for step in steps]
    variation = inverse[0] + sum(abs(b - a) for a, b in pairwise(inverse))
    return (span + max(steps)) * variation / len(steps)
