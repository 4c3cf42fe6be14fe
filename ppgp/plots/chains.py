"""Figures of chains: traces, ranks, and pairs of scalars with the divergences marked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.stats import gaussian_kde

from ..errors import NotApplicable, SettingError, UnknownName
from ..posterior.arviz import arviz, to_arviz
from ..posterior.posterior import Posterior
from ..posterior.scalar_names import scalars as scalars_of
from ..posterior.units_of_draws import quantities
from .common import COLOURS, classic, panels


def trace(posterior: Posterior, sites: int = 6) -> Figure:
    """Plot the draws of each chain in order, and their density.

    Traces of a converged sampler look like noise around one level, and the densities agree.

    Args:
        posterior: A posterior from Markov chains.
        sites: The number of scalars to show.

    Raises:
        NotApplicable: If the draws are independent.
    """
    _check_chains(posterior, "traces")
    scalars = list(scalars_of(quantities(posterior.draws, posterior.model), posterior))[:sites]
    diverging = _divergences(posterior)
    figure, axes = panels(8, 1.3 * len(scalars) + 0.8, len(scalars), 2)
    for (left, right), (name, values) in zip(axes, scalars, strict=True):
        for colour, chain in zip(COLOURS * 10, values, strict=False):
            left.plot(chain, color=colour, lw=0.5, alpha=0.8)
            if np.ptp(chain) > 0:
                grid = np.linspace(values.min(), values.max(), 150)
                right.plot(grid, gaussian_kde(chain)(grid), color=colour, lw=1)
        low = values.min() - 0.04 * np.ptp(values)
        for chain in diverging:
            heights = np.full(int(chain.sum()), low)
            left.plot(np.flatnonzero(chain), heights, "|", color="black", ms=4, alpha=0.4)
        left.set_ylabel(name, fontsize=8)
        right.set_yticks([])
        right.set_xlabel(name, fontsize=8)
        for axis in (left, right):
            axis.tick_params(labelsize=7)
    label = "draw"
    if any(chain.any() for chain in diverging):
        label = "draw (ticks: divergences)"
    axes[-1, 0].set_xlabel(label, fontsize=8)
    lines = []
    for k, (colour, _) in enumerate(zip(COLOURS * 10, scalars[0][1], strict=False)):
        lines.append(Line2D([], [], color=colour, label=f"chain {k}"))
    columns = min(len(lines), 8)
    where = "outside upper center"
    figure.legend(handles=lines, loc=where, ncols=columns, frameon=False, fontsize=8)
    return figure


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


def _named(posterior: Posterior, sites: Sequence[str] | int) -> dict[str, np.ndarray]:
    """Return ``{scalar: draws [chain, draw]}`` of named scalars, or of the first that vary.

    Raises:
        UnknownName: If a scalar does not exist.
    """
    every = dict(scalars_of(quantities(posterior.draws, posterior.model), posterior))
    if isinstance(sites, int):
        varying = [name for name, values in every.items() if np.ptp(values) > 0]
        return {name: every[name] for name in varying[:sites]}
    for name in sites:
        if name not in every:
            raise UnknownName("scalar", name, every)
    return {name: every[name] for name in sites}


def rank(posterior: Posterior, sites: Sequence[str] | int = 6) -> Figure:
    """Plot, chain by chain, a histogram of the ranks among all draws.

    The histograms are flat if the chains agree. Vehtari et al. (2021).

    Args:
        posterior: A posterior from Markov chains.
        sites: Names of scalars, or the number of scalars to show.

    Raises:
        NotApplicable: If there are not two chains to compare.
        UnknownName: If a scalar does not exist.
    """
    _check_chains(posterior, "ranks")
    if posterior.chains < 2:
        do = "run more, for example NUTS(chains=4)"
        raise NotApplicable("at least two chains to rank", "one", do)
    chosen = _named(posterior, sites)
    columns = min(3, len(chosen))
    rows = -(-len(chosen) // columns)
    figure, axes = panels(3.2 * columns, 2.3 * rows, rows, columns)
    colours = [COLOURS[k % len(COLOURS)] for k in range(posterior.chains)]
    drawn = axes.flat[: len(chosen)]
    draws = arviz().convert_to_dataset(chosen)
    classic("plot_rank", draws, kind="bars", colors=colours, ax=drawn, show=False)
    for axis, name in zip(drawn, chosen, strict=True):
        axis.set_title(name, fontsize=9)
        axis.set_xlabel("rank among all draws", fontsize=8)
        axis.set_ylabel("chain", fontsize=8)
        axis.tick_params(labelsize=7)
    for axis in axes.flat[len(chosen) :]:
        axis.set_visible(False)
    return figure


def pair(posterior: Posterior, sites: Sequence[str] | int = 3) -> Figure:
    """Plot the draws of scalars against each other, with divergent transitions marked.

    Args:
        posterior: The posterior.
        sites: Names of scalars, or the number of scalars to show.

    Raises:
        SettingError: If there are fewer than two scalars.
        UnknownName: If a scalar does not exist.
    """
    chosen = _named(posterior, sites)
    if len(chosen) < 2:
        do = "name them: sites=['mu', 'tau']"
        raise SettingError("at least two scalars that vary", f"{len(chosen)}", do)
    size = len(chosen)
    figure, axes = panels(2.2 * size, 2.2 * size, size, size)
    stats = {k: v.cpu().numpy() for k, v in posterior.stats.items() if k == "diverging"}
    groups = {"posterior": chosen}
    if stats:
        groups["sample_stats"] = stats
    count = sum(int(diverging.sum()) for diverging in stats.values())
    classic(
        "plot_pair",
        to_arviz(groups, {}, {}, {}),
        marginals=True,
        divergences=count > 0,
        ax=axes,
        show=False,
        textsize=9,
        scatter_kwargs={"alpha": 0.25, "s": 4, "color": COLOURS[0]},
        divergences_kwargs={"color": COLOURS[1], "ms": 3, "markeredgecolor": "none", "alpha": 0.8},
        marginal_kwargs={"plot_kwargs": {"color": COLOURS[0]}},
    )
    dots = [Line2D([], [], ls="", marker="o", ms=3, color=COLOURS[0], label="draws")]
    if count:
        label = f"divergences ({count})"
        dots.append(Line2D([], [], ls="", marker="o", ms=4, color=COLOURS[1], label=label))
    figure.legend(handles=dots, loc="outside upper right", frameon=False, fontsize=8, ncols=2)
    return figure
