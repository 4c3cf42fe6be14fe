"""Leave-one-out predictions without refits: in closed form, and by importance sampling."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import logsumexp
from torch import Tensor

from ..capabilities import LeaveOneOut, supports
from ..data.roles import refuse_weights
from ..density.layout import OBSERVED
from ..display.user_warnings import warn
from ..errors import DataWarning, NotApplicable, SettingError, UnknownName
from ..models.program import Program
from ..posterior.axes import steps_of_loops
from ..posterior.posterior import Posterior, is_boosted, simulator_of
from ..posterior.sample_statistics import k_hat_limit, psis

__all__ = ["LOO", "leave_one_out", "psis_loo"]

CLOSED_FORM = "closed form"
PSIS = "PSIS"


@dataclass(frozen=True, eq=False)
class LOO:
    """Leave-one-out predictive densities.

    Attributes:
        pointwise: [n], log p(y_i given the other rows), in the units of the data.
        k: [n], the Pareto shape of each row's weights.
        limit: The shape above which the density of a row is not reliable.
        method: "closed form" or "PSIS".
    """

    pointwise: np.ndarray
    k: np.ndarray
    limit: float
    method: str = PSIS

    @property
    def elpd(self) -> float:
        """The expected log predictive density of n new rows: the sum of ``pointwise``."""
        return float(self.pointwise.sum())

    @property
    def se(self) -> float:
        """Standard error of ``elpd``, over rows."""
        n = len(self.pointwise)
        if n < 2:
            return math.nan
        return float(np.sqrt(n * self.pointwise.var(ddof=1)))

    def __repr__(self) -> str:
        if self.method == CLOSED_FORM:
            return f"<LOO: elpd {self.elpd:.1f} +- {self.se:.1f}, in closed form>"
        bad = int((self.k > self.limit).sum())
        rows = f"k above {self.limit:.2f} in {bad} of {len(self.k)} rows"
        return f"<LOO: elpd {self.elpd:.1f} +- {self.se:.1f}, {rows}>"


def leave_one_out(posterior: Posterior) -> LOO:
    """Estimate leave-one-out predictive densities, in closed form where the model has one.

    A Gaussian process knows p(y_i given the other rows, theta) in closed form. Its draws theta are
    weighted by PSIS, which corrects them for row i. Where this is not possible (a single point,
    draws whose density is not known, or after ``update``), the hyperparameters are those of the
    fit, as in ``posterior.loo()``: with few rows and many hyperparameters the result is then too
    high. Other models have PSIS-LOO alone.

    Args:
        posterior: The fit.

    Returns:
        The LOO of the n training rows.

    Raises:
        NotApplicable: As ``psis_loo``, for a model without a closed form.
    """
    try:
        return psis_loo(posterior)
    except NotApplicable:
        if is_boosted(posterior) or not supports(posterior.model, LeaveOneOut):
            raise
    refuse_weights(posterior.data, "leave-one-out")
    (each,) = posterior.pointwise().values()
    by_draw = each.flatten(0, 1).double().cpu().numpy()
    pointwise = np.asarray(logsumexp(by_draw, axis=0)) - math.log(len(by_draw))
    return LOO(pointwise, np.zeros_like(pointwise), math.inf, CLOSED_FORM)


def psis_loo(posterior: Posterior, site: Any = None, *, sites: Sequence[str] | None = None) -> LOO:
    """Estimate leave-one-out predictive densities by PSIS-LOO.

    Vehtari, Gelman & Gabry (2017). Draws of Laplace or a Gaussian guide are also weighted by
    p(theta, y) / q(theta), so that the result is that of the posterior and not of its approximation
    (Magnusson, Andersen, Jonasson & Vehtari 2019, equation 8), where k is below its limit.
    ``pyro.factor`` counts as a part of the prior; a warning says so, as it may hold data.

    Args:
        posterior: The fit.
        site: The name of the observed site, where a program has several. The steps of a loop, such
            as "y_0" to "y_9", are one site "y", whose rows are those of all steps, one step after
            another. With ``obs_mask`` they are those of the steps that are observed. Other sites
            keep their data: of a mixture in which some labels are observed by ``obs_mask``, y of a
            row is left out, and its label is not.
        sites: Observed sites that share their rows, in place of one: all that is observed of a row
            is left out with it, and its density is the joint one.

    Returns:
        The LOO of the n training rows: log densities [n] in nats, of y in the units of the data.

    Raises:
        NotApplicable: For a point, for several observed sites and no ``site``, for one joint
            distribution that is all that is observed, for ``sites`` of different numbers of rows,
            where the density of the draws is not known, or where they are draws given fewer rows,
            as after ``update``.
        UnknownName: If no observed site has that name.
        SettingError: For both ``site`` and ``sites``, no name in ``sites``, or a list as ``site``.

    Examples:
        >>> import torch
        >>> import ppgp
        >>> from ppgp import inference, models
        >>> x = torch.linspace(0, 1, 30, dtype=torch.float64)
        >>> data = ppgp.Dataset(x[:, None], 3 + 2 * x + 0.1 * torch.cos(20 * x))
        >>> posterior = ppgp.fit(models.LinearRegression(), data, inference.Exact(), progress=False)
        >>> loo = ppgp.psis_loo(posterior)
        >>> loo.pointwise.shape, bool((loo.k < loo.limit).all())
        ((30,), True)

        Each row is less probable given the other rows than given all rows:

        >>> given_all = posterior.predict(data).log_prob(data.y)
        >>> round(loo.elpd), round(given_all.sum().item())
        (34, 36)
    """
    refuse_weights(posterior.data, "PSIS-LOO")
    each = posterior.pointwise()
    if not each:
        raise NotApplicable(
            "an observed site to leave rows of out",
            "none",
            "write pyro.sample(..., obs=y) in the program",
        )
    by_draw = _of_rows(each, site, sites).flatten(0, 1)
    if isinstance(posterior.model, Program):
        if sites is not None:
            _check_masks(posterior, posterior.model, sites)
        _say_factors(posterior, posterior.model)
    log_likelihood = by_draw.double().cpu().numpy()
    unnamed = site is None and sites is None
    if unnamed and by_draw.shape[-1] == 1 and isinstance(posterior.model, Program):
        raise NotApplicable(
            "several rows, of which one is left out at a time",
            "one, such as one joint distribution of all numbers",
            "compare forecasts, or fit again without some of the data",
        )
    if posterior.certain:  # the hyperparameters are numbers, whichever row is left out
        return LOO(log_likelihood[0], np.zeros_like(log_likelihood[0]), math.inf, CLOSED_FORM)
    if len(log_likelihood) < 2:
        raise NotApplicable(
            "draws with a spread for PSIS-LOO",
            "one point",
            "fit by Laplace, SVI or NUTS with draws of every site",
        )
    if "updated" in posterior.stats:
        raise NotApplicable(
            "draws given all rows for PSIS-LOO",
            f"those given the first {posterior.stats['updated']}, as the posterior was updated",
            "fit to all rows",
        )
    correction = np.zeros(len(log_likelihood))
    lp, log_q = (posterior.stats.get(name) for name in ("lp", "log_q"))
    if isinstance(lp, Tensor) and isinstance(log_q, Tensor):
        correction = (lp - log_q).flatten().double().cpu().numpy()
    elif not posterior.mcmc and type(posterior.how).__name__ != "Exact":
        name = type(posterior.how).__name__
        raise NotApplicable(
            "draws of the posterior, or of a known density",
            f"those of {name}",
            "fit by Laplace, Gaussian SVI or NUTS",
        )
    log_weights, k = psis((correction[:, None] - log_likelihood).T)
    pointwise = np.asarray(logsumexp(log_weights + log_likelihood.T, axis=1))
    return LOO(pointwise, k, k_hat_limit(len(log_likelihood)))


def _of_rows(each: dict[str, Tensor], site: Any, sites: Sequence[str] | None) -> Tensor:
    """Return the log density of each row to leave out, [chain, draw, n].

    Args:
        each: ``{observed site: [chain, draw, n]}``.
        site: As in ``psis_loo``.
        sites: As in ``psis_loo``.
    """
    steps = _steps(each)
    loops = {name: torch.cat([each[step] for step in own], -1) for name, own in steps.items()}
    every = {**loops, **each}
    of_loops = {step for own in steps.values() for step in own}
    alone = [name for name in every if name not in of_loops]  # a loop is one of them
    if sites is not None:
        if site is not None or isinstance(sites, str) or not sites:
            got = repr(sites) if site is None else f"site={site!r} and sites={sites!r}"
            do = "write site='y', or sites=['y1', 'y2'] for sites that share their rows"
            raise SettingError("one site, or a list of sites", got, do)
        if len(set(sites)) < len(sites):
            raise SettingError("each site once", repr(list(sites)), "leave the second out")
        parts = [_named(every, name) for name in sites]
        rows = [part.shape[-1] for part in parts]
        if len(set(rows)) > 1:
            got = ", ".join(f"{n} of {name!r}" for name, n in zip(sites, rows, strict=True))
            raise NotApplicable("sites that share their rows", got, "pass one at a time as site=")
        return torch.stack(parts).sum(0)
    if site is not None:
        if not isinstance(site, str):
            raise SettingError("the name of one site as site=", repr(site), _as_sites(site))
        return _named(every, site)
    # steps with several rows each may share these
    clear = len(each) == 1 or all(value.shape[-1] == 1 for value in each.values())
    if len(alone) > 1 or not clear:
        names = list(each)
        do = f"pass site={alone[-1]!r}, or another one"
        together = _of_as_many_rows(each)
        if len(together) == len(names):
            do = f"pass site={alone[0]!r}, or sites={names!r} if they share their rows"
        elif together and each[together[0]].shape[-1] > 1:
            do = f"{do}, or sites={together!r} if they share their rows"
        raise NotApplicable("the name of one observed site", ", ".join(names), do)
    return every[alone[0]]


def _as_sites(given: Any) -> str:
    """Return what to write in place of what was given as the name of one site."""
    names = list(given) if isinstance(given, list | tuple | set | frozenset) else []
    if len(names) == 1:
        return f"write site={names[0]!r}"
    if names:
        return f"write sites={names!r}, for sites that share their rows"
    return "write site='y', or sites=['y1', 'y2'] for sites that share their rows"


def _of_as_many_rows(each: dict[str, Tensor]) -> list[str]:
    """Return the sites with the number of rows that most of them have; [] if it is of one."""
    rows = [value.shape[-1] for value in each.values()]
    most = max(rows, key=lambda n: (rows.count(n), n))
    together = [name for name, n in zip(each, rows, strict=True) if n == most]
    return together if len(together) > 1 else []


def _steps(names: Iterable[str]) -> dict[str, list[str]]:
    """Return {loop: its steps} of observed sites, where ``obs_mask`` may have made several."""
    full = list(names)
    short = {name.removesuffix(OBSERVED): name for name in full}
    if len(short) < len(full):  # one of two is named like what obs_mask makes
        return steps_of_loops(full)
    return {loop: [short[step] for step in own] for loop, own in steps_of_loops(short).items()}


def _check_masks(posterior: Posterior, program: Program, sites: Sequence[str]) -> None:
    """Refuse sites of which masks leave out different rows.

    Raises:
        NotApplicable: Their densities would be added up in other places than the rows'.
    """
    theta = simulator_of(posterior).with_params(posterior.theta)
    seen = program.seen({name: value[0] for name, value in theta.items()}, posterior.data)
    loops = {name: torch.cat([seen[step] for step in own]) for name, own in _steps(seen).items()}
    marks = [(loops | seen)[name] for name in sites if name in loops or name in seen]
    if any(not torch.equal(mark, marks[0]) for mark in marks):
        raise NotApplicable(
            "sites that share their rows",
            "masks that leave out different rows of them",
            "pass one at a time as site=, or leave the same rows out of all",
        )


def _say_factors(posterior: Posterior, program: Program) -> None:
    """Warn where a program has ``pyro.factor``, whose density is of no row."""
    theta = simulator_of(posterior).with_params(posterior.theta)
    factors = program.factors({name: value[0] for name, value in theta.items()}, posterior.data)
    if factors:
        said = (
            f"PSIS-LOO leaves out pyro.factor ({', '.join(factors)}), which may hold data; write "
            "data as pyro.sample(..., obs=), with a distribution of your own where they are "
            "censored or truncated"
        )
        warn(said, DataWarning)


def _named(every: dict[str, Tensor], name: str) -> Tensor:
    if name not in every:
        raise UnknownName("observed site", name, every)
    return every[name]
