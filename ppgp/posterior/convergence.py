"""Whether chains have converged, and how far draws lie from other draws."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import wasserstein_distance
from torch import Tensor

from ..errors import NotApplicable, counted
from ..numerics.process_locks import silenced
from .arviz import arviz
from .posterior import Posterior

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Mixing",
    "convergence_warnings",
    "efficiency",
    "ess",
    "ess_of_each",
    "ess_quantity",
    "k_hat_limit",
    "lacks",
    "mcse",
    "mixing",
    "on_mini_batches",
    "plane",
    "psis",
    "rhat",
    "scalars",
    "uncorrected",
    "wasserstein",
]

RHAT_LIMIT = 1.01  # Vehtari et al. (2021)
ESS_A_CHAIN = 100
FEWEST = 4  # draws a chain, for R-hat and effective sample sizes to exist
FEWEST_INDEPENDENT = 400  # draws that do not come from chains: as many as four chains need


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
        raise NotApplicable(
            "at least two chains for R-hat", "one", "run more, for example NUTS(chains=4)"
        )
    return float(arviz().rhat(x))


def mcse(x: np.ndarray, quantity: str, independent: bool = False) -> float:
    """Monte Carlo standard error of the mean or the sd; by the number of draws where they are independent.

    That of the sd counts the kurtosis, which ArviZ's, of chains, takes for a normal law's.
    """
    n = x.size if independent else ess_quantity(x, quantity)
    if x.size < 2:
        return 0.0
    sd = float(x.std(ddof=1))
    if quantity == "mean" or sd == 0:
        return sd / math.sqrt(n)
    return sd * math.sqrt(max(kurtosis(x) - 1, 0.0) / (4 * n))


def kurtosis(x: np.ndarray) -> float:
    """3 for a normal law."""
    return float(((x - x.mean()) ** 4).mean()) / float(x.var(ddof=1)) ** 2


def psis(log_ratio: np.ndarray) -> tuple[np.ndarray, Any]:
    """Pareto-smoothed log weights [..., draw], normalised, and k-hat [...]; Vehtari, Simpson, Gelman, Yao & Gabry (2024)."""
    with silenced():
        smoothed, k = arviz().psislw(log_ratio)
    return np.asarray(smoothed, dtype=float), float(k) if np.ndim(k) == 0 else np.asarray(
        k, dtype=float
    )


def k_hat_limit(draws: int) -> float:
    """Above it the weights are unreliable: min(1 - 1 / log10 S, 0.7). Vehtari, Simpson, Gelman, Yao & Gabry (2024)."""
    return min(1 - 1 / math.log10(max(draws, 11)), 0.7)


def wasserstein(a: np.ndarray, b: np.ndarray) -> float:
    """Wasserstein-1 distance between two samples."""
    return float(wasserstein_distance(a.ravel(), b.ravel()))


def ess_of_each(x: np.ndarray, quantity: str) -> np.ndarray:
    """Effective sample sizes [scalar] of draws [chain, draw, scalar]; of "shares" of draws: the smallest of bulk, median and tails."""
    az = arviz()
    methods = ("bulk", "median", "tail") if quantity == "shares" else (quantity,)
    with silenced(RuntimeWarning):  # scalars that never move have no variance to divide by
        data = az.convert_to_dataset({"x": x})
        return np.min([az.ess(data, method=method)["x"].to_numpy() for method in methods], axis=0)


@dataclass(frozen=True, eq=False)
class Mixing:
    """What R-hat and the effective numbers of draws say of chains: the one judgement, for ``fit``, ``diagnose`` and ``compare``.

    Attributes:
        table: ``posterior.summary()``; None for chains of fewer than four draws.
        moving: the scalars that are not constant.
    """

    chains: int
    draws: int
    table: pd.DataFrame | None
    moving: list[str]

    @property
    def stuck(self) -> bool:
        return not self.moving and self.draws > 1

    @property
    def r_hat(self) -> tuple[float, str]:
        """The largest, and whose it is; infinite where no chain moves; NaN for one chain, which has none."""
        if self.table is None or self.chains < 2 or not self.moving:
            return math.nan, ""
        values = self.table["r_hat"].loc[self.moving].fillna(math.inf)
        return float(values.max()), str(values.idxmax())

    def least(self, kind: str) -> tuple[float, str]:
        """The smallest effective number of draws of this kind ("bulk" or "tail"), and whose it is."""
        if self.table is None or not self.moving:
            return math.nan, ""
        values = self.table[f"ess_{kind}"].loc[self.moving].fillna(0.0)
        return float(values.min()), str(values.idxmin())

    @property
    def complaints(self) -> list[str]:
        """One sentence for each thing that says that the chains have not converged, or are too short to tell."""
        found = []
        if self.stuck:
            found.append(
                "no draw differs from another: the sampler is stuck; start elsewhere, or change its steps"
            )
        if self.chains < 2:
            found.append(
                "one chain cannot show that it has converged, as R-hat compares chains: run at least two, better four"
            )
        if self.table is None:
            verb = "is" if self.draws == 1 else "are"
            return [
                *found,
                f"{counted(self.draws, 'draw')} a chain {verb} too few for R-hat and effective sample sizes: raise draws",
            ]
        r_hat, where = self.r_hat
        if r_hat > RHAT_LIMIT:
            found.append(
                f"R-hat is {r_hat:.3f} for {where} (wanted at most {RHAT_LIMIT}): the chains do not agree; raise warmup and draws, "
                "or reparametrise; if they sit in different places, there are several modes"
            )
        few, where = self.least("bulk")
        if few < ESS_A_CHAIN * self.chains:
            found.append(
                f"the effective sample size of {where} is {few:.0f} (wanted {ESS_A_CHAIN * self.chains}, "
                f"{ESS_A_CHAIN} a chain): raise draws"
            )
        return found


def mixing(posterior: Posterior) -> Mixing:
    """Of a posterior by Markov chains."""
    chains, draws = posterior.shape
    moving = [name for name, x in scalars(posterior.draws) if np.ptp(x) > 0]
    return Mixing(chains, draws, posterior.summary() if draws >= FEWEST else None, moving)


def convergence_warnings(posterior: Posterior) -> list[str]:
    """One sentence for each thing that says the chains have not converged; none for a method without chains."""
    return mixing(posterior).complaints if posterior.mcmc else []


def efficiency(posterior: Posterior) -> float:
    """Effective draws a draw, of the scalar that has fewest; 1 where they do not come from chains."""
    if not posterior.mcmc:
        return 1.0
    few, _ = mixing(posterior).least("bulk")
    return min(1.0, few / math.prod(posterior.shape)) if few > 0 else 1.0


def uncorrected(posterior: Posterior) -> str:
    """What changes the law of its chains, of which mixing says nothing; "" where steps are accepted or rejected."""
    if not getattr(posterior.how, "uncorrected", False):
        return ""
    if on_mini_batches(posterior):
        return "chains on mini-batches, whose noise widens what is drawn"
    return "chains whose steps are never rejected, so that their size widens what is drawn"


def on_mini_batches(posterior: Posterior) -> bool:
    """Whether the density was another one at every step: of some rows, or of a program that takes some."""
    return (
        getattr(posterior.how, "batch_size", None) is not None
        or "random_density" in posterior.stats
    )


def plane(posterior: Posterior) -> dict[str, Tensor]:
    """The draws, an angle as its cosine and sine: they have no seam at pi."""
    found: dict[str, Tensor] = {}
    for name, value in posterior.draws.items():
        if name in posterior.circular:
            found |= {f"cos({name})": value.cos(), f"sin({name})": value.sin()}
        else:
            found[name] = value
    return found


def lacks(posterior: Posterior) -> list[str]:
    """What is missing before its draws can be judged, or judge others; [] where nothing is. A point is judged as it stands."""
    if posterior.mcmc:
        return convergence_warnings(posterior)
    draws = math.prod(posterior.shape)
    if 1 < draws < FEWEST_INDEPENDENT:
        return [f"{draws} draws (wanted {FEWEST_INDEPENDENT}): raise draws"]
    return []
