"""A figure of the intervals of the sites of several posteriors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..errors import SettingError, UnknownName
from ..posterior.posterior import Posterior
from ..runtime.levels import exact_level
from .common import colour_of, legend, marker_of, panel, percent, set_title
from .shown_scalars import check_sites, scalars_of, scale_in_words

MOST_ROWS = 30


def forest(
    posteriors: Mapping[str, Posterior] | Posterior,
    sites: Sequence[str] | int = MOST_ROWS,
    level: float = 0.9,
    units: str = "model",
    ax: Axes | None = None,
) -> Figure:
    """Plot the intervals of scalars under several posteriors: a forest plot.

    The marker is the median, the thick line the central interval of 50 %, and the thin line that of
    ``level``. A single draw (MAP) is a marker alone. Lewis & Clarke (2001).

    Args:
        posteriors: ``{name: posterior}``, or one posterior, with draws [chain, draw] of each
            scalar.
        sites: Names of scalars, or the number of scalars to show.
        level: The probability of the thin lines.
        units: "model" or "data", the scale of the draws as in ``Posterior.draws_in``.
        ax: The axes to draw in; None: those of a new figure.

    Raises:
        SettingError: If there are no posteriors or no scalars, the level is not in (0, 1), or
            ``ax`` is not one Axes.
        UnknownName: If a scalar does not exist, or there is no such system of units.

    Examples:
        >>> import ppgp
        >>> from ppgp import inference, models, plots
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0], [3.0]], [0.1, 2.1, 3.9, 6.1])
        >>> model = models.LinearRegression()
        >>> posterior = ppgp.fit(model, data, inference.Exact(), progress=False)
        >>> axis = plots.forest(posterior, units="data").axes[0]
        >>> [label.get_text() for label in axis.get_yticklabels()]
        ['noise', 'weight[0]', 'bias']
        >>> medians = axis.lines[0].get_xdata()
        >>> bool(abs(medians[1] - 2) < 0.1)  # the slope
        True
    """
    if isinstance(posteriors, Posterior):
        posteriors = {type(posteriors.how).__name__: posteriors}
    if not posteriors:
        raise SettingError("at least one posterior to draw", "none", "pass {name: posterior}")
    check_sites(sites)
    tail = float(1 - exact_level(level)) / 2
    draws = {name: scalars_of(posterior, units) for name, posterior in posteriors.items()}
    every = list(dict.fromkeys(name for scalars in draws.values() for name in scalars))
    names = every[:sites] if isinstance(sites, int) else list(sites)
    for name in names:
        if name not in every:
            raise UnknownName("scalar", name, every)
    height = 1.1 + len(names) * (0.12 + 0.12 * len(draws))
    figure, axis = panel(ax, 6.5, height)
    for k, (name, scalars) in enumerate(draws.items()):
        present = [site for site in names if site in scalars]
        values = np.array(
            [np.quantile(scalars[site], [tail, 0.25, 0.5, 0.75, 1 - tail]) for site in present]
        ).reshape(-1, 5)
        heights = np.array([names.index(site) for site in present], dtype=float)
        heights += 0.7 * ((k + 0.5) / len(draws) - 0.5)
        axis.hlines(heights, values[:, 0], values[:, 4], color=colour_of(k), lw=1)
        axis.hlines(heights, values[:, 1], values[:, 3], color=colour_of(k), lw=2.6)
        style = {"mfc": "white", "mec": colour_of(k), "ms": 4.5}
        axis.plot(values[:, 2], heights, marker_of(k), ls="", label=name, **style)
    axis.set_yticks(range(len(names)), names, fontsize=8)
    axis.set_ylim(len(names) - 0.4, -0.6)
    label = scale_in_words(next(iter(posteriors.values())), units)
    if isinstance(sites, int) and len(names) < len(every):
        label += f"; {len(names)} of {len(every)} scalars shown"
    axis.set_xlabel(label)
    set_title(axis, f"Medians, with intervals of 50% (thick) and {percent(level)} (thin)")
    legend(axis)
    return figure
