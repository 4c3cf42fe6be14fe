"""Animations, and that of a Gaussian process that gains points.

Functions are drawn by Matheron's rule (Wilson et al. 2020): all frames share the same draws from
the prior, which the points of the frame update.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from matplotlib.animation import PillowWriter
from matplotlib.figure import Figure

from ..data.dataset import Dataset
from ..files import replacing_path
from ..inference import MAP
from ..inference.fitting.fit import fit
from ..inference.runs import raise_if_interrupted
from ..models import GP
from ..plots.common import COLOURS, panels
from ..runtime.seeding import standard_normal, standard_uniform
from .heteroscedastic_data import REACH

POINTS = 24
FUNCTIONS = 5
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
