"""Figures of chains: traces, ranks, and pairs of scalars with the divergences marked."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.stats import rankdata

from ..errors import NotApplicable, SettingError
from ..posterior.posterior import Posterior
from .common import (
    COLOURS,
    colour_of,
    density_axes,
    described,
    few_ticks,
    line_of,
    note_hidden,
    panels,
)
from .densities import REAL, bounds_of_sites, density
from .shown_scalars import chosen, scale_in_words


def trace(posterior: Posterior, sites: Sequence[str] | int = 6) -> Figure:
    """Plot the draws of each chain in order, and their density.

    Traces of a converged sampler look like noise around one level, and the densities agree. Gelman
    et al. (2013), section 11.4. Scalars are on the scale of the model: standardised, or in the
    units of the data if the fit did not standardise them.

    Args:
        posterior: A posterior from Markov chains, with draws [chain, draw] of each scalar.
        sites: Names of scalars, or the number of scalars to show.

    Raises:
        NotApplicable: If the draws are independent.
        UnknownName: If a scalar does not exist.
        SettingError: If no scalars are asked for.

    Examples:
        >>> import ppgp
        >>> from ppgp import inference, models, plots
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0], [3.0]], [0.1, 0.9, 2.2, 2.8])
        >>> model = models.LinearRegression(noise=0.3)
        >>> posterior = ppgp.fit(model, data, inference.NUTS(chains=2), progress=False)
        >>> figure = plots.trace(posterior)
        >>> [axis.get_ylabel() for axis in figure.axes[::2]]
        ['weight[0]', 'bias']
        >>> [len(line.get_ydata()) for line in figure.axes[0].lines[:2]]  # one line per chain
        [1000, 1000]
    """
    _check_chains(posterior, "traces")
    scalars, every = chosen(posterior, sites)
    bounds = bounds_of_sites(posterior)
    diverging = _divergences(posterior)
    figure, axes = panels(8, 1.3 * len(scalars) + 1.1, len(scalars), 2)
    for (left, right), (name, values) in zip(axes, scalars.items(), strict=True):
        _order(left, values, diverging)
        limits = bounds.get(name.split("[")[0], REAL)
        for k, chain in enumerate(values):
            if np.ptp(chain) > 0:
                right.plot(*density(chain, limits), lw=1, **line_of(k))
        left.set_ylabel(name, fontsize=8)
        density_axes(right)
        right.set_ylabel("density", fontsize=8)
        right.set_xlabel(name, fontsize=8)
        for axis in (left, right):
            axis.tick_params(labelsize=7)
    label = "draw"
    if any(chain.any() for chain in diverging):
        label = "draw (ticks at the bottom: divergent transitions)"
    axes[-1, 0].set_xlabel(label, fontsize=8)
    figure.suptitle(f"Traces: {described(posterior)}, {scale_in_words(posterior)}", fontsize=10)
    lines = [Line2D([], [], label=f"chain {k}", **line_of(k)) for k in range(posterior.chains)]
    columns = min(len(lines), 8)
    where = "outside lower center"
    figure.legend(handles=lines, loc=where, ncols=columns, frameon=False, fontsize=8)
    note_hidden(figure, scalars, every)
    return figure


def _order(axis: Axes, values: np.ndarray, diverging: list[np.ndarray]) -> None:
    """Draw the chains of one scalar in order, with a tick below each divergence."""
    for k, chain in enumerate(values):
        axis.plot(chain, color=colour_of(k), lw=0.5, alpha=0.8)
    low = values.min() - 0.04 * np.ptp(values)
    for k, chain in enumerate(diverging):
        heights = np.full(int(chain.sum()), low)
        axis.plot(np.flatnonzero(chain), heights, "|", color=colour_of(k), ms=6, mew=0.8)


def _divergences(posterior: Posterior) -> list[np.ndarray]:
    """Return one array [draw] of bool per chain; [] if the method has no divergences."""
    diverging = posterior.stats.get("diverging")
    if diverging is None:
        return []
    return list(np.atleast_2d(diverging.cpu().numpy()))


def _check_chains(posterior: Posterior, what: str) -> None:
    """Check that the draws come from Markov chains.

    Raises:
        NotApplicable: If they do not.
    """
    if not posterior.mcmc:
        got = f"independent draws by {type(posterior.how).__name__}"
        do = "use plots.marginals or plots.k_hat"
        raise NotApplicable(f"Markov chains for {what}", got, do)


def rank(posterior: Posterior, sites: Sequence[str] | int = 6) -> Figure:
    """Plot, chain by chain, a histogram of the ranks among all draws.

    The histograms are flat if the chains agree. Vehtari et al. (2021). Ranks have no unit.

    Args:
        posterior: A posterior from Markov chains, with draws [chain, draw] of each scalar.
        sites: Names of scalars, or the number of scalars to show.

    Raises:
        NotApplicable: If there are not two chains to compare.
        UnknownName: If a scalar does not exist.
        SettingError: If no scalars are asked for.

    Examples:
        >>> import ppgp
        >>> from ppgp import inference, models, plots
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0], [3.0]], [0.1, 0.9, 2.2, 2.8])
        >>> model = models.LinearRegression(noise=0.3)
        >>> posterior = ppgp.fit(model, data, inference.NUTS(chains=2), progress=False)
        >>> figure = plots.rank(posterior)
        >>> [axis.get_title() for axis in figure.axes]
        ['weight[0]', 'bias']
    """
    _check_chains(posterior, "ranks")
    if posterior.chains < 2:
        do = "run more, for example NUTS(chains=4)"
        raise NotApplicable("at least two chains to rank", "one", do)
    scalars, every = chosen(posterior, sites, varying=True)
    columns = min(3, len(scalars))
    rows = -(-len(scalars) // columns)
    figure, axes = panels(3.2 * columns, 2.3 * rows + 0.5, rows, columns)
    for axis, (name, values) in zip(axes.flat, scalars.items(), strict=False):
        _ranks(axis, values)
        axis.set_title(name, fontsize=9)
        axis.set_xlabel("rank among all draws", fontsize=8)
        axis.set_ylabel("chain", fontsize=8)
        axis.tick_params(labelsize=7)
    for axis in axes.flat[len(scalars) :]:
        axis.set_visible(False)
    figure.suptitle(f"Ranks of the draws of each chain: {described(posterior)}", fontsize=10)
    label = "equally many in each bin, as if the chains agree"
    line = Line2D([], [], color="black", ls="--", label=label)
    figure.legend(handles=[line], loc="outside lower center", frameon=False, fontsize=8)
    note_hidden(figure, scalars, every)
    return figure


def _ranks(axis: Axes, values: np.ndarray) -> None:
    """Draw, for each chain, a histogram of the ranks of its draws among all.

    The bars of a chain stand 2 above those of the one before, and have a mean height of 1.

    Args:
        axis: The panel.
        values: Draws [chain, draw] of one scalar.
    """
    chains, draws = values.shape
    ranks = rankdata(values).reshape(values.shape)
    bins = math.ceil(2 * math.log2(draws)) + 1  # twice as many as by the rule of Sturges
    edges = np.linspace(0, values.size, bins + 1)
    middles = (edges[:-1] + edges[1:]) / 2
    for k, of_chain in enumerate(ranks):
        heights = np.histogram(of_chain, edges)[0] * bins / draws
        style = {"color": colour_of(k), "edgecolor": axis.get_facecolor()}
        axis.bar(middles, heights, edges[1], bottom=2 * k, **style)
        axis.axhline(2 * k + 1, color="black", ls="--")
    axis.set_yticks(2 * np.arange(chains) + 1, [str(k) for k in range(chains)])


def pair(posterior: Posterior, sites: Sequence[str] | int = 3) -> Figure:
    """Plot the draws of scalars against each other, with divergent transitions marked.

    Divergences that gather in one region show where chains cannot go. Gabry et al. (2019), section
    4. Scalars are on the scale of the model: standardised, or in the units of the data if the fit
    did not standardise them.

    Args:
        posterior: The posterior, with draws [chain, draw] of each scalar.
        sites: Names of scalars, or the number of scalars to show.

    Raises:
        SettingError: If there are fewer than two scalars.
        UnknownName: If a scalar does not exist.

    Examples:
        The slope and the intercept are correlated where x is not centred.

        >>> import numpy as np
        >>> import ppgp
        >>> from ppgp import inference, models, plots
        >>> data = ppgp.Dataset([[1.0], [2.0], [3.0]], [0.9, 2.1, 3.0])
        >>> model = models.LinearRegression(noise=0.3)
        >>> options = {"standardise": False, "progress": False}
        >>> posterior = ppgp.fit(model, data, inference.Exact(), **options)
        >>> figure = plots.pair(posterior)
        >>> slope, intercept = figure.axes[2].lines[0].get_data()
        >>> len(slope), bool(np.corrcoef(slope, intercept)[0, 1] < -0.5)
        (1000, True)
    """
    scalars, every = chosen(posterior, sites, varying=True)
    if len(scalars) < 2:
        do = "name them: sites=['mu', 'tau']"
        raise SettingError("at least two scalars that vary", f"{len(scalars)}", do)
    size = len(scalars)
    figure, axes = panels(2.2 * size, 2.2 * size + 0.5, size, size)
    bounds = bounds_of_sites(posterior)
    diverging = np.zeros(posterior.shape[0] * posterior.shape[1], dtype=bool)
    if chains := _divergences(posterior):
        diverging = np.concatenate(chains)
    draws = {name: values.ravel() for name, values in scalars.items()}
    for row, (below, y) in enumerate(draws.items()):
        for column, (name, x) in enumerate(draws.items()):
            axis = axes[row, column]
            axis.tick_params(labelsize=7)
            if column > row:
                axis.set_visible(False)
            elif column == row:
                limits = bounds.get(name.split("[")[0], REAL)
                axis.plot(*density(x, limits), color=COLOURS[0], lw=1.2)
                density_axes(axis)
            else:
                _cloud(axis, x, y, diverging)
                few_ticks(axis.xaxis)
            if row == size - 1:
                axis.set_xlabel(name, fontsize=8)
            if column == 0:
                axis.set_ylabel(below if row else "density", fontsize=8)
    dots = [Line2D([], [], ls="", marker="o", ms=3, color=COLOURS[0], label="draws")]
    if diverging.any():
        label = f"divergences ({int(diverging.sum())})"
        dots.append(Line2D([], [], ls="", marker="^", ms=4, color=COLOURS[1], label=label))
    title = f"Draws of pairs: {described(posterior)}, {scale_in_words(posterior)}"
    figure.suptitle(title, fontsize=10)
    figure.legend(handles=dots, loc="outside lower center", frameon=False, fontsize=8, ncols=2)
    note_hidden(figure, scalars, every)
    return figure


def _cloud(axis: Axes, x: np.ndarray, y: np.ndarray, diverging: np.ndarray) -> None:
    """Draw two scalars against each other, with the divergences on top."""
    axis.plot(x, y, "o", ms=2.2, mew=0, color=COLOURS[0], alpha=0.35)
    axis.plot(x[diverging], y[diverging], "^", ms=4, mew=0, color=COLOURS[1], alpha=0.8)
