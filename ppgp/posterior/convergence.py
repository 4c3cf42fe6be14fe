"""R-hat, effective sample sizes and Monte Carlo errors of draws, and what draws lack."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError, NotApplicable, UnknownName, an, counted_are
from ..numerics.effective_sizes import FEWEST, effective_sizes, r_hats
from .axes import named_scalars, scalar_names
from .posterior import Posterior
from .sample_statistics import numbers
from .summary import chain_statistics
from .units_of_draws import quantities

__all__ = [
    "Mixing",
    "convergence_warnings",
    "efficiency",
    "ess",
    "ess_of_each",
    "mcse",
    "missing_for_comparison",
    "mixing",
    "on_mini_batches",
    "rhat",
    "scalars",
    "why_uncorrected",
    "with_angles_as_points",
]

RHAT_LIMIT = 1.01  # Vehtari et al. (2021)
ESS_PER_CHAIN = 100
QUANTITIES = ("mean", "sd")  # that ``mcse`` gives the error of
FEWEST_INDEPENDENT = 400  # draws without chains: as many as the ESS that four chains need


def ess(x: Any) -> float:
    """Return the bulk effective sample size of the draws of one scalar.

    It is the number of independent draws that would give its mean with the same precision, computed
    from rank-normalised split chains. Vehtari et al. (2021), section 4.

    Args:
        x: Draws [chain, draw], in any units.

    Returns:
        The number of draws, without a unit; NaN for fewer than four draws per chain.

    Raises:
        DataError: If the draws have another shape.

    Examples:
        Of a chain with correlation r between neighbours, n draws count for n (1 - r) / (1 + r).

        >>> import numpy as np
        >>> from ppgp import diagnostics
        >>> noise = np.random.default_rng(0).normal(size=(4, 4000))
        >>> x = noise.copy()
        >>> for t in range(1, 4000):
        ...     x[:, t] = 0.5 * x[:, t - 1] + noise[:, t]
        >>> wanted = 4 * 4000 * (1 - 0.5) / (1 + 0.5)
        >>> bool(abs(diagnostics.ess(x) / wanted - 1) < 0.15)
        True
    """
    return float(effective_sizes(_of_chains(x), "bulk"))


def rhat(x: Any) -> float:
    """Return the rank-normalised split R-hat of the draws of one scalar.

    It compares the spread of all draws with the spread within half chains, and is near 1 where the
    chains agree; at most 1.01 is wanted. Vehtari et al. (2021), section 4.

    Args:
        x: Draws [chain, draw], in any units.

    Returns:
        R-hat, without a unit; NaN for fewer than four draws per chain and for constant draws.

    Raises:
        NotApplicable: If there is a single chain.
        DataError: If the draws have another shape.

    Examples:
        >>> import numpy as np
        >>> from ppgp import diagnostics
        >>> x = np.random.default_rng(0).normal(size=(4, 500))
        >>> round(diagnostics.rhat(x), 1)
        1.0
        >>> x[0] += 3.0  # one chain in another place
        >>> bool(diagnostics.rhat(x) > 1.1)
        True
    """
    x = _of_chains(x)
    if len(x) < 2:
        do = "run more, for example NUTS(chains=4)"
        raise NotApplicable("at least two chains for R-hat", "one", do)
    return float(r_hats(x))


def mcse(x: Any, quantity: str, independent: bool = False) -> float:
    """Return the Monte Carlo standard error of the mean or the sd of one scalar.

    The error of the mean is sd / sqrt(n), with n the effective sample size; Vehtari et al. (2021),
    section 4. The error of the sd accounts for the kurtosis of the draws.

    Args:
        x: Draws [chain, draw].
        quantity: "mean" or "sd".
        independent: Whether the draws are independent; if not, the effective sample size is used.

    Returns:
        The error, in the units of the draws.

    Raises:
        UnknownName: If ``quantity`` is neither.
        DataError: If the draws have another shape.

    Examples:
        >>> import numpy as np
        >>> from ppgp import diagnostics
        >>> x = np.tile([[-1.0, 1.0]], 50)  # 100 draws with sd 1.005
        >>> round(diagnostics.mcse(x, "mean", independent=True), 4)
        0.1005
        >>> diagnostics.mcse(x, "variance")
        Traceback (most recent call last):
        ppgp.errors.UnknownName: expected the name of a quantity of mcse, got 'variance': ...
    """
    x = _of_chains(x)
    if quantity not in QUANTITIES:
        raise UnknownName("quantity of mcse", quantity, QUANTITIES)
    n = x.size if independent else float(effective_sizes(x, quantity))
    if x.size < 2:
        return 0.0
    sd = float(x.std(ddof=1))
    if quantity == "mean" or sd == 0:
        return sd / math.sqrt(n)
    return sd * math.sqrt(max(kurtosis(x) - 1, 0.0) / (4 * n))


def _of_chains(x: Any) -> np.ndarray:
    """Return the draws [chain, draw] of one scalar as an array in float64.

    Raises:
        DataError: If they have another shape.
    """
    draws = numbers(x, "draws")
    if draws.ndim != 2 or not draws.size:
        do = "pass those of one scalar, as ppgp.diagnostics.scalars gives them"
        raise DataError("draws with shape [chain, draw]", f"shape {list(draws.shape)}", do)
    return draws


def kurtosis(x: np.ndarray) -> float:
    """Return the kurtosis, which is 3 for a normal distribution."""
    return float(((x - x.mean()) ** 4).mean()) / float(x.var(ddof=1)) ** 2


def scalars(
    draws: Mapping[str, Any], fit: Posterior | None = None
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the name of every scalar (``weight[bmi]``) and its draws [chain, draw] in float64.

    The entries of an axis that a table names (features, classes, components, terms) have its
    coordinates, as in ``to_arviz``; those of other axes are numbered from 0.

    Args:
        draws: ``{site: [chain, draw, *event]}`` in any units, such as ``posterior.draws``.
        fit: The posterior that they belong to; None: all entries are numbered.

    Yields:
        The name and the draws of each scalar, in the units of its site.

    Raises:
        DataError: If a site has no axes of chains and draws.

    Examples:
        >>> import ppgp
        >>> from ppgp import diagnostics, inference, models
        >>> data = ppgp.Dataset(
        ...     [[1.0, 2.0], [2.0, 1.0], [3.0, 5.0]], [1.0, 2.0, 3.0], feature_names=["age", "bmi"]
        ... )
        >>> model, how = models.LinearRegression(), inference.MAP()
        >>> posterior = ppgp.fit(model, data, how, progress=False)
        >>> for name, x in diagnostics.scalars(posterior.draws, posterior):
        ...     print(name, x.shape)
        weight[age] (1, 1)
        weight[bmi] (1, 1)
        bias (1, 1)
        noise (1, 1)
        >>> [name for name, _ in diagnostics.scalars({"weight": posterior.draws["weight"]})]
        ['weight[0]', 'weight[1]']
    """
    for site, value in draws.items():
        if np.ndim(value) < 2:
            got = f"shape {list(np.shape(value))} of {site}"
            raise DataError("draws with shape [chain, draw, ...]", got, "pass posterior.draws")
    model, data = (None, None) if fit is None else (fit.model, fit.data)
    yield from named_scalars(draws, scalar_names(draws, model, data))


