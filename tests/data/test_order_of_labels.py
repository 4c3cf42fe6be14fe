"""Labels that are texts have the order of the alphabet, which ordinal models warn of."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import ppgp
from ppgp import Dataset
from ppgp.errors import DataWarning
from ppgp.estimators import ProbabilisticClassifier
from ppgp.inference import MAP
from ppgp.likelihoods import Ordinal
from ppgp.models import GLM

ORDER = ["low", "medium", "high"]
X = np.random.default_rng(0).normal(size=(30, 2))
LABELS = np.array(ORDER * 10)
TABLE = Dataset(X, LABELS)
ORDERED = pd.Series(pd.Categorical(LABELS, ORDER, ordered=True))
OF_TEXTS: dict[str, Callable[[], Dataset]] = {
    "an array": lambda: TABLE,
    "a list": lambda: Dataset(X, list(LABELS)),
    "categories": lambda: Dataset(X, pd.Series(pd.Categorical(LABELS, ORDER))),
    "two": lambda: Dataset(X, np.where(X[:, 0] > 0, "more", "less")),
    "a part": lambda: TABLE.split(0.8, seed=0)[0],
    "a mask": lambda: TABLE.rows(TABLE.y > -1),
    "float32": lambda: TABLE.to(torch.float32),
    "standardised": lambda: TABLE.standardised()[0],
    "and back": lambda: TABLE.standardised()[1].back(TABLE.standardised()[0]),
    "a copy": lambda: deepcopy(TABLE),
}
WITH_AN_ORDER: dict[str, Callable[[], Dataset]] = {
    "ordered categories": lambda: Dataset(X, ORDERED),
    "a part": lambda: Dataset(X, ORDERED).split(0.8, seed=0)[0],
    "codes": lambda: Dataset(X, np.arange(30) % 3, classes=ORDER),
    "numbers": lambda: Dataset(X, np.arange(30) % 3),
    "booleans": lambda: Dataset(X, X[:, 0] > 0),
}


@pytest.mark.parametrize("name", OF_TEXTS)
def test_a_table_knows_that_its_classes_are_texts(name: str) -> None:
    assert OF_TEXTS[name]().alphabetical is True


@pytest.mark.parametrize("name", WITH_AN_ORDER)
def test_a_table_knows_that_its_classes_have_another_order(name: str) -> None:
    assert WITH_AN_ORDER[name]().alphabetical is False


def test_an_ordinal_model_warns_of_the_alphabet_alone(tmp_path: Path) -> None:
    fit: Any = lambda data: ppgp.fit(GLM(Ordinal()), data, MAP("newton"), progress=False)  # noqa: E731
    with pytest.warns(DataWarning, match="alphabet: high < low < medium; for another order"):
        posterior = fit(TABLE)
    assert fit(Dataset(X, ORDERED)).data.classes == tuple(ORDER)
    posterior.save(tmp_path / "ordinal.safetensors")
    loaded = ppgp.load_posterior(tmp_path / "ordinal.safetensors")
    assert loaded.data.classes == ("high", "low", "medium")
    probabilities = loaded.predict(X[:3]).probabilities
    assert torch.equal(probabilities, posterior.predict(X[:3]).probabilities)


def test_the_estimator_warns_too() -> None:
    with pytest.warns(DataWarning, match="alphabet"):
        found = ProbabilisticClassifier("ordinal", "map").fit(X, LABELS)
    assert found.classes_.tolist() == sorted(ORDER)
    assert ProbabilisticClassifier("ordinal", "map").fit(X, ORDERED).classes_.tolist() == ORDER


def test_a_formula_keeps_the_order_of_categories() -> None:
    pytest.importorskip("formulaic")
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(y=ORDERED, text=LABELS)
    assert GLM.from_formula("y ~ a + b", frame, Ordinal())[1].classes == tuple(ORDER)
    assert GLM.from_formula("text ~ a", frame, Ordinal())[1].alphabetical
