"""Statistics of the draws of one scalar, importance weights, and distances between samples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import boxcox, logsumexp, softmax
from scipy.stats import wasserstein_distance

from ..data.entries.arrays import as_tensor
from ..errors import DataError, NotApplicable, UnknownName
from .arviz import arviz

__all__ = ["ess", "k_hat_limit", "mcse", "psis", "rhat", "wasserstein"]

QUANTITIES = ("mean", "sd")  # that ``mcse`` gives the error of
FEWEST_IN_TAIL = 5  # draws, to fit a generalised Pareto distribution
PRIOR_SHAPE = 0.5  # of a generalised Pareto distribution, Vehtari et al. (2024)
PRIOR_DRAWS = 10  # that the prior of the shape counts for


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
    return float(arviz().ess(_of_chains(x), method="bulk"))


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
    with np.errstate(invalid="ignore", divide="ignore"):  # constant draws have no variance
        return float(arviz().rhat(x))


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
    n = x.size if independent else float(arviz().ess(x, method=quantity))
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
    draws = _numbers(x, "draws")
    if draws.ndim != 2 or not draws.size:
        do = "pass those of one scalar, as ppgp.diagnostics.scalars gives them"
        raise DataError("draws with shape [chain, draw]", f"shape {list(draws.shape)}", do)
    return draws


def _numbers(values: Any, what: str) -> np.ndarray:
    """Return an array, a list or a tensor as an array in float64."""
    return as_tensor(values, what).double().cpu().numpy()


def kurtosis(x: np.ndarray) -> float:
    """Return the kurtosis, which is 3 for a normal distribution."""
    return float(((x - x.mean()) ** 4).mean()) / float(x.var(ddof=1)) ** 2


def psis(log_ratio: Any) -> tuple[np.ndarray, Any]:
    """Return Pareto-smoothed importance weights and the Pareto shape k-hat.

    The largest weights are replaced by quantiles of a generalised Pareto distribution fitted to
    them. Its shape k-hat says how heavy the tail of the weights is: above ``k_hat_limit`` they are
    unreliable. Vehtari, Simpson, Gelman, Yao & Gabry (2024).

    Args:
        log_ratio: Log importance ratios [..., draw], in nats, up to a constant.

    Returns:
        Normalised log weights [..., draw], whose exponentials sum to 1, and k-hat [...] without a
        unit (a float for one set of ratios; inf for too few draws to fit a tail).

    Raises:
        DataError: If there are no ratios.

    Examples:
        Draws of N(0, s^2) with s = 0.5 for the target N(0, 1) have weights with k = 1 - s^2 = 0.75:

        >>> import numpy as np
        >>> from ppgp import diagnostics
        >>> x = 0.5 * np.random.default_rng(0).normal(size=4000)
        >>> log_weights, k = diagnostics.psis(-(x**2) / 2 + x**2 / (2 * 0.5**2))
        >>> round(float(np.exp(log_weights).sum()), 6)
        1.0
        >>> bool(abs(k - 0.75) < 0.15)
        True
    """
    ratios = _numbers(log_ratio, "log importance ratios")
    if not ratios.size:
        got = f"shape {list(ratios.shape)}"
        raise DataError("log importance ratios [..., draw]", got, "pass at least one")
    rows = ratios.reshape(-1, ratios.shape[-1])
    with np.errstate(invalid="ignore"):  # infinite ratios have weights of NaN
        found = [_smoothed(row) for row in rows]
    log_weights = np.stack([each for each, _ in found]).reshape(ratios.shape)
    shapes = np.array([k for _, k in found]).reshape(ratios.shape[:-1])
    return log_weights, float(shapes) if shapes.ndim == 0 else shapes


def _smoothed(log_ratio: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the smoothed and normalised log weights [draw] of one set of ratios, and k-hat.

    The tail has min(S / 5, 3 sqrt(S)) of S draws, rounded up as in ArviZ 0.x and the R package loo.
    ArviZ 1.x rounds down, and returns NaN where many draws are equal, as after rejections.
    """
    x = log_ratio - log_ratio.max()
    tail = math.ceil(min(x.size / 5, 3 * math.sqrt(x.size)))
    k = math.inf
    if tail >= FEWEST_IN_TAIL:
        cutoff = max(np.partition(x, -tail - 1)[-tail - 1], math.log(np.finfo(float).tiny))
        above = np.flatnonzero(x > cutoff)
        if above.size >= FEWEST_IN_TAIL:
            above = above[np.argsort(x[above])]
            k, scale = _pareto_fit(np.exp(x[above]) - math.exp(cutoff))
            p = (np.arange(above.size) + 0.5) / above.size
            quantiles = scale * boxcox(1 / (1 - p), k)  # (1 - p)^-k / k - 1 / k, also for k = 0
            x[above] = np.minimum(np.log(quantiles + math.exp(cutoff)), 0.0)
    return x - logsumexp(x), k


def _pareto_fit(x: np.ndarray) -> tuple[float, float]:
    """Return the shape and the scale of a generalised Pareto distribution of values above 0.

    Zhang & Stephens (2009), with the prior of the shape of Vehtari et al. (2024), appendix C.

    Args:
        x: The values [n], in ascending order.
    """
    n = x.size
    points = 30 + int(math.sqrt(n))
    quartile = x[int(n / 4 + 0.5) - 1]
    b = (1 - np.sqrt(points / (np.arange(points) + 0.5))) / (3 * quartile) + 1 / x[-1]
    shapes = np.log1p(-b[:, None] * x).mean(1)
    weights = softmax(n * (np.log(-b / shapes) - shapes - 1))
    weights[weights < 10 * np.finfo(float).eps] = 0.0  # of the largest b, by far
    mean = float(b @ weights / weights.sum())
    shape = float(np.log1p(-mean * x).mean())
    return (n * shape + PRIOR_DRAWS * PRIOR_SHAPE) / (n + PRIOR_DRAWS), -shape / mean


def k_hat_limit(draws: int) -> float:
    """Return the k-hat above which weights are unreliable: min(1 - 1 / log10 S, 0.7).

    S is the number of draws; fewer than 11 count as 11. Vehtari, Simpson, Gelman, Yao & Gabry
    (2024).

    Args:
        draws: The number of draws.

    Returns:
        The limit of the Pareto shape that ``psis`` returns, without a unit.

    Examples:
        >>> from ppgp import diagnostics
        >>> diagnostics.k_hat_limit(100)
        0.5
        >>> diagnostics.k_hat_limit(4000)
        0.7
    """
    return min(1 - 1 / math.log10(max(draws, 11)), 0.7)


def wasserstein(a: Any, b: Any) -> float:
    """Return the Wasserstein-1 distance between two samples of one scalar.

    It is the area between their empirical distribution functions (Vallender 1974). The samples may
    differ in size.

    Args:
        a: A sample [...], of any shape; its entries count alike.
        b: The other sample [...].

    Returns:
        The distance, in the units of the samples; NaN if one holds NaN.

    Raises:
        DataError: If a sample is empty.

    Examples:
        >>> from ppgp import diagnostics
        >>> diagnostics.wasserstein([0.0, 1.0, 2.0], [5.0, 6.0, 7.0])
        5.0
        >>> diagnostics.wasserstein([0.0, 4.0], [2.0])
        2.0
    """
    both = [_numbers(sample, "a sample").ravel() for sample in (a, b)]
    if not all(sample.size for sample in both):
        raise DataError("two samples", "an empty one", "pass at least one number in each")
    return float(wasserstein_distance(*both))
