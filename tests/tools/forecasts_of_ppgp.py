"""Forecasts of the default for a series at the origins of ``series.json``, beside the peers.

``python tests/tools/forecasts_of_ppgp.py tuning`` scores the half of the series that a
rule may be tuned on, ``judged`` the other half, and both are kept in ``ours.json``: series that are
in it are not scored again. Names of series score these alone, and write nothing. ``table`` writes
the table of the guide, and fails where a goal is missed. Seconds are those of the processor.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from forecasts_of_peers import FILE as PEERS
from forecasts_of_peers import LEVEL, Forecast, scores, write
from series_of_packages import Series, half_of, read

FILE = Path(__file__).with_name("forecasts") / "ours.json"
GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "time-series.md"
BEGIN, END = "<!-- table of forecasts -->", "<!-- end of the table of forecasts -->"
NAIVE = ("seasonal naive", "last value")
OTHERS = ("ETSModel", "AutoETS", "AutoTheta")
OURS, CALIBRATED = "ppgp", "ppgp, calibrated"
BOOTSTRAP = 10_000
ORIGINS = 12  # past ones, of the calibration


def forecasts(series: Series, n: int) -> list[tuple[Forecast, float]]:
    """Return the forecast after n rows and the calibrated one, each with its seconds."""
    import ppgp
    from ppgp import models
    from ppgp.conformal.past_origins import calibrate_at_origins

    frame = pd.DataFrame({"date": series.dates, "value": series.values})
    data = ppgp.Dataset.from_frame(frame[:n], "value", dates="days")
    ahead = frame[n : n + series.h]
    begun = time.process_time()
    average = ppgp.fit_candidates(models.StateSpaceGP(), data)
    prediction = average.predict(ahead)
    lower, upper = prediction.interval(LEVEL)
    plain = prediction.mean.numpy(), lower.numpy(), upper.numpy()
    seconds = time.process_time() - begun
    origins = min(ORIGINS, max(2, n // 2 - series.h))
    settings = (None, None, origins, series.h, False, average)
    calibrator = calibrate_at_origins(models.StateSpaceGP(), data, *settings)
    region = calibrator(ahead, LEVEL)
    calibrated = plain[0], region.lower.numpy(), region.upper.numpy()
    return [(plain, seconds), (calibrated, time.process_time() - begun)]


def measure(names: list[str], kept: dict[str, Any] | None = None) -> None:
    """Score the forecasts of some series; write each to ``kept``, unless it is None or has it."""
    for name in names:
        if kept is not None and name in kept.get(CALIBRATED, {}):
            continue
        found: dict[str, dict[str, Any]] = {OURS: {}, CALIBRATED: {}}
        series = read()[name]
        for n in series.origins:
            both = forecasts(series, n)
            for method, (made, seconds) in zip(found, both, strict=True):
                found[method].setdefault(name, []).append(scores(series, n, made, seconds))
        windows = found[OURS][name]
        figures = [[w[key] for w in windows] for key in ("mase", "coverage", "seconds")]
        print(f"{name:34}", *figures, [w["coverage"] for w in found[CALIBRATED][name]], flush=True)
        if kept is not None:
            for method, rows in found.items():
                kept[method] = dict(sorted((kept.get(method, {}) | rows).items()))
            write(FILE, kept)


def judged(found: dict[str, Any]) -> list[str]:
    """Return the series that judge and are scored."""
    halves = half_of(list(read()))
    return [name for name, half in halves.items() if half == "judged" and name in found[OURS]]


def mean(rows: dict[str, Any], name: str, key: str) -> float:
    """Return a score of a series, the mean over its origins."""
    return float(np.mean([window[key] for window in rows[name]]))


def ratio(found: dict[str, Any], names: list[str], one: str, other: str, key: str) -> np.ndarray:
    """Return the geometric mean over series of a ratio of scores, and its 95 % interval, [3]."""
    pairs = [(mean(found[one], name, key), mean(found[other], name, key)) for name in names]
    logs = np.log([a / b for a, b in pairs])
    return np.exp(_with_interval(logs))


def _with_interval(values: np.ndarray) -> np.ndarray:
    """Return the mean and the 95 % bootstrap interval over series, [3]."""
    rng = np.random.default_rng(0)
    means = values[rng.integers(len(values), size=(BOOTSTRAP, len(values)))].mean(1)
    return np.array([values.mean(), *np.quantile(means, [0.025, 0.975])])


def coverage(found: dict[str, Any], names: list[str], method: str) -> np.ndarray:
    """Return the coverage, and its 95 % interval over series, [3]."""
    return _with_interval(np.array([mean(found[method], name, "coverage") for name in names]))


def table(found: dict[str, Any]) -> str:
    """Return the text of the guide: ratios and coverage on the half that judged, and series."""
    names = judged(found)
    lines = [
        f"On the {len(names)} series that were kept aside to judge, three origins each (geometric",
        "means over series of the ratio of ppgp to the peer, with the 95 % bootstrap interval):",
        "",
        "| peer | MASE | interval score | the same, calibrated | coverage of 90 % | seconds |",
        "|---|---|---|---|---|---|",
    ]
    for peer in (*OTHERS, *NAIVE):
        mase = ratio(found, names, OURS, peer, "mase")
        both = [ratio(found, names, own, peer, "interval_score") for own in (OURS, CALIBRATED)]
        cells = " | ".join(_shown(figures) for figures in (mase, *both))
        lines.append(f"| {peer} | {cells} | {_row(found, names, peer)} |")
    for method in (OURS, CALIBRATED):
        lines.append(f"| {method} | 1 | | | {_row(found, names, method)} |")
    lines += [
        "",
        "MASE of each of these series, the mean over three origins; the least is in bold:",
        "",
        f"| series | rows | {OURS} | {' | '.join((*OTHERS, *NAIVE))} |",
        "|---" * (3 + len(OTHERS) + len(NAIVE)) + "|",
    ]
    for name in names:
        values = [mean(found[method], name, "mase") for method in (OURS, *OTHERS, *NAIVE)]
        least = min(values)
        cells = [f"**{v:.2f}**" if v == least else f"{v:.2f}" for v in values]
        lines.append(f"| {name} | {len(read()[name].values)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _shown(figures: np.ndarray) -> str:
    return "{:.2f} ({:.2f} to {:.2f})".format(*figures)


def _row(found: dict[str, Any], names: list[str], method: str) -> str:
    """Return the cells of coverage and seconds."""
    seconds = np.median([mean(found[method], name, "seconds") for name in names])
    return f"{_shown(coverage(found, names, method))} | {seconds:.2f}"


def misses(found: dict[str, Any]) -> list[str]:
    """Return which goals the half that judged misses, in words."""
    names = judged(found)
    said = []
    for peer in OTHERS:
        figure = ratio(found, names, OURS, peer, "mase")
        if figure[0] > 1.0:
            said.append(f"MASE over that of {peer}: {_shown(figure)}")
    figure = ratio(found, names, OURS, "ETSModel", "interval_score")
    if figure[0] > 1.0:
        said.append(f"interval score over that of ETSModel: {_shown(figure)}")
    figure = coverage(found, names, CALIBRATED)
    if not (figure[1] <= LEVEL <= figure[2] and 0.85 <= figure[0] <= 0.95):
        said.append(f"coverage after calibration: {_shown(figure)}")
    for name in names:
        best = min(mean(found[each], name, "mase") for each in NAIVE)
        own = mean(found[OURS], name, "mase")
        if own > 2 * best:
            said.append(f"{name}: a MASE of {own:.2f}, where a naive one has {best:.2f}")
    seconds = float(np.median([mean(found[OURS], name, "seconds") for name in names]))
    if seconds > 3.0:
        said.append(f"{seconds:.1f} s a series")
    return said


def main(names: list[str]) -> None:
    """Score series, or write the table and print the goals that are missed."""
    warnings.simplefilter("ignore")
    kept: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
    halves = half_of(list(read()))
    if names == ["table"]:
        found = json.loads(PEERS.read_text()) | kept
        before, rest = GUIDE.read_text().split(BEGIN)
        after = rest.split(END)[1]
        GUIDE.write_text(f"{before}{BEGIN}\n\n{table(found)}\n\n{END}{after}")
        missed = misses(found)
        print(*missed or ["all goals are met"], sep="\n")
        raise SystemExit(bool(missed))
    for half in ("tuning", "judged"):
        if half in names:
            measure([name for name, own in halves.items() if own == half], kept)
    measure([name for name in names if name in halves])


if __name__ == "__main__":
    main(sys.argv[1:])
