"""Adaptive conformal inference at several rates at once, averaged by their past losses."""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import SettingError
from ..posterior.prediction import Prediction
from ..runtime.levels import exact_level
from .online import Online, PastScores, check_settings, is_missed, online_result, sequence_scores
from .scores.base import Score


@dataclass(frozen=True)
class AgACI:
    """ACI at several rates at once, their alphas averaged by past pinball loss.

    Zaffran et al. (2022). The alphas of the experts, one per rate, are combined by Bernstein online
    aggregation (Wintenberger 2017); no long-run bound is known. ``AgACI(score, level)(prediction,
    y, calibration=None) -> Online``, with y [T] in the order of time, as in ``ACI``.

    Args:
        score: The conformal score, with one side; it is computed at the nominal level.
        level: The coverage wanted, a probability in (0, 1).
        rates: How fast the alpha of each expert moves.
        window: How many past scores count; None: all.

    Raises:
        NotApplicable: If ``score`` is no score, such as the class of one.
        SettingError: If the level does not lie in (0, 1), there are no rates or one is not above 0,
            or the window holds no score.

    Examples:
        The thresholds, in the units of y for this score, follow a change of scale. No rate had to
        be chosen:

        >>> import numpy as np
        >>> import ppgp
        >>> from ppgp import conformal
        >>> y = np.random.default_rng(0).normal(size=400) * np.repeat([1.0, 3.0], 200)
        >>> method = conformal.AgACI(conformal.Absolute(), level=0.8, window=100)
        >>> online = method(ppgp.Prediction.from_points(np.zeros(400)), y)
        >>> bool(online.thresholds[-1] > 2 * online.thresholds[199])
        True
        >>> bool(abs(online.coverage - 0.8) < 0.05)
        True
        >>> online.region.guarantee
        'none: experts averaged, for sequences that drift (heuristic)'
    """

    score: Score
    level: float = 0.9
    rates: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03, 0.1)
    window: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.rates, tuple | list) or not self.rates:
            expected = "one or more rates of AgACI"
            raise SettingError(expected, repr(self.rates), "for example (0.01, 0.1)")
        check_settings(self.score, self.level, self.rates, self.window)

    def __call__(self, prediction: Prediction, y: Any, calibration: Any = None) -> Online:
        """Return the set for each row of the sequence; arguments and errors as in ``ACI``."""
        scores, earlier = sequence_scores(self.score, prediction, y, self.level, calibration)
        past, alpha = PastScores(earlier, self.window), float(1 - exact_level(self.level))
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
            missed = np.array([is_missed(s, past.threshold(a), floor) for a in experts])
            experts = np.minimum(experts + rates * (alpha - missed), highest)
            past.add(s)
        text = "none: experts averaged, for sequences that drift (heuristic)"
        return online_result(self.score, prediction, scores, thresholds, alphas, self.level, text)
