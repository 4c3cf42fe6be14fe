"""A Calibrator whose rows stay in files: their scores alone are kept."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..data.stream.stream import Stream
from ..errors import DataError, NotApplicable
from ..posterior.origin import Origin
from ..posterior.prediction import Prediction
from .calibration_checks import check_codes
from .calibrator import Calibrator, without_nan
from .scores.base import Score

__all__ = ["StreamCalibrator"]

ROWS_AT_ONCE = 65_536  # a multiple of the blocks in which models predict, which fixes the rounding


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
        repeated, alike = self._pass(level)
        vars(self).update(n_in_training=repeated, n_alike=alike)

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
            self.score.check(prediction)
            y = self._codes(table.y)
            if prediction.kind == "classes":
                check_codes(y, prediction.probabilities.shape[-1])
            parts.append(self.score.score(prediction, y, level))
            repeated += int(prediction.in_training_with(y).sum())
            alike += int(prediction.alike_with(y).sum())
        self._scores[self._key(level)] = without_nan(torch.cat(parts))
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
