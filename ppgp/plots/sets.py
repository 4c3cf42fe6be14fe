"""Regions: intervals, coverage, widths, bands over one input, and coverage in time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ..conformal import Calibrator
from ..conformal.online_sets import Online
from ..data.arrays import as_tensor
from ..posterior.prediction import Prediction
from ..posterior.region import Region
from .common import COLOURS, panels


def intervals(
    prediction: Prediction, y: Any, region: Region, own: Region | None = None, title: str = ""
) -> Figure:
    """The rows in the order of their predicted mean: y, the mean, the region, and the model's own interval behind it."""
    mean = prediction.mean.cpu().numpy()
    y = as_tensor(y, "y").cpu().numpy()
    order = np.argsort(mean)
    x = np.arange(len(mean))
    figure, axes = panels(8, 3.6)
    axis = axes[0, 0]
    covered = region.covers(y).cpu().numpy()
    for r, colour, label, width in (
        (own, "#BBBBBB", "model's own", 4.5),
        (region, COLOURS[0], "conformal", 1.6),
    ):
        if r is not None:
            lower, upper = (e.cpu().numpy()[order] for e in r)
            if np.isfinite(lower).all() and np.isfinite(upper).all():
                share = float(r.covers(y).double().mean())
                axis.vlines(
                    x,
                    lower,
                    upper,
                    color=colour,
                    lw=width,
                    label=f"{label}: covers {share:.0%}",
                    zorder=1 if r is own else 2,
                )
    axis.plot(x, mean[order], color="black", lw=1, label="predictive mean", zorder=3)
    inside = covered[order]
    axis.scatter(x[inside], y[order][inside], s=14, color=COLOURS[2], label="y, covered", zorder=4)
    axis.scatter(
        x[~inside],
        y[order][~inside],
        s=18,
        color=COLOURS[1],
        marker="x",
        label="y, not covered",
        zorder=4,
    )
    axis.set(
        xlabel="test rows, by predicted mean",
        ylabel="y",
        title=title or f"{region.level:.0%} intervals: {region.guarantee}",
    )
    axis.title.set_fontsize(10)
    axis.legend(frameon=False, fontsize=8, ncols=3, loc="upper left")
    low, high = axis.get_ylim()
    axis.set_ylim(low, high + 0.22 * (high - low))
    return figure


def coverage(
    calibrators: Mapping[str, Calibrator], prediction: Prediction, y: Any, confidence: float = 0.9
) -> Figure:
    """Coverage minus level, for levels from 5 to 95 %: each calibrator, the model's own interval, and the beta-binomial band.

    The band is where the coverage of so many test rows lies, given so many calibration rows, if rows are exchangeable.
    """
    levels = np.arange(5, 96, 5) / 100
    figure, axes = panels(6, 3.8)
    axis = axes[0, 0]
    first = next(iter(calibrators.values()))
    band = np.array([first.coverage_band(float(p), confidence, len(prediction)) for p in levels])
    axis.fill_between(
        levels,
        band[:, 0] - levels,
        band[:, 1] - levels,
        color="#DDDDDD",
        label=f"{confidence:.0%} band",
        lw=0,
    )
    axis.axhline(0, color="black", lw=0.8)
    truth = as_tensor(y, "y")
    curves = {
        name: [c(prediction, level=float(p)) for p in levels] for name, c in calibrators.items()
    }
    if prediction.kind != "classes":
        curves = {"model's own": [prediction.interval(float(p)) for p in levels], **curves}
    for colour, (name, regions) in zip(
        ("#777777", *COLOURS) if "model's own" in curves else COLOURS, curves.items(), strict=False
    ):
        found = np.array([float(r.covers(truth).double().mean()) for r in regions])
        axis.plot(levels, found - levels, "o-", ms=3, lw=1.2, color=colour, label=name)
    axis.set(xlabel="level", ylabel="coverage of the test rows - level")
    axis.legend(frameon=False, fontsize=8, ncols=2)
    return figure


