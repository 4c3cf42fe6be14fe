"""How well a posterior predicts rows that it has not seen, without refitting: Pareto-smoothed importance sampling."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np
import torch
from scipy import optimize
from scipy.special import logsumexp
from torch import Tensor

from ..errors import ConvergenceWarning, DataError, NotApplicable, UnknownName
from ..posterior.convergence import k_hat_limit, psis
from ..posterior.posterior import Posterior

__all__ = ["LOO", "psis_loo", "stacking_weights"]

ROUNDS = 200
SHORT = 1e-6  # nats a row


@dataclass(frozen=True, eq=False)
class LOO:
    """Leave-one-out predictive densities.

    Attributes:
        pointwise: log p(y_i given the other rows), [n], in the units of the data.
        k: Pareto shape of each row's weights, [n]; above ``limit`` its figure is not reliable.
    """

    pointwise: np.ndarray
    k: np.ndarray
    limit: float

    @property
    def elpd(self) -> float:
        """Their sum: the expected log predictive density of n new rows."""
        return float(self.pointwise.sum())

    @property
    def se(self) -> float:
        """Standard error of ``elpd``, over rows."""
        return (
            float(np.sqrt(len(self.pointwise) * self.pointwise.var(ddof=1)))
            if len(self.pointwise) > 1
            else float("nan")
        )

    def __repr__(self) -> str:
        bad = int((self.k > self.limit).sum())
        return f"<LOO: elpd {self.elpd:.1f} +- {self.se:.1f}, k above {self.limit:.2f} in {bad} of {len(self.k)} rows>"


def psis_loo(posterior: Posterior, site: str | None = None) -> LOO:
    """PSIS-LOO (Vehtari, Gelman & Gabry 2017), with the correction for approximate posteriors.

    Draws of Laplace or a Gaussian guide are weighed by p(theta, y) / q(theta) too, so that the answer is that of the posterior
    and not of its approximation (Magnusson, Andersen, Jonasson & Vehtari 2019, equation 8), where k allows.

    Args:
        site: the observed site, where a program has several.

    Raises:
        NotApplicable: for a point, for several observed sites, or where the density of the draws is not known.
        UnknownName: if no observed site has that name.
    """
    each = posterior.pointwise()
    if not each:
        raise NotApplicable(
            "an observed site to leave rows of out",
            "none",
            "write pyro.sample(..., obs=y) in the program",
        )
    if site is not None and site not in each:
        raise UnknownName("observed site", site, each)
    if len(each) > 1 and site is None:
        raise NotApplicable(
            "the name of one observed site", ", ".join(each), f"pass site={next(iter(each))!r}"
        )
    log_likelihood = each[site or next(iter(each))].flatten(0, 1).double().cpu().numpy()
    if posterior.certain:  # the hyperparameters are numbers, whichever row is left out
        return LOO(log_likelihood[0], np.zeros_like(log_likelihood[0]), math.inf)
    if len(log_likelihood) < 2:
        raise NotApplicable(
            "draws with a spread for PSIS-LOO",
            "one point",
            "fit by Laplace, SVI or NUTS with draws of every site",
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


def stacking_weights(log_densities: Tensor) -> Tensor:
    """The weights [K] of K models under which the mixture of them predicts best: the largest sum_i log sum_k w_k p_k(y_i given the
    other rows). Yao, Vehtari, Simpson & Gelman (2018), equation 4; by SciPy's SLSQP.

    The sum is concave, so that its gradient bounds what is missing to the best: ConvergenceWarning where that may be more than
    1e-6 nats a row.

    Args:
        log_densities: log p_k(y_i given the other rows), [K, n].

    Raises:
        DataError: where a density is NaN or infinite, or a row is impossible under all models.
    """
    table = log_densities.detach().double().cpu().numpy()
    best = table.max(0)
    if np.isnan(table).any() or not np.isfinite(best).all():
        row = int(np.flatnonzero(np.isnan(table).any(0) | ~np.isfinite(best))[0])
        raise DataError(
            "log densities that are numbers, finite under one model at least",
            f"others in row {row}",
            "drop it",
        )
    densities = np.exp(table - best)
    K = len(densities)

    def mixture(w: np.ndarray) -> np.ndarray:
        return np.maximum(w @ densities, np.finfo(float).tiny)

    found = optimize.minimize(
        lambda w: -np.log(mixture(w)).mean(),
        np.full(K, 1 / K),
        jac=lambda w: -(densities / mixture(w)).mean(1),
        method="SLSQP",
        bounds=[(0.0, 1.0)] * K,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda w: np.ones(K)},
        options={"ftol": 1e-16, "maxiter": ROUNDS},
    )
    weights = np.clip(found.x, 0.0, None)
    weights /= weights.sum()
    short = float((densities / mixture(weights)).mean(1).max()) - 1
    if not short <= SHORT:
        sentence = (
            f"the stacking weights may lie {short:.2g} nats a row below the best: {found.message}"
        )
        warnings.warn(sentence, ConvergenceWarning, stacklevel=2)
    return torch.as_tensor(weights).to(log_densities)
