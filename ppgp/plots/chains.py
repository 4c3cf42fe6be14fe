"""Chains: traces, ranks, and pairs of scalars with the divergences marked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.stats import gaussian_kde

from ..errors import NotApplicable, SettingError, UnknownName
from ..posterior import convergence as diagnostics
from ..posterior.arviz import arviz, to_arviz
from ..posterior.posterior import Posterior
from .common import COLOURS, classic, panels


def trace(posterior: Posterior, sites: int = 6) -> Figure:
    """Draws of each chain in their order, and their density: what a converged sampler's look like grass and agree."""
    _chains_only(posterior, "traces")
    scalars = list(diagnostics.scalars(posterior.draws))[:sites]
    found = posterior.stats.get("diverging")
    diverging = None if found is None else found.cpu().numpy()
    figure, axes = panels(8, 1.3 * len(scalars) + 0.8, len(scalars), 2)
    for (left, right), (name, values) in zip(axes, scalars, strict=True):
        for colour, chain in zip(COLOURS * 10, values, strict=False):
            left.plot(chain, color=colour, lw=0.5, alpha=0.8)
            if np.ptp(chain) > 0:
                grid = np.linspace(values.min(), values.max(), 150)
                right.plot(grid, gaussian_kde(chain)(grid), color=colour, lw=1)
        left.set_ylabel(name, fontsize=8)
        right.set_yticks([])
        low = values.min() - 0.04 * np.ptp(values)
        for chain in np.atleast_2d(diverging) if diverging is not None else ():
            left.plot(
                np.flatnonzero(chain),
                np.full(int(chain.sum()), low),
                "|",
                color="black",
                ms=4,
                alpha=0.4,
            )
        right.set_xlabel(name, fontsize=8)
        for axis in (left, right):
            axis.tick_params(labelsize=7)
    axes[-1, 0].set_xlabel(
        "draw" + (" (ticks: divergences)" if diverging is not None and diverging.any() else ""),
        fontsize=8,
    )
    lines = [
        Line2D([], [], color=c, label=f"chain {k}")
        for k, (c, _) in enumerate(zip(COLOURS * 10, scalars[0][1], strict=False))
    ]
    figure.legend(
        handles=lines,
        loc="outside upper center",
        ncols=min(len(lines), 8),
        frameon=False,
        fontsize=8,
    )
    return figure


def _chains_only(posterior: Posterior, what: str) -> None:
    if not posterior.mcmc:
        name = type(posterior.how).__name__
        raise NotApplicable(
            f"Markov chains for {what}",
            f"independent draws by {name}",
            "use plots.marginals or plots.k_hat",
        )


def _named(posterior: Posterior, sites: Sequence[str] | int) -> dict[str, np.ndarray]:
    """{scalar: draws [chain, draw]}: those named, or the first so many that move.

    Raises:
        UnknownName: for a scalar that is not there.
    """
    every = dict(diagnostics.scalars(posterior.draws))
    if isinstance(sites, int):
        return dict([(k, v) for k, v in every.items() if np.ptp(v) > 0][:sites])
    for name in sites:
        if name not in every:
            raise UnknownName("scalar", name, every)
    return {name: every[name] for name in sites}


def rank(posterior: Posterior, sites: Sequence[str] | int = 6) -> Figure:
    """Histograms, chain by chain, of the ranks among all draws: flat where the chains agree. Vehtari et al. (2021).

    Args:
        sites: names of scalars, or how many of the first ones.

    Raises:
        NotApplicable: if there are not two chains to compare.
    """
    _chains_only(posterior, "ranks")
    if posterior.chains < 2:
        raise NotApplicable(
            "at least two chains to rank", "one", "run more, for example NUTS(chains=4)"
        )
    chosen = _named(posterior, sites)
    columns = min(3, len(chosen))
    figure, axes = panels(
        3.2 * columns, 2.3 * -(-len(chosen) // columns), -(-len(chosen) // columns), columns
    )
    colours = [COLOURS[k % len(COLOURS)] for k in range(posterior.chains)]
    drawn = axes.flat[: len(chosen)]
    classic(
        "plot_rank",
        arviz().convert_to_dataset(chosen),
        kind="bars",
        colors=colours,
        ax=drawn,
        show=False,
    )
    for axis, name in zip(drawn, chosen, strict=True):
        axis.set_title(name, fontsize=9)
        axis.set_xlabel("rank among all draws", fontsize=8)
        axis.set_ylabel("chain", fontsize=8)
        axis.tick_params(labelsize=7)
    for axis in axes.flat[len(chosen) :]:
        axis.set_visible(False)
    return figure


def pair(posterior: Posterior, sites: Sequence[str] | int = 3) -> Figure:
    """Scalars against each other, draw by draw, with divergent transitions marked where the method has any.

    Args:
        sites: names of scalars, or how many of the first ones.

    Raises:
        SettingError: if fewer than two scalars are asked for.
    """
    chosen = _named(posterior, sites)
    if len(chosen) < 2:
        raise SettingError(
            "at least two scalars that vary", f"{len(chosen)}", "name them: sites=['mu', 'tau']"
        )
    size = len(chosen)
    figure, axes = panels(2.2 * size, 2.2 * size, size, size)
    stats = {k: v.cpu().numpy() for k, v in posterior.stats.items() if k == "diverging"}
    groups = {"posterior": chosen} | ({"sample_stats": stats} if stats else {})
    count = int(stats["diverging"].sum()) if stats else 0
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
        dots.append(
            Line2D(
                [], [], ls="", marker="o", ms=4, color=COLOURS[1], label=f"divergences ({count})"
            )
        )
    figure.legend(handles=dots, loc="outside upper right", frameon=False, fontsize=8, ncols=2)
    return figure
