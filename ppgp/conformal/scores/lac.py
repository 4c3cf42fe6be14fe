"""Label sets with the smallest average size."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ...display.overrides import computed
from ...posterior.prediction import Prediction
from ...posterior.region import Region
from .base import Score


@dataclass(frozen=True)
class LAC(Score):
    """The score 1 - p_y: sets of the labels whose probability is at least 1 - q.

    A set may be empty. Sadinle, Lei & Wasserman (2019). The scores [n] are probabilities.

    Args:
        keep_best: Whether every set holds the most probable label, so that none is empty. The
            coverage exceeds the level where this label alone is right more often than that.

    Raises:
        NotApplicable: By ``calibrate`` and by its calibrator, if y is not a class.

    Examples:
        The eighth smallest of nine scores is 0.45: labels with a probability of 0.55 or more.

        >>> import ppgp
        >>> from ppgp import conformal
        >>> p = [0.1, 0.2, 0.7, 0.4, 0.55, 0.25, 0.95, 0.65, 0.85]  # of label 1
        >>> calibration = ppgp.Prediction.from_probabilities([[1 - one, one] for one in p])
        >>> y = [0, 0, 1, 1, 1, 0, 1, 1, 1]
        >>> calibrator = ppgp.calibrate(conformal.LAC(), calibration, y)
        >>> new = ppgp.Prediction.from_probabilities(
        ...     [[0.98, 0.02], [0.5, 0.5], [0.3, 0.7]], classes=["no", "yes"]
        ... )
        >>> calibrator(new, level=0.8).to_frame()
              set
        0   (no,)
        1      ()
        2  (yes,)
        >>> calibrator(new, level=0.9).to_frame()
                 set
        0      (no,)
        1  (no, yes)
        2     (yes,)
    """

    keep_best: bool = False
    kinds = ("classes",)
    of_level = False

    def _conservative(self) -> bool:
        return self.keep_best

    conservative = computed(_conservative)

    @property
    def floor(self) -> float | None:
        return -math.inf if self.keep_best else None

    def scores(self, prediction: Prediction) -> Tensor:
        """Return the score of every label, [n, K]."""
        p = prediction.probabilities
        if not self.keep_best:
            return 1 - p
        return (1 - p).scatter(1, p.argmax(-1, keepdim=True), -torch.inf)

    def score(self, prediction: Prediction, y: Tensor, level: float) -> Tensor:
        return self.scores(prediction).gather(1, y.long()[:, None])[:, 0]

    def region(self, prediction: Prediction, q: Tensor, level: float) -> Region:
        kept = self.scores(prediction) <= torch.as_tensor(q).reshape(-1, 1)
        return Region(level, "", labels=kept, classes=prediction.classes)