def widths(regions: Mapping[str, Region], y: Any = None) -> Figure:
    """The widths of finite sets under each name, as distributions; the legend tells coverage and infinite shares."""
    figure, axes = panels(6, 0.5 * len(regions) + 1.2)
    axis = axes[0, 0]
    names = []
    for position, (name, region) in enumerate(regions.items()):
        w = region.width.double().cpu().numpy()
        finite = w[np.isfinite(w)]
        colour = COLOURS[position % len(COLOURS)]
        if len(finite):
            axis.plot(np.quantile(finite, [0.05, 0.95]), [position] * 2, color=colour, lw=1)
            axis.plot(
                np.quantile(finite, [0.25, 0.75]),
                [position] * 2,
                color=colour,
                lw=5,
                solid_capstyle="butt",
            )
            axis.plot(
                [np.median(finite)], [position], "o", mfc="white", mec=colour, ms=4.5, zorder=3
            )
        covered = "" if y is None else f"\ncovers {float(region.covers(y).double().mean()):.0%}"
        infinite = float(region.infinite.double().mean())
        names.append(f"{name}{covered}" + (f", {infinite:.0%} infinite" if infinite else ""))
    axis.set_yticks(range(len(names)), names, fontsize=8)
    axis.invert_yaxis()
    axis.set_xlabel("width of the sets: median, half, nine tenths")
    return figure


def function(
    x: Any,
    prediction: Prediction,
    regions: Mapping[str, Region],
    data: tuple[Any, Any] | None = None,
    truth: Any = None,
) -> Figure:
    """A function of one input: the predictive mean, and each region as a band; ``data``: (x, y) to show as points."""
    grid = as_tensor(x, "x").flatten().cpu().numpy()
    order = np.argsort(grid)
    figure, axes = panels(8, 3.6)
    axis = axes[0, 0]
    for colour, (name, region) in zip(("#BBBBBB", *COLOURS), regions.items(), strict=False):
        lower, upper = (e.cpu().numpy()[order] for e in region)
        axis.fill_between(grid[order], lower, upper, color=colour, alpha=0.35, lw=0)
        axis.plot(grid[order], lower, color=colour, lw=1, label=name)
        axis.plot(grid[order], upper, color=colour, lw=1)
    axis.plot(
        grid[order],
        prediction.mean.cpu().numpy()[order],
        color="black",
        lw=1.2,
        label="predictive mean",
    )
    if truth is not None:
        axis.plot(
            grid[order],
            as_tensor(truth, "truth").cpu().numpy()[order],
            color="black",
            lw=1,
            ls=":",
            label="truth",
        )
    if data is not None:
        axis.scatter(
            *(as_tensor(v, "data").flatten().cpu().numpy() for v in data),
            s=9,
            color=COLOURS[6],
            alpha=0.5,
            lw=0,
        )
    axis.set(xlabel="x", ylabel="y")
    axis.legend(frameon=False, fontsize=8, ncols=3)
    return figure


def online(runs: Mapping[str, Online], window: int = 200, level: float | None = None) -> Figure:
    """Coverage over a moving window of rows, in time, for each online method (or fixed set) under its name."""
    figure, axes = panels(8, 3.2)
    axis = axes[0, 0]
    for colour, (name, run) in zip(COLOURS * 3, runs.items(), strict=False):
        covered = 1.0 - run.errors.double().cpu().numpy()
        moving = np.convolve(covered, np.ones(window) / window, mode="valid")
        axis.plot(
            np.arange(window, len(covered) + 1),
            moving,
            color=colour,
            lw=1,
            label=f"{name}: {covered.mean():.1%} in all",
        )
    wanted = level if level is not None else next(iter(runs.values())).region.level
    axis.axhline(wanted, color="black", lw=0.8, ls="--")
    axis.set(xlabel="row, in the order of time", ylabel=f"coverage of the last {window} rows")
    axis.legend(frameon=False, fontsize=8)
    return figure
