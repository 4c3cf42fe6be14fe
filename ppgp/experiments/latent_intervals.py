"""Intervals for y from the standard deviation of f alone, from that of y, and after calibration.

The first is a common mistake with Gaussian processes. The predictive distribution of y is
N(mean, var f + noise) (Rasmussen & Williams 2006, equation 2.23 and the remark after it), and an
interval from var f alone covers f, not y.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch

from .. import conformal, plots
from ..data.dataset import Dataset
from ..files import write_figure
from ..inference import MAP
from ..inference.fitting.fit import fit
from ..inference.runs import raise_if_interrupted
from ..metrics import metrics
from ..models import GP
from ..runtime.seeding import standard_normal, standard_uniform

LEVEL = 0.95


def run(out: Path, *, seed: int = 0, quick: bool = False) -> list[dict[str, Any]]:
    """Compare the three intervals of one Gaussian process, fitted by MAP.

    The data are y = sin(3 x) + 0.3 e on [-2, 2] with e ~ N(0, 1). Writes ``latent_intervals.png``.

    Args:
        out: Folder of the figure.
        seed: Seed of the data and the fit.
        quick: Use 200 test rows instead of 2,000.

    Returns:
        Rows with ``protocol``, ``coverage`` (nominal 0.95), ``width`` and ``seconds``.
    """
    generator = torch.Generator().manual_seed(seed)
    n_test = 200 if quick else 2000
    train, calibration, test = (_data(n, generator) for n in (100, 200, n_test))
    started = time.perf_counter()
    posterior = raise_if_interrupted(fit(GP(), train, MAP(), seed=seed, progress=False))
    of_f, of_y = posterior.latent(test.X), posterior.predict(test.X)
    calibrator = conformal.calibrate(
        conformal.Normalized(), posterior.predict(calibration.X), calibration.y
    )
    regions = {
        "sd of f alone": of_f.interval(LEVEL),
        "sd of y, noise included": of_y.interval(LEVEL),
        "calibrated": calibrator(of_y, level=LEVEL),
    }
    seconds = time.perf_counter() - started
    shown = of_y[:80]
    figure = plots.intervals(
        shown, test.y[:80], calibrator(shown, level=LEVEL), of_f[:80].interval(LEVEL)
    )
    write_figure(out / "latent_intervals.png", figure, dpi=130)
    return [
        {
            "model": "gp",
            "how": "map",
            "protocol": name,
            "coverage": metrics.coverage(region, test.y),
            "width": metrics.mean_width(region),
            "seconds": seconds,
        }
        for name, region in regions.items()
    ]


def _data(n: int, generator: torch.Generator) -> Dataset:
    """Draw n rows."""
    x = 4 * standard_uniform(generator, n, 1) - 2
    noise = 0.3 * standard_normal(generator, n)
    return Dataset(x, torch.sin(3 * x[:, 0]) + noise)
