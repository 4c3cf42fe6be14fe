"""Animations of a Gaussian process that gains points, and of intervals that are calibrated.

Functions are drawn by Matheron's rule (Wilson et al. 2020): all frames share the same draws from
the prior, which the points of the frame update.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from matplotlib.animation import PillowWriter
from matplotlib.figure import Figure

from .. import conformal
from ..data.dataset import Dataset
from ..files import replacing_path
from ..inference import MAP
from ..inference.fitting.fit import fit
from ..inference.runs import raise_if_interrupted
from ..metrics import metrics
from ..models import GP
from ..plots.common import COLOURS, panels
from ..posterior.posterior import Posterior
from ..posterior.prediction import Prediction
from ..runtime.seeding import standard_normal, standard_uniform
from .heteroscedastic_data import REACH

POINTS = 24
FUNCTIONS = 5
COUNTS = (10, 20, 30, 40, 60, 80, 120, 180, 260, 400, 600)  # calibration rows per frame
LINE = torch.linspace(-REACH, REACH, 201, dtype=torch.float64)[:, None]


def animate(
    path: Path, figure: Figure, draw: Callable[[int], None], frames: int, rate: int
) -> None:
    """Write a GIF of a figure that changes; the last frame stays for two seconds.

    Args:
        path: The file to write.
        figure: The figure.
        draw: Function that draws frame i into the figure.
        frames: Number of frames.
        rate: Frames per second.

    Raises:
        StorageError: If the file cannot be written.
    """
    writer = PillowWriter(fps=rate)
    with replacing_path(path) as new, writer.saving(figure, str(new), 90):
        for i in range(frames):
            draw(i)
            writer.grab_frame()
        for _ in range(2 * rate - 1):
            writer.grab_frame()


def points_coming(path: Path, seed: int = 0, quick: bool = False) -> None:
    """Animate the bands of f and of y, and some functions, as points are added.

    All frames use the hyperparameters that are fitted to all points.

    Args:
        path: The GIF to write.
        seed: Seed of the points, the fit and the functions.
        quick: Draw the first and the last frame only.
    """
    generator = torch.Generator().manual_seed(seed)
    x = REACH * (2 * standard_uniform(generator, POINTS, 1) - 1)
    y = torch.sin(3 * x[:, 0]) + 0.2 * standard_normal(generator, POINTS)
    posterior = raise_if_interrupted(fit(GP(), Dataset(x, y), MAP(), seed=seed, progress=False))
    counts = (1, POINTS) if quick else range(1, POINTS + 1)
    figure, axes = panels(6.4, 3.8)
    axis, grid = axes[0, 0], LINE[:, 0]

    def draw(i: int) -> None:
        n = counts[i]
        given = replace(posterior, data=posterior.data.rows(slice(0, n)))
        of_f, of_y = given.latent(LINE), given.predict(LINE)
        axis.clear()
        bands = ((of_y, COLOURS[5], "95 % of y"), (of_f, COLOURS[0], "95 % of f"))
        for prediction, colour, label in bands:
            lower, upper = prediction.interval(0.95)
            axis.fill_between(grid, lower, upper, color=colour, alpha=0.3, lw=0, label=label)
        for function in given.pathwise(FUNCTIONS, seed=seed)(LINE):
            axis.plot(grid, function, color=COLOURS[0], lw=0.6, alpha=0.8)
        axis.plot(grid, of_f.mean, color="black", lw=1.4, label="mean")
        axis.plot(grid, torch.sin(3 * grid), color=COLOURS[1], lw=1, ls="--", label="truth")
        axis.plot(x[:n, 0], y[:n], "o", ms=4.5, color="black")
        axis.set(
            xlim=(-REACH, REACH),
            ylim=(-2.8, 2.8),
            xlabel="x",
            ylabel="y",
            title=f"{n} point{'s' * (n > 1)}",
        )
        axis.legend(frameon=False, fontsize=8, ncols=4, loc="upper center")

    animate(path, figure, draw, len(counts), 3)


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
