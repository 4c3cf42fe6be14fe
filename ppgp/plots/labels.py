"""Figures of classifiers: reliability, and the decision boundary in a plane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure

from ..conformal.calibration_checks import check_codes, refuse_names
from ..data.entries.arrays import one_per_row
from ..posterior.posterior import Posterior
from ..posterior.prediction import Prediction
from ..runtime.whole_numbers import check_whole_number
from .common import COLOURS, described, legend, legend_below, marker_of, panel, set_title
from .table_columns import column_names, columns_of_plane, inputs_and_targets, target_name

CONTOURS = (0.1, 0.5, 0.9)  # probabilities of the second of two classes


def reliability(prediction: Prediction, y: Any, bins: int = 10, ax: Axes | None = None) -> Figure:
    """Plot how often the most probable label is correct against its predicted probability.

    The points of a calibrated prediction lie near the diagonal. Bars are one standard error, but at
    least 1 / (rows of the bin), within [0, 1]. Guo et al. (2017), section 2, with bins of equally
    many rows.

    Args:
        prediction: A prediction of classes for n rows.
        y: The codes 0 .. K - 1 of the labels [n].
        bins: The number of bins, which hold equally many rows.
        ax: The axes to draw in; None: those of a new figure.

    Raises:
        NotApplicable: If y is no class.
        DataError: If there is not one code per row.
        SettingError: If there is not at least one bin, or ``ax`` is not one Axes.

    Examples:
        >>> import ppgp
        >>> from ppgp import inference, models, plots
        >>> y = [0, 0, 1, 0, 1, 1]
        >>> data = ppgp.Dataset([[v] for v in range(6)], y)
        >>> posterior = ppgp.fit(models.LogisticRegression(), data, inference.MAP(), progress=False)
        >>> prediction = posterior.predict([[v] for v in range(6)])
        >>> axis = plots.reliability(prediction, y, bins=2).axes[0]
        >>> print(axis.get_title())
        Reliability, 6 rows in 2 bins
        >>> [round(float(share), 2) for share in axis.lines[1].get_ydata()]
        [0.33, 1.0]
    """
    check_whole_number("bins", bins, 1, "for example 10")
    p = prediction.probabilities.cpu()
    confidence, label = (t.numpy() for t in p.max(-1))
    refuse_names(y)
    truth = one_per_row(y, len(prediction), "label").cpu()
    check_codes(truth, p.shape[-1])
    correct = label == truth.numpy()
    groups = np.array_split(np.argsort(confidence), min(bins, len(confidence)))
    predicted = [confidence[g].mean() for g in groups]
    observed = [correct[g].mean() for g in groups]
    sizes = [len(g) for g in groups]
    error = [np.sqrt(max(c * (1 - c), 1 / n) / n) for c, n in zip(observed, sizes, strict=True)]
    figure, axis = panel(ax, 3.8, 3.6)
    # a share is at least 0 and at most 1, and so are the ends of its bar
    below = [min(e, c) for e, c in zip(error, observed, strict=True)]
    above = [min(e, 1 - c) for e, c in zip(error, observed, strict=True)]
    lowest = min(c - e for c, e in zip(observed, below, strict=True))
    start = max(0.0, min(*predicted, lowest) - 0.03)
    axis.plot([start, 1], [start, 1], color="black", lw=0.8, label="calibrated")
    style: dict[str, Any] = {"fmt": "o-", "color": COLOURS[0], "ms": 4, "lw": 1}
    label = "share correct, \u00b1 its standard error"
    axis.errorbar(predicted, observed, yerr=[below, above], label=label, **style)
    axis.set(
        xlabel="probability of the most probable label", ylabel="share of rows with this label"
    )
    set_title(axis, f"Reliability, {len(correct)} rows in {len(groups)} bins")
    axis.set_ylim(start - 0.02, 1.03)
    legend(axis)
    return figure


def decision(
    posterior: Posterior,
    features: tuple[int | str, int | str] = (0, 1),
    title: str = "",
    points: int = 120,
    ax: Axes | None = None,
) -> Figure:
    """Plot the class probabilities in a plane of two inputs, with the training rows.

    With two classes it is p(second class), with contours at .1, .5 and .9. With more classes it is
    the largest probability, in one colour per class. Inputs that are not shown are held at their
    training mean. The axes are in the units of the columns. Bishop (2006), section 1.5.

    Args:
        posterior: The posterior of a classifier.
        features: The columns of X [n, d] that span the plane, by number or by name.
        title: The title; by default the model and the method.
        points: The number of grid points per side.
        ax: The axes to draw in; None: those of a new figure.

    Raises:
        NotApplicable: If X has one column, or y is no class.
        UnknownName: If there is no such column.
        SettingError: If there are not two columns, or fewer than two grid points, or ``ax`` is not
            one Axes.

    Examples:
        >>> import pandas as pd
        >>> import ppgp
        >>> from ppgp import inference, models, plots
        >>> X = pd.DataFrame({"length": [1.0, 2.0, 3.0, 4.0], "width": [2.0, 1.0, 2.0, 1.0]})
        >>> data = ppgp.Dataset(X, pd.Series(["small", "small", "large", "large"], name="kind"))
        >>> posterior = ppgp.fit(models.LogisticRegression(), data, inference.MAP(), progress=False)
        >>> figure = plots.decision(posterior, ("length", "width"), points=20)
        >>> figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()
        ('length', 'width')
        >>> figure.axes[1].get_ylabel()  # of the bar of colours
        'p(kind = small), with the lines of the map'
    """
    do = "use posterior.predict(X).probabilities"
    i, j = columns_of_plane(posterior, features, points, "a decision boundary", do)
    X, _ = inputs_and_targets(posterior)
    data = posterior.data
    low, high = X.min(0), X.max(0)
    margin = 0.08 * (high - low)
    xs, ys = (np.linspace(low[k] - margin[k], high[k] + margin[k], points) for k in (i, j))
    plane = np.tile(X.mean(0), (points * points, 1))
    plane[:, i], plane[:, j] = (g.ravel() for g in np.meshgrid(xs, ys))
    p = posterior.predict(plane).probabilities.cpu().numpy().reshape(points, points, -1)
    classes = p.shape[-1]
    labels = data.classes or range(classes)
    figure, axis = panel(ax, 5.4, 4.6)
    colours: Sequence[str] = COLOURS
    if classes == 2:
        colours = ("#2166AC", "#B2182B")
        shown, contours = _two_classes(axis, xs, ys, p[..., 1])
        ticks = (0.0, *CONTOURS, 1.0)
        label = f"p({target_name(data)} = {labels[1]}), with the lines of the map"
        figure.colorbar(shown, ax=axis, label=label, ticks=ticks).add_lines(contours)
    else:
        _several_classes(axis, xs, ys, p)
    for k in range(classes):
        at = X[data.y.cpu().numpy() == k]
        style = {"s": 18, "edgecolor": "white", "linewidth": 0.5}
        style |= {"color": colours[k % len(colours)], "marker": marker_of(k)}
        axis.scatter(at[:, i], at[:, j], label=str(labels[k]), **style)
    names = column_names(data)
    axis.set(xlabel=names[i], ylabel=names[j])
    set_title(axis, title or described(posterior))
    legend_below(figure, axis, ax)
    return figure


def _two_classes(
    axis: Any, xs: np.ndarray, ys: np.ndarray, p: np.ndarray
) -> tuple[Any, ContourSet]:
    """Draw the probability of the second class, and return the coloured mesh and the contours."""
    style = {"cmap": "RdBu_r", "vmin": 0, "vmax": 1, "shading": "auto", "rasterized": True}
    mesh = axis.pcolormesh(xs, ys, p, **style)
    style = {"colors": "black", "linewidths": [0.7, 1.6, 0.7]}
    return mesh, axis.contour(xs, ys, p, levels=CONTOURS, **style)


def _several_classes(axis: Any, xs: np.ndarray, ys: np.ndarray, p: np.ndarray) -> None:
    """Draw the largest probability in the colour of its class, and the boundaries."""
    classes = p.shape[-1]
    winner = p.argmax(-1)
    levels = np.linspace(1 / classes, 1, 8)
    for k in range(classes):
        largest = np.where(winner == k, p[..., k], np.nan)
        axis.contourf(
            xs, ys, largest, levels=levels, colors=[COLOURS[k % len(COLOURS)]], alpha=0.25
        )
    boundaries = np.arange(classes - 1) + 0.5
    axis.contour(xs, ys, winner, levels=boundaries, colors="black", linewidths=1.4)
