"""Warnings of compare about rows that are not new."""

from __future__ import annotations

import warnings

import pytest
import torch

import ppgp
from ppgp import inference, models
from ppgp.data import Dataset
from ppgp.errors import DataWarning

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(90, 2, generator=GENERATOR, dtype=torch.float64)
Y = X[:, 0] + 0.3 * torch.randn(90, generator=GENERATOR, dtype=torch.float64)
TRAIN, CALIBRATION, TEST = (Dataset(X[i : i + 30], Y[i : i + 30]) for i in (0, 30, 60))


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_test_rows_that_are_calibration_or_training_rows_are_reported() -> None:
    fits = {"map": ppgp.fit(models.LinearRegression(), TRAIN, inference.MAP(), progress=False)}
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        honest = ppgp.compare(fits, test=TEST, calibration=CALIBRATION, level=0.8)
    assert honest.regions["map"].guarantee.startswith("marginal")
    both = Dataset(
        torch.cat([CALIBRATION.X, TEST.X[:4].float().double()]),
        torch.cat([CALIBRATION.y, TEST.y[:4]]),
    )
    for calibration, fact in ((TEST, "30 of 30"), (both, "4 of 30"), (TRAIN, "used in the fit")):
        with pytest.warns(DataWarning, match=fact):
            found = ppgp.compare(fits, test=TEST, calibration=calibration, level=0.8)
        assert found.regions["map"].guarantee.startswith("heuristic")


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_noise_that_is_known_of_one_table_alone_is_reported() -> None:
    known = Dataset(TEST.X, TEST.y, noise_sd=0.1)
    fits = {"gp": ppgp.fit(models.GP(), TRAIN, inference.MAP(steps=10), progress=False)}
    with pytest.warns(DataWarning, match="noise"):
        assert (
            ppgp.compare(fits, test=known, calibration=CALIBRATION)
            .regions["gp"]
            .guarantee.startswith("heuristic")
        )
