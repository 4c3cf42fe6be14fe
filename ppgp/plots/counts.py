"""Figures of counts."""

from __future__ import annotations

import math

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..errors import NotApplicable
from ..posterior.posterior import Posterior, evaluated_at
from ..posterior.prediction import Prediction
from ..runtime.whole_numbers import check_whole_number
from .common import COLOURS, described, legend, panel, set_title

MOST_BARS = 40


def rootogram(posterior: Posterior, bars: int = MOST_BARS, ax: Axes | None = None) -> Figure:
    """Plot the frequencies of the counts against those that the fit expects: a hanging rootogram.

    The line is the root of the expected frequency of each count in the training rows, averaged over
    the draws. Bars of the root of the observed frequency hang from it: one that ends above 0 is a
    count that occurs less often than expected, one that ends below 0 one that occurs more often.
    Many counts are drawn together. Both axes have no unit but that of counts. Tukey (1977); Kleiber
    & Zeileis (2016).

    Args:
        posterior: A fit of counts y [n] to a table.
        bars: The largest number of bars.
        ax: The axes to draw in; None: those of a new figure.

    Raises:
        NotApplicable: If y is no count.
        SettingError: If there is not at least one bar, or ``ax`` is not one Axes.

    Examples:
        >>> import ppgp
        >>> from ppgp import inference, likelihoods, models, plots
        >>> data = ppgp.Dataset([[v] for v in range(8)], [0, 0, 0, 1, 1, 2, 1, 4])
        >>> model = models.GLM(likelihoods.Poisson())
        >>> posterior = ppgp.fit(model, data, inference.MAP(), progress=False)
        >>> axis = plots.rootogram(posterior).axes[0]
        >>> [round(bar.get_height() ** 2) for bar in axis.patches]  # rows with y = 0, 1, 2, 3, 4
        [3, 3, 1, 0, 1]
    """
    check_whole_number("bars", bars, 1, f"the default is {MOST_BARS}")
    data = posterior.data
    if not data.is_table:
        raise NotApplicable("a model of counts on a table", "a program", "plot its replicates")
    with evaluated_at(posterior, data.n):
        found = posterior.model.predict(posterior.theta, data.X, data, **data.for_prediction)
    prediction = Prediction(found)
    if prediction.kind != "count":
        do = "use plots.predictive_check"
        raise NotApplicable("counts for a rootogram", f"a {prediction.kind} distribution", do)
    w = torch.ones_like(data.y) if data.weights is None else data.weights
    largest = int(data.y[w > 0].max())
    width = math.ceil((largest + 1) / bars)
    edges = torch.arange(0, largest + 1 + width, width, dtype=data.y.dtype) - 1
    below = torch.stack([(w * prediction.cdf(edge.expand(data.n))).sum() for edge in edges])
    expected = below.diff().clamp_min(0.0).sqrt()
    bins = (data.y / width).floor().long().clamp_max(len(expected) - 1)
    observed = torch.zeros_like(expected).index_add(0, bins, w).sqrt()
    centres = edges[:-1] + 1 + 0.5 * (width - 1)
    figure, axis = panel(ax, 6.0, 3.6)
    axis.use_sticky_edges = False  # a margin below the lowest bar
    axis.bar(
        centres,
        observed,
        0.9 * width,
        bottom=expected - observed,
        color=COLOURS[5],
        label="observed, hung\nfrom the expected",
    )
    axis.plot(centres, expected, "o-", ms=3, lw=1.1, color=COLOURS[1], label="expected")
    axis.axhline(0.0, color="black", lw=0.8)
    name = data.target_name or "count"
    if width > 1:
        name += f", {width} values per bar"
    axis.set(xlabel=name, ylabel="square root of the number of rows")
    what = "Hanging rootogram (bars end at 0 where the fit is right)"
    set_title(axis, f"{what}: {described(posterior)}")
    legend(axis)
    return figure
