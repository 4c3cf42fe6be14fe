"""Errors in the target column of a file name the row of the file."""

from __future__ import annotations

import math

import pandas as pd
import pytest

import ppgp
from ppgp import Dataset, inference, models
from ppgp.cli.posterior_tables import targets_for
from ppgp.errors import DataError


@pytest.mark.parametrize("value", [math.nan, math.inf, "?"])
def test_a_target_that_is_not_a_finite_number_is_named_by_its_row(value: object) -> None:
    data = Dataset([[0.0], [1.0], [2.0], [3.0]], [0.0, 1.0, 2.0, 3.5], ["a"], "y")
    posterior = ppgp.fit(
        models.LinearRegression(0.1, 0.0, 1.0), data, inference.MAP(), progress=False
    )
    with pytest.raises(DataError, match="row 2"):
        targets_for(pd.Series([1.0, 2.0, value, 4.0], name="y"), posterior)
