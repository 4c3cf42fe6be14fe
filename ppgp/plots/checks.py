"""Checks: Pareto shapes of importance weights and of leave-one-out, replicates against data, ELBO, ranks of calibration."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from ..diagnostics import diagnosis
from ..diagnostics.simulation_based_calibration import SBC
from ..errors import NotApplicable, SettingError, UnknownName
from ..posterior import convergence as diagnostics
from ..posterior.posterior import Posterior
from .common import COLOURS, MOST_SITES, classic, panels


def sbc(result: SBC, title: str = "") -> Figure:
    """The ECDF of the ranks minus that of uniform ones, a line a scalar, with the simultaneous band: inside it all is well."""
    points, each, lower, upper = result.differences()
    figure, axes = panels(6, 3.4)
    axis = axes[0, 0]
    axis.fill_between(
        points,
        lower,
        upper,
        step="mid",
        color="#DDDDDD",
        label=f"{result.level:.0%} of uniform samples",
    )
    names = list(each)
    for k, name in enumerate(names):
        label = name if len(names) <= MOST_SITES else None
        axis.plot(points, each[name], lw=1.1, color=COLOURS[k % len(COLOURS)], label=label)
    axis.axhline(0, color="black", lw=0.6)
    axis.legend(frameon=False, fontsize=8, ncols=2)
    axis.set(
        xlabel="rank of the truth among the draws",
        ylabel="ECDF difference",
        title=title or repr(result)[1:-1],
    )
    axis.title.set_fontsize(10)
    return figure


def k_hat(posteriors: Mapping[str, Posterior]) -> Figure:
    """How far approximations are from their posterior: Pareto shape of the importance weights with its limit, and the weights.

    Left: k-hat, with the limit above which the weights are unreliable. Right: the share of the weight that the heaviest
    draws carry; an exact approximation lies on the dotted line. Yao, Vehtari, Simpson & Gelman (2018).

    Raises:
        NotApplicable: if the density of some draws under their method is not known.
    """
    if not posteriors:
        raise SettingError("at least one posterior to draw", "none", "pass {name: posterior}")
    figure, axes = panels(8, max(2.6, 0.4 * len(posteriors) + 1.4), 1, 2)
    left, right = axes[0]
    limits, shapes = [], []
    for k, (name, posterior) in enumerate(posteriors.items()):
        colour = COLOURS[k % len(COLOURS)]
        ratio = diagnosis.log_ratio(posterior)
        shapes.append(diagnosis.k_hat(posterior))
        limits.append(diagnostics.k_hat_limit(ratio.size))
        left.plot([shapes[-1]], [k], "o", color=colour)
        weights = np.sort(np.exp(ratio - ratio.max()))[::-1]
        right.plot(
            np.arange(1, weights.size + 1) / weights.size,
            np.cumsum(weights) / weights.sum(),
            color=colour,
            label=name,
        )
    left.axvline(min(limits), color="black", lw=0.8, ls="--", label=f"limit {min(limits):.2f}")
    left.set_yticks(range(len(posteriors)), list(posteriors), fontsize=8)
    left.set_ylim(len(posteriors) - 0.4, -0.8)
    left.set_xlim(min(0.0, *shapes) - 0.1, max(1.0, *shapes) + 0.1)
    left.set_xlabel("k-hat of the importance weights")
    left.legend(frameon=False, fontsize=8, loc="upper left")
    line = np.geomspace(1e-3, 1.0, 100)
    right.plot(line, line, color="black", lw=0.6, ls=":", label="all weights equal")
    right.set(
        xlabel="share of the draws, heaviest first", ylabel="share of the weight", xscale="log"
    )
    right.legend(frameon=False, fontsize=8)
    return figure


def loo(posterior: Posterior, site: str | None = None) -> Figure:
    """Pareto shape of leave-one-out's weights, row by row, with its limit: rows above it rule the posterior.

    Args:
        site: the observed site, where there are several.

    Raises:
        NotApplicable: for an approximation, whose draws are not those of the posterior.
    """
    if not (posterior.mcmc or type(posterior.how).__name__ == "Exact"):
        raise NotApplicable(
            "draws of the posterior for leave-one-out",
            type(posterior.how).__name__,
            "fit by NUTS, or use k_hat",
        )
    reff = None if posterior.mcmc else 1.0  # independent draws have no autocorrelation
    found = classic("loo", posterior.to_arviz(), pointwise=True, var_name=site, reff=reff)
    figure, axes = panels(6, 3.2)
    axis = axes[0, 0]
    classic("plot_khat", found, color=COLOURS[0], ax=axis, textsize=9, show=False)
    axis.axhline(found.good_k, color="black", lw=0.8, ls="--", label=f"limit {found.good_k:.2f}")
    above = int((found.pareto_k.values > found.good_k).sum())
    axis.set(
        xlabel="row",
        ylabel="Pareto k",
        title=f"PSIS leave-one-out: {above} of {found.n_data_points} rows above the limit",
    )
    axis.title.set_fontsize(10)
    axis.legend(frameon=False, fontsize=8)
    return figure


def predictive_check(
    posterior: Posterior, site: str = "y", replicates: int = 60, seed: int = 0
) -> Figure:
    """Data drawn again from the posterior, at the training rows, over the data themselves. Gelman et al. (2013), chapter 6.

    Raises:
        UnknownName: if no observed site has that name.
    """
    groups = posterior.to_arviz(predictive=True, log_likelihood=False, seed=seed)
    known = list(groups["observed_data"].data_vars)
    if site not in known:
        raise UnknownName("observed site", site, known)
    figure, axes = panels(6, 3.4)
    axis = axes[0, 0]
    count = groups["posterior"].sizes["chain"] * groups["posterior"].sizes["draw"]
    classic(
        "plot_ppc",
        groups,
        var_names=[site],
        num_pp_samples=min(replicates, count),
        random_seed=seed,
        ax=axis,
        textsize=9,
        mean=False,
        colors=[COLOURS[0], "black", COLOURS[1]],
        show=False,
    )
    axis.set_xlabel(site)
    axis.set_ylabel("density, or mass of counts")
    return figure


def elbo(posterior: Posterior) -> Figure:
    """The evidence lower bound, step by step; the first tenth is left out of the scale. Where a model has a bound of its own (SVGP),
    what SVI climbs, log p(theta) + ELBO.

    Raises:
        NotApplicable: if the posterior was not made by SVI.
    """
    name = "elbo_history" if "elbo_history" in posterior.stats else "objective_history"
    history = posterior.stats.get(name)
    if history is None or len(history) < 2:
        raise NotApplicable("a history of the ELBO", type(posterior.how).__name__, "fit by SVI")
    values = np.asarray(history, dtype=float)
    figure, axes = panels(6, 3)
    axis = axes[0, 0]
    axis.plot(values, color=COLOURS[0], lw=0.8)
    settled = values[len(values) // 10 :]
    settled = settled[np.isfinite(settled)]
    if len(settled) and np.ptp(settled) > 0:
        margin = 0.05 * np.ptp(settled)
        axis.set_ylim(settled.min() - margin, settled.max() + margin)
    axis.set(
        xlabel="step",
        ylabel="ELBO (nats)" if name == "elbo_history" else "log p(theta) + ELBO (nats)",
    )
    return figure
