"""Rows that are independent given theta: their observation in a program, and their predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from types import MappingProxyType
from typing import Any

import pyro
import torch
from torch import Tensor
from torch.distributions import Distribution, Independent

from ..data.roles import at_rows
from ..distributions.blocks import distribution_by_rows
from .sites import Theta

#: columns up to which a linear predictor takes little time beside a quantile of its distribution
FEW_COLUMNS = 50
NONE: Mapping[str, Any] = MappingProxyType({})


def observed(
    distribution: Distribution,
    X: Tensor,
    y: Tensor | None,
    total: int | None,
    weights: Tensor | None = None,
) -> Tensor:
    """Run the Pyro statement of y, whose rows are independent.

    Args:
        distribution: Of y given theta, batch [n].
        X: Inputs [n, d].
        y: Targets [n]; None: they are drawn.
        total: Number of rows that a mini-batch was taken from; None: these are all the rows.
        weights: How often each row counts, [n]; None: once.

    Returns:
        The targets [n].
    """
    weighted = nullcontext() if weights is None else pyro.poutine.scale(scale=weights)
    with pyro.plate("rows", total or len(X), subsample=X), weighted:
        return pyro.sample("y", distribution, obs=y)  # type: ignore[arg-type]


def predicted(
    distribution: Callable[..., Distribution],
    theta: Theta,
    X: Tensor,
    joint: bool = False,
    columns: Mapping[str, Any] = NONE,
    linear: bool = False,
) -> Distribution:
    """Return the predictive distribution of y at X, computed one block of rows at a time.

    Args:
        distribution: ``Model.distribution``, (theta, X, **columns) -> batch [*draw, n].
        theta: {site: [draw, *event]}.
        X: Inputs [n, d].
        joint: Whether the rows are predicted jointly.
        columns: ``{role: column}`` of these rows, which are sliced with them; None: left out.
        linear: Whether the distribution is one of ``X weight + bias``, and its figures take more
            time than that. If X has at most ``FEW_COLUMNS`` columns, and fewer than there are
            draws, the parameters of many rows are then computed anew for each figure, which
            saves memory.

    Returns:
        A distribution of batch [draw, n]; if ``joint``, of batch [draw] and event [n].
    """
    columns = {name: column for name, column in columns.items() if column is not None}
    draws = max((len(value) for value in theta.values() if value.ndim), default=1)
    cheap = linear and not joint and X.shape[-1] <= min(FEW_COLUMNS, draws - 1)
    if cheap:  # the caller may change these before a figure is asked for
        theta, columns = _copies(theta), _copies(columns)
        X = X.clone()
    if joint:
        predictive = distribution(theta, X, **columns)
    elif columns:

        def at(rows: Tensor) -> Distribution:
            some = {name: at_rows(column, rows) for name, column in columns.items()}
            return distribution(theta, X[rows], **some)

        predictive = distribution_by_rows(at, torch.arange(len(X), device=X.device), draws, cheap)
    else:
        predictive = distribution_by_rows(lambda rows: distribution(theta, rows), X, draws, cheap)
    if len(predictive.batch_shape) != 2:
        predictive = predictive.expand(torch.Size([1, len(X)]))
    if joint:
        return Independent(predictive, 1)
    return predictive


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in tensors.items()}
