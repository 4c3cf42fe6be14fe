"""A figure of the interval scores of several predictions, by level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..data.columns import name_of
from ..data.entries.arrays import one_per_row
from ..errors import SettingError
from ..posterior.prediction import Prediction
from ..posterior.region import Region
from ..runtime.levels import exact_level
from .common import check_named, colour_of, legend, line_of, marker_of, panel, set_title

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


def interval_score(
    predictions: Mapping[str, Prediction],
    y: Any,
    levels: Sequence[float] = LEVELS,
    ax: Axes | None = None,
) -> Figure:
    """Plot the mean interval score of central intervals, for several levels; lower is better.

    The score is the width of the interval plus a penalty of 2 / alpha times the distance of y from
    an interval that misses it, where alpha is 1 - level. Gneiting & Raftery (2007), equation 43.
    Thin dotted lines are the mean widths alone. Scores and widths are in the units of y.

    Args:
        predictions: ``{name: prediction}`` of the same n rows.
        y: The targets [n]; a Series gives the axis its name.
        levels: The levels of the intervals.
        ax: The axes to draw in; None: those of a new figure.

    Raises:
        SettingError: If there are no predictions or no levels, predictions are not given by name,
            a level is not in (0, 1), or ``ax`` is not one Axes.
        NotApplicable: If y is a class.
        DataError: If there is not one y per row.

    Examples:
        Where every interval covers its y, the score is the width.

        >>> import ppgp
        >>> from ppgp import inference, models, plots
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0], [3.0]], [0.1, 0.9, 2.2, 2.8])
        >>> posterior = ppgp.fit(models.LinearRegression(), data, inference.Exact(), progress=False)
        >>> prediction = posterior.predict([[0.5], [1.5], [2.5]])
        >>> y = prediction.quantile(0.5)
        >>> axis = plots.interval_score({"linear": prediction}, y, levels=(0.5, 0.9)).axes[0]
        >>> score, width = (line.get_ydata() for line in axis.lines[:2])
        >>> [round(float(ratio), 6) for ratio in score / width]
        [1.0, 1.0]
    """
    check_named(predictions, "prediction")
    if not predictions:
        raise SettingError("at least one prediction", "none", "pass {name: prediction}")
    if not len(levels):
        raise SettingError("at least one level", "none", "for example levels=(0.5, 0.9)")
    name = name_of(y) or "y"
    values = [one_per_row(y, len(prediction)) for prediction in predictions.values()]
    truth = values[0].double().cpu().numpy()
    figure, axis = panel(ax, 7.5, 3.8)
    for k, (label, prediction) in enumerate(predictions.items()):
        regions = [prediction.interval(level) for level in levels]
        scores = [mean_interval_score(region, truth) for region in regions]
        widths = [float(region.width.double().mean()) for region in regions]
        axis.plot(levels, scores, marker=marker_of(k), ms=4, lw=1.2, label=label, **line_of(k))
        style: dict[str, Any] = {"ls": ":", "lw": 0.8, "color": colour_of(k)}
        style |= {"marker": marker_of(k), "ms": 4, "mew": 0.8, "mfc": "white"}
        axis.plot(levels, widths, label=f"{label}: mean width", **style)
    axis.set(
        xlabel="level of the central interval", ylabel=f"score and width, in the unit of {name}"
    )
    axis.set_ylim(bottom=0.0)
    set_title(axis, f"Mean interval score of {len(truth)} rows (lower is better)")
    legend(axis)
    return figure


def mean_interval_score(region: Region, y: np.ndarray) -> float:
    """Return the mean interval score of intervals [n] for targets y [n]."""
    lower, upper = (t.double().cpu().numpy() for t in region)
    alpha = float(1 - exact_level(region.level))
    missed = np.maximum(lower - y, 0.0) + np.maximum(y - upper, 0.0)
    return float(np.mean(upper - lower + 2 / alpha * missed))
