"""Whether test rows are new to a fit, and exchangeable with calibration rows."""

from __future__ import annotations

import numpy as np

from ..data.dataset import Dataset
from ..data.new_rows import in_order
from ..posterior.prediction import Prediction
from ..provenance.provenance import numbers, same_rows


def used_in_fit(prediction: Prediction, test: Dataset) -> str | None:
    """Return how many test rows were used in the fit, in words; None where none was."""
    count = int(prediction.in_training_with(test.y).sum())
    if not count:
        return None
    return f"{count} of {test.n} test rows were also used in the fit"


def not_exchangeable(test: Dataset, calibration: Dataset) -> str | None:
    """Return why rows of the two tables are not exchangeable; None where nothing shows it.

    They may hold the same rows, or the noise of one table alone may be known.
    """
    rows = in_order(test, calibration.feature_names, levels=calibration.levels_by_name)
    if rows.shape[1] == calibration.d:
        old = np.column_stack([numbers(calibration.X), numbers(calibration.y)])
        new = np.column_stack([numbers(rows), numbers(test.y)])
        same = int(same_rows(old, new).sum())
        if same:
            return f"{same} of {test.n} test rows are calibration rows"
    if (test.noise_sd is None) != (calibration.noise_sd is None):
        return "the noise of the test rows or of the calibration rows is known, not of both"
    return None
