"""The rows and the figure of the neural-enhanced experiment: tables of the UCI benchmark, and a sine under noise that grows outwards.

The benchmark is that of Hernandez-Lobato & Adams (2015).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..data.dataset import Dataset
from ..plots.common import COLOURS, panels
from .uci import path_of

REACH = 2.0
KINDS = {
    "latent_": "f alone",
    "": "model's own",
    "calibrated_": "calibrated",
    "widened_": "widened only",
}


def table(data_dir: str | Path | None, name: str) -> Dataset | None:
    """A table of the benchmark from ``name``.npz, X [n, d] and y [n], in ``data_dir`` or its folder ``uci``; None where it is not.

    Of rows with the same X the first alone: no row to calibrate or test on is then a row of the fit.
    """
    path = None if data_dir is None else path_of(Path(data_dir), name)
    if path is None:
        return None
    with np.load(path, allow_pickle=False) as arrays:
        X, y = arrays["X"], arrays["y"]
    first = np.sort(np.unique(X, axis=0, return_index=True)[1])
    return Dataset(X[first], y[first])


def uneven(n: int, seed: int) -> Dataset:
    """x uniform on [-2, 2], y = sin 3x + (0.1 + 0.2 x^2) e, e ~ N(0, 1): no law with one noise variance is right."""
    generator = torch.Generator().manual_seed(seed)
    x = REACH * (2 * torch.rand(n, 1, generator=generator, dtype=torch.float64) - 1)
    e = torch.randn(n, generator=generator, dtype=torch.float64)
    return Dataset(x, torch.sin(3 * x[:, 0]) + (0.1 + 0.2 * x[:, 0].square()) * e)


def dots(rows: list[dict[str, Any]]) -> Any:
    """Coverage of the four intervals of each fit with two standard errors, a panel a level; the line is the level."""
    levels = sorted({row["level"] for row in rows})
    count = len(rows) // len(levels)
    figure, axes = panels(5.2 * len(levels), 1.5 + 0.55 * count, 1, len(levels))
    for axis, level in zip(axes[0], levels, strict=True):
        here = [row for row in rows if row["level"] == level]
        for k, (kind, label) in enumerate(KINDS.items()):
            centre = [row[f"{kind}coverage"] for row in here]
            spread = [2 * (row[f"{kind}coverage_se"] or 0.0) for row in here]
            places = [i + 0.16 * (k - 1.5) for i in range(len(here))]
            axis.errorbar(
                centre,
                places,
                xerr=spread,
                fmt="o",
                ms=4,
                lw=1,
                color=COLOURS[(1, 4, 0, 2)[k]],
                label=label,
            )
        axis.axvline(level, color="black", lw=0.8)
        axis.set(
            yticks=range(len(here)),
            yticklabels=[f"{row['model']}, {row['set']}" for row in here],
            xlim=(0, 1.02),
        )
        axis.set(xlabel="coverage of test rows, two standard errors", title=f"level {level:g}")
        axis.invert_yaxis()
    axes[0, 0].legend(frameon=False, fontsize=8, loc="center")
    return figure
