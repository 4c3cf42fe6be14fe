"""Adaptive conformal inference, for sequences that drift: past misses steer the level."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..errors import counted
from ..posterior.prediction import Prediction
from ..runtime.levels import exact_level
from .online import Online, PastScores, check_settings, is_missed, online_result, sequence_scores
from .rounding import rounded_up
from .scores.base import Score


@dataclass(frozen=True)
class ACI:
    """Adaptive conformal inference: alpha_{t+1} = alpha_t + rate (alpha - missed_t).

    Gibbs & Candes (2021), equation 2. ``ACI(score, level)(prediction, y, calibration=None) ->
    Online``, with y [T] in the order of time; each set uses earlier rows alone.

    For any sequence, |share missed - alpha| <= (max(alpha_1, 1 - alpha_1) + rate) / (rate T). Sets
    are empty where alpha_t >= 1: the bound needs it. A score whose sets are never empty
    (``LAC(keep_best=True)``, ``Quantile(widen_only=True)``) keeps them so; alpha_t then stops at 1,
    and the share missed is bounded from above alone.

    Args:
        score: The conformal score, with one side; it is computed at the nominal level, and the
            threshold moves.
        level: The long-run coverage, a probability in (0, 1).
        rate: The step of alpha_t: a miss lowers it by rate (1 - alpha), and a row that is covered
            raises it by rate alpha.
        window: How many past scores count; None: all.

    Raises:
        NotApplicable: If ``score`` is no score, such as the class of one.
        SettingError: If the level does not lie in (0, 1), the rate is not above 0, or the window
            holds no score.

    Examples:
        The spread of y triples after half of the rows, and the sets follow:

        >>> import numpy as np
        >>> import ppgp
        >>> from ppgp import conformal
        >>> y = np.random.default_rng(0).normal(size=600) * np.repeat([1.0, 3.0], 300)
        >>> aci = conformal.ACI(conformal.Absolute(), level=0.9, rate=0.02)
        >>> online = aci(ppgp.Prediction.from_points(np.zeros(600)), y)
        >>> online.region.guarantee
        'long-run coverage 0.9 +- 0.077 over 600 rows, whatever the sequence'
        >>> bool(abs(online.coverage - 0.9) <= aci.bound(600))
        True
        >>> bool(online.thresholds[-1] > 2 * online.thresholds[299])
        True
    """

    score: Score
    level: float = 0.9
    rate: float = 0.01
    window: int | None = None

    def __post_init__(self) -> None:
        check_settings(self.score, self.level, [self.rate], self.window)

    def bound(self, rows: int) -> float:
        """Return the largest possible |share missed - (1 - level)| after so many rows, at least 1.

        Gibbs & Candes (2021), proposition 4.1.
        """
        alpha = float(1 - exact_level(self.level))
        return (max(alpha, 1 - alpha) + self.rate) / (self.rate * rows)

    def __call__(self, prediction: Prediction, y: Any, calibration: Any = None) -> Online:
        """Return the set for each row of the sequence, and which of them missed y.

        Args:
            prediction: Of the T rows, in the order of time.
            y: [T], their true values.
            calibration: A Calibrator with the same score, whose rows come before the first; None:
                no earlier rows.

        Returns:
            The Online result, whose sentence holds for any sequence.

        Raises:
            NotApplicable: If the score has two sides or is not for such a y, or the calibration
                rows have groups or weights.
            SettingError: If the calibration rows have another score.
            DataError: If y does not match the prediction, or a score is NaN.
        """
        scores, earlier = sequence_scores(self.score, prediction, y, self.level, calibration)
        past, alpha = PastScores(earlier, self.window), float(1 - exact_level(self.level))
        thresholds: list[float] = []
        alphas: list[float] = []
        now, floor = alpha, self.score.floor
        highest = math.inf if floor is None else 1.0
        for s in scores.tolist():
            thresholds.append(past.threshold(now))
            alphas.append(now)
            now = min(now + self.rate * (alpha - is_missed(s, thresholds[-1], floor)), highest)
            past.add(s)
        text = _long_run(self.level, self.bound(len(scores)), len(scores), floor is None)
        return online_result(self.score, prediction, scores, thresholds, alphas, self.level, text)


def _long_run(level: float, bound: float, rows: int, both_sides: bool) -> str:
    """Return what is guaranteed of any sequence; nothing is, where the bound reaches coverage 0."""
    over = f"over {counted(rows, 'row')}"
    stated = rounded_up(bound, 2)
    if not bound < level:
        which = f"the long-run bound of {bound:.2g} on |coverage - {level}|"
        return f"heuristic: {over} {which} says nothing"
    if both_sides:
        return f"long-run coverage {level} +- {stated} {over}, whatever the sequence"
    return f"long-run coverage >= {level} - {stated} {over}, whatever the sequence"
