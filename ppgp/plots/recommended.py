"""Which figures suit a posterior: those that show whether to believe it."""

from __future__ import annotations

from matplotlib.figure import Figure

from ..posterior.convergence import scalars
from ..posterior.posterior import Posterior
from . import chains, checks, latents


def suited(posterior: Posterior, reference: Posterior | None = None) -> dict[str, Figure]:
    """{name: Figure}. Chains: trace, rank, pair of the worst scalars, leave-one-out. Guides: k-hat, and the ELBO of SVI.

    All: replicates against the data; and the marginals, over those of ``reference`` where one of the same sites is given.
    """
    how = type(posterior.how).__name__
    found: dict[str, Figure] = {}
    if posterior.mcmc:
        found["trace"] = chains.trace(posterior)
        if posterior.chains > 1:
            found["rank"] = chains.rank(posterior)
        moving = [name for name, x in scalars(posterior.draws) if x.max() > x.min()]
        if len(moving) > 1:
            worst = posterior.summary()["ess_bulk"].loc[moving].sort_values().index[:3]
            found["pair"] = chains.pair(posterior, [str(name) for name in worst])
    if "lp" in posterior.stats and "log_q" in posterior.stats:
        found["k_hat"] = checks.k_hat({how: posterior})
    history = posterior.stats.get("elbo_history", posterior.stats.get("objective_history", ()))
    if len(history) > 1:
        found["elbo"] = checks.elbo(posterior)
    if posterior.mcmc or how == "Exact":
        found["loo"] = checks.loo(posterior)
    several = {how: posterior}
    if reference is not None:
        name = type(reference.how).__name__
        several = {f"{name} (reference)" if name == how else name: reference, **several}
    found["marginals"] = latents.marginals(several)
    found["predictive_check"] = checks.predictive_check(posterior)
    return found
