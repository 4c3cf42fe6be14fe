"""A figure of predictions along a time axis."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..data.columns import name_of
from ..data.entries.arrays import as_tensor, one_per_row
from ..errors import DataError
from ..posterior.prediction import Prediction
from ..runtime.levels import exact_level
from .common import COLOURS, legend, panel, percent, set_title


def forecast(
    prediction: Prediction,
    times: Any,
    history: tuple[Any, Any] | None = None,
    observed: Any = None,
    levels: Sequence[float] = (0.5, 0.8, 0.95),
    ax: Axes | None = None,
) -> Figure:
    """Plot a prediction over time: its median, and central intervals of several levels as a fan.

    Britton, Fisher & Whitley (1998). The vertical axis is in the units of y.

    Args:
        prediction: The prediction of n rows.
        times: Their times [n]: numbers, or dates of NumPy, pandas or Python; a Series gives the
            axis its name.
        history: (times [m], y [m]) of earlier rows, shown as a line with dots; a Series y gives the
            axis its name.
        observed: The y of the predicted rows [n], if it is known by now.
        levels: The probabilities of the intervals.
        ax: The axes to draw in; None: those of a new figure.

    Raises:
        DataError: If there is not one time, or one observed y, per row.
        SettingError: If a level is not in (0, 1), or ``ax`` is not one Axes.
        NotApplicable: If y is a class.

    Examples:
        >>> import numpy as np
        >>> import pandas as pd
        >>> import ppgp
        >>> from ppgp import inference, models, plots
        >>> t = np.arange(10.0)
        >>> y = pd.Series(2.0 * t + np.tile([0.1, -0.1], 5), name="demand")
        >>> data = ppgp.Dataset(t[:8, None], y[:8])
        >>> posterior = ppgp.fit(models.LinearRegression(), data, inference.Exact(), progress=False)
        >>> prediction = posterior.predict(t[8:, None])
        >>> days = np.datetime64("2024-05-01") + np.arange(10)
        >>> axis = plots.forecast(prediction, days[8:], (days[:8], y[:8]), observed=y[8:]).axes[0]
        >>> axis.get_title().split("; ")[1]
        'the 95% interval covers 100% of 2 observed values'
        >>> axis.get_ylabel()
        'demand'
    """
    at = _times(times, len(prediction), "one time per row")
    order = np.argsort(at, kind="stable")
    figure, axis = panel(ax, 9, 3.6)
    name = name_of(observed)
    if history is not None:
        name = name_of(history[1]) or name
        y = as_tensor(history[1], "y").flatten().double().cpu().numpy()
        before = _times(history[0], len(y), "one time per row of history")
        first = np.argsort(before, kind="stable")
        axis.plot(before[first], y[first], ".-", ms=3, lw=0.7, color="#555555", label="history")
    ordered = sorted((float(exact_level(level)) for level in levels), reverse=True)
    for k, level in enumerate(ordered):
        lower, upper = (t.double().cpu().numpy()[order] for t in prediction.interval(level))
        style = {"color": COLOURS[0], "alpha": 0.15 + 0.12 * k, "lw": 0}
        axis.fill_between(at[order], lower, upper, label=percent(level), **style)
    median = prediction.quantile(0.5).double().cpu().numpy()
    axis.plot(at[order], median[order], color=COLOURS[0], lw=1.4, label="median")
    title = "Forecast: median and central intervals"
    if observed is not None:
        truth = one_per_row(observed, len(prediction), "observed y", "pass [n]", "observed")
        values = truth.double().cpu().numpy()[order]
        axis.plot(at[order], values, "x", ms=4, color=COLOURS[1], label="observed")
        if ordered:
            share = float(prediction.interval(ordered[0]).covers(truth).double().mean())
            rows = f"{share:.0%} of {len(prediction)} observed values"
            title += f"; the {percent(ordered[0])} interval covers {rows}"
    axis.set(xlabel=name_of(times) or "time", ylabel=name or "y")
    axis.tick_params(labelsize=8)
    set_title(axis, title)
    legend(axis)
    return figure


def _times(times: Any, n: int, wanted: str) -> np.ndarray:
    """Return n times as numbers or dates.

    Raises:
        DataError: If there is another number of them.
    """
    values = np.asarray(times.detach().cpu() if hasattr(times, "detach") else times)
    values = values.ravel()
    if values.dtype == object and all(isinstance(one, date) for one in values):
        values = values.astype("datetime64[us]")
    if values.dtype.kind not in "Mbiuf":
        do = "pass numbers, or dates of NumPy, pandas or Python"
        raise DataError("times that are numbers or dates", str(values.dtype), do)
    if len(values) != n:
        raise DataError(f"{wanted} ({n})", f"{len(values)}", "pass the times of those rows")
    return values
