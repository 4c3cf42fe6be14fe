"""Figures of the marginals of several posteriors, and of differences from a reference."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import gaussian_kde

from ..diagnostics.comparison import Comparison
from ..errors import SettingError
from ..posterior import convergence as diagnostics
from ..posterior.posterior import Posterior
from ..posterior.units_of_draws import quantities
from .common import COLOURS, MOST_SITES, panels


def marginals(
    posteriors: Mapping[str, Posterior], sites: int = MOST_SITES, columns: int = 4
) -> Figure:
    """Plot the marginal of each scalar under each posterior; a single draw is a vertical line.

    Args:
        posteriors: ``{name: posterior}``, all of one model.
        sites: The number of scalars to show.
        columns: The number of panels beside one another.

    Raises:
        SettingError: If there are no posteriors, or no column of panels.
    """
    if columns < 1:
        raise SettingError("at least one column of panels", str(columns), "write columns=2")
    if not posteriors:
        raise SettingError("at least one posterior to draw", "none", "pass {name: posterior}")
    draws = {
        name: dict(diagnostics.scalars(quantities(p.draws, p.model)))
        for name, p in posteriors.items()
    }
    names = list(next(iter(draws.values())))[:sites]
    columns = min(columns, len(names))
    rows = -(-len(names) // columns)
    figure, axes = panels(2.6 * columns, 2.0 * rows + 0.5, rows, columns)
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
    where, entries = "outside upper center", min(len(labels), 2 * columns)
    figure.legend(handles, labels, loc=where, ncols=entries, frameon=False, fontsize=8)
    return figure


def differences(comparison: Comparison, columns: int = 2) -> Figure:
    """Plot the shift of the mean of every scalar and its ratio of sds, relative to a reference.

    Shifts are in sds of the reference. Bars are three Monte Carlo standard errors.

    Args:
        comparison: The result of ``ppgp.compare``.
        columns: 2: the two panels stand side by side; 1: one below the other.

    Raises:
        SettingError: If the comparison has no reference, or there are other numbers of columns.
    """
    if columns not in (1, 2):
        raise SettingError("1 or 2 columns of panels", str(columns), "write columns=2")
    table = comparison.sites
    if table.empty:
        do = "add a NUTS posterior of the same model"
        raise SettingError("a comparison with a reference", "none", do)
    names = list(dict.fromkeys(table["name"]))
    sites = max(len(group) for _, group in table.groupby("name"))
    rows = 2 // columns
    figure, axes = panels(8 - 2.4 * (rows - 1), rows * (2.2 + 0.05 * sites), rows, columns)
    sides = (
        ("difference", "difference_error", 0.0, "mean - reference mean, in its sds"),
        ("ratio", "ratio_error", 1.0, "sd / reference sd"),
    )
    for axis, (column, error, centre, label) in zip(axes.flat, sides, strict=True):
        axis.axvline(centre, color="black", lw=0.8)
        for k, (name, colour) in enumerate(zip(names, COLOURS * 5, strict=False)):
            part = table[table["name"] == name]
            heights = np.array([float(k)])
            if len(part) > 1:
                heights = k + np.linspace(-0.3, 0.3, len(part))
            bars = 3 * np.asarray(part[error])
            style = {"fmt": "o", "ms": 3, "lw": 0.8, "color": colour, "alpha": 0.8}
            axis.errorbar(part[column], heights, xerr=bars, **style)
        axis.set_yticks(range(len(names)), names, fontsize=8)
        axis.set_xlabel(label, fontsize=9)
        axis.invert_yaxis()
    return figure
