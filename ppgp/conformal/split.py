"""Split conformal prediction: scores of rows that the fit has not seen give a threshold with a finite-sample guarantee."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from ..data import as_tensor
from ..errors import DataError, DataWarning
from ..prediction import Prediction
from ..region import Region, exact_level
from .score import Score


def rank(n: int, level: float) -> int:
    """k = ceil((n + 1) level) in exact arithmetic, from the level as written: the k-th smallest score is the threshold.

    In floating point it is off by one for 288 of the 49,995 pairs of n and level in steps of 0.01.
    """
    return math.ceil((n + 1) * exact_level(level))


def smallest_n(level: float, sides: int = 1) -> int:
    """How many calibration rows a finite set needs: ceil(sides / alpha) - 1."""
    return math.ceil(Fraction(sides) / (1 - exact_level(level))) - 1


def threshold(scores: Tensor, level: float) -> Tensor:
    """The k-th smallest score, or +inf where k > n: never clipped to the largest score."""
    k = rank(len(scores), level)
    if k > len(scores):
        return torch.full((), torch.inf, dtype=scores.dtype, device=scores.device)
    return scores.kthvalue(k).values


@dataclass(frozen=True, eq=False)
class Calibrator:
    """A score with the calibration rows it is measured on; call it on new predictions.

    ``calibrator(new_prediction, level=0.9) -> Region``
    """

    score: Score
    prediction: Prediction
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        return f"<Calibrator {self.score!r} on {len(self)} rows>"

    def scores(self, level: float) -> Tensor:
        """The calibration scores [n]; +inf stays (it counts as strange), NaN is refused.

        Raises:
            DataError: naming the rows whose score is NaN.
        """
        scores = self.score.score(self.prediction, self.y, level)
        bad = torch.nonzero(torch.isnan(scores).reshape(len(scores), -1).any(1)).flatten().tolist()
        if bad:
            raise DataError("finite calibration scores", f"NaN in rows {bad[:5]}", "check the predictions of those rows")
        return scores

    def __call__(self, new_prediction: Prediction, level: float = 0.9) -> Region:
        """The set for each row of ``new_prediction``, with the sentence that is guaranteed.

        Raises:
            SettingError: if level does not lie in (0, 1).
        """
        exact_level(level)
        self.score.check(new_prediction)
        n = len(self)
        q = threshold(self.scores(level), level)
        region = self.score.region(new_prediction, q, level)
        return replace(region, guarantee=self._guarantee(level), n_calibration=n)

    def _guarantee(self, level: float) -> str:
        n, need = len(self), smallest_n(level, self.score.sides)
        seen = self.prediction.seen
        if seen is not None and bool(seen.any()):
            return f"heuristic: {int(seen.sum())} of {n} calibration rows were also used in the fit"
        sentence = f"marginal coverage >= {level:g} (exchangeable rows)"
        if n < need:
            return f"{sentence}: infinite, as {n} calibration rows are fewer than the {need} a finite set needs"
        return sentence

    def coverage_band(self, level: float, confidence: float = 0.9) -> tuple[float, float]:
        """Where the coverage given these calibration rows lies: the central band of Beta(k, n + 1 - k) (distinct scores, i.i.d. rows)."""
        from scipy.stats import beta

        n, k = len(self), rank(len(self), level)
        if k > n:
            return 1.0, 1.0
        tail = (1 - float(exact_level(confidence))) / 2
        return float(beta.ppf(tail, k, n + 1 - k)), float(beta.ppf(1 - tail, k, n + 1 - k))


def calibrate(score: Score, prediction: Prediction, y: Any) -> Calibrator:
    """Measure ``score`` on calibration rows: their predictions and their true y.

    The guarantee (coverage >= level, and <= level + 1/(n+1) where scores are distinct; Vovk et al. 2005, Lei et al. 2018)
    holds for rows exchangeable with the new ones that no part of the fit has seen. Rows that the fit was trained on are
    noticed: a warning, and the sentence of every Region says "heuristic".

    Raises:
        NotApplicable: if the score is not for such a y.
        DataError: if y does not fit the prediction.
    """
    score.check(prediction)
    y = as_tensor(y, "y")
    if y.shape != (len(prediction),):
        raise DataError(f"one y a calibration row ({len(prediction)})", f"shape {list(y.shape)}", "pass the y of those rows")
    bad = torch.nonzero(~torch.isfinite(y)).flatten().tolist()
    if bad:
        raise DataError("finite y in the calibration rows", f"NaN or infinity in rows {bad[:5]}", "drop those rows")
    if prediction.seen is not None and bool(prediction.seen.any()):
        warnings.warn(
            f"{int(prediction.seen.sum())} of {len(prediction)} calibration rows were also used in the fit: "
            "their residuals are too small, and no coverage is guaranteed; calibrate on rows the fit has not seen",
            DataWarning,
            stacklevel=2,
        )
    return Calibrator(score, prediction, y)
