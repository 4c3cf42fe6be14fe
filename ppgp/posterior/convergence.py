"""Whether chains have converged, and how far draws lie from other draws."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.stats import wasserstein_distance
from torch import Tensor

from ..errors import NotApplicable
from .arviz import arviz
from .posterior import Posterior

__all__ = ["ess", "ess_quantity", "k_hat_limit", "mcse", "psis", "rhat", "scalars", "troubles", "wasserstein"]

RHAT_LIMIT = 1.01  # Vehtari et al. (2021)
ESS_A_CHAIN = 100


def scalars(draws: dict[str, Tensor]) -> Iterator[tuple[str, np.ndarray]]:
    """Every scalar of every site: its name (``weight[3]``) and its draws [chain, draw] in float64."""
    for name, value in draws.items():
        array = value.detach().double().cpu().numpy()
        for index in np.ndindex(*array.shape[2:]):
            label = name + (f"[{', '.join(map(str, index))}]" if index else "")
            yield label, array[(slice(None), slice(None), *index)]


def ess(x: np.ndarray) -> float:
    """Bulk effective sample size of draws [chain, draw]."""
    return float(arviz().ess(x, method="bulk"))


def ess_quantity(x: np.ndarray, quantity: str) -> float:
    """Effective sample size for the "mean" or the "sd"."""
    return float(arviz().ess(x, method=quantity))


def rhat(x: np.ndarray) -> float:
    """Rank-normalised split R-hat of draws [chain, draw].

    Raises:
        NotApplicable: for a single chain, which R-hat has nothing to compare with.
    """
    if len(x) < 2:
        raise NotApplicable("at least two chains for R-hat", "one", "run more, for example NUTS(chains=4)")
    return float(arviz().rhat(x))


def mcse(x: np.ndarray, quantity: str, independent: bool = False) -> float:
    """Monte Carlo standard error of the mean or the sd; by the number of draws where they are independent."""
    if independent:
        n = x.size
        if n < 2:
            return 0.0
        sd = float(x.std(ddof=1))
        if quantity == "mean" or sd == 0:
            return sd / np.sqrt(n)
        kurtosis = float(((x - x.mean()) ** 4).mean()) / sd**4
        return sd * np.sqrt(max(kurtosis - 1, 0.0) / (4 * n))
    return float(arviz().mcse(x, method=quantity))


def psis(log_ratio: np.ndarray) -> tuple[np.ndarray, Any]:
    """Pareto-smoothed log weights [..., draw], normalised, and k-hat [...]; Vehtari, Simpson, Gelman, Yao & Gabry (2024)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        smoothed, k = arviz().psislw(log_ratio)
    return np.asarray(smoothed, dtype=float), float(k) if np.ndim(k) == 0 else np.asarray(k, dtype=float)


def k_hat_limit(draws: int) -> float:
    """Above it the weights are unreliable: min(1 - 1 / log10 S, 0.7). Vehtari, Simpson, Gelman, Yao & Gabry (2024)."""
    return min(1 - 1 / math.log10(max(draws, 11)), 0.7)


def wasserstein(a: np.ndarray, b: np.ndarray) -> float:
    """Wasserstein-1 distance between two samples."""
    return float(wasserstein_distance(a.ravel(), b.ravel()))


def troubles(posterior: Posterior) -> list[str]:
    """One sentence for each thing that says the chains have not converged; none for a method without chains."""
    if not posterior.mcmc:
        return []
    table = posterior.summary()
    found = []
    chains, draws = posterior.shape
    moving = [np.ptp(x) > 0 for _, x in scalars(posterior.draws)]
    if draws > 1 and not any(moving):
        found.append("no draw differs from another: the sampler is stuck; start elsewhere, or change its steps")
    if chains < 2:
        found.append("one chain cannot show that it has converged: run at least two, better four")
    elif draws >= 4:
        bad = table[table["r_hat"] > RHAT_LIMIT]["r_hat"]
        if len(bad):
            found.append(f"R-hat is {bad.max():.2f} for {bad.idxmax()} (wanted below {RHAT_LIMIT}): raise warmup and draws")
        few = table["ess_bulk"].min()
        if few < ESS_A_CHAIN * chains:
            where = table["ess_bulk"].idxmin()
            found.append(f"the effective sample size of {where} is {few:.0f} (wanted {ESS_A_CHAIN} a chain): raise draws")
    return found
