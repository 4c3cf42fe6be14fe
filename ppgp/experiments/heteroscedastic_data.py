"""Data and figure of the neural-enhanced experiment.

The data are tables of the UCI benchmark of Hernandez-Lobato & Adams (2015), and a sine under noise
that grows with the distance from 0.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..data.dataset import Dataset
from ..plots.common import COLOURS, panels
from ..runtime.seeding import standard_normal, standard_uniform
from .published_splits import path_of

REACH = 2.0  # the inputs of the synthetic set lie in [-REACH, REACH]
#: prefix of the columns -> label of the interval
KINDS = {
    "latent_": "f alone",
    "": "model's own",
    "calibrated_": "calibrated",
    "widened_": "widened only",
}


def table(data_dir: str | Path | None, name: str) -> Dataset | None:
    """Return a table of the benchmark, or None if its file is missing.

    Of rows with the same X only the first is kept, so that no calibration or test row repeats a
    training row.

    Args:
        data_dir: The folder of ``name``.npz (arrays X [n, d] and y [n]), or the folder that
            contains it as ``uci``; None for no folder.
        name: The name of the table.
    """
    if data_dir is None:
        return None
    path = path_of(Path(data_dir), name)
    if path is None:
        return None
    with np.load(path, allow_pickle=False) as arrays:
        X, y = arrays["X"], arrays["y"]
    first = np.sort(np.unique(X, axis=0, return_index=True)[1])
    return Dataset(X[first], y[first])


def uneven(n: int, seed: int) -> Dataset:
    """Draw n rows whose noise variance depends on x, so that no model with one variance is right.

    The input x is uniform on [-2, 2] and y = sin 3x + (0.1 + 0.2 x^2) e with e ~ N(0, 1).
    """
    generator = torch.Generator().manual_seed(seed)
    x = REACH * (2 * standard_uniform(generator, n, 1) - 1)
    e = standard_normal(generator, n)
    return Dataset(x, torch.sin(3 * x[:, 0]) + (0.1 + 0.2 * x[:, 0].square()) * e)


def dots(rows: list[dict[str, Any]]) -> Any:
    """Draw the coverage of the four intervals of each fit, one panel per level.

    Bars are two standard errors; the vertical line is the level.

    Args:
        rows: The rows of the experiment, of which a fit has one per level.
    """
    levels = sorted({row["level"] for row in rows})
    count = len(rows) // len(levels)
    figure, axes = panels(5.2 * len(levels), 1.5 + 0.55 * count, 1, len(levels))
    for axis, level in zip(axes[0], levels, strict=True):
        _coverage_panel(axis, [row for row in rows if row["level"] == level], level)
    axes[0, 0].legend(frameon=False, fontsize=8, loc="center")
    return figure


def _coverage_panel(axis: Any, rows: list[dict[str, Any]], level: float) -> None:
    colours = [COLOURS[i] for i in (1, 4, 0, 2)]
    for k, (kind, label) in enumerate(KINDS.items()):
        axis.errorbar(
            [row[f"{kind}coverage"] for row in rows],
            [i + 0.16 * (k - 1.5) for i in range(len(rows))],
            xerr=[2 * (row[f"{kind}coverage_se"] or 0.0) for row in rows],
            fmt="o",
            ms=4,
            lw=1,
            color=colours[k],
            label=label,
        )
    axis.axvline(level, color="black", lw=0.8)
    axis.set(
        yticks=range(len(rows)),
        yticklabels=[f"{row['model']}, {row['set']}" for row in rows],
        xlim=(0, 1.02),
        xlabel="coverage of test rows, two standard errors",
        title=f"level {level:g}",
    )
    axis.invert_yaxis()
