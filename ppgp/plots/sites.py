"""Figures of the marginals of several posteriors, and of differences from a reference."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import gaussian_kde

from ..diagnostics.comparison import Comparison
from ..errors import SettingError
from ..posterior.posterior import Posterior
from ..posterior.scalar_names import scalars as scalars_of
from ..posterior.units_of_draws import quantities
from .common import COLOURS, MOST_SITES, panels


def marginals(posteriors: Mapping[str, Posterior], sites: int = MOST_SITES) -> Figure:
    """Plot the marginal of each scalar under each posterior; a single draw is a vertical line.

    Args:
        posteriors: ``{name: posterior}``, all of one model.
        sites: The number of scalars to show.

    Raises:
        SettingError: If there are no posteriors.
    """
    if not posteriors:
        raise SettingError("at least one posterior to draw", "none", "pass {name: posterior}")
    first = next(iter(posteriors.values()))  # whose table names the scalars of all
    draws = {
        name: dict(scalars_of(quantities(p.draws, p.model), first))
        for name, p in posteriors.items()
    }
    names = list(next(iter(draws.values())))[:sites]
    columns = min(4, len(names))
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
    where, columns = "outside upper center", len(labels)
    figure.legend(handles, labels, loc=where, ncols=columns, frameon=False, fontsize=8)
    return figure


def differences(comparison: Comparison) -> Figure:
    """Plot the shift of the mean of every scalar and its ratio of sds, relative to a reference.

    Shifts are in sds of the reference. Bars are three Monte Carlo standard errors.

    Args:
        comparison: The result of ``ppgp.compare``.

    Raises:
        SettingError: If the comparison has no reference.
    """
    table = comparison.sites
    if table.empty:
        do = "add a NUTS posterior of the same model"
        raise SettingError("a comparison with a reference", "none", do)
    names = list(dict.fromkeys(table["name"]))
    sites = max(len(group) for _, group in table.groupby("name"))
    figure, axes = panels(8, 2.2 + 0.05 * sites, 1, 2)
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
