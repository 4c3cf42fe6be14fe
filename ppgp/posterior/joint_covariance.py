"""The covariance of y between rows, of a joint prediction."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributions import Independent

from ..errors import NotApplicable
from .prediction import Prediction

__all__ = ["covariance"]


def covariance(prediction: Prediction) -> Tensor:
    """Return the covariance matrix [n, n] of y in squared units, by the law of total covariance.

    Args:
        prediction: A joint prediction, of ``posterior.predict(X, joint=True)``.

    Raises:
        NotApplicable: If it is not joint, or its covariance is not known.
    """
    d: Any = prediction.distribution
    if not prediction.joint:
        do = "pass posterior.predict(X, joint=True)"
        raise NotApplicable("a joint prediction", "one distribution per row", do)
    if isinstance(d, Independent):
        within = torch.diag_embed(d.variance)
    elif hasattr(d, "covariance_matrix"):
        within = d.covariance_matrix
    else:
        do = "use return_std"
        raise NotApplicable("a joint distribution with a covariance", type(d).__name__, do)
    means = d.mean - d.mean.mean(0)
    between = means.mT @ means / len(means)
    scale = torch.as_tensor(prediction.scale, dtype=within.dtype, device=within.device)
    return scale * scale[..., None] * (within.mean(0) + between)
