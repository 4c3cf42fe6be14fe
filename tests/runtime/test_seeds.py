"""What is said of a seed that is no whole number, wherever a caller gives one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import ppgp
from ppgp import Dataset, acquisition, inference, kernels, models
from ppgp.errors import DataError, SettingError
from ppgp.runtime.whole_numbers import check_seed

X = np.linspace(0.0, 1.0, 12)[:, None]
DATA = Dataset(X, np.sin(5 * X[:, 0]))
MODEL = models.GP(kernels.RBF(1.0, 0.3), noise=0.01, mean=0.0)

CALLS = [
    lambda fit, seed: fit.pathwise(seed=seed),
    lambda fit, seed: fit.predict(X, seed=seed),
    lambda fit, seed: fit.predict(X).sample(2, seed=seed),
    lambda fit, seed: ppgp.fit(MODEL, DATA, inference.MAP(), seed=seed, progress=False),
    lambda fit, seed: acquisition.suggest(fit, [(0.0, 1.0)], seed=seed),
    lambda fit, seed: DATA.split(0.5, seed=seed),
]


def same(one: Any, other: Any) -> bool:
    """Whether two results of a call are alike: numbers, parts, fits, functions or predictions."""
    if isinstance(one, tuple):
        return all(same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, Dataset):
        return torch.equal(one.X, other.X)
    if isinstance(one, ppgp.Posterior):
        return all(torch.equal(v, other.draws[k]) for k, v in one.draws.items())
    if isinstance(one, ppgp.Prediction):
        return torch.equal(one.mean, other.mean)
    if callable(one) and not isinstance(one, torch.Tensor):
        return torch.equal(one(X), other(X))
    return np.array_equal(np.asarray(one), np.asarray(other))


@pytest.fixture(scope="module")
def fit() -> ppgp.Posterior:
    return ppgp.fit(MODEL, DATA, inference.MAP(), progress=False)


@pytest.mark.parametrize("seed", ["0", 1.5, [1], True, None, 2**64, -(2**63) - 1, np.bool_(True)])
def test_what_is_no_seed_is_refused(seed: Any) -> None:
    with pytest.raises(SettingError, match="expected a whole number as seed"):
        check_seed(seed)


@pytest.mark.parametrize("seed", [0, -1, 2**64 - 1, -(2**63), np.int64(3), torch.tensor(2)])
def test_every_seed_that_torch_takes_is_one(seed: Any) -> None:
    check_seed(seed)
    torch.Generator().manual_seed(int(seed))


@pytest.mark.usefixtures("types_unchecked")
@pytest.mark.parametrize("call", CALLS)
def test_methods_with_a_seed_refuse_a_word(fit: ppgp.Posterior, call: Callable[..., Any]) -> None:
    with pytest.raises(SettingError, match="a whole number as seed, got '0': for example seed=0"):
        call(fit, "0")


@pytest.mark.usefixtures("types_unchecked")
@pytest.mark.parametrize("seed", [np.int64(3), torch.tensor(3)])
@pytest.mark.parametrize("call", CALLS)
def test_whole_numbers_of_other_libraries_are_seeds(
    fit: ppgp.Posterior, call: Callable[..., Any], seed: Any
) -> None:
    assert same(call(fit, seed), call(fit, 3))


def test_no_rows_have_no_joint_distribution(fit: ppgp.Posterior) -> None:
    assert fit.predict(X[:0]).mean.shape == (0,)
    with pytest.raises(DataError, match="rows for a joint distribution, got none"):
        fit.predict(X[:0], joint=True)
