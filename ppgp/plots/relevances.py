"""A figure of the lengthscales of columns: automatic relevance determination."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter
from torch import Tensor

from ..errors import NotApplicable, UnknownName
from ..posterior.axes import table_axes
from ..posterior.posterior import Posterior
from ..runtime.levels import exact_level
from ..runtime.whole_numbers import check_whole_number
from .common import colour_of, described, legend, marker_of, panel, percent, set_title
from .shown_scalars import scale_in_words
from .table_columns import table_of

QUANTITIES = ("relevance", "lengthscale")
MOST_COLUMNS = 30


def relevance(
    posterior: Posterior,
    quantity: str = "relevance",
    level: float = 0.9,
    columns: int = MOST_COLUMNS,
    ax: Axes | None = None,
) -> Figure:
    """Plot how strongly a kernel with one lengthscale per column depends on each of them.

    The relevance is 1 / lengthscale on the scale of the model, where columns have sd 1 if the fit
    standardised them, so that columns can be compared. Columns are in the order of their largest
    median relevance. Markers are medians and bars central intervals. MacKay (1994); Neal (1996),
    section 1.2.2. A column with a nonlinear effect has a shorter lengthscale than one with a linear
    effect of the same size; see Piironen & Vehtari (2016), section 2.

    Args:
        posterior: A fit with a kernel under ``ARD``, whose lengthscales are [d].
        quantity: "relevance" or "lengthscale". Both have no unit if the fit standardised the
            columns; else the lengthscale is in the units of the column.
        level: The probability of the intervals.
        columns: The largest number of columns to show.
        ax: The axes to draw in; None: those of a new figure.

    Raises:
        UnknownName: If there is no such quantity.
        NotApplicable: If no kernel has one lengthscale per column.
        SettingError: If the level is not in (0, 1), there is not at least one column to show, or
            ``ax`` is not one Axes.

    Examples:
        >>> import numpy as np
        >>> import pandas as pd
        >>> import ppgp
        >>> from ppgp import inference, kernels, models, plots
        >>> rng = np.random.default_rng(0)
        >>> X = pd.DataFrame(rng.normal(size=(30, 2)), columns=["idle", "dose"])
        >>> model = models.GP(kernels.ARD(kernels.RBF()), noise=0.1)
        >>> data = ppgp.Dataset(X, np.sin(2 * X["dose"]))
        >>> posterior = ppgp.fit(model, data, inference.MAP(), progress=False)
        >>> axis = plots.relevance(posterior).axes[0]
        >>> [label.get_text() for label in axis.get_yticklabels()]
        ['dose', 'idle']
    """
    if quantity not in QUANTITIES:
        raise UnknownName("quantity", str(quantity), QUANTITIES)
    check_whole_number("columns", columns, 1, f"the default is {MOST_COLUMNS}")
    tail = float(1 - exact_level(level)) / 2
    found = _lengthscales(posterior)
    largest: dict[str, float] = {}
    for each in found.values():
        for name, draws in each.items():
            largest[name] = max(largest.get(name, 0.0), float(np.median(1 / draws)))
    order = sorted(largest, key=lambda name: -largest[name])
    shown = order[:columns]
    figure, axis = panel(ax, 6.5, 1.3 + len(shown) * (0.16 + 0.1 * len(found)))
    for k, (site, each) in enumerate(found.items()):
        present = [name for name in shown if name in each]
        values = [1 / each[name] if quantity == "relevance" else each[name] for name in present]
        low, middle, high = (
            np.array([np.quantile(v, q) for v in values]) for q in (tail, 0.5, 1 - tail)
        )
        heights = np.array([shown.index(name) for name in present], dtype=float)
        heights += 0.6 * ((k + 0.5) / len(found) - 0.5)
        axis.hlines(heights, low, high, color=colour_of(k), lw=1.2)
        axis.plot(middle, heights, marker_of(k), ls="", color=colour_of(k), ms=5, label=site)
    axis.set_yticks(range(len(shown)), shown, fontsize=8)
    axis.set_ylim(len(shown) - 0.4, -0.6)
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.xaxis.set_minor_locator(NullLocator())
    label = f"1 / lengthscale ({scale_in_words(posterior)}, log axis)"
    if quantity == "lengthscale":
        label = f"lengthscale ({scale_in_words(posterior)}, log axis)"
    if len(shown) < len(order):
        label += f"; {len(shown)} of {len(order)} columns shown"
    axis.set_xlabel(label)
    what = f"{quantity.capitalize()} of columns, median and {percent(level)} interval"
    set_title(axis, f"{what}: {described(posterior)}")
    if len(found) > 1:
        legend(axis)
    return figure


def _lengthscales(posterior: Posterior) -> dict[str, dict[str, np.ndarray]]:
    """Return the draws of the lengthscales of each site, ``{site: {column: draws}}``.

    Raises:
        NotApplicable: If there is none.
    """
    data: Any = table_of(posterior)
    shapes = {name: tuple(value.shape[2:]) for name, value in posterior.draws.items()}
    dims, coords = table_axes(posterior.model, data, shapes)
    found = {}
    for name, value in posterior.draws.items():
        *before, last = name.split(".")
        of_metric = ".".join([*before, "shear"]) in posterior.draws
        if last == "lengthscale" and len(shapes[name]) == 1 and name in dims and not of_metric:
            found[name] = _by_column(value, coords[dims[name][0]])
    if not found:
        do = "fit a kernel such as ARD(RBF())"
        raise NotApplicable("one lengthscale per column of X", described(posterior), do)
    return found


def _by_column(value: Tensor, names: Any) -> dict[str, np.ndarray]:
    """Return the draws [draw] of each column."""
    draws = value.flatten(0, 1).double().cpu().numpy()
    words = [f"x{name}" if isinstance(name, int) else str(name) for name in names]
    return dict(zip(words, draws.T, strict=True))
