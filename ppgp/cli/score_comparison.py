"""Conformal scores compared on one table: half of its rows calibrate, the other half tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .. import conformal
from ..errors import NotApplicable, UnknownName
from ..metrics import metrics
from ..posterior.averaging import Average
from ..posterior.posterior import Posterior
from ..recipes import parsing as recipes
from ..runtime.seeding import permutation
from ..tables.wrong_rows import numbered
from .posterior_tables import inputs_for, known_targets

__all__ = ["ScoreComparison"]

CONFIDENCE = 0.9  # of the bands
NO_BAND = "-"


class ScoreComparison:
    """Predictions and targets of the two halves of a table.

    Args:
        posterior: The posterior that predicts.
        frame: Rows that are not training rows, with their target; its index numbers them.
        target: The target column.
        group: A column of groups, or None.
        seed: Seed of the random split into halves.

    Attributes:
        n_calibration: Number of rows that calibrate.
        n_test: Number of rows that test.

    Raises:
        UnknownName: If the frame lacks a column.
        DataError: If a target cannot be used; the message names rows of the whole table.
        NotApplicable: If a target is censored.
    """

    def __init__(
        self, posterior: Posterior | Average, frame: Any, target: str, group: str | None, seed: int
    ) -> None:
        for column in filter(None, (target, group)):
            if column not in frame.columns:
                raise UnknownName("column", str(column), map(str, frame.columns))
        order = permutation(torch.Generator().manual_seed(seed), len(frame)).numpy()
        first, second = order[: len(frame) // 2], order[len(frame) // 2 :]
        with numbered(frame.index.tolist()):
            inputs = inputs_for(frame, posterior, target, group)
            targets = known_targets(frame, target, posterior)
        with numbered(frame.index[first].tolist()):
            self._calibration = posterior.predict(_rows_of(inputs, first))
        with numbered(frame.index[second].tolist()):
            self._test = posterior.predict(_rows_of(inputs, second))
        self._calibration_y, self._test_y = targets[first], targets[second]
        self._calibration_groups = None
        self._test_groups = None
        if group:
            groups = frame[group].to_numpy()
            self._calibration_groups, self._test_groups = groups[first], groups[second]
        self.n_calibration, self.n_test = len(first), len(second)

    @property
    def _classes(self) -> bool:
        return self._test.kind == "classes"

    def rows(self, scores: list[str], level: float) -> list[dict[str, Any]]:
        """Return one flat record per score: coverage, width, shares of infinite and empty sets.

        For regression the first record is the interval of the predictive distribution itself.

        Args:
            scores: Names or recipes of scores; if empty, all names of scores for such a target.
            level: Level of the sets, in (0, 1).
        """
        rows = []
        if not self._classes:
            rows.append(self._uncalibrated(level))
        suited = [
            name for name in recipes.SCORES if self._test.kind in recipes.build_score(name).kinds
        ]
        return rows + [self._calibrated(recipe, level) for recipe in scores or suited]

    def _uncalibrated(self, level: float) -> dict[str, Any]:
        """Return the record of the intervals of the predictive distribution itself."""
        region = self._test.interval(level)
        return {
            "score": "(the model's own)",
            "coverage": metrics.coverage(region, self._test_y),
            "width": metrics.mean_width(region),
            "infinite": 0.0,
            "empty": 0.0,
            "band": NO_BAND,
            "guaranteed": region.guarantee,
        }

    def _calibrated(self, recipe: str, level: float) -> dict[str, Any]:
        """Return the record of one score, calibrated on the first half."""
        score = recipes.build_score(recipe)
        calibrator = conformal.calibrate(
            score, self._calibration, self._calibration_y, groups=self._calibration_groups
        )
        region = calibrator(self._test, level=level, groups=self._test_groups)
        return {
            "score": recipe,
            "coverage": metrics.coverage(region, self._test_y),
            "width": metrics.mean_width(region),
            "infinite": float(region.infinite.double().mean()),
            "empty": float(region.empty.double().mean()),
            "band": self._band(calibrator, level),
            "guaranteed": region.guarantee,
        }

    def _band(self, calibrator: conformal.Calibrator, level: float) -> str:
        """Return where the coverage of the test rows lies with probability CONFIDENCE, if known."""
        if calibrator.ties(level):
            return NO_BAND
        try:
            low, high = calibrator.coverage_band(level, CONFIDENCE, self.n_test)
        except NotApplicable:
            return NO_BAND
        return f"{low:.3f} .. {high:.3f}"


def _rows_of(inputs: Any, rows: np.ndarray) -> Any:
    if isinstance(inputs, np.ndarray):
        return inputs[rows]
    return inputs.iloc[rows]
