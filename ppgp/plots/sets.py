"""Figures of regions: intervals, coverage, widths, bands over one input, coverage over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..conformal import Calibrator
from ..conformal.online import Online
from ..data.columns import name_of
from ..data.entries.arrays import as_tensor
from ..errors import DataError, NotApplicable, SettingError
from ..posterior.prediction import Prediction
from ..posterior.region import Region
from ..runtime.levels import exact_level
from ..runtime.whole_numbers import check_whole_number
from .common import COLOURS, check_named, legend, line_of, marker_of, panel, percent, set_title


def intervals(
    prediction: Prediction,
    y: Any,
    region: Region,
    own: Region | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Figure:
    """Plot y, the predictive mean and the region, for rows in the order of the mean.

    Legends state the share of the rows that are covered. All are in the units of y.

    Args:
        prediction: The prediction of n rows.
        y: The targets [n]; a Series gives the axis its name.
        region: The intervals of these rows.
        own: The model's own intervals, shown behind the region.
        title: The title; by default the guarantee of the region.
        ax: The axes to draw in; None: those of a new figure.

    Raises:
        DataError: If there is not one y and one interval per row.
        NotApplicable: If y is a class.
        SettingError: If ``ax`` is not one Axes.

    Examples:
        >>> import ppgp
        >>> from ppgp import inference, models, plots
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0], [3.0]], [0.1, 0.9, 2.2, 2.8])
        >>> posterior = ppgp.fit(models.LinearRegression(), data, inference.Exact(), progress=False)
        >>> prediction = posterior.predict([[0.5], [1.5], [2.5]])
        >>> axis = plots.intervals(prediction, [0.5, 1.5, 9.0], prediction.interval(0.9)).axes[0]
        >>> axis.get_legend_handles_labels()[1][:2]
        ['conformal: covers 67%', 'predictive mean']
    """
    mean, name = prediction.mean.cpu().numpy(), name_of(y) or "y"
    _check_lengths({"region": region} if own is None else {"region": region, "own": own}, mean)
    y = as_tensor(y, "y").cpu().numpy()
    order = np.argsort(mean)
    x = np.arange(len(mean))
    figure, axis = panel(ax, 9, 3.6)
    # the bars of a row must not cover those of the next
    points = 72 * figure.get_figwidth() * axis.get_position().width / max(len(x), 1)
    if own is not None:
        wide = min(4.5, 0.9 * points)
        _bars(axis, own, y, order, "model's own", color="#CCCCCC", lw=wide, zorder=1)
    narrow = min(1.6, 0.4 * points)
    _bars(axis, region, y, order, "conformal", color=COLOURS[5], lw=narrow, zorder=2)
    axis.plot(x, mean[order], color=COLOURS[0], lw=1.2, label="predictive mean", zorder=3)
    inside = region.covers(y).cpu().numpy()[order]
    hits, misses = (x[inside], y[order][inside]), (x[~inside], y[order][~inside])
    held, missed = f"{name}, in its conformal interval", f"{name}, outside it"
    axis.scatter(*hits, s=8, color="black", lw=0, label=held, zorder=4)
    axis.scatter(*misses, s=20, color=COLOURS[1], marker="x", label=missed, zorder=4)
    title = title or f"Conformal {percent(region.level)} intervals: {region.guarantee}"
    axis.set(xlabel="test rows, sorted by their predictive mean", ylabel=name)
    set_title(axis, title)
    legend(axis)
    return figure


def _check_lengths(values: Mapping[str, Any], rows: Any) -> None:
    """Raise DataError unless each value has one entry per row."""
    for name, value in values.items():
        if len(value) != len(rows):
            got = f"{len(value)}"
            wanted = f"one entry of {name} per row ({len(rows)})"
            raise DataError(wanted, got, "pass those of the same rows")


def _bars(
    axis: Any, region: Region, y: np.ndarray, order: np.ndarray, label: str, **style: Any
) -> None:
    """Draw the intervals of a region as vertical bars, unless one of them is unbounded."""
    lower, upper = (end.cpu().numpy()[order] for end in region)
    if np.isfinite(lower).all() and np.isfinite(upper).all():
        text = f"{label}: covers {_share_covered(region, y):.0%}"
        axis.vlines(np.arange(len(lower)), lower, upper, label=text, **style)


def _share_covered(region: Region, y: Any) -> float:
    """Return the share of rows whose y lies in its set."""
    return float(region.covers(y).double().mean())


def _band(
    calibrator: Calibrator, levels: np.ndarray, confidence: float, rows: int
) -> np.ndarray | None:
    """Return the band of coverage at each level, [L, 2]; None where it is not known."""
    band = []
    for level in map(float, levels):
        if calibrator.ties(level):
            return None
        try:
            band.append(calibrator.coverage_band(level, confidence, rows))
        except NotApplicable:
            return None
    return np.array(band)


def coverage(
    calibrators: Mapping[str, Calibrator],
    prediction: Prediction,
    y: Any,
    confidence: float = 0.9,
    ax: Axes | None = None,
) -> Figure:
    """Plot coverage minus level, for levels from 5 to 95 %.

    It shows each calibrator, the model's own interval, and the beta-binomial band that contains the
    coverage of the test rows with probability ``confidence`` if rows are exchangeable. No band is
    known for scores that tie and those that ``Calibrator.coverage_band`` refuses. Levels and
    coverage are probabilities. Angelopoulos & Bates (2023), section 3.3.

    Args:
        calibrators: ``{name: calibrator}``, with the same number of calibration rows.
        prediction: The prediction of n test rows.
        y: The targets [n] of the test rows.
        confidence: The probability of the band.
        ax: The axes to draw in; None: those of a new figure.

    Raises:
        DataError: If there is not one y per row.
        SettingError: If calibrators are not given by name, the confidence is not in (0, 1), or
            ``ax`` is not one Axes.

    Examples:
        >>> import ppgp
        >>> from ppgp import conformal, inference, models, plots
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0], [3.0]], [0.1, 0.9, 2.2, 2.8])
        >>> posterior = ppgp.fit(models.LinearRegression(), data, inference.Exact(), progress=False)
        >>> prediction = posterior.predict([[0.5], [1.5], [2.5]])
        >>> known = posterior.predict([[0.1 * k] for k in range(2, 42, 2)])
        >>> calibrator = ppgp.calibrate(conformal.Absolute(), known, known.sample(1)[0])
        >>> axis = plots.coverage({"absolute": calibrator}, prediction, prediction.mean).axes[0]
        >>> axis.get_legend_handles_labels()[1][1:]
        ["model's own", 'absolute']
        >>> own = axis.lines[1].get_ydata()  # all rows are covered: 1 - level
        >>> [round(float(excess), 2) for excess in own[:3]]
        [0.95, 0.9, 0.85]
    """
    check_named(calibrators, "calibrator")
    exact_level(confidence)
    levels = np.arange(5, 96, 5) / 100
    figure, axis = panel(ax, 7.5, 3.8)
    bands = {name: _band(c, levels, confidence, len(prediction)) for name, c in calibrators.items()}
    known = [band for band in bands.values() if band is not None]
    if known:
        lower, upper = known[0][:, 0] - levels, known[0][:, 1] - levels
        label = f"{percent(confidence)} band of conformal\ncoverage, at each level"
        axis.fill_between(levels, lower, upper, color="#DDDDDD", label=label, lw=0)
    axis.axhline(0, color="black", lw=0.8)
    truth = as_tensor(y, "y")
    curves: dict[str, list[Region]] = {}
    if prediction.kind != "classes":
        curves["model's own"] = [prediction.interval(float(p)) for p in levels]
    for name, calibrator in calibrators.items():
        label = name
        if known and bands[name] is None:
            label += " (band not known)"
        curves[label] = [calibrator(prediction, level=float(p)) for p in levels]
    for k, (name, regions) in enumerate(curves.items()):
        covered = np.array([_share_covered(region, truth) for region in regions])
        style = {"marker": marker_of(k), "ms": 3, "lw": 1.2, **line_of(k)}
        axis.plot(levels, covered - levels, label=name, **style)
    axis.set(xlabel="level of the intervals", ylabel="coverage - level")
    set_title(axis, f"Coverage of {len(prediction)} test rows minus the level")
    legend(axis)
    return figure


def widths(regions: Mapping[str, Region], y: Any = None, ax: Axes | None = None) -> Figure:
    """Plot the distribution of the widths of the finite sets of each region.

    The labels state the coverage and the share of infinite sets. Widths are in the units of y, or
    numbers of labels. Angelopoulos & Bates (2023), section 3.1.

    Args:
        regions: ``{name: region}``.
        y: The targets [n], for the coverage; a Series gives the axis its name.
        ax: The axes to draw in; None: those of a new figure.

    Raises:
        DataError: If there is not one y per row.
        SettingError: If regions are not given by name, or ``ax`` is not one Axes.

    Examples:
        >>> import ppgp
        >>> from ppgp import inference, models, plots
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0], [3.0]], [0.1, 0.9, 2.2, 2.8])
        >>> posterior = ppgp.fit(models.LinearRegression(), data, inference.Exact(), progress=False)
        >>> prediction = posterior.predict([[0.5], [1.5], [2.5]])
        >>> regions = {f"{level:.0%}": prediction.interval(level) for level in (0.5, 0.9)}
        >>> axis = plots.widths(regions, y=[0.5, 1.5, 9.0]).axes[0]
        >>> [label.get_text().split() for label in axis.get_yticklabels()]
        [['50%', 'covers', '67%'], ['90%', 'covers', '67%']]
    """
    check_named(regions, "region")
    figure, axis = panel(ax, 6.5, 0.5 * len(regions) + 1.4)
    of_y = "" if name_of(y) is None else f" of {name_of(y)}"
    names = []
    for position, (name, region) in enumerate(regions.items()):
        w = region.width.double().cpu().numpy()
        finite = w[np.isfinite(w)]
        colour = COLOURS[position % len(COLOURS)]
        if len(finite):
            axis.plot(np.quantile(finite, [0.05, 0.95]), [position] * 2, color=colour, lw=1)
            half = np.quantile(finite, [0.25, 0.75])
            axis.plot(half, [position] * 2, color=colour, lw=5, solid_capstyle="butt")
            style = {"mfc": "white", "mec": colour, "ms": 4.5, "zorder": 3}
            axis.plot([np.median(finite)], [position], "o", **style)
        if y is not None:
            name += f"\ncovers {_share_covered(region, y):.0%}"
        infinite = float(region.infinite.double().mean())
        if infinite:
            name += f", {infinite:.0%} infinite"
        names.append(name)
    axis.set_yticks(range(len(names)), names, fontsize=8)
    axis.set_ylim(len(names) - 0.4, -0.6)
    levels = " and ".join(sorted({percent(region.level) for region in regions.values()}))
    unit = f", in the unit{of_y}" if of_y else ""
    if any(region.labels is not None for region in regions.values()):
        unit = ", in labels"
    axis.set_xlabel(f"width{unit}: median, 50% (thick) and 90% (thin) of the rows")
    set_title(axis, f"Widths of the {levels} sets{of_y}")
    return figure


def function(
    x: Any,
    prediction: Prediction,
    regions: Mapping[str, Region],
    data: tuple[Any, Any] | None = None,
    truth: Any = None,
    ax: Axes | None = None,
) -> Figure:
    """Plot a function of one input: the predictive mean, and each region as a band.

    As in Rasmussen & Williams (2006), figure 2.2. The axes are in the units of x and of y.

    Args:
        x: The inputs [n] or [n, 1]; a Series or a frame gives the axis its name.
        prediction: The prediction at these inputs.
        regions: ``{name: region}`` of intervals at these inputs.
        data: (x [m], y [m]), shown as points; a Series y gives the axis its name.
        truth: The true function at these inputs, [n].
        ax: The axes to draw in; None: those of a new figure.

    Raises:
        DataError: If there is not one input, interval and true value per row of the prediction, or
            the data are not as many x as y.
        NotApplicable: If y is a class.
        SettingError: If regions are not given by name, or ``ax`` is not one Axes.

    Examples:
        >>> import numpy as np
        >>> import ppgp
        >>> from ppgp import inference, kernels, models, plots
        >>> x, y = np.array([[0.0], [1.0], [2.0]]), np.array([0.0, 1.0, 0.0])
        >>> model = models.GP(kernels.RBF(1.0, 1.0), noise=1e-4)
        >>> options = {"standardise": False, "progress": False}
        >>> posterior = ppgp.fit(model, ppgp.Dataset(x, y), inference.MAP(), **options)
        >>> grid = np.linspace(0, 2, 21)
        >>> prediction = posterior.predict(grid[:, None])
        >>> bands = {"90%": prediction.interval(0.9)}
        >>> axis = plots.function(grid, prediction, bands, data=(x, y)).axes[0]
        >>> axis.get_legend_handles_labels()[1]
        ['90%', 'predictive mean', 'data']
        >>> mean = axis.lines[2].get_ydata()
        >>> bool(abs(mean[10] - 1) < 0.02)  # the fit goes through the data
        True
    """
    check_named(regions, "region")
    mean = prediction.mean.cpu().numpy()
    grid = as_tensor(x, "x").flatten().cpu().numpy()
    _check_lengths({"x": grid, **regions}, mean)
    order = np.argsort(grid)
    figure, axis = panel(ax, 9, 3.6)
    for colour, (name, region) in zip(("#BBBBBB", *COLOURS), regions.items(), strict=False):
        lower, upper = (e.cpu().numpy()[order] for e in region)
        axis.fill_between(grid[order], lower, upper, color=colour, alpha=0.35, lw=0)
        axis.plot(grid[order], lower, color=colour, lw=1, label=name)
        axis.plot(grid[order], upper, color=colour, lw=1)
    axis.plot(grid[order], mean[order], color="black", lw=1.2, label="predictive mean")
    if truth is not None:
        values = as_tensor(truth, "truth").flatten().cpu().numpy()
        _check_lengths({"truth": values}, mean)
        axis.plot(grid[order], values[order], color="black", lw=1, ls=":", label="truth")
    if data is not None:
        points = [as_tensor(v, "data").flatten().cpu().numpy() for v in data]
        _check_lengths({"y in data": points[1]}, points[0])
        axis.scatter(*points, s=9, color=COLOURS[6], alpha=0.5, lw=0, label="data")
    name_of_y = None if data is None else name_of(data[1])
    axis.set(xlabel=name_of(x) or "x", ylabel=name_of_y or "y")
    set_title(axis, "Predictive mean, with intervals")
    legend(axis)
    return figure


def online(
    runs: Mapping[str, Online],
    window: int = 200,
    level: float | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Plot the coverage over a moving window of rows, for each online method.

    Gibbs & Candes (2021). Coverage is a probability.

    Args:
        runs: ``{name: result}`` of online methods, with the errors [n] of the rows.
        window: The number of rows in the window.
        level: The level to mark; by default that of the first result.
        ax: The axes to draw in; None: those of a new figure.

    Raises:
        SettingError: If there are no results, they are not given by name, the window does not have
            at least one row and at most as many as each result, or ``ax`` is not one Axes.

    Examples:
        >>> import numpy as np
        >>> import ppgp
        >>> from ppgp import conformal, inference, models, plots
        >>> x = np.arange(120.0)
        >>> y = x + np.sin(x)
        >>> data = ppgp.Dataset(x[:20, None], y[:20])
        >>> posterior = ppgp.fit(models.LinearRegression(), data, inference.Exact(), progress=False)
        >>> run = conformal.ACI(conformal.Absolute(), 0.8)(posterior.predict(x[20:, None]), y[20:])
        >>> axis = plots.online({"ACI": run}, window=40).axes[0]
        >>> print(axis.get_title())
        Coverage of the 40 rows up to each row
        >>> len(axis.lines[0].get_ydata())  # windows among 100 rows
        61
    """
    check_named(runs, "result")
    if not runs:
        raise SettingError("at least one result to draw", "none", "pass {name: result}")
    shortest = min(len(run.errors) for run in runs.values())
    check_whole_number("window", window, 1, "for example 200")
    if window > shortest:
        wanted = f"a window of at most {shortest} rows, as many as there are"
        raise SettingError(wanted, f"{window}", f"for example window={max(1, shortest // 4)}")
    figure, axis = panel(ax, 9, 3.2)
    for k, (name, run) in enumerate(runs.items()):
        covered = 1.0 - run.errors.double().cpu().numpy()
        moving = np.convolve(covered, np.ones(window) / window, mode="valid")
        label = f"{name}: {covered.mean():.1%} of all rows"
        axis.plot(np.arange(window, len(covered) + 1), moving, lw=1, label=label, **line_of(k))
    if level is None:
        level = next(iter(runs.values())).region.level
    axis.axhline(level, color="#777777", lw=2.5, alpha=0.5, label=f"level {percent(level)}")
    axis.set(xlabel="row, in the order of time", ylabel="coverage")
    set_title(axis, f"Coverage of the {window} rows up to each row")
    legend(axis)
    return figure
