"""Coefficients that a model integrates out, as a table with intervals."""

from __future__ import annotations

from typing import Any

import pyro.distributions as dist
import torch

from ..capabilities import IntegratedCoefficients, require
from ..errors import SettingError
from .fitted import Fitted, evaluated_at
from .prediction import Prediction

__all__ = ["table_of_integrated"]


def table_of_integrated(self: Fitted, covariance: Any, share: float, own_units: bool) -> Any:
    """Return a DataFrame with mean, sd, the median and the central interval of each coefficient.

    They are those of the mixture of the normal distributions that the coefficients have given each
    draw of the hyperparameters, and of no draws of their own.

    Args:
        self: The posterior.
        covariance: "draws"; anything else is refused.
        share: The probability outside each end of the intervals.
        own_units: Whether the coefficients are on the scale of the model.

    Raises:
        SettingError: If the covariance is not "draws".
    """
    import pandas as pd

    model = require(self.model, IntegratedCoefficients)
    if not isinstance(covariance, str) or covariance != "draws":
        name = type(self.model).__name__
        wanted = f"'draws' as covariance of the coefficients of {name}, which it integrates out"
        do = "call posterior.coefficients('draws')"
        raise SettingError(wanted, repr(covariance), do)
    columns = list(model.weighted(self.data.d))
    with evaluated_at(self, len(columns)):
        mean, sd = model.weight_moments(self.theta, self.data)
    scale = torch.ones_like(mean[0])
    if not own_units:
        scale = self.scaler.y_sd / self.scaler.x_sd[columns]
    found = Prediction(dist.Normal(mean * scale, sd * scale))
    names = self.data.feature_names or [f"x{j}" for j in range(self.data.d)]
    low, high = (f"{round(100 * p, 10):g}%" for p in (share, 1 - share))
    table = {"mean": found.mean, "sd": found.std, low: found.quantile(share)}
    table |= {"50%": found.quantile(0.5), high: found.quantile(1 - share)}
    index = pd.Index([names[column] for column in columns])
    return pd.DataFrame({name: value.cpu().numpy() for name, value in table.items()}, index=index)
