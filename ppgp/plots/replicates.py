"""Figures of replicates: data drawn from the prior or the posterior, against the data.

Both draw the data at the training rows, and show one line per replicate.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..errors import SettingError, UnknownName
from ..posterior.posterior import Posterior
from .common import COLOURS, described, legend, panel, set_title
from .densities import REAL, density
from .table_columns import target_name

MOST_VALUES = 40  # whole numbers over a wider range than this are drawn as a density
HEADROOM = 2.5  # the height of the panel of the prior, in heights of the data


def predictive_check(
    posterior: Posterior,
    site: str = "y",
    replicates: int = 60,
    seed: int = 0,
    ax: Axes | None = None,
) -> Figure:
    """Plot data drawn again from the posterior at the training rows, over the data themselves.

    Gelman et al. (2013), chapter 6. The horizontal axis is in the units of y.

    Args:
        posterior: The posterior, for n rows of y [n].
        site: The observed site.
        replicates: The number of replicates to show.
        seed: The seed of the replicates.
        ax: The axes to draw in; None: those of a new figure.

    Raises:
        UnknownName: If no observed site has that name.
        SettingError: If there is not at least one replicate, or ``ax`` is not one Axes.

    Examples:
        >>> import ppgp
        >>> from ppgp import inference, models, plots
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0], [3.0]], [0.1, 0.9, 2.2, 2.8])
        >>> posterior = ppgp.fit(models.LinearRegression(), data, inference.Exact(), progress=False)
        >>> axis = plots.predictive_check(posterior, replicates=20).axes[0]
        >>> len(axis.lines)  # one per replicate, and the data
        21
        >>> axis.get_legend_handles_labels()[1]
        ['20 replicated data sets', 'observed']
    """
    _check_number(replicates)
    groups = posterior.to_arviz(predictive=True, log_likelihood=False, log_prior=False, seed=seed)
    drawn, observed = _values(groups, "posterior_predictive", site)
    if len(drawn) > replicates:
        some = np.random.default_rng(seed).choice(len(drawn), replicates, replace=False)
        drawn = drawn[some]
    figure, axis = panel(ax, 7, 3.4)
    limits = min(np.nanmin(drawn), observed.min()), max(np.nanmax(drawn), observed.max())
    _draw_all(axis, drawn, observed, limits, f"{len(drawn)} replicated data sets")
    axis.set_ylim(bottom=0.0)
    axis.set_xlabel(_name_of(posterior, site))
    set_title(axis, f"Posterior predictive check: {described(posterior)}")
    return figure


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
    axis shows the central 95 % of all replicates, and the data, in the units of y.

    Args:
        posterior: The posterior, for its model and its rows X [n, d].
        site: The observed site.
        replicates: The number of data sets to draw.
        seed: The seed of the draws.
        ax: The axes to draw in; None: those of a new figure.

    Raises:
        NotApplicable: If a prior is flat.
        UnknownName: If no observed site has that name.
        SettingError: If there is not at least one replicate, or ``ax`` is not one Axes.

    Examples:
        The prior of the weight has a standard deviation of 100, which the data do not need.

        >>> import ppgp
        >>> from ppgp import inference, models, plots, priors
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0], [3.0]], [0.1, 0.9, 2.2, 2.8])
        >>> model = models.LinearRegression(weight=priors.Normal(0.0, 100.0))
        >>> posterior = ppgp.fit(model, data, inference.MAP(), progress=False)
        >>> axis = plots.prior_predictive(posterior, replicates=30).axes[0]
        >>> axis.get_legend_handles_labels()[1]
        ['30 data sets of the prior', 'observed']
        >>> low, high = axis.get_xlim()
        >>> bool(high - low > 50)
        True
    """
    _check_number(replicates)
    groups = posterior.to_arviz(prior=replicates, log_likelihood=False, log_prior=False, seed=seed)
    drawn, observed = _values(groups, "prior_predictive", site)
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    limits = min(low, observed.min()), max(high, observed.max())
    figure, axis = panel(ax, 7, 3.4)
    tallest = _draw_all(axis, drawn, observed, limits, f"{replicates} data sets of the prior")
    axis.set_ylim(0.0, min(HEADROOM * tallest, 1.05 * _tallest(axis.lines, limits)))
    axis.set_xlabel(_name_of(posterior, site))
    # the method of inference has no part in draws of the prior
    model, _, _ = described(posterior).rpartition(" by ")
    set_title(axis, f"Prior predictive check: {model}, central 95% of the draws")
    return figure


def _name_of(posterior: Posterior, site: str) -> str:
    """Return the name of the values of an observed site."""
    return target_name(posterior.data) if site == "y" else site


def _tallest(lines: Iterable[Line2D], limits: tuple[float, float]) -> float:
    """Return the greatest height of lines between two places on the horizontal axis."""
    heights = []
    for line in lines:
        x, y = np.asarray(line.get_xydata()).T
        heights.append(y[(x >= limits[0]) & (x <= limits[1])].max(initial=0.0))
    return max(heights)


def _check_number(replicates: int) -> None:
    """Refuse less than one replicate."""
    if isinstance(replicates, bool) or not isinstance(replicates, int) or replicates < 1:
        raise SettingError("at least one replicate", repr(replicates), "for example 60")


def _values(groups: Any, group: str, site: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the replicates [k, n] and the data [n] of a site; NaN where a draw is not finite.

    Raises:
        UnknownName: If no observed site has that name.
    """
    known = list(groups["observed_data"].data_vars)
    if site not in known:
        raise UnknownName("observed site", site, known)
    drawn = np.asarray(groups[group][site].values, dtype=float)
    drawn = drawn.reshape(drawn.shape[0] * drawn.shape[1], -1)
    observed = np.asarray(groups["observed_data"][site].values, dtype=float).ravel()
    return np.where(np.isfinite(drawn), drawn, np.nan), observed


def _draw_all(
    axis: Axes,
    drawn: np.ndarray,
    observed: np.ndarray,
    limits: tuple[float, float],
    label: str,
) -> float:
    """Draw the replicates and the data, and return the greatest height of the data."""
    low, high = map(float, limits)
    finite = drawn[np.isfinite(drawn)]
    whole = _whole(observed) and _whole(finite) and high - low <= MOST_VALUES
    bounds = (0.0, np.inf) if finite.min() >= 0 and observed.min() >= 0 else REAL
    style: dict[str, Any] = {"color": COLOURS[0], "lw": 0.6, "alpha": 0.4, "label": label}
    for values in drawn:
        _draw(axis, values[np.isfinite(values)], whole, bounds, (low, high), style)
        style["label"] = None
    style = {"color": "black", "lw": 1.6, "label": "observed"}
    _draw(axis, observed, whole, bounds, (low, high), style)
    margin = 0.02 * (high - low) + 0.5 * whole
    axis.set_xlim(low - margin, high + margin)
    axis.set_ylabel("share of the rows" if whole else "density")
    legend(axis)
    return max((float(np.max(line.get_ydata())) for line in axis.lines[-1:]), default=1.0)


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
