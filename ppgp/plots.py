"""Figures, drawn on matplotlib's object interface: nothing global is touched, and every function returns its Figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import gaussian_kde

from . import diagnostics
from .comparison import Comparison
from .conformal import Calibrator
from .conformal.online import Online
from .data import as_tensor
from .errors import SettingError
from .posterior import Posterior
from .prediction import Prediction
from .region import Region
from .validation import SBC

__all__ = [
    "coverage",
    "decision",
    "differences",
    "function",
    "intervals",
    "marginals",
    "online",
    "reliability",
    "trace",
    "widths",
]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe & Ito (2008)
MOST_SITES = 12


def _figure(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Figure, np.ndarray]:
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def intervals(prediction: Prediction, y: Any, region: Region, own: Region | None = None, title: str = "") -> Figure:
    """The rows in the order of their predicted mean: y, the mean, the region, and the model's own interval behind it."""
    mean = prediction.mean.cpu().numpy()
    y = as_tensor(y, "y").cpu().numpy()
    order = np.argsort(mean)
    x = np.arange(len(mean))
    figure, axes = _figure(8, 3.6)
    axis = axes[0, 0]
    covered = region.covers(y).cpu().numpy()
    for r, colour, label, width in ((own, "#BBBBBB", "model's own", 4.5), (region, COLOURS[0], "conformal", 1.6)):
        if r is not None:
            lower, upper = (e.cpu().numpy()[order] for e in r)
            if np.isfinite(lower).all() and np.isfinite(upper).all():
                share = float(r.covers(y).double().mean())
                axis.vlines(
                    x, lower, upper, color=colour, lw=width, label=f"{label}: covers {share:.0%}", zorder=1 if r is own else 2
                )
    axis.plot(x, mean[order], color="black", lw=1, label="predictive mean", zorder=3)
    inside = covered[order]
    axis.scatter(x[inside], y[order][inside], s=14, color=COLOURS[2], label="y, covered", zorder=4)
    axis.scatter(x[~inside], y[order][~inside], s=18, color=COLOURS[1], marker="x", label="y, not covered", zorder=4)
    axis.set(
        xlabel="test rows, by predicted mean", ylabel="y", title=title or f"{region.level:.0%} intervals: {region.guarantee}"
    )
    axis.title.set_fontsize(10)
    axis.legend(frameon=False, fontsize=8, ncols=3, loc="upper left")
    low, high = axis.get_ylim()
    axis.set_ylim(low, high + 0.22 * (high - low))
    return figure


