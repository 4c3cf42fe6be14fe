"""Leave-one-out predictions without refits, by Pareto-smoothed importance sampling."""

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

ROUNDS = 200  # of SLSQP
SHORT = 1e-6  # nats per row


@dataclass(frozen=True, eq=False)
class LOO:
    """Leave-one-out predictive densities.

    Attributes:
        pointwise: [n], log p(y_i given the other rows), in the units of the data.
        k: [n], the Pareto shape of each row's weights.
        limit: the shape above which the density of a row is not reliable.
    """

    pointwise: np.ndarray
    k: np.ndarray
    limit: float

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
        bad = int((self.k > self.limit).sum())
        rows = f"k above {self.limit:.2f} in {bad} of {len(self.k)} rows"
        return f"<LOO: elpd {self.elpd:.1f} +- {self.se:.1f}, {rows}>"


def psis_loo(posterior: Posterior, site: str | None = None) -> LOO:
    """Estimate leave-one-out predictive densities by PSIS-LOO.

    Vehtari, Gelman & Gabry (2017). Draws of Laplace or a Gaussian guide are also weighted by
    p(theta, y) / q(theta), so that the result is that of the posterior and not of its approximation
    (Magnusson, Andersen, Jonasson & Vehtari 2019, equation 8), where k is below its limit.

    Args:
        posterior: the fit.
        site: the observed site, where a program has several.

    Returns:
        The LOO of the n training rows.

    Raises:
        NotApplicable: for a point, for several observed sites and no ``site``, or where the density
            of the draws is not known.
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
        do = f"pass site={next(iter(each))!r}"
        raise NotApplicable("the name of one observed site", ", ".join(each), do)
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
    """Compute the weights of the mixture of K models that predicts best.

    They maximise sum_i log sum_k w_k p_k(y_i given the other rows). Yao, Vehtari, Simpson & Gelman
    (2018), equation 4; by SciPy's SLSQP. The sum is concave, so that its gradient bounds the
    distance to the maximum: there is a ConvergenceWarning where it may exceed 1e-6 nats per row.

    Args:
        log_densities: [K, n], log p_k(y_i given the other rows).

    Returns:
        The weights [K], which sum to 1.

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

    result = optimize.minimize(
        lambda w: -np.log(mixture(w)).mean(),
        np.full(K, 1 / K),
        jac=lambda w: -(densities / mixture(w)).mean(1),
        method="SLSQP",
        bounds=[(0.0, 1.0)] * K,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda w: np.ones(K)},
        options={"ftol": 1e-16, "maxiter": ROUNDS},
    )
    weights = np.clip(result.x, 0.0, None)
    weights /= weights.sum()
    short = float((densities / mixture(weights)).mean(1).max()) - 1
    if not short <= SHORT:
        sentence = (
            f"the stacking weights may lie {short:.2g} nats per row below the best: "
            f"{result.message}"
        )
        warnings.warn(sentence, ConvergenceWarning, stacklevel=2)
    return torch.as_tensor(weights).to(log_densities)
