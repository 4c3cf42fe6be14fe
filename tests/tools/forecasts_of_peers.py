"""Forecasts of other libraries at the origins of ``series.json``, as scores in ``peers.json``.

``python tests/tools/forecasts_of_peers.py`` runs where statsmodels and statsforecast are
installed; ppgp need not be. A window has the mean absolute error and the interval score of 90 %
(Gneiting & Raftery 2007), both over the mean absolute difference of the training rows from those
a season before (Hyndman & Koehler 2006), the share of rows covered, and the processor's seconds.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from series_of_packages import Series, read

FILE = Path(__file__).with_name("forecasts") / "peers.json"
LEVEL = 0.9
NORMAL = 1.6448536269514722  # the 95 % quantile of N(0, 1)
LONGEST_SEASON = 24  # of exponential smoothing

#: mean, lower and upper end, [h] each
Forecast = tuple[np.ndarray, np.ndarray, np.ndarray]


def scores(series: Series, n: int, forecast: Forecast, seconds: float) -> dict[str, float]:
    """Return the scores of one window, which begins after n rows."""
    y, ahead = np.array(series.values[:n]), np.array(series.values[n : n + series.h])
    mean, lower, upper = forecast
    unit = float(np.abs(y[series.m :] - y[: -series.m]).mean())
    outside = np.maximum(lower - ahead, 0) + np.maximum(ahead - upper, 0)
    interval = (upper - lower + 2 / (1 - LEVEL) * outside).mean()
    covered = ((lower <= ahead) & (ahead <= upper)).mean()
    return {
        "mase": round(float(np.abs(ahead - mean).mean()) / unit, 5),
        "interval_score": round(float(interval) / unit, 5),
        "coverage": round(float(covered), 5),
        "seconds": round(seconds, 3),
    }


def seasonal_naive(y: np.ndarray, m: int, h: int) -> Forecast:
    """Return the values of the season before, with the sd of a seasonal random walk."""
    steps = np.arange(h)
    mean = y[len(y) - m + steps % m]
    width = NORMAL * np.sqrt(np.mean((y[m:] - y[:-m]) ** 2) * (steps // m + 1))
    return mean, mean - width, mean + width


def last_value(y: np.ndarray, m: int, h: int) -> Forecast:
    """Return the last value, with the sd of a random walk."""
    return seasonal_naive(y, 1, h)


def ets(y: np.ndarray, m: int, h: int) -> Forecast:
    """Return the forecast of the additive ETSModel of statsmodels that has the least AICc."""
    from statsmodels.tsa.exponential_smoothing.ets import ETSModel

    best: Any = None
    seasonal = 1 < m <= LONGEST_SEASON and len(y) >= 2 * m
    for trend, damped in ((None, False), ("add", False), ("add", True)):
        for season in (None, "add") if seasonal else (None,):
            options = {"trend": trend, "damped_trend": damped, "seasonal": season}
            if season:
                options["seasonal_periods"] = m
            found: Any = ETSModel(pd.Series(y), error="add", **options).fit(disp=False)
            if best is None or found.aicc < best.aicc:
                best = found
    table = best.get_prediction(len(y), len(y) + h - 1).summary_frame(alpha=1 - LEVEL)
    return tuple(table[name].to_numpy() for name in ("mean", "pi_lower", "pi_upper"))  # type: ignore[return-value]


def of_statsforecast(name: str) -> Callable[[np.ndarray, int, int], Forecast]:
    """Return the forecast of a model of statsforecast."""

    def forecast(y: np.ndarray, m: int, h: int) -> Forecast:
        import statsforecast.models

        if name == "AutoETS" and m > LONGEST_SEASON:
            m = 1
        model = getattr(statsforecast.models, name)(season_length=m)
        found = model.forecast(y=y, h=h, level=[round(100 * LEVEL)])
        return found["mean"], found["lo-90"], found["hi-90"]

    return forecast


PEERS: dict[str, Callable[[np.ndarray, int, int], Forecast]] = {
    "seasonal naive": seasonal_naive,
    "last value": last_value,
    "ETSModel": ets,
    "AutoETS": of_statsforecast("AutoETS"),
    "AutoTheta": of_statsforecast("AutoTheta"),
}


def main(names: list[str]) -> None:
    """Write the scores of the peers, or of those that are named."""
    found: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
    warnings.simplefilter("ignore")
    for peer in names or list(PEERS):
        forecast, rows = PEERS[peer], {}
        forecast(np.arange(40.0) % 4 + np.cos(np.arange(40.0)), 4, 4)  # compiles what there is
        for name, series in read().items():
            windows = []
            for n in series.origins:
                y = np.array(series.values[:n])
                begun = time.process_time()
                made = forecast(y, series.m, series.h)
                windows.append(scores(series, n, made, time.process_time() - begun))
            rows[name] = windows
            print(f"{peer:15} {name:34}", [window["mase"] for window in windows], flush=True)
        found[peer] = rows
        write(FILE, found)


def write(path: Path, found: dict[str, Any]) -> None:
    """Write ``{method: {series: [scores of a window]}}``, one line a series."""
    methods = []
    for method, rows in found.items():
        lines = [f"{json.dumps(name)}: {json.dumps(windows)}" for name, windows in rows.items()]
        methods.append(f"{json.dumps(method)}: {{\n" + ",\n".join(lines) + "\n}")
    path.write_text("{\n" + ",\n".join(methods) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
