"""Folds of boosting: what may describe them, and what is refused with a way out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.model_selection import GroupKFold, KFold, TimeSeriesSplit

import ppgp
from ppgp import Dataset, conformal, fit, likelihoods, models
from ppgp.errors import SettingError
from ppgp.inference import NaturalGradientBoosting
from ppgp.inference.boosting.folds import checked_folds, fold_of_rows

N = 12
X = torch.arange(2.0 * N, dtype=torch.float64).reshape(N, 2)
Y = torch.arange(float(N), dtype=torch.float64)
GROUPS = np.arange(N) % 3


def folds_of(folds: Any, n: int = N) -> torch.Tensor:
    return fold_of_rows(checked_folds(folds), X[:n], Y[:n], seed=0)


def test_a_series_an_iterator_and_masks_are_folds() -> None:
    wanted = torch.as_tensor(GROUPS)
    assert torch.equal(folds_of(pd.Series(GROUPS, index=np.arange(N)[::-1])), wanted)
    assert torch.equal(folds_of(torch.as_tensor(GROUPS)), wanted)
    assert len(folds_of(GroupKFold(3).split(X, Y, GROUPS)).unique()) == 3
    masks = [(wanted != j, wanted == j) for j in range(3)]
    assert torch.equal(folds_of(masks), wanted)


def test_a_pair_trains_on_all_rows_outside_its_fold() -> None:
    pairs = list(KFold(3).split(X))
    train, test = pairs[1]
    with pytest.raises(SettingError, match=r"others in pair 1: pass one label per row"):
        folds_of([pairs[0], (train[:-1], test), pairs[2]])
    loose = NaturalGradientBoosting(steps=2, folds=(pairs[0], (train[:-1], test), pairs[2]))
    with pytest.raises(SettingError, match="pair 1"):
        fit(models.Boosted(), Dataset(X, Y), loose, progress=False)


@pytest.mark.parametrize(
    ("folds", "message"),
    [
        (TimeSeriesSplit(3), r"got TimeSeriesSplit, which has rows 0, 1, 2 in no fold: pass KFold"),
        (KFold, r"pass KFold\(\.\.\.\)"),
        ([([0, 1], [2, 3]), ([2, 3], [0, 99])], r"expected rows 0 to 11 in pairs, got .* 99"),
        ([(range(6), range(6, 12)), (range(5), range(5, 12))], r"rows 6, 7, .* in two folds"),
        (pd.Series([np.nan, *GROUPS[1:]]), r"a label of the fold of each row, got none in row 0"),
        ([None, *GROUPS[1:].tolist()], r"none in row 0"),
    ],
)
def test_folds_that_are_refused_say_why(folds: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        folds_of(folds)


@pytest.mark.parametrize(
    ("n", "message"),
    [
        (3, r"expected at least 4 rows for folds, got 3: pass folds=None"),
        (5, r"expected 2 folds of 5 rows, got 5: pass folds=2, or folds=None .* LeaveOneOut"),
        (9, r"expected between 2 and 4 folds of 9 rows, got 5: pass folds=4"),
    ],
)
def test_a_number_of_folds_needs_rows(n: int, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        folds_of(5, n)


@pytest.mark.filterwarnings("ignore:the score at the rows held out")
def test_cv_plus_of_classes_that_are_counted() -> None:
    labels = np.array(["a", "b", "c"])[np.arange(60) % 3]
    rows = torch.as_tensor(np.random.default_rng(0).normal(size=(60, 2)))
    data = Dataset(rows + torch.arange(60)[:, None] % 3, labels)
    model = models.Boosted(likelihoods.Categorical())
    how = NaturalGradientBoosting(steps=5, folds=3, temperature=False)
    posterior = fit(model, data, how, progress=False)
    for given in (posterior, posterior.out_of_fold()):
        region = ppgp.cross_calibrate(given, score=conformal.APS())(data.X[:5], 0.8)
        assert region.labels is not None
        assert region.labels.shape == (5, 3)
    one = NaturalGradientBoosting(steps=2, folds=None, temperature=False)
    refitted = ppgp.cross_calibrate(model, data, one, folds=3)
    assert refitted(data.X[:5], 0.8).guarantee.startswith("coverage >=")
