"""Intervals for y from the standard deviation of f alone, from that of y, and after conformal calibration.

The first is a slip that is often made with Gaussian processes: the predictive law of y is N(mean, var f + noise)
(Rasmussen & Williams 2006, equation 2.23 and the remark after it), and an interval from var f alone covers f, not y.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch

from .. import conformal, plots
from ..data.dataset import Dataset
from ..diagnostics import metrics
from ..files import write_figure
from ..inference import MAP
from ..inference.fitting import fit
from ..inference.interrupts import whole
from ..models import GP

LEVEL = 0.95


def run(out: Path, *, seed: int = 0, quick: bool = False) -> list[dict[str, Any]]:
    """Rows with ``protocol``, ``coverage`` (nominal 0.95), ``width``, ``seconds``; figure ``latent_intervals.png`` in ``out``.

    Data: y = sin(3 x) + 0.3 e on [-2, 2], e ~ N(0, 1); one GP by MAP, 2,000 test rows (``quick``: 200).
    """
    generator = torch.Generator().manual_seed(seed)
    train, calibration, test = (_data(n, generator) for n in (100, 200, 200 if quick else 2000))
    started = time.perf_counter()
    posterior = whole(fit(GP(), train, MAP(), seed=seed, progress=False))
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
    figure = plots.intervals(
        of_y[:80], test.y[:80], calibrator(of_y[:80], level=LEVEL), of_f[:80].interval(LEVEL)
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
    x = 4 * torch.rand(n, 1, generator=generator, dtype=torch.float64) - 2
    noise = 0.3 * torch.randn(n, generator=generator, dtype=torch.float64)
    return Dataset(x, torch.sin(3 * x[:, 0]) + noise)
