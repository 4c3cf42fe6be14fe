"""Convergence statistics of draws, and distances between samples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import wasserstein_distance
from torch import Tensor

from ..errors import NotApplicable, counted_are
from ..numerics.process_locks import silenced
from .arviz import arviz
from .posterior import Posterior
from .scalar_names import scalars
from .summary import chain_statistics
from .units_of_draws import quantities

__all__ = [
    "Mixing",
    "convergence_warnings",
    "efficiency",
    "ess",
    "ess_of_each",
    "k_hat_limit",
    "mcse",
    "missing_for_comparison",
    "mixing",
    "on_mini_batches",
    "psis",
    "rhat",
    "scalars",
    "wasserstein",
    "why_uncorrected",
    "with_angles_as_points",
]

RHAT_LIMIT = 1.01  # Vehtari et al. (2021)
ESS_PER_CHAIN = 100
FEWEST = 4  # draws per chain, for R-hat and effective sample sizes to exist
FEWEST_INDEPENDENT = 400  # draws without chains: as many as the ESS that four chains need


def ess(x: np.ndarray) -> float:
    """Return the bulk effective sample size of draws [chain, draw]."""
    return float(arviz().ess(x, method="bulk"))


def rhat(x: np.ndarray) -> float:
    """Return the rank-normalised split R-hat of draws [chain, draw].

    Raises:
        NotApplicable: If there is a single chain.
    """
    if len(x) < 2:
        do = "run more, for example NUTS(chains=4)"
        raise NotApplicable("at least two chains for R-hat", "one", do)
    return float(arviz().rhat(x))


def mcse(x: np.ndarray, quantity: str, independent: bool = False) -> float:
    """Return the Monte Carlo standard error of the mean or the sd.

    The error of the sd accounts for the kurtosis of the draws; that of ArviZ assumes the kurtosis
    of a normal distribution.

    Args:
        x: Draws [chain, draw].
        quantity: "mean" or "sd".
        independent: Whether the draws are independent; if not, the effective sample size is used.
    """
    n = x.size if independent else float(arviz().ess(x, method=quantity))
    if x.size < 2:
        return 0.0
    sd = float(x.std(ddof=1))
    if quantity == "mean" or sd == 0:
        return sd / math.sqrt(n)
    return sd * math.sqrt(max(kurtosis(x) - 1, 0.0) / (4 * n))


def kurtosis(x: np.ndarray) -> float:
    """Return the kurtosis, which is 3 for a normal distribution."""
    return float(((x - x.mean()) ** 4).mean()) / float(x.var(ddof=1)) ** 2


def psis(log_ratio: np.ndarray) -> tuple[np.ndarray, Any]:
    """Return Pareto-smoothed importance weights and the Pareto shape k-hat.

    Vehtari, Simpson, Gelman, Yao & Gabry (2024).

    Args:
        log_ratio: Log importance ratios [..., draw].

    Returns:
        Normalised log weights [..., draw], and k-hat [...].
    """
    with silenced():
        smoothed, k = arviz().psislw(log_ratio)
    shape = float(k) if np.ndim(k) == 0 else np.asarray(k, dtype=float)
    return np.asarray(smoothed, dtype=float), shape


def k_hat_limit(draws: int) -> float:
    """Return the k-hat above which weights are unreliable: min(1 - 1 / log10 S, 0.7).

    S is the number of draws. Vehtari, Simpson, Gelman, Yao & Gabry (2024).
    """
    return min(1 - 1 / math.log10(max(draws, 11)), 0.7)


def wasserstein(a: np.ndarray, b: np.ndarray) -> float:
    """Return the Wasserstein-1 distance between two samples."""
    return float(wasserstein_distance(a.ravel(), b.ravel()))


def ess_of_each(x: np.ndarray, quantity: str) -> np.ndarray:
    """Return the effective sample sizes [scalar] of draws [chain, draw, scalar].

    Args:
        x: Draws [chain, draw, scalar].
        quantity: "mean" or "sd"; "shares" (of draws) gives the smallest of those for the bulk, the
            median and the tails.
    """
    az = arviz()
    methods: tuple[str, ...] = (quantity,)
    if quantity == "shares":
        methods = ("bulk", "median", "tail")
    with silenced(RuntimeWarning):  # constant scalars have no variance to divide by
        data = az.convert_to_dataset({"x": x})
        return np.min([az.ess(data, method=method)["x"].to_numpy() for method in methods], axis=0)


@dataclass(frozen=True, eq=False)
class Mixing:
    """R-hat and effective sample sizes of chains, for ``fit``, ``diagnose`` and ``compare``.

    Attributes:
        chains: The number of chains.
        draws: The number of draws per chain.
        names: The scalars that are not constant.
        statistics: ``{statistic: [scalar]}`` of these, named as the columns of a summary; None for
            chains of fewer than four draws.
        stuck: Whether all draws are equal.
    """

    chains: int
    draws: int
    names: list[str]
    statistics: dict[str, np.ndarray] | None
    stuck: bool

    @property
    def r_hat(self) -> tuple[float, str]:
        """The largest R-hat and its scalar; infinite for a constant chain, NaN if unknown."""
        if self.statistics is None or self.chains < 2 or not self.names:
            return math.nan, ""
        values = self.statistics["r_hat"]
        values = np.where(np.isnan(values), math.inf, values)
        return float(values.max()), self.names[values.argmax()]

    def least(self, kind: str) -> tuple[float, str]:
        """Return the smallest effective sample size ("bulk" or "tail") and its scalar."""
        if self.statistics is None or not self.names:
            return math.nan, ""
        values = self.statistics[f"ess_{kind}"]
        values = np.where(np.isnan(values), 0.0, values)
        return float(values.min()), self.names[values.argmin()]

    @property
    def complaints(self) -> list[str]:
        """Convergence warnings: one sentence per check that the chains fail."""
        warnings = []
        if self.stuck:
            warnings.append(
                "no draw differs from another: the sampler is stuck; start elsewhere, or change "
                "its steps"
            )
        if self.chains < 2:
            warnings.append(
                "one chain cannot show that it has converged, as R-hat compares chains: run at "
                "least two, better four"
            )
        if self.statistics is None:
            warnings.append(
                f"{counted_are(self.draws, 'draw')} too few in a chain for R-hat and effective "
                "sample sizes: raise draws"
            )
            return warnings
        r_hat, where = self.r_hat
        if r_hat > RHAT_LIMIT:
            warnings.append(
                f"R-hat is {r_hat:.3f} for {where} (wanted at most {RHAT_LIMIT}): the chains do "
                "not agree; raise warmup and draws, or reparametrise; if they sit in different "
                "places, there are several modes"
            )
        smallest, where = self.least("bulk")
        wanted = ESS_PER_CHAIN * self.chains
        if smallest < wanted:
            warnings.append(
                f"the effective sample size of {where} is {smallest:.0f} (wanted {wanted}, "
                f"{ESS_PER_CHAIN} per chain): raise draws"
            )
        return warnings


def mixing(posterior: Posterior, table: Any = None) -> Mixing:
    """Return the convergence statistics of a posterior from Markov chains.

    Args:
        posterior: The posterior.
        table: Its ``summary()``, where that was computed already.
    """
    chains, draws = posterior.shape
    sites = quantities(posterior.draws, posterior.model)
    moves = {name: bool(np.ptp(x) > 0) for name, x in scalars(sites, posterior)}
    names = [name for name, moving in moves.items() if moving]
    statistics = None
    if draws >= FEWEST:
        of_all: Any = {}
        if table is not None:
            of_all = table
        elif sites:
            of_all = chain_statistics(sites, chains, posterior.circular)
        found = [kind for kind in ("ess_bulk", "ess_tail", "r_hat") if kind in of_all]
        statistics = {kind: np.asarray(of_all[kind])[list(moves.values())] for kind in found}
    return Mixing(chains, draws, names, statistics, stuck=not names and draws > 1)


def convergence_warnings(posterior: Posterior) -> list[str]:
    """Return one sentence per failed convergence check; [] for a method without chains."""
    if not posterior.mcmc:
        return []
    return mixing(posterior).complaints


def efficiency(posterior: Posterior) -> float:
    """Return the smallest bulk effective sample size over the number of draws, at most 1.

    It is 1 if the draws do not come from chains.
    """
    if not posterior.mcmc:
        return 1.0
    smallest, _ = mixing(posterior).least("bulk")
    if not smallest > 0:
        return 1.0
    return min(1.0, smallest / math.prod(posterior.shape))


def why_uncorrected(posterior: Posterior) -> str:
    """Describe why chains without rejection have another distribution than the posterior.

    Convergence statistics do not show it. "" for chains whose steps are accepted or rejected.
    """
    if not getattr(posterior.how, "uncorrected", False):
        return ""
    if on_mini_batches(posterior):
        return "chains on mini-batches, whose noise widens what is drawn"
    return "chains whose steps are never rejected, so that their size widens what is drawn"


def on_mini_batches(posterior: Posterior) -> bool:
    """Whether every step used the density of another subset of the rows."""
    return (
        getattr(posterior.how, "batch_size", None) is not None
        or "random_density" in posterior.stats
    )


def with_angles_as_points(posterior: Posterior) -> dict[str, Tensor]:
    """Return the draws with each angle as its cosine and sine, which are continuous at pi."""
    draws: dict[str, Tensor] = {}
    for name, value in quantities(posterior.draws, posterior.model).items():
        if name in posterior.circular:
            draws |= {f"cos({name})": value.cos(), f"sin({name})": value.sin()}
        else:
            draws[name] = value
    return draws


def missing_for_comparison(posterior: Posterior) -> list[str]:
    """Return what the draws lack to be compared with others; [] if nothing.

    A point estimate (one draw) is compared as it is.
    """
    if posterior.mcmc:
        return convergence_warnings(posterior)
    draws = math.prod(posterior.shape)
    if 1 < draws < FEWEST_INDEPENDENT:
        return [f"{draws} draws (wanted {FEWEST_INDEPENDENT}): raise draws"]
    return []
