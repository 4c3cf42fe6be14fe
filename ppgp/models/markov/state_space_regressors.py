"""Columns beside the time that enter linearly, with a Gaussian prior on their weights."""

from __future__ import annotations

import torch
from torch import Tensor

from ...data.dataset import Scaler
from ...errors import SettingError, counted
from ...priors import InUnitsOfData, Normal, PriorLike, bare, tensor_of

Regressors = PriorLike | None


def check_regressors(prior: object) -> None:
    """Raise SettingError unless the prior of the weights is Normal(0, scale) or None."""
    inner = bare(prior)
    centred = isinstance(inner, Normal) and not bool(torch.as_tensor(inner.loc).any())
    if prior is not None and not centred:
        do = "write Normal(0, scale), with one scale or one per column"
        raise SettingError("Normal(0, scale) or None as regressors", repr(prior), do)


def check_width(prior: Regressors, d: int) -> None:
    """Raise SettingError if the prior has another number of scales than d columns need."""
    scale = torch.as_tensor(getattr(bare(prior), "scale", 1.0))
    if scale.ndim and len(scale) != d - 1:
        wanted = f"one scale, or one for each of {counted(d - 1, 'regressor')} beside the time"
        raise SettingError(wanted, f"{len(scale)} scales", "correct regressors")


def regressors_in_units(prior: Regressors, scaler: Scaler) -> Regressors:
    """Return the prior on the scale of the model."""
    if not isinstance(prior, InUnitsOfData):
        return prior
    scales = tensor_of(prior.prior.scale, scaler.x_sd) * scaler.x_sd[1:] / scaler.y_sd
    return Normal(0.0, tuple(scales.tolist()))


def columns_of(X: Tensor) -> Tensor | None:
    """Return the regressors [r, n] among the columns of X; None if there are none."""
    return X[:, 1:].mT if X.shape[-1] > 1 else None


def weight_variances(prior: Regressors, X: Tensor) -> Tensor:
    """Return the prior variance of the weight of each regressor, [r]."""
    scale = getattr(bare(prior), "scale", 1.0)
    return tensor_of(scale, X).square().expand(X.shape[-1] - 1)
