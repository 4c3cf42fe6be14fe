"""Whether the inputs of a generalised linear model separate its classes or counts."""

from __future__ import annotations

from typing import Any

import torch

from ...data.dataset import Dataset
from ...errors import DataError
from ...likelihoods import (
    Bernoulli,
    Binomial,
    Categorical,
    Likelihood,
    NegativeBinomial,
    Ordinal,
    Poisson,
)
from ...priors import Flat, PriorLike, bare
from ..classification import SEPARATION_UP_TO, separated_by, separation

DEPENDENT = 1e-12  # of the largest eigenvalue: smaller ones are rounding


def separated(
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


def _is_flat(law: Any, weight: PriorLike) -> bool:
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
