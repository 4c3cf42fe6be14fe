"""CV+ of recipes that count the classes of their rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import ppgp
from ppgp import inference, models
from ppgp.conformal.fixed_beforehand import searches
from ppgp.data import Dataset
from ppgp.errors import DataError
from ppgp.likelihoods import Categorical, Ordinal

RARE = np.where(np.arange(60) == 7, "z", np.array(["a", "b", "c"])[np.arange(60) % 3])
LABELS = {
    "text": np.array(["a", "b", "c"])[np.arange(60) % 3],
    "numbers": pd.Categorical(np.arange(60) % 3 + 1, ordered=True),
    "a class that a fold alone has": RARE,
    "ordered": pd.Categorical(["low", "high", "middle"] * 20, ["low", "middle", "high"], True),
}


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("recipe", [models.SoftmaxRegression(), models.GLM(Categorical())])
def test_a_recipe_that_counts_its_classes_is_fitted_to_folds(recipe: Any, labels: str) -> None:
    places = np.random.default_rng(0).normal(size=(60, 2))
    data = Dataset(places, LABELS[labels])
    calibrator = ppgp.cross_calibrate(recipe, data, inference.MAP(), folds=3)
    region = calibrator(places[:3], level=0.8)
    assert data.classes is not None
    assert region.labels.shape == (3, len(data.classes))
    assert not region.guarantee.startswith("heuristic")
    assert not searches(replace(recipe, weight=0.0, bias=0.0), 2)
    assert searches(recipe, 2)


def test_an_ordinal_fold_without_a_category_names_the_fold() -> None:
    grades = pd.Categorical(RARE, ["a", "b", "c", "z"], ordered=True)
    data = Dataset(np.arange(60.0)[:, None], grades)
    recipe = models.GLM(Ordinal())
    with pytest.raises(DataError, match=r"category 'z', in the 48 rows of the fit that leaves"):
        ppgp.cross_calibrate(recipe, data, inference.MAP(), folds=5)
