"""Figures of the marginals of several posteriors, and of differences from a reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..diagnostics.comparison import Comparison
from ..diagnostics.verdicts import REFERENCE
from ..errors import SettingError
from ..posterior.posterior import Posterior
from ..runtime.whole_numbers import check_whole_number
from .common import (
    MOST_SITES,
    check_named,
    colour_of,
    density_axes,
    line_of,
    marker_of,
    note_hidden,
    panels,
)
from .densities import REAL, bounds_of_sites, density
from .shown_scalars import scalars_of, scale_in_words

MOST_ROWS = 40
ERRORS = 3  # Monte Carlo standard errors of a bar


def marginals(
    posteriors: Mapping[str, Posterior], sites: int = MOST_SITES, columns: int = 4
) -> Figure:
    """Plot the marginal of each scalar under each posterior; a single draw is a vertical line.

    The density of a site with bounds, such as a positive one, is 0 outside them. The figure states
    how many scalars it does not show. Scalars are on the scale of the model: standardised, or in
    the units of the data if the fit did not standardise them. Silverman (1986), section 2.10,
    for densities within bounds.

    Args:
        posteriors: ``{name: posterior}``, all of one model, with draws [chain, draw] of each
            scalar.
        sites: The number of scalars to show.
        columns: The number of panels beside one another.

    Raises:
        SettingError: If there are no posteriors, they are not given by name, or there is no scalar
            or column of panels to show.

    Examples:
        >>> import ppgp
        >>> from ppgp import inference, models, plots
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0], [3.0]], [0.1, 0.9, 2.2, 2.8])
        >>> model = models.LinearRegression(noise=0.3)
        >>> methods = {"exact": inference.Exact(), "mode": inference.MAP()}
        >>> fits = {k: ppgp.fit(model, data, how, progress=False) for k, how in methods.items()}
        >>> figure = plots.marginals(fits)
        >>> [axis.get_title() for axis in figure.axes]
        ['weight[0]', 'bias']
        >>> [text.get_text() for text in figure.legends[0].get_texts()]
        ['exact', 'mode']
    """
    if columns < 1:
        raise SettingError("at least one column of panels", str(columns), "write columns=2")
    check_whole_number("sites", sites, 1, f"the default is {MOST_SITES}")
    check_named(posteriors, "posterior")
    if not posteriors:
        raise SettingError("at least one posterior to draw", "none", "pass {name: posterior}")
    first = next(iter(posteriors.values()))
    draws = {name: scalars_of(p, named_as=first) for name, p in posteriors.items()}
    every = list(scalars_of(first))
    names, bounds = every[:sites], bounds_of_sites(first)
    columns = max(1, min(columns, len(names)))
    rows = max(1, -(-len(names) // columns))
    figure, axes = panels(max(4.0, 2.6 * columns), 2.0 * rows + 0.9, rows, columns)
    for axis, site in zip(axes.flat, names, strict=False):
        limits = bounds.get(site.split("[")[0], REAL)
        for k, (name, scalars) in enumerate(draws.items()):
            _marginal(axis, scalars[site].ravel(), limits, name, k)
        axis.set_title(site, fontsize=9)
        density_axes(axis)
        axis.tick_params(labelsize=8)
    for axis in axes[:, 0]:
        axis.set_ylabel("density", fontsize=8)
    for axis in axes.flat[len(names) :]:
        axis.set_visible(False)
    figure.suptitle(f"Marginal posteriors, {scale_in_words(first)}", fontsize=10)
    handles, words = axes.flat[0].get_legend_handles_labels()
    entries = min(2 * columns, 5, max(1, len(words)))
    where = "outside lower center"
    figure.legend(handles, words, loc=where, ncols=entries, frameon=False, fontsize=8)
    note_hidden(figure, names, every)
    return figure


def _marginal(
    axis: Axes, values: np.ndarray, limits: tuple[float, float], name: str, k: int
) -> None:
    """Draw the density of one scalar under posterior k, or a line at its only value."""
    if len(values) < 2 or np.ptp(values) == 0:
        axis.axvline(values[0], lw=1.2, label=name, **line_of(k))
    else:
        grid, heights = density(values, limits)
        axis.plot(grid, heights, lw=1.4, label=name, **line_of(k))


def differences(comparison: Comparison, sites: int = MOST_ROWS, columns: int = 2) -> Figure:
    """Plot the shift of the mean of every scalar and its ratio of sds, relative to a reference.

    There is one row per scalar. Shifts are in sds of the reference, and ratios have no unit. Bars
    are three Monte Carlo standard errors; Vehtari et al. (2021). If there are more than ``sites``
    scalars, those with the largest shifts are shown, and the figure states how many are not.

    Args:
        comparison: The result of ``ppgp.compare`` for posteriors with draws [chain, draw].
        sites: The largest number of scalars to show.
        columns: 2: the two panels stand side by side; 1: one below the other.

    Raises:
        SettingError: If the comparison has no reference, or there are other numbers of columns.

    Examples:
        >>> import ppgp
        >>> from ppgp import inference, models, plots
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0], [3.0]], [0.1, 0.9, 2.2, 2.8])
        >>> model = models.LinearRegression(noise=0.3)
        >>> nuts, laplace = inference.NUTS(draws=500, chains=2), inference.Laplace(draws=500)
        >>> methods = {"NUTS": nuts, "Laplace": laplace}
        >>> fits = {k: ppgp.fit(model, data, how, progress=False) for k, how in methods.items()}
        >>> figure = plots.differences(ppgp.compare(fits))
        >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
        ['weight[0]', 'bias']
        >>> [axis.get_xlabel() for axis in figure.axes]
        ['difference of the means, in sds of the reference',
         'ratio of the sds, to that of the reference']
    """
    if columns not in (1, 2):
        raise SettingError("1 or 2 columns of panels", str(columns), "write columns=2")
    table: Any = comparison.sites  # its columns are of any kind
    if table.empty:
        do = "add a NUTS posterior of the same model"
        raise SettingError("a comparison with a reference", "none", do)
    largest = table["difference"].abs().groupby(table["site"], sort=False).max()
    every = list(dict.fromkeys(table["site"]))
    kept = set(largest.sort_values(ascending=False, kind="stable").index[:sites])
    shown = [site for site in every if site in kept]
    names = list(dict.fromkeys(table["name"]))
    height, width = 1.7 + 0.2 * len(shown) + 0.06 * len(names), 9.0 if columns == 2 else 5.6
    rows = 2 // columns
    figure, axes = panels(width, rows * height, rows, columns, sharey=True)
    figure.set_layout_engine("constrained", w_pad=0.12)
    sides = (
        ("difference", "difference_error", 0.0, "difference of the means, in sds of the reference"),
        ("ratio", "ratio_error", 1.0, "ratio of the sds, to that of the reference"),
    )
    for axis, (column, error, centre, label) in zip(axes.flat, sides, strict=True):
        axis.axvline(centre, color="black", lw=0.8)
        for k, name in enumerate(names):
            part = table[(table["name"] == name) & table["site"].isin(kept)]
            heights = np.array([shown.index(site) for site in part["site"]], dtype=float)
            heights += 0.6 * ((k + 0.5) / len(names) - 0.5)
            style: dict[str, Any] = {"ms": 3, "lw": 0.8, "color": colour_of(k), "alpha": 0.8}
            bars = ERRORS * np.asarray(part[error], dtype=float)
            axis.errorbar(part[column], heights, xerr=bars, fmt=marker_of(k), label=name, **style)
        axis.set_xlabel(label, fontsize=9)
        axis.tick_params(labelsize=8)
    axes[0, 0].set_yticks(range(len(shown)), shown)
    axes[0, 0].set_ylim(len(shown) - 0.4, -0.6)
    reference = [name for name, word in comparison.verdicts.items() if word == REFERENCE]
    title = f"Differences from the reference: {', '.join(reference)}"
    bars = f"Bars: {ERRORS} Monte Carlo standard errors"
    figure.suptitle(f"{title}\n{bars}", fontsize=10)
    handles, words = axes[0, 0].get_legend_handles_labels()
    where, columns = "outside lower center", min(5, len(words))
    figure.legend(handles, words, loc=where, ncols=columns, frameon=False, fontsize=8)
    note_hidden(figure, shown, every)
    return figure
