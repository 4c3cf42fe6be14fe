"""A figure of the terms of an additive model along one column."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..capabilities import Components, require
from ..errors import SettingError
from ..posterior.averaging import Average
from ..posterior.posterior import Posterior
from ..posterior.prediction import Prediction
from ..runtime.levels import exact_level
from .common import COLOURS, colour_of, described, panels, percent
from .table_columns import column_names, column_numbers, inputs_and_targets, target_name

LEAST_WEIGHT = 0.01  # of the models that have a role, for a panel of it


def components(
    posterior: Posterior | Average,
    column: int | str = 0,
    level: float = 0.9,
    points: int = 200,
    by: str = "term",
) -> Figure:
    """Plot the latent function along one column, and below it each term of the sum.

    The means of the terms add up to the mean of the latent function minus the mean of the model.
    The intervals do not add up. Duvenaud (2014), section 2.4.5. Other columns are held at their
    training mean. All curves are in the units of y, of log y for models of that, and of f where it
    has a link, as for counts.

    Args:
        posterior: A fit of a sum of terms, such as ``GP(RBF() + Periodic())``, or an Average, whose
            parts are by role. A role that only models of a weight below 1 % together have, such as
            the season of one of them, has no panel.
        column: The column of X [n, d] on the horizontal axis, by number or by name.
        level: The probability of the intervals.
        points: The number of points of the grid.
        by: "term", or "role" for trend, season and cycle; see ``Posterior.components``.

    Raises:
        NotApplicable: If the model is not a sum of terms.
        UnknownName: If there is no such column.
        SettingError: If the level is not in (0, 1), or there are fewer than two points.

    Examples:
        >>> import numpy as np
        >>> import ppgp
        >>> from ppgp import inference, kernels, models, plots
        >>> x = np.arange(24) / 6
        >>> data = ppgp.Dataset(x[:, None], x + np.sin(2 * np.pi * x))
        >>> model = models.GP(kernels.RBF() + kernels.Periodic(period=1.0))
        >>> posterior = ppgp.fit(model, data, inference.MAP(), progress=False)
        >>> figure = plots.components(posterior)
        >>> [axis.get_title() for axis in figure.axes[1:]]
        ['term 0 RBF', 'term 1 Periodic']
    """
    averaged = isinstance(posterior, Average)
    one = posterior[posterior.best] if averaged else posterior
    if not averaged and by == "term":
        require(one.model, Components)
    exact_level(level)
    if points < 2:
        raise SettingError("at least two points of the grid", repr(points), "for example 200")
    X, y = inputs_and_targets(one)
    (j,) = column_numbers(one.data, [column])
    grid = np.linspace(X[:, j].min(), X[:, j].max(), points)
    rows = np.tile(X.mean(0), (points, 1))
    rows[:, j] = grid
    if isinstance(posterior, Average):
        terms = _of_weight(posterior, rows)
    else:
        terms = posterior.components(rows, by)
    heading = "term {}" if not averaged and by == "term" else "{}"
    height = 1.2 + 1.7 * (len(terms) + 1)
    figure, axes = panels(8, height, len(terms) + 1, 1, sharex=True)
    name, rows_of_y = _on_scale_of_f(one.model, target_name(one.data), np.asarray(y))
    top: Axes = axes[0, 0]
    if rows_of_y is not None:
        top.plot(X[:, j], rows_of_y, ".", ms=3, color="#777777", label=name)
    _curve(top, grid, posterior.latent(rows), level, COLOURS[6])
    top.set_ylabel(name, fontsize=9)
    title = "sum of the terms and the mean of the model"
    if rows_of_y is not None:
        title += ", and the training rows (dots)"
    top.set_title(title, fontsize=9)
    for k, (term, prediction) in enumerate(terms.items()):
        axis = axes[k + 1, 0]
        _curve(axis, grid, prediction, level, colour_of(k))
        axis.axhline(0.0, color="black", lw=0.5)
        axis.set_title(heading.format(term), fontsize=9)
        axis.set_ylabel(name, fontsize=9)
    axes[-1, 0].set_xlabel(column_names(one.data)[j])
    intervals = f"means and {percent(level)} intervals, without noise"
    about = f"{len(posterior)} models averaged" if averaged else described(one)
    title = f"Terms of the function, {intervals}: {about}"
    figure.suptitle(title, fontsize=10)
    figure.align_ylabels()
    return figure


def _of_weight(average: Average, rows: np.ndarray) -> dict[str, Prediction]:
    """Return the parts of f at rows [m, d] that models of ``LEAST_WEIGHT`` together have."""
    weights = dict(zip(average.names, average.weights.tolist(), strict=True))
    shares: dict[str, float] = defaultdict(float)
    for name, each in average.used().items():
        for role in each.components(rows[:1], by="role"):
            shares[role] += weights[name]
    parts = average.components(rows)
    return {role: part for role, part in parts.items() if shares[role] >= LEAST_WEIGHT}


def _on_scale_of_f(model: Any, name: str, y: np.ndarray) -> tuple[str, np.ndarray | None]:
    """Return the name of f, and the targets [n] on its scale; None where f has a link."""
    if getattr(model, "log", False):
        return f"log {name}", np.log(y)
    if getattr(model, "likelihood", None) is not None and "y" not in model.scales:
        return f"f of {name}", None
    return name, y


def _curve(axis: Any, grid: np.ndarray, prediction: Prediction, level: float, colour: str) -> None:
    """Draw the mean and the central interval."""
    lower, upper = (t.double().cpu().numpy() for t in prediction.interval(level))
    axis.fill_between(grid, lower, upper, color=colour, alpha=0.2, lw=0)
    axis.plot(grid, prediction.mean.double().cpu().numpy(), color=colour, lw=1.3)