def marginals(posteriors: Mapping[str, Posterior], sites: int = MOST_SITES) -> Figure:
    """The marginal of each scalar under each posterior (of one model); a single draw is a vertical line."""
    if not posteriors:
        raise SettingError("at least one posterior to draw", "none", "pass {name: posterior}")
    draws = {name: dict(diagnostics.scalars(p.draws)) for name, p in posteriors.items()}
    names = list(next(iter(draws.values())))[:sites]
    columns = min(4, len(names))
    figure, axes = _figure(2.6 * columns, 2.0 * -(-len(names) // columns) + 0.5, -(-len(names) // columns), columns)
    for axis, site in zip(axes.flat, names, strict=False):
        for colour, (name, scalars) in zip(COLOURS * 3, draws.items(), strict=False):
            values = scalars[site].ravel()
            if len(values) < 2 or np.ptp(values) == 0:
                axis.axvline(values[0], color=colour, lw=1.2, ls="--", label=name)
                continue
            low, high = np.quantile(values, [0.002, 0.998])
            grid = np.linspace(low - 0.1 * (high - low), high + 0.1 * (high - low), 200)
            axis.plot(grid, gaussian_kde(values)(grid), color=colour, lw=1.4, label=name)
        axis.set_title(site, fontsize=9)
        axis.set_yticks([])
        axis.tick_params(labelsize=7)
    for axis in axes.flat[len(names) :]:
        axis.set_visible(False)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False, fontsize=8)
    return figure


def differences(comparison: Comparison) -> Figure:
    """Every scalar's shift of the mean (reference sds) and ratio of sds, with three Monte Carlo standard errors."""
    table = comparison.latents
    if table.empty:
        raise SettingError("a comparison with a reference", "none", "add a NUTS posterior of the same model")
    names = list(dict.fromkeys(table["name"]))
    sites = max(len(group) for _, group in table.groupby("name"))
    figure, axes = _figure(8, 2.2 + 0.05 * sites, 1, 2)
    panels = (
        ("difference", "difference_error", 0.0, "mean - reference mean, in its sds"),
        ("ratio", "ratio_error", 1.0, "sd / reference sd"),
    )
    for axis, (column, error, centre, label) in zip(axes.flat, panels, strict=True):
        axis.axvline(centre, color="black", lw=0.8)
        for k, (name, colour) in enumerate(zip(names, COLOURS * 5, strict=False)):
            part = table[table["name"] == name]
            offset = k + np.linspace(-0.3, 0.3, len(part)) if len(part) > 1 else np.array([float(k)])
            bars = 3 * np.asarray(part[error])
            axis.errorbar(part[column], offset, xerr=bars, fmt="o", ms=3, lw=0.8, color=colour, alpha=0.8)
        axis.set_yticks(range(len(names)), names, fontsize=8)
        axis.set_xlabel(label, fontsize=9)
        axis.invert_yaxis()
    return figure


def trace(posterior: Posterior, sites: int = 6) -> Figure:
    """Draws of each chain in their order, and their density: what a converged sampler's look like grass and agree."""
    scalars = list(diagnostics.scalars(posterior.draws))[:sites]
    figure, axes = _figure(8, 1.3 * len(scalars) + 0.3, len(scalars), 2)
    for (left, right), (name, values) in zip(axes, scalars, strict=True):
        for colour, chain in zip(COLOURS * 10, values, strict=False):
            left.plot(chain, color=colour, lw=0.5, alpha=0.8)
            if np.ptp(chain) > 0:
                grid = np.linspace(values.min(), values.max(), 150)
                right.plot(grid, gaussian_kde(chain)(grid), color=colour, lw=1)
        left.set_ylabel(name, fontsize=8)
        right.set_yticks([])
        for axis in (left, right):
            axis.tick_params(labelsize=7)
    return figure


def reliability(prediction: Prediction, y: Any, bins: int = 10) -> Figure:
    """How often the most probable label was right against how probable it was said to be, in bins of equal size."""
    p = prediction.probabilities.cpu()
    confidence, label = (t.numpy() for t in p.max(-1))
    right = label == as_tensor(y, "y").cpu().numpy()
    groups = np.array_split(np.argsort(confidence), min(bins, len(confidence)))
    said, came, sizes = zip(*[(confidence[g].mean(), right[g].mean(), len(g)) for g in groups], strict=True)
    error = [np.sqrt(max(c * (1 - c), 1 / n) / n) for c, n in zip(came, sizes, strict=True)]
    figure, axes = _figure(3.8, 3.6)
    axis = axes[0, 0]
    start = min(*said, *came) - 0.05
    axis.plot([start, 1], [start, 1], color="black", lw=0.8)
    axis.errorbar(said, came, yerr=error, fmt="o-", color=COLOURS[0], ms=4, lw=1)
    axis.set(xlabel="probability said", ylabel="share right", title="reliability", ylim=(start, 1.03))
    return figure


def coverage(calibrators: Mapping[str, Calibrator], prediction: Prediction, y: Any, confidence: float = 0.9) -> Figure:
    """Coverage minus level, for levels from 5 to 95 %: each calibrator, the model's own interval, and the beta-binomial band.

    The band is where the coverage of so many test rows lies, given so many calibration rows, if rows are exchangeable.
    """
    levels = np.arange(5, 96, 5) / 100
    figure, axes = _figure(6, 3.8)
    axis = axes[0, 0]
    first = next(iter(calibrators.values()))
    band = np.array([first.coverage_band(float(p), confidence, len(prediction)) for p in levels])
    axis.fill_between(levels, band[:, 0] - levels, band[:, 1] - levels, color="#DDDDDD", label=f"{confidence:.0%} band", lw=0)
    axis.axhline(0, color="black", lw=0.8)
    truth = as_tensor(y, "y")
    curves = {name: [c(prediction, level=float(p)) for p in levels] for name, c in calibrators.items()}
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
    figure, axes = _figure(6, 0.5 * len(regions) + 1.2)
    axis = axes[0, 0]
    names = []
    for position, (name, region) in enumerate(regions.items()):
        w = region.width.double().cpu().numpy()
        finite = w[np.isfinite(w)]
        colour = COLOURS[position % len(COLOURS)]
        if len(finite):
            axis.plot(np.quantile(finite, [0.05, 0.95]), [position] * 2, color=colour, lw=1)
            axis.plot(np.quantile(finite, [0.25, 0.75]), [position] * 2, color=colour, lw=5, solid_capstyle="butt")
            axis.plot([np.median(finite)], [position], "o", mfc="white", mec=colour, ms=4.5, zorder=3)
        covered = "" if y is None else f"\ncovers {float(region.covers(y).double().mean()):.0%}"
        infinite = float(region.infinite.double().mean())
        names.append(f"{name}{covered}" + (f", {infinite:.0%} infinite" if infinite else ""))
    axis.set_yticks(range(len(names)), names, fontsize=8)
    axis.invert_yaxis()
    axis.set_xlabel("width of the sets: median, half, nine tenths")
    return figure


def function(
    x: Any, prediction: Prediction, regions: Mapping[str, Region], data: tuple[Any, Any] | None = None, truth: Any = None
) -> Figure:
    """A function of one input: the predictive mean, and each region as a band; ``data``: (x, y) to show as points."""
    grid = as_tensor(x, "x").flatten().cpu().numpy()
    order = np.argsort(grid)
    figure, axes = _figure(8, 3.6)
    axis = axes[0, 0]
    for colour, (name, region) in zip(("#BBBBBB", *COLOURS), regions.items(), strict=False):
        lower, upper = (e.cpu().numpy()[order] for e in region)
        axis.fill_between(grid[order], lower, upper, color=colour, alpha=0.35, lw=0)
        axis.plot(grid[order], lower, color=colour, lw=1, label=name)
        axis.plot(grid[order], upper, color=colour, lw=1)
    axis.plot(grid[order], prediction.mean.cpu().numpy()[order], color="black", lw=1.2, label="predictive mean")
    if truth is not None:
        axis.plot(grid[order], as_tensor(truth, "truth").cpu().numpy()[order], color="black", lw=1, ls=":", label="truth")
    if data is not None:
        axis.scatter(*(as_tensor(v, "data").flatten().cpu().numpy() for v in data), s=9, color=COLOURS[6], alpha=0.5, lw=0)
    axis.set(xlabel="x", ylabel="y")
    axis.legend(frameon=False, fontsize=8, ncols=3)
    return figure


def online(runs: Mapping[str, Online], window: int = 200, level: float | None = None) -> Figure:
    """Coverage over a moving window of rows, in time, for each online method (or fixed set) under its name."""
    figure, axes = _figure(8, 3.2)
    axis = axes[0, 0]
    for colour, (name, run) in zip(COLOURS * 3, runs.items(), strict=False):
        covered = 1.0 - run.errors.double().cpu().numpy()
        moving = np.convolve(covered, np.ones(window) / window, mode="valid")
        axis.plot(np.arange(window, len(covered) + 1), moving, color=colour, lw=1, label=f"{name}: {covered.mean():.1%} in all")
    wanted = level if level is not None else next(iter(runs.values())).region.level
    axis.axhline(wanted, color="black", lw=0.8, ls="--")
    axis.set(xlabel="row, in the order of time", ylabel=f"coverage of the last {window} rows")
    axis.legend(frameon=False, fontsize=8)
    return figure


def decision(posterior: Posterior, features: tuple[int, int] = (0, 1), title: str = "", points: int = 120) -> Figure:
    """The probability of each row of a plane, and where it crosses one half; training rows on top.

    Two classes: p(second class). More: the largest probability, one colour a class. Inputs that are not drawn are held at
    their training mean.
    """
    data, scaler = posterior.data, posterior.scaler
    X = data.X if scaler is None else data.X * scaler.x_sd + scaler.x_mean
    X = X.double().cpu().numpy()
    i, j = features
    low, high = X.min(0), X.max(0)
    margin = 0.08 * (high - low)
    xs, ys = (np.linspace(low[k] - margin[k], high[k] + margin[k], points) for k in (i, j))
    plane = np.tile(X.mean(0), (points * points, 1))
    plane[:, i], plane[:, j] = (g.ravel() for g in np.meshgrid(xs, ys))
    p = posterior.predict(plane).probabilities.cpu().numpy().reshape(points, points, -1)
    figure, axes = _figure(5.4, 4.4)
    axis = axes[0, 0]
    classes = p.shape[-1]
    if classes == 2:
        shown = axis.pcolormesh(xs, ys, p[..., 1], cmap="RdBu_r", vmin=0, vmax=1, shading="auto", rasterized=True)
        axis.contour(xs, ys, p[..., 1], levels=[0.1, 0.5, 0.9], colors="black", linewidths=[0.7, 1.6, 0.7])
        figure.colorbar(shown, label=f"p({(data.classes or (0, 1))[1]})")
    else:
        winner = p.argmax(-1)
        for k in range(classes):
            sure = np.where(winner == k, p[..., k], np.nan)
            axis.contourf(xs, ys, sure, levels=np.linspace(1 / classes, 1, 8), colors=[COLOURS[k]], alpha=0.25)
        axis.contour(xs, ys, winner, levels=np.arange(classes - 1) + 0.5, colors="black", linewidths=1.4)
    names = data.feature_names or [f"x{k}" for k in range(data.d)]
    for k in range(classes):
        rows = data.y.cpu().numpy() == k
        colour = ("#2166AC", "#B2182B")[k] if classes == 2 else COLOURS[k]
        label = str((data.classes or range(classes))[k])
        axis.scatter(X[rows, i], X[rows, j], s=18, color=colour, edgecolor="white", linewidth=0.5, label=label)
    axis.legend(frameon=False, fontsize=8)
    axis.set(
        xlabel=names[i], ylabel=names[j], title=title or f"{type(posterior.model).__name__} by {type(posterior.how).__name__}"
    )
    return figure


def sbc(result: SBC, title: str = "") -> Figure:
    """The ECDF of the ranks minus that of uniform ones, a line a scalar, with the simultaneous band: inside it all is well."""
    points, each, lower, upper = result.differences()
    figure, axes = _figure(6, 3.4)
    axis = axes[0, 0]
    axis.fill_between(points, lower, upper, step="mid", color="#DDDDDD", label=f"{result.level:.0%} of uniform samples")
    names = list(each)
    for k, name in enumerate(names):
        label = name if len(names) <= MOST_SITES else None
        axis.plot(points, each[name], lw=1.1, color=COLOURS[k % len(COLOURS)], label=label)
    axis.axhline(0, color="black", lw=0.6)
    axis.legend(frameon=False, fontsize=8, ncols=2)
    axis.set(xlabel="rank of the truth among the draws", ylabel="ECDF difference", title=title or repr(result)[1:-1])
    axis.title.set_fontsize(10)
    return figure
