"""The figures that suit a posterior, which show whether it can be trusted."""

from __future__ import annotations

from matplotlib.figure import Figure

from ..capabilities import GroupEffects, supports
from ..posterior.averaging import Average
from ..posterior.convergence import scalars
from ..posterior.posterior import Posterior
from ..posterior.units_of_draws import quantities
from . import additive_figures, chains, counts, diagnostic_figures, groups, replicates, sites


def suited(posterior: Posterior | Average, reference: Posterior | None = None) -> dict[str, Figure]:
    """Return the figures that suit a posterior, ``{name: Figure}``.

    For chains they are trace, rank and the pairs of the worst scalars; for chains and Exact also
    leave-one-out; for approximations k-hat, and the ELBO of SVI. All posteriors have replicates
    against the data, and marginals; counts also a rootogram, and groups their shrinkage. Gabry et
    al. (2019) show how such figures are used. Each figure states its units.

    Args:
        posterior: The posterior, with draws [chain, draw]; or an Average, whose figure is that of
            its components.
        reference: Another posterior of the same sites, whose marginals are shown too.

    Raises:
        NotApplicable: If the model is a program without observed sites.

    Examples:
        >>> import ppgp
        >>> from ppgp import inference, likelihoods, models, plots
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0], [3.0]], [1, 0, 2, 4])
        >>> model = models.GLM(likelihoods.Poisson())
        >>> posterior = ppgp.fit(model, data, inference.Laplace(), progress=False)
        >>> list(plots.suited(posterior))
        ['k_hat', 'marginals', 'predictive_check', 'rootogram']
    """
    if isinstance(posterior, Average):
        return {"components": additive_figures.components(posterior)}
    how = type(posterior.how).__name__
    figures: dict[str, Figure] = {}
    if posterior.mcmc:
        figures["trace"] = chains.trace(posterior)
        if posterior.chains > 1:
            figures["rank"] = chains.rank(posterior)
        moving = [
            name
            for name, x in scalars(quantities(posterior.draws, posterior.model), posterior)
            if x.max() > x.min()
        ]
        if len(moving) > 1:
            worst = posterior.summary()["ess_bulk"].loc[moving].sort_values().index[:3]
            figures["pair"] = chains.pair(posterior, [str(name) for name in worst])
    if "lp" in posterior.stats and "log_q" in posterior.stats:
        figures["k_hat"] = diagnostic_figures.k_hat({how: posterior})
    history = posterior.stats.get("elbo_history", posterior.stats.get("objective_history", ()))
    if len(history) > 1:
        figures["elbo"] = diagnostic_figures.elbo(posterior)
    if posterior.mcmc or how == "Exact":
        figures["loo"] = diagnostic_figures.loo(posterior)
    several = {how: posterior}
    if reference is not None:
        name = type(reference.how).__name__
        if name == how:
            name = f"{name} (reference)"
        several = {name: reference, **several}
    figures["marginals"] = sites.marginals(several)
    figures["predictive_check"] = replicates.predictive_check(posterior)
    return figures | _of_kind(posterior)


def _of_kind(posterior: Posterior) -> dict[str, Figure]:
    """Return the figures of counts and of groups."""
    figures: dict[str, Figure] = {}
    likelihood = getattr(posterior.model, "likelihood", None)
    if posterior.data.is_table and getattr(likelihood, "counts", False):
        figures["rootogram"] = counts.rootogram(posterior)
    if supports(posterior.model, GroupEffects):
        figures["shrinkage"] = groups.shrinkage(posterior)
    return figures
