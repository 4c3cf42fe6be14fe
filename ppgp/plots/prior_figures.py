"""A figure of data drawn from the prior."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..errors import SettingError, UnknownName
from ..posterior.posterior import Posterior
from .common import COLOURS, legend, panel, set_title
from .densities import REAL, density
from .scalar_names import described, target_name

MOST_VALUES = 40  # more distinct whole numbers than these are drawn as a density


def prior_predictive(
    posterior: Posterior,
    site: str = "y",
    replicates: int = 60,
    seed: int = 0,
    ax: Axes | None = None,
) -> Figure:
    """Plot data drawn from the prior at the training rows, with the data themselves.

    A prior that suits the problem gives data of the magnitude that was possible before any were
    seen; the observed data should not be surprising. Gabry et al. (2019), section 3. The horizontal
    axis shows the central 95 % of all replicates, and the data.

    Args:
        posterior: The posterior, for its model and its rows.
        site: The observed site.
        replicates: The number of data sets to draw.
        seed: The seed of the draws.
        ax: The axes to draw in; None: those of a new figure.

    Raises:
        NotApplicable: If a prior is flat.
        UnknownName: If no observed site has that name.
        SettingError: If there is not at least one replicate.
    """
    if isinstance(replicates, bool) or not isinstance(replicates, int) or replicates < 1:
        raise SettingError("at least one replicate", repr(replicates), "for example 60")
    groups = posterior.to_arviz(prior=replicates, log_likelihood=False, seed=seed)
    known = list(groups["observed_data"].data_vars)
    if site not in known:
        raise UnknownName("observed site", site, known)
    drawn = np.asarray(groups["prior_predictive"][site].values, dtype=float)
    drawn = drawn.reshape(replicates, -1)
    observed = np.asarray(groups["observed_data"][site].values, dtype=float).ravel()
    drawn = np.where(np.isfinite(drawn), drawn, np.nan)
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    low, high = min(low, observed.min()), max(high, observed.max())
    figure, axis = panel(ax, 7, 3.4)
    whole = _whole(observed) and _whole(drawn[np.isfinite(drawn)])
    label = "mass"
    if not (whole and high - low <= MOST_VALUES):
        whole, label = False, "density"
    bounds = (0.0, np.inf) if np.nanmin(drawn) >= 0 and observed.min() >= 0 else REAL
    for k, values in enumerate(drawn):
        name = f"{replicates} draws from the prior" if k == 0 else None
        style: dict[str, Any] = {"color": COLOURS[0], "lw": 0.6, "alpha": 0.4, "label": name}
        _draw(axis, values[np.isfinite(values)], whole, bounds, (low, high), style)
    style = {"color": "black", "lw": 1.6, "label": "observed"}
    _draw(axis, observed, whole, bounds, (low, high), style)
    margin = 0.02 * (high - low) + 0.5 * whole
    axis.set_xlim(low - margin, high + margin)
    tallest = max((float(np.max(line.get_ydata())) for line in axis.lines[-1:]), default=1.0)
    axis.set_ylim(0.0, 2.5 * tallest)
    name = target_name(posterior.data) if site == "y" else site
    axis.set(xlabel=name, ylabel=label)
    set_title(axis, f"Prior predictive check: {described(posterior)}")
    legend(axis)
    return figure


def _whole(values: np.ndarray) -> bool:
    """Return whether all values are whole numbers."""
    return bool((values == np.round(values)).all())


def _draw(
    axis: Axes,
    values: np.ndarray,
    whole: bool,
    bounds: tuple[float, float],
    limits: tuple[float, float],
    style: dict[str, Any],
) -> None:
    """Draw the density of one data set, or the masses of its whole numbers."""
    if whole:
        edges = np.arange(np.floor(limits[0]), np.ceil(limits[1]) + 2) - 0.5
        counts, _ = np.histogram(values, bins=edges)
        axis.plot(edges[:-1] + 0.5, counts / max(len(values), 1), drawstyle="steps-mid", **style)
    elif len(values) > 1 and np.ptp(values) > 0:
        axis.plot(*density(values, bounds), **style)
