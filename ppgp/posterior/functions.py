"""Functions f drawn from a posterior Gaussian process, to be evaluated at any rows."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from ..capabilities import PosteriorFunctions, require
from ..errors import SettingError, an
from .fitted import Fitted, evaluated_at
from .model_inputs import model_inputs


def pathwise(
    self: Fitted, samples: int = 100, *, features: int | None = 1024, seed: int = 0
) -> Callable[[Any], Tensor]:
    """Return a function that evaluates sampled functions f of the posterior at any rows.

    Args:
        self: The posterior.
        samples: The number of functions. Each is conditional on a randomly chosen draw of the
            hyperparameters.
        features: The number of random Fourier features of each prior function. Mean and
            covariance are exact for any number; the functions are closer to Gaussian the more
            features there are. None: the exact prior, at a cost that is cubic in the number of
            all rows at which the functions are ever evaluated.
        seed: The seed of the random numbers.

    Returns:
        A function from X [m, d] to values [samples, m], in the units of the data.

    Raises:
        SettingError: If ``samples`` or ``features`` is not positive.
        NotApplicable: If the model has no such functions, or its kernel has no known spectral
            density (``features=None`` works then).
    """
    if not isinstance(samples, Integral):
        do = "call pathwise(samples)(X): it returns a function of X"
        raise SettingError("a whole number of samples", an(type(samples).__name__), do)
    if samples < 1 or (features is not None and features < 1):
        got = f"{samples} and {features}"
        raise SettingError("positive samples and features", got, "for example 100 and 1024")
    model = require(self.model, PosteriorFunctions)
    generator = torch.Generator().manual_seed(seed)
    with evaluated_at(self):
        paths = model.pathwise(self.theta, self.data, samples, features, generator)
    offset, scale = self.scaler.location_and_scale

    def evaluate(X: Any) -> Tensor:
        rows = model_inputs(self, X)
        with torch.no_grad():
            return offset + scale * paths(rows)

    return evaluate
