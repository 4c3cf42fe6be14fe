"""Statistics of draws take lists, arrays and tensors [chain, draw], and refuse other shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import config

from ppgp import diagnostics
from ppgp.errors import DataError, NotApplicable, UnknownName

X = np.random.default_rng(0).normal(size=(4, 50))


def mcse_of_mean(x: Any) -> float:
    return diagnostics.mcse(x, "mean")


OF_DRAWS = [diagnostics.ess, diagnostics.rhat, mcse_of_mean]


@pytest.mark.parametrize("statistic", OF_DRAWS, ids=lambda f: f.__name__)
def test_a_tensor_and_a_list_give_what_the_array_gives(statistic: Callable[..., float]) -> None:
    assert statistic(torch.as_tensor(X)) == statistic(X) == statistic(X.tolist())


@pytest.mark.parametrize("shape", [(), (10,), (4, 50, 1), (4, 0)], ids=str)
@pytest.mark.parametrize("statistic", OF_DRAWS, ids=lambda f: f.__name__)
def test_draws_of_another_shape_are_refused(
    statistic: Callable[..., float], shape: tuple[int, ...]
) -> None:
    with pytest.raises(DataError, match=r"shape \[chain, draw\]"):
        statistic(np.zeros(shape))


def test_constant_draws_have_no_r_hat_and_no_warning() -> None:
    assert np.isnan(diagnostics.rhat(np.zeros((4, 100))))


def test_the_error_of_an_unknown_quantity_is_refused() -> None:
    """With "median", the error of the sd was returned."""
    with pytest.raises(UnknownName, match="known: mean, sd"):
        diagnostics.mcse(X, "median")


def test_psis_and_wasserstein_take_lists_and_refuse_nothing_at_all() -> None:
    ratios = X[0]
    weights, k = diagnostics.psis(ratios.tolist())
    assert np.array_equal(weights, diagnostics.psis(torch.as_tensor(ratios))[0])
    assert k == diagnostics.psis(ratios)[1]
    assert diagnostics.wasserstein([[0.0], [1.0]], torch.tensor([3.0, 4.0])) == 3.0
    with pytest.raises(DataError, match="importance ratios"):
        diagnostics.psis([])
    with pytest.raises(DataError, match="an empty one"):
        diagnostics.wasserstein([], [1.0])


def test_scalars_take_arrays_and_refuse_draws_without_chains() -> None:
    (name, x), *rest = diagnostics.scalars({"a": X[..., None]})
    assert name == "a[0]"
    assert np.array_equal(x, X)
    assert not rest
    with pytest.raises(DataError, match=r"got shape \[50\] of a"):
        list(diagnostics.scalars({"a": torch.zeros(50)}))


def test_the_warnings_are_those_of_a_posterior(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "jaxtyping_disable", True)  # users have no checks of types
    several: Any = {"y": 1}
    with pytest.raises(NotApplicable, match="got a dict: pass what"):
        diagnostics.convergence_warnings(several)
