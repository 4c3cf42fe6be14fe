"""A Gaussian process without noise whose rows outnumber its functions has a singular covariance."""

from __future__ import annotations

import numpy as np
import pytest

from ppgp import Dataset, fit
from ppgp.errors import NumericalError
from ppgp.inference import MAP
from ppgp.kernels import Constant, Linear, Periodic, Polynomial
from ppgp.models import GP

X = np.random.default_rng(1).normal(size=(30, 2))
CASES = {
    "linear": (Linear(), X),
    "constant": (Constant(), X),
    "polynomial": (Polynomial(), X),
    "whole periods": (Periodic(period=6.0), np.arange(30.0)[:, None]),
}


@pytest.mark.parametrize(("kernel", "rows"), CASES.values(), ids=CASES)
def test_the_sentence_says_that_it_is_singular(kernel, rows) -> None:
    data = Dataset(rows, np.sin(np.arange(30.0)))
    with pytest.raises(NumericalError, match=r"singular .* with noise=0: give noise a prior"):
        fit(GP(kernel, noise=0.0), data, MAP(), progress=False, standardise=False)
