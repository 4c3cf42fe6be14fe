"""Figures of diagnostics, which show whether a posterior can be trusted.

They are Pareto shapes of importance weights and of leave-one-out, the ELBO, and the ranks of
simulation-based calibration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..diagnostics import diagnosis
from ..diagnostics.simulation_based_calibration import SBC
from ..errors import NotApplicable, SettingError, UnknownName
from ..posterior import sample_statistics
from ..posterior.posterior import Posterior
from .common import (
    COLOURS,
    MOST_SITES,
    check_named,
    described,
    legend,
    line_of,
    marker_of,
    panel,
    panels,
    set_title,
)

SMOOTHING = 20  # windows of the moving mean of the ELBO that lie side by side
SAME = 1e-4  # nats, the sd up to which log p - log q counts as the same at all draws
NATS_AROUND = 1.0  # of an ELBO that is the same at all draws


def sbc(result: SBC, title: str = "", ax: Axes | None = None) -> Figure:
    """Plot the ECDF of the ranks minus that of uniform ranks, with a simultaneous band.

    There is one line per scalar. A calibrated inference stays inside the band. Talts et al. (2018);
    Sailynoja, Buerkner & Vehtari (2022). Both axes are probabilities.

    Args:
        result: The result of ``ppgp.sbc``, with the ranks [simulations] of each scalar.
        title: The title; by default the summary of the result.
        ax: The axes to draw in; None: those of a new figure.

    Raises:
        SettingError: If ``ax`` is not one Axes.

    Examples:
        >>> import ppgp
        >>> from ppgp import inference, models, plots
        >>> model = models.LinearRegression(noise=1.0)
        >>> result = ppgp.sbc(model, inference.Exact(), 20, n=5, d=1, progress=False)
        >>> axis = plots.sbc(result, title="Exact").axes[0]
        >>> axis.get_title()
        'Exact'
        >>> axis.get_legend_handles_labels()[1][1:]
        ['weight[0]', 'bias']
    """
    points, each, lower, upper = result.differences()
    figure, axis = panel(ax, 6.5, 3.4)
    label = f"{result.level:.0%} of uniform samples,\nat all points together"
    axis.fill_between(points, lower, upper, step="mid", color="#DDDDDD", label=label)
    names = list(each)
    for k, name in enumerate(names):
        label = name if len(names) <= MOST_SITES else None
        axis.plot(points, each[name], lw=1.1, label=label, drawstyle="steps-mid", **line_of(k))
    if len(names) > MOST_SITES:
        axis.plot([], [], lw=1.1, color="#555555", label=f"{len(names)} scalars, without names")
    axis.axhline(0, color="black", lw=0.6)
    axis.set(
        xlabel="rank of the true value among the draws, as a share",
        ylabel="ECDF of the ranks - uniform",
    )
    set_title(axis, title or _summary_of(result))
    legend(axis)
    return figure


def _summary_of(result: SBC) -> str:
    """Return whether the calibration passes, and how many scalars leave their band."""
    simulations = f"{result.simulations} simulations"
    if result.interrupted:
        simulations += " (interrupted)"
    word = "passes" if result.passes else "fails"
    inside = np.asarray(result.to_frame()["inside"], dtype=bool)
    outside = len(inside) - int(inside.sum())
    title = f"Simulation-based calibration, {simulations}: {word}"
    return f"{title}; {outside} of {len(inside)} scalars leave the band"


def k_hat(posteriors: Mapping[str, Posterior]) -> Figure:
    """Plot the quality of approximations by their importance weights.

    Left: k-hat, the Pareto shape of the weights, with the limit above which they are unreliable.
    Right: the share of the total weight that the heaviest draws carry; an exact approximation lies
    on the dotted line. Yao, Vehtari, Simpson & Gelman (2018).

    Args:
        posteriors: ``{name: posterior}``, whose draws [1, draw] have weights. k-hat and the shares
            have no unit.

    Raises:
        SettingError: If there are no posteriors, or they are not given by name.
        NotApplicable: If the density of some draws under their method is not known.

    Examples:
        The posterior of a linear regression with known noise is normal, so that the Laplace
        approximation is exact and all weights are equal.

        >>> import ppgp
        >>> from ppgp import inference, models, plots
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0], [3.0]], [0.1, 0.9, 2.2, 2.8])
        >>> model = models.LinearRegression(noise=0.3)
        >>> posterior = ppgp.fit(model, data, inference.Laplace(draws=1000), progress=False)
        >>> figure = plots.k_hat({"Laplace": posterior})
        >>> figure.axes[0].get_title()
        'Not reliable to the right of the dashed limit'
        >>> share_of_draws, share_of_weight = figure.axes[1].lines[0].get_data()
        >>> round(float(share_of_weight[499]), 3)
        0.5
    """
    check_named(posteriors, "posterior")
    if not posteriors:
        raise SettingError("at least one posterior to draw", "none", "pass {name: posterior}")
    figure, axes = panels(9, max(2.8, 0.4 * len(posteriors) + 1.6), 1, 2)
    left, right = axes[0]
    shapes = []
    for k, (name, posterior) in enumerate(posteriors.items()):
        ratio = diagnosis.log_ratio(posterior)
        shapes.append(diagnosis.k_hat(posterior))
        limit = sample_statistics.k_hat_limit(ratio.size)
        left.plot([shapes[-1]], [k], marker_of(k), color=COLOURS[k % len(COLOURS)])
        left.plot([limit, limit], [k - 0.4, k + 0.4], color="black", lw=0.8, ls="--")
        weights = np.sort(np.exp(ratio - ratio.max()))[::-1]
        share = np.arange(1, weights.size + 1) / weights.size
        right.plot(share, np.cumsum(weights) / weights.sum(), label=name, **line_of(k))
    left.set_yticks(range(len(posteriors)), list(posteriors), fontsize=8)
    left.set_ylim(len(posteriors) - 0.4, -0.8)
    left.set_xlim(min(0.0, *shapes) - 0.1, max(1.0, *shapes) + 0.1)
    left.set_xlabel("Pareto k-hat of the importance weights")
    left.set_title("Not reliable to the right of the dashed limit", fontsize=10)
    line = np.geomspace(1e-3, 1.0, 100)
    right.plot(line, line, color="black", lw=0.6, ls=":", label="all weights equal")
    right.set(
        xlabel="share of the draws, heaviest first (log axis)",
        ylabel="share of the weight",
        xscale="log",
    )
    right.set_title("Share of the total weight of the heaviest draws", fontsize=10)
    legend(right)
    return figure


def loo(posterior: Posterior, site: str | None = None, ax: Axes | None = None) -> Figure:
    """Plot, row by row, the Pareto shape of the weights of leave-one-out, with its limit.

    Rows above the limit have a strong influence on the posterior. Vehtari, Gelman & Gabry (2017).
    The shape has no unit.

    Args:
        posterior: A posterior from Markov chains, or an exact one, of rows X [n, d].
        site: The observed site; None: all of them, in colours of their own.
        ax: The axes to draw in; None: those of a new figure.

    Raises:
        NotApplicable: If the posterior is an approximation, or has no observed site.
        UnknownName: If there is no such observed site.
        SettingError: If ``ax`` is not one Axes.

    Examples:
        The last row alone determines the slope.

        >>> import ppgp
        >>> from ppgp import inference, models, plots
        >>> x = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 50.0]
        >>> data = ppgp.Dataset([[v] for v in x], [0.1, -0.2, 0.0, 0.3, -0.1, 0.2, 0.0, 5.0])
        >>> model = models.LinearRegression(noise=0.1)
        >>> posterior = ppgp.fit(model, data, inference.Exact(), progress=False)
        >>> plots.loo(posterior).axes[0].get_title()
        'PSIS leave-one-out: 1 of 8 rows above the limit'
    """
    how = type(posterior.how).__name__
    if not (posterior.mcmc or how == "Exact"):
        do = "fit by NUTS, or use k_hat"
        raise NotApplicable("draws of the posterior for leave-one-out", how, do)
    each = posterior.pointwise()
    if not each:
        do = "write pyro.sample(..., obs=y) in the program"
        raise NotApplicable("an observed site to leave rows of out", "none", do)
    if site is not None and site not in each:
        raise UnknownName("observed site", site, each)
    shown = {site: each[site]} if site is not None else each
    shapes = {
        name: np.asarray(sample_statistics.psis(-of_site.flatten(0, 1).T)[1])
        for name, of_site in shown.items()
    }
    limit = sample_statistics.k_hat_limit(math.prod(posterior.shape))
    figure, axis = panel(ax, 6.5, 3.2)
    for j, (name, k) in enumerate(shapes.items()):
        label = name if len(shapes) > 1 else None
        axis.plot(k, "+", color=COLOURS[j % len(COLOURS)], ms=6, label=label)
    axis.axhline(0.0, color="black", lw=0.6, ls=":")
    axis.axhline(limit, color="black", lw=0.8, ls="--", label=f"limit {limit:.2f}")
    every = np.concatenate(list(shapes.values()))
    above = int((every > limit).sum())
    title = f"PSIS leave-one-out: {above} of {len(every)} rows above the limit"
    axis.set(xlabel="row", ylabel="Pareto k of the row")
    set_title(axis, title)
    legend(axis)
    return figure


def _is_exact(posterior: Posterior, history: np.ndarray) -> bool:
    """Return whether log p - log q of a guide is the same at all draws, from its start."""
    lp, log_q = (posterior.stats.get(name) for name in ("lp", "log_q"))
    if lp is None or log_q is None:
        return False
    ratios = np.asarray(lp, dtype=float) - np.asarray(log_q, dtype=float)
    return max(float(ratios.std()), float(history.std())) <= SAME


def elbo(posterior: Posterior, ax: Axes | None = None) -> Figure:
    """Plot the evidence lower bound per step; the first tenth does not affect the axis limits.

    For a model that has a bound of its own (SVGP) it is the objective of SVI, log p(theta) + ELBO.
    It is in nats, on the scale of the model. Blei, Kucukelbir & McAuliffe (2017), equation 13.
    Where the Gaussian guide that SVI begins with is the posterior, there are no steps: the figure
    has log p - log q at draws from the guide, which is the ELBO at each of them.

    Args:
        posterior: A posterior from SVI, which keeps its objective [step].
        ax: The axes to draw in; None: those of a new figure.

    Raises:
        NotApplicable: If the posterior was not made by SVI.
        SettingError: If ``ax`` is not one Axes.

    Examples:
        >>> import ppgp
        >>> from ppgp import inference, models, plots
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0], [3.0]], [0.1, 0.9, 2.2, 2.8])
        >>> how = inference.SVI(steps=100)
        >>> posterior = ppgp.fit(models.LinearRegression(), data, how, progress=False)
        >>> axis = plots.elbo(posterior).axes[0]
        >>> axis.get_ylabel(), len(axis.lines[0].get_ydata())
        ('ELBO (nats)', 100)
    """
    name, label = "objective_history", "log p(theta) + ELBO (nats)"
    if "elbo_history" in posterior.stats:
        name, label = "elbo_history", "ELBO (nats)"
    history = posterior.stats.get(name)
    if history is None or len(history) < 2:
        raise NotApplicable("a history of the ELBO", type(posterior.how).__name__, "fit by SVI")
    values = np.asarray(history, dtype=float)
    figure, axis = panel(ax, 6, 3)
    if name == "elbo_history" and _is_exact(posterior, values):
        axis.plot(values, color=COLOURS[0], lw=1.4, label="log p - log q at one draw")
        middle = float(values.mean())
        axis.set_ylim(middle - NATS_AROUND, middle + NATS_AROUND)
        axis.set(xlabel="draw from the guide", ylabel=label)
        set_title(axis, f"{described(posterior)}: no step, as the first guide is the posterior")
        legend(axis)
        return figure
    xlabel = "step"
    axis.plot(values, color=COLOURS[5], lw=0.6, label="one step")
    window = max(2, len(values) // SMOOTHING)
    moving = np.convolve(values, np.ones(window) / window, mode="valid")
    label_of_mean = f"mean of {window} steps"
    steps = np.arange(len(moving)) + (window - 1) / 2
    axis.plot(steps, moving, color=COLOURS[0], lw=1.4, label=label_of_mean)
    later = values[len(values) // 10 :]
    later = later[np.isfinite(later)]
    if len(later) and np.ptp(later) > 0:
        margin = 0.05 * np.ptp(later)
        axis.set_ylim(later.min() - margin, later.max() + margin)
        low, high = axis.get_ylim()
        # not "inside or not", as a step that is not finite is not shown either
        hidden = len(values) - int(((values >= low) & (values <= high)).sum())
        if hidden:
            xlabel += f" ({hidden} of {len(values)} lie outside the panel)"
    axis.set(xlabel=xlabel, ylabel=label)
    set_title(axis, f"Objective of SVI: {described(posterior)}")
    legend(axis)
    return figure
