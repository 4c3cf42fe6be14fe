"""The inputs of simulated data: arrays, frames and lists are taken as tensors are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import ppgp
from ppgp.inference import Exact
from ppgp.models import LinearRegression
from ppgp.priors import InverseGamma

X = np.linspace(-1, 1, 8)[:, None]


def ranks(inputs: Any) -> Any:
    recipe = LinearRegression(noise=InverseGamma(3.0, 2.0), conjugate=True)
    result = ppgp.sbc(recipe, Exact(draws=9), X=inputs, simulations=20, progress=False, workers=1)
    return result.ranks


@pytest.mark.parametrize("form", [pd.DataFrame, np.asfortranarray, np.ndarray.tolist])
def test_inputs_of_another_form(form: Callable[[Any], Any]) -> None:
    expected, found = ranks(torch.from_numpy(X)), ranks(form(X))
    pd.testing.assert_frame_equal(pd.DataFrame(found), pd.DataFrame(expected))
