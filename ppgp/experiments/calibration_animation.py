"""An animation of intervals before and after calibration, as calibration rows are added."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .. import conformal
from ..data.dataset import Dataset
from ..metrics import metrics
from ..plots.common import COLOURS, panels
from ..posterior.posterior import Posterior
from ..posterior.prediction import Prediction
from .animations import LINE, animate
from .heteroscedastic_data import REACH

COUNTS = (10, 20, 30, 40, 60, 80, 120, 180, 260, 400, 600)  # calibration rows per frame


def bands_before_and_after(
    path: Path, fits: Mapping[str, Posterior], data: Dataset, level: float, quick: bool = False
) -> None:
    """Animate the interval of each fit and its calibrated one, as calibration rows are added.

    Args:
        path: The GIF to write.
        fits: The posteriors by name; one panel each.
        data: Rows that are not training rows of any fit. The first 600 calibrate, the others test.
        level: Level of the intervals, in (0, 1).
        quick: Draw the first and the last frame only.
    """
    most = COUNTS[-1]
    calibration, test = data.rows(slice(0, most)), data.rows(slice(most, None))
    counts = (COUNTS[0], most) if quick else COUNTS
    figure, axes = panels(10, 4.2, 1, len(fits))
    predictions = {
        name: _Predictions(p.predict(LINE), p.predict(calibration.X), p.predict(test.X))
        for name, p in fits.items()
    }

    def draw(i: int) -> None:
        rows = calibration.rows(slice(0, counts[i]))
        for axis, (name, each) in zip(axes[0], predictions.items(), strict=True):
            axis.clear()
            _panel(axis, each, rows, test, level)
            axis.set_title(f"{name}, level {level:g}")

    animate(path, figure, draw, len(counts), 2)


class _Predictions(NamedTuple):
    """Predictions of one fit: along the line, of the calibration rows, of the test rows."""

    line: Prediction
    calibration: Prediction
    test: Prediction


def _panel(
    axis: Any, predictions: _Predictions, rows: Dataset, test: Dataset, level: float
) -> None:
    """Draw the intervals before and after calibration on ``rows``, the first calibration rows."""
    line = predictions.line
    calibrator = conformal.calibrate(
        conformal.Quantile(), predictions.calibration[: rows.n], rows.y
    )
    before = metrics.coverage(predictions.test.interval(level), test.y)
    after = metrics.coverage(calibrator(predictions.test, level=level), test.y)
    grid = LINE[:, 0]
    lower, upper = calibrator(line, level=level)
    label = f"calibrated: covers {after:.1%}"
    axis.fill_between(grid, lower, upper, color=COLOURS[5], alpha=0.4, lw=0, label=label)
    own_lower, own_upper = line.interval(level)
    dashed = {"color": COLOURS[1], "lw": 1.2, "ls": "--"}
    axis.plot(grid, own_lower, label=f"model's own: covers {before:.1%}", **dashed)
    axis.plot(grid, own_upper, **dashed)
    axis.plot(grid, line.mean, color="black", lw=1)
    axis.plot(test.X[:, 0], test.y, ".", ms=1.5, color="#999999", zorder=0)
    axis.plot(rows.X[:, 0], rows.y, "o", ms=2.5, color="black", label=f"{rows.n} calibration rows")
    axis.set(xlim=(-REACH, REACH), ylim=(-4.2, 4.8), xlabel="x", ylabel="y")
    axis.legend(frameon=False, fontsize=8, loc="upper center")
