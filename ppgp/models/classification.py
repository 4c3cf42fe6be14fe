"""Checks of class models: labels, collinear columns under flat priors, and separated rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from ..data.dataset import Dataset
from ..errors import DataError, counted
from ..likelihoods import (
    Bernoulli,
    Binomial,
    Categorical,
    Likelihood,
    NegativeBinomial,
    Ordinal,
    Poisson,
)
from ..priors import Flat, Prior, PriorLike, bare

SEPARATION_UP_TO = 4_000_000  # entries of the linear programme; larger ones are not solved
CONSTANT = 1e-14  # the norm of a column around its mean, relative to its own, that is rounding
DEPENDENT = 1e-12  # of the largest eigenvalue: smaller ones are rounding
NEARLY_FLAT = 100.0  # prior sd of a contribution to the log-odds above which a prior is nearly flat


def check_two_classes(data: Dataset) -> None:
    """Refuse targets that are all of one class.

    Raises:
        DataError: Naming the class.
    """
    values = torch.unique(data.y)
    if len(values) >= 2:
        return
    code = int(values[0])
    label: str | int = code
    if data.classes is not None and code < len(data.classes):
        label = data.classes[code]
    raise DataError(
        "rows of at least two classes",
        f"only {label!r}",
        "check the filter or the split that made the table",
    )


def check_coefficients_determined(data: Dataset, weight: PriorLike, bias: PriorLike) -> None:
    """Refuse inputs that do not determine coefficients with flat priors.

    This is the case for more coefficients than rows, and for collinear columns.

    Raises:
        DataError: Naming the columns.
    """
    weight, bias = bare(weight), bare(bias)
    if not isinstance(weight, Flat):
        return
    X = data.X
    if isinstance(bias, Flat):
        X = X - X.mean(0)
    flat_coefficients = data.d + isinstance(bias, Flat)
    advice = "drop columns, or give the weights a prior such as Normal(0, 1)"
    if flat_coefficients > data.n:
        raise DataError(
            "at most as many flat coefficients as rows",
            f"{counted(flat_coefficients, 'coefficient')} and {counted(data.n, 'row')}",
            advice,
        )
    size = X.norm(dim=0)
    constant = size <= CONSTANT * data.X.norm(dim=0)
    scaled = X / torch.where(constant, torch.ones_like(size), size)
    eigenvalues, vectors = torch.linalg.eigh(scaled.mT @ scaled)
    if not bool(constant.any()) and float(eigenvalues[0]) > 1e-12 * float(eigenvalues[-1]):
        return
    if bool(constant.any()):
        dependent = constant
    else:
        dependent = vectors[:, 0].abs() > 0.1 * vectors[:, 0].abs().max()
    names = data.feature_names or tuple(map(str, range(data.d)))
    columns = [names[j] for j in torch.nonzero(dependent).flatten().tolist()]
    raise DataError(
        "columns that are not combinations of one another (or constant), as the prior is flat",
        ", ".join(columns[:6]),
        advice,
    )


def separation(data: Dataset, classes: int, weight: PriorLike, bias: PriorLike) -> list[str]:
    """Return a warning if the inputs separate the classes and the priors do not prevent it.

    The likelihood then has no maximum along some coefficients with flat or nearly flat priors. A
    linear programme over these coefficients finds complete and quasi-complete separation: Albert &
    Anderson (1984), Konis (2007). A prior counts as nearly flat if its sd allows log-odds above
    ``NEARLY_FLAT``.

    Args:
        data: The training rows.
        classes: Number of classes.
        weight: Prior of the weights.
        bias: Prior of the intercepts.

    Returns:
        One warning, or an empty list.
    """
    n, d = data.n, data.d
    ends = data.X.abs().amax(0).clamp_min(1e-300)
    spread = torch.cat(
        [_prior_sd(weight, classes, d, data.X) * ends, _prior_sd(bias, classes, 1, data.X)], 1
    )
    nearly_flat = (spread > NEARLY_FLAT).flatten()
    p = int(nearly_flat.sum())
    if p == 0 or n * (classes - 1) * p > SEPARATION_UP_TO:
        return []
    how_much = separated_by(_margins(data, classes, ends, nearly_flat).double().cpu().numpy())
    if how_much is None:
        return []
    smallest_sd = float(spread.flatten()[nearly_flat].min())
    consequence = (
        "under flat priors the likelihood has no maximum and some weights grow without end"
    )
    if math.isfinite(smallest_sd):
        consequence = (
            "the likelihood has no maximum, and some weights grow until their priors, which allow "
            f"log-odds of {smallest_sd:.3g}, hold them"
        )
    return [
        f"the inputs separate the classes {how_much}: {consequence}, so they and their spread mean "
        "nothing; give them a prior such as Normal(0, 1)"
    ]


def _margins(data: Dataset, classes: int, ends: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """Return the matrix that maps coefficients to margins: one row per row of data and wrong class.

    A margin is the linear predictor of the true class minus that of the other class, with X scaled
    by ``ends``. The columns are those of the [classes * (d + 1)] coefficients that are ``kept``.
    """
    X = torch.cat([data.X / ends, torch.ones_like(data.X[:, :1])], 1)
    y = data.y.long()
    rows = []
    for c in range(classes):
        margin = torch.zeros(data.n, classes, data.d + 1, dtype=X.dtype, device=X.device)
        margin[torch.arange(data.n), y] += X
        margin[:, c] -= X
        rows.append(margin[y != c].reshape(-1, classes * (data.d + 1))[:, kept])
    return torch.cat(rows)


def _prior_sd(prior: PriorLike, classes: int, d: int, like: torch.Tensor) -> torch.Tensor:
    """Return the prior sd of each coefficient, [classes, d]: infinite if flat, 0 if fixed.

    Class 0 is the reference, with coefficients 0, under flat priors and where there are two
    classes.
    """
    if not isinstance(prior, Prior):
        return torch.zeros(classes, d, dtype=like.dtype, device=like.device)
    if isinstance(prior, Flat):
        sd = torch.full((classes, d), math.inf, dtype=like.dtype, device=like.device)
    else:
        distribution = prior.distribution(like)
        sd = torch.nan_to_num(distribution.variance, nan=math.inf).sqrt()
        # a heavy-tailed prior without a variance is measured by its scale
        scale = getattr(distribution, "scale", sd)
        sd = torch.where(torch.isfinite(sd), sd, scale).expand(classes, d).clone()
    if isinstance(prior, Flat) or classes == 2:
        sd[0] = 0.0
    return sd


def separated_by(A: np.ndarray) -> str | None:
    """Return how margins A b separate the rows: "perfectly" or in part; None: not at all."""
    if not _separable(A, strictly=False):
        return None
    if _separable(A, strictly=True):
        return "perfectly"
    return "in part (quasi-separation)"


def _separable(A: np.ndarray, strictly: bool) -> bool:
    """Return whether some b has A b >= 0 with a positive sum; ``strictly``: A b > 0 everywhere."""
    from scipy.optimize import linprog

    m, p = A.shape
    if strictly:  # the largest t with A b >= t
        gain, A = np.append(np.zeros(p), 1.0), np.hstack([A, -np.ones((m, 1))])
    else:
        gain = A.mean(0)
    solution = linprog(-gain, A_ub=-A, b_ub=np.zeros(m), bounds=(-1, 1), method="highs")
    return bool(solution.status == 0 and -solution.fun > 1e-6)


def separation_under(
    likelihood: Likelihood, data: Dataset, weight: PriorLike, bias: PriorLike
) -> list[str]:
    """Return a warning if the inputs separate the classes and the priors do not prevent it.

    Counts are separated if a linear function of the inputs is 0 wherever they are positive, and
    negative in some of the other rows, but never positive: Correia, Guimaraes & Zylkin (2019).

    Args:
        likelihood: The likelihood.
        data: The training rows.
        weight: Prior of the weights.
        bias: Prior of the intercepts.

    Returns:
        One warning, or an empty list.
    """
    law: Any = likelihood
    if isinstance(law, Bernoulli | Categorical):
        return separation(data, 2 if isinstance(law, Bernoulli) else law.latents, weight, bias)
    if not isinstance(bare(weight), Flat):
        return []
    if isinstance(law, Binomial):
        A = _margins_of_events(data, law, isinstance(bare(bias), Flat))
    elif _is_flat(law, weight):
        A = _margins_of_cutpoints(data, law.sites()["cutpoints"].shape[0])
    elif isinstance(law, Poisson | NegativeBinomial) and not law.predicted:
        return _separated_counts(data, isinstance(bare(bias), Flat))
    else:
        return []
    if A.numel() > SEPARATION_UP_TO:
        return []
    how = separated_by(A.double().cpu().numpy())
    if how is None:
        return []
    return [
        f"the inputs separate the classes {how}: under flat priors the likelihood has no maximum "
        "and some weights grow without end, so they and their spread mean nothing; give them a "
        "prior such as Normal(0, 1)"
    ]


def _separated_counts(data: Dataset, with_bias: bool) -> list[str]:
    A = _margins_of_zeros(data, with_bias)
    if not A.numel() or A.numel() > SEPARATION_UP_TO:
        return []
    if separated_by(A.double().cpu().numpy()) is None:
        return []
    return [
        "a linear function of the inputs is 0 where counts are positive, and below 0 only where "
        "they are 0: under flat priors the likelihood has no maximum and some weights grow without "
        "end, so they and their spread mean nothing; give them a prior such as Normal(0, 1)"
    ]


def check_overlap(likelihood: Likelihood, data: Dataset, weight: PriorLike) -> None:
    """Check that the inputs do not separate ordered classes perfectly under flat priors.

    Raises:
        DataError: If they do, as the likelihood then has no maximum.
    """
    law: Any = likelihood
    if not _is_flat(law, weight):
        return
    A = _margins_of_cutpoints(data, law.sites()["cutpoints"].shape[0])
    if A.numel() <= SEPARATION_UP_TO and separated_by(A.double().cpu().numpy()) == "perfectly":
        raise DataError(
            "ordered classes that overlap, as the priors are flat",
            "classes that the inputs separate perfectly",
            "give the weights a prior such as Normal(0, 1)",
        )


def _is_flat(law: Likelihood, weight: PriorLike) -> bool:
    """Whether both the weights and the cutpoints between ordered classes have flat priors."""
    ordered = isinstance(law, Ordinal) and isinstance(law.cutpoints, Flat)
    return ordered and isinstance(bare(weight), Flat)


def _scaled(data: Dataset) -> torch.Tensor:
    return data.X / data.X.abs().amax(0).clamp_min(1e-300)


def _margins_of_events(data: Dataset, law: Any, with_bias: bool) -> torch.Tensor:
    """Return eta of rows with events, and minus eta of rows with trials that were none."""
    X = _scaled(data)
    if with_bias:
        X = torch.cat([X, torch.ones_like(X[:, :1])], 1)
    trials = law.for_rows(data.trials).value({}, "trials", data.y).expand(data.y.shape)
    return torch.cat([X[data.y > 0], -X[data.y < trials]])


def _margins_of_zeros(data: Dataset, with_bias: bool) -> torch.Tensor:
    """Return minus eta of rows whose count is 0, for weights with eta = 0 in all other rows."""
    X, some = _scaled(data), data.y > 0
    if with_bias:
        X = torch.cat([X, torch.ones_like(X[:, :1])], 1)
    values, vectors = torch.linalg.eigh(X[some].mT @ X[some])
    free = vectors[:, values <= DEPENDENT * values[-1]]
    return -X[~some] @ free


def _margins_of_cutpoints(data: Dataset, count: int) -> torch.Tensor:
    """Return the cutpoint above each row minus eta, and eta minus the cutpoint below."""
    X, y = _scaled(data), data.y.long()
    cut = torch.nn.functional.one_hot(torch.arange(count), count).to(X)
    low, high = y > 0, y < count
    below = torch.cat([X[low], -cut[y[low] - 1]], 1)
    above = torch.cat([-X[high], cut[y[high]]], 1)
    return torch.cat([below, above])
