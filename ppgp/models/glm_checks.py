"""Separated classes in generalised linear models."""

from __future__ import annotations

from typing import Any

import torch

from ..data.dataset import Dataset
from ..likelihoods import Bernoulli, Binomial, Categorical, Likelihood, Ordinal
from ..priors import Flat, PriorLike, bare
from .classification import SEPARATION_UP_TO, separated_by, separation
from .glm_starts import column


def separated(
    likelihood: Likelihood, data: Dataset, weight: PriorLike, bias: PriorLike
) -> list[str]:
    """Return a warning if the inputs separate the classes and the priors do not prevent it.

    Args:
        likelihood: the likelihood.
        data: the training rows.
        weight: prior of the weights.
        bias: prior of the intercepts.

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
    elif isinstance(law, Ordinal) and isinstance(law.cutpoints, Flat):
        A = _margins_of_cutpoints(data, law.sites()["cutpoints"].shape[0])
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


def _scaled(data: Dataset) -> torch.Tensor:
    return data.X / data.X.abs().amax(0).clamp_min(1e-300)


def _margins_of_events(data: Dataset, law: Any, with_bias: bool) -> torch.Tensor:
    """Return eta of rows with events, and minus eta of rows with trials that were none."""
    X = _scaled(data)
    if with_bias:
        X = torch.cat([X, torch.ones_like(X[:, :1])], 1)
    trials = law.for_rows(column(data, "trials")).value({}, "trials", data.y).expand(data.y.shape)
    return torch.cat([X[data.y > 0], -X[data.y < trials]])


def _margins_of_cutpoints(data: Dataset, count: int) -> torch.Tensor:
    """Return the cutpoint above each row minus eta, and eta minus the cutpoint below."""
    X, y = _scaled(data), data.y.long()
    cut = torch.nn.functional.one_hot(torch.arange(count), count).to(X)
    low, high = y > 0, y < count
    below = torch.cat([X[low], -cut[y[low] - 1]], 1)
    above = torch.cat([-X[high], cut[y[high]]], 1)
    return torch.cat([below, above])