def ess_of_each(x: np.ndarray, quantity: str) -> np.ndarray:
    """Return the effective sample sizes [scalar] of draws [chain, draw, scalar].

    Args:
        x: Draws [chain, draw, scalar].
        quantity: "mean" or "sd"; "shares" (of draws) gives the smallest of those for the bulk, the
            median and the tails.
    """
    methods: tuple[str, ...] = (quantity,)
    if quantity == "shares":
        methods = ("bulk", "median", "tail")
    return np.min([effective_sizes(x, method) for method in methods], axis=0)


#: An R-hat beyond which chains may sit in different modes, and the part of the draws of a chain
#: that does not overlap with that of another.
APART = 1.5
MIDDLE = torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64)


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
        modes: A sentence on chains that sit in different modes; "" if there is no sign of it.
    """

    chains: int
    draws: int
    names: list[str]
    statistics: dict[str, np.ndarray] | None
    stuck: bool
    modes: str = ""

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
        r_hat, where = self.r_hat if self.chains > 1 else (math.nan, "")
        if r_hat > RHAT_LIMIT and self.modes:
            warnings.append(self.modes)
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
    sites = posterior.draws
    if getattr(posterior.model, "structural", ()):
        sites = quantities(sites, posterior.model)
    known = scalar_names(sites, posterior.model, posterior.data)
    moves: dict[str, bool] = {}
    for site, value in sites.items():
        moving = np.ptp(value.double().cpu().numpy(), axis=(0, 1)) > 0
        moves |= zip(known[site], np.ravel(moving).tolist(), strict=True)
    names = [name for name, moving in moves.items() if moving]
    statistics = None
    if draws >= FEWEST:
        of_all: Any = {}
        if table is not None:
            of_all = table
        elif sites:
            of_all = chain_statistics(sites, chains, posterior.circular, errors=False)
        found = [kind for kind in ("ess_bulk", "ess_tail", "r_hat") if kind in of_all]
        statistics = {kind: np.asarray(of_all[kind])[list(moves.values())] for kind in found}
    mix = Mixing(chains, draws, names, statistics, stuck=not names and draws > 1)
    r_hat, where = mix.r_hat
    if not r_hat > APART:
        return mix
    one = {
        name: value.reshape(chains, draws, -1)[..., j]
        for site, value in sites.items()
        for j, name in enumerate(known[site])
    }
    return replace(mix, modes=_different_modes(one[where], where, posterior.stats.get("lp")))


def _different_modes(values: Tensor, name: str, lp: Any) -> str:
    """Return a sentence on chains whose draws of a scalar do not overlap; "" if all do.

    Args:
        values: The draws of the scalar on which the chains agree least, [chain, draw].
        name: Its name.
        lp: The log densities of the draws, [chain, draw], or something else.
    """
    low, middle, high = values.double().quantile(MIDDLE.to(values.device), dim=1).cpu()
    groups: list[list[int]] = []
    reached = -math.inf
    for chain in low.argsort().tolist():
        if not groups or float(low[chain]) > reached:
            groups.append([])
        groups[-1].append(chain)
        reached = max(reached, float(high[chain]))
    if len(groups) < 2:
        return ""
    places = ", ".join(f"{float(middle[group].median()):.3g} ({len(group)})" for group in groups)
    sentence = f"the chains sit in {len(groups)} modes: {name} is near {places} in so many of them"
    if isinstance(lp, Tensor) and lp.shape == values.shape:
        heights = [float(lp[group].double().mean()) for group in groups]
        below = f"{max(heights) - min(heights):.3g}"
        best = float(middle[groups[heights.index(max(heights))]].median())
        sentence += (
            f", and the log density is highest near {best:.3g}, {below} nats above the lowest"
        )
    return f"{sentence}: start the chains from one by init=, or give a prior that tells them apart"


def convergence_warnings(posterior: Posterior) -> list[str]:
    """Return one sentence per failed convergence check; [] for a method without chains.

    The checks are those of ``fit``: R-hat at most 1.01 and a bulk effective sample size of at least
    100 per chain for every scalar (Vehtari et al. 2021), two chains or more, and draws that differ.
    R-hat and the sample sizes are computed from draws [chain, draw] and have no units.

    Args:
        posterior: The fit.

    Returns:
        The sentences, in words; [] if no check fails.

    Raises:
        NotApplicable: If ``posterior`` is no Posterior.

    Examples:
        >>> import warnings
        >>> import ppgp
        >>> from ppgp import diagnostics, inference, models
        >>> data = ppgp.Dataset([[1.0], [2.0], [3.0], [4.0]], [1.0, 2.0, 2.0, 4.0])
        >>> how = inference.NUTS(draws=20, warmup=20, chains=1)
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")  # fit warns of the same
        ...     posterior = ppgp.fit(models.LinearRegression(), data, how, progress=False)
        >>> for sentence in diagnostics.convergence_warnings(posterior):
        ...     print(sentence)
        one chain cannot show that it has converged, as R-hat compares chains: ...
        the effective sample size of ... (wanted 100, 100 per chain): raise draws
    """
    if not isinstance(posterior, Posterior):
        do = "pass what ppgp.fit returns for one output"
        raise NotApplicable("a posterior", an(type(posterior).__name__), do)
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
