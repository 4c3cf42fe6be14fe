"""Animations: a Gaussian process that gains points, and intervals that gain calibration rows.

Functions are drawn by Matheron's rule (Wilson et al. 2020): the same prior functions in all frames, bent by the points there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from matplotlib.animation import PillowWriter
from matplotlib.figure import Figure

from .. import conformal
from ..data.dataset import Dataset
from ..diagnostics import metrics
from ..files import replacing_path
from ..inference import MAP
from ..inference.fitting import fit
from ..inference.interrupts import whole
from ..models import GP
from ..plots.common import COLOURS, panels
from ..posterior.posterior import Posterior
from ..posterior.prediction import Prediction
from .heteroscedastic_data import REACH

POINTS = 24
FUNCTIONS = 5
COUNTS = (10, 20, 30, 40, 60, 80, 120, 180, 260, 400, 600)  # calibration rows in the frames
LINE = torch.linspace(-REACH, REACH, 201, dtype=torch.float64)[:, None]


def animate(
    path: Path, figure: Figure, draw: Callable[[int], None], frames: int, rate: int
) -> None:
    """``draw(i)`` and a snapshot, again and again; the last stays for two seconds. By matplotlib's PillowWriter, so a GIF."""
    writer = PillowWriter(fps=rate)
    with replacing_path(path) as new, writer.saving(figure, str(new), 90):
        for i in range(frames):
            draw(i)
            for _ in range(1 if i < frames - 1 else 2 * rate):
                writer.grab_frame()


def points_coming(path: Path, seed: int = 0, quick: bool = False) -> None:
    """Band of f and of y, and some functions, as points come; the hyperparameters are those of all points throughout."""
    generator = torch.Generator().manual_seed(seed)
    x = REACH * (2 * torch.rand(POINTS, 1, generator=generator, dtype=torch.float64) - 1)
    y = torch.sin(3 * x[:, 0]) + 0.2 * torch.randn(POINTS, generator=generator, dtype=torch.float64)
    posterior = whole(fit(GP(), Dataset(x, y), MAP(), seed=seed, progress=False))
    counts = (1, POINTS) if quick else range(1, POINTS + 1)
    figure, axes = panels(6.4, 3.8)
    axis, grid = axes[0, 0], LINE[:, 0]

    def draw(i: int) -> None:
        n = counts[i]
        some = replace(posterior, data=posterior.data.rows(slice(0, n)))
        f, of_y = some.latent(LINE), some.predict(LINE)
        axis.clear()
        for law, colour, label in ((of_y, COLOURS[5], "95 % of y"), (f, COLOURS[0], "95 % of f")):
            axis.fill_between(grid, *law.interval(0.95), color=colour, alpha=0.3, lw=0, label=label)
        for function in some.pathwise(FUNCTIONS, seed=seed)(LINE):
            axis.plot(grid, function, color=COLOURS[0], lw=0.6, alpha=0.8)
        axis.plot(grid, f.mean, color="black", lw=1.4, label="mean")
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
    """Each fit's own band and the calibrated one, a panel a fit, as calibration rows come; ``data``: rows that no fit has seen."""
    most = COUNTS[-1]
    calibration, test = data.rows(slice(0, most)), data.rows(slice(most, None))
    counts = (COUNTS[0], most) if quick else COUNTS
    figure, axes = panels(10, 4.2, 1, len(fits))
    laws = {
        name: tuple(p.predict(X) for X in (LINE, calibration.X, test.X)) for name, p in fits.items()
    }

    def draw(i: int) -> None:
        for axis, (name, (line, seen, new)) in zip(axes[0], laws.items(), strict=True):
            _panel(
                axis,
                name,
                line,
                new,
                test,
                seen[: counts[i]],
                calibration.rows(slice(0, counts[i])),
                level,
            )

    animate(path, figure, draw, len(counts), 2)


def _panel(
    axis: Any,
    name: str,
    line: Prediction,
    new: Prediction,
    test: Dataset,
    seen: Prediction,
    rows: Dataset,
    level: float,
) -> None:
    calibrator = conformal.calibrate(conformal.Quantile(), seen, rows.y)
    grid, own = LINE[:, 0], line.interval(level)
    band = calibrator(line, level=level)
    before, after = (
        metrics.coverage(new.interval(level), test.y),
        metrics.coverage(calibrator(new, level=level), test.y),
    )
    axis.clear()
    axis.fill_between(
        grid, *band, color=COLOURS[5], alpha=0.4, lw=0, label=f"calibrated: covers {after:.1%}"
    )
    for k, end in enumerate(own):
        axis.plot(
            grid,
            end,
            color=COLOURS[1],
            lw=1.2,
            ls="--",
            label="" if k else f"model's own: covers {before:.1%}",
        )
    axis.plot(grid, line.mean, color="black", lw=1)
    axis.plot(test.X[:, 0], test.y, ".", ms=1.5, color="#999999", zorder=0)
    axis.plot(rows.X[:, 0], rows.y, "o", ms=2.5, color="black", label=f"{rows.n} calibration rows")
    axis.set(
        xlim=(-REACH, REACH),
        ylim=(-4.2, 4.8),
        xlabel="x",
        ylabel="y",
        title=f"{name}, level {level:g}",
    )
    axis.legend(frameon=False, fontsize=8, loc="upper center")
