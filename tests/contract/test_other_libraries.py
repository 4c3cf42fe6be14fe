"""Habits of other libraries meet one sentence that tells what to write here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import ppgp
from ppgp import Dataset, inference, kernels, likelihoods, models
from ppgp.errors import DataError, PpgpError, SettingError, UnknownName
from ppgp.recipes.parsing import build_model

pytestmark = pytest.mark.usefixtures("types_unchecked")

T = torch.linspace(0, 3, 12, dtype=torch.float64)[:, None]
Y = torch.sin(T[:, 0])
DATES = pd.date_range("2020-01-01", periods=12)
RECIPE = models.StateSpaceGP(kernels.Matern(1.5))


MISTAKES: dict[str, tuple[Callable[[], Any], type[PpgpError], tuple[str, ...]]] = {
    "the name of a kernel": (
        lambda: models.StateSpaceGP("rbf"),
        SettingError,
        ("'rbf'", "as an object", "kernels.RBF()"),
    ),
    "an unknown name of a kernel": (
        lambda: models.GP("squared"),
        SettingError,
        ("'squared'", "kernels.Matern()"),
    ),
    "data in place of a kernel": (
        lambda: models.GP(T, Y),
        SettingError,
        ("got a Tensor", "ppgp.fit(model, Dataset(X, y))"),
    ),
    "dates": (lambda: Dataset(DATES.to_numpy(), Y), DataError, ("got dates", "dates='years'")),
    "no targets": (lambda: Dataset(T, None), DataError, ("targets y [n]", "got None")),
    "one number as X": (
        lambda: Dataset(3.0, [1.0]),
        DataError,
        ("X with shape [n, d]", "[[x]]"),
    ),
    "a frame in place of a Dataset": (
        lambda: ppgp.fit(RECIPE, pd.DataFrame({"t": T[:, 0], "y": Y}), inference.MAP()),
        DataError,
        ("got DataFrame", "Dataset.from_frame(table, target)"),
    ),
    "coordinates of a grid": (
        lambda: models.SKI(grid=(np.linspace(0, 1, 30),)),
        SettingError,
        ("got arrays", "lengths", "evenly spaced"),
    ),
    "advice for an array": (
        lambda: ppgp.advise(T.numpy()),
        SettingError,
        ("a Dataset", "a ndarray", "advise(n=10_000, d=2)"),
    ),
    "advice for the name of a kernel": (
        lambda: ppgp.advise(n=100, d=1, kernel="rbf"),
        SettingError,
        ("'rbf'", "kernels.RBF()"),
    ),
    "advice for the name of a likelihood": (
        lambda: ppgp.advise(
            n=100,
            d=1,
            likelihood="gaussian",
        ),
        SettingError,
        ("'gaussian'", "likelihoods.Gaussian()"),
    ),
}


@pytest.mark.parametrize(("call", "error", "facts"), MISTAKES.values(), ids=MISTAKES)
def test_one_sentence_tells_what_to_write(
    call: Callable[[], Any], error: type[PpgpError], facts: tuple[str, ...]
) -> None:
    with pytest.raises(error) as raised:
        call()
    sentence = str(raised.value)
    assert all(fact in sentence for fact in facts), sentence
    assert len(sentence) < 300


def test_a_model_has_no_fit_of_its_own() -> None:
    with pytest.raises(AttributeError, match=r"ppgp\.fit\(model, ppgp\.Dataset\(X, y\)\)"):
        RECIPE.fit(T, Y)
    assert not hasattr(RECIPE, "fit")


def test_functions_are_drawn_before_they_are_evaluated() -> None:
    posterior = ppgp.fit(RECIPE, Dataset(T, Y), inference.MAP(), progress=False)
    with pytest.raises(SettingError, match=r"got a Tensor: call pathwise\(samples\)\(X\)"):
        posterior.pathwise(T)


@pytest.mark.parametrize("name", ["state_space", "state-space", "StateSpaceGP", "statespacegp"])
def test_a_model_has_its_name_and_that_of_its_class(name: str) -> None:
    assert build_model(name) == models.StateSpaceGP()
    assert build_model("grid_gp") == build_model("GridGP") == models.GridGP()


def test_another_name_is_still_unknown() -> None:
    with pytest.raises(UnknownName, match="did you mean 'state-space'"):
        build_model("state_spaces")


def test_advice_takes_members() -> None:
    advice = ppgp.advise(n=100, d=1, likelihood=likelihoods.Poisson(), kernel=kernels.Matern())
    assert advice.n == 100
