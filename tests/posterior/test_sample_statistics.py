"""Statistics of draws take lists, arrays and tensors [chain, draw], and refuse other shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import either_arviz
import numpy as np
import pytest
import torch
from jaxtyping import config
from scipy.special import logsumexp
from scipy.stats import norm

from ppgp import diagnostics
from ppgp.errors import DataError, NotApplicable, UnknownName
from ppgp.posterior.arviz import arviz
from ppgp.posterior.summary import chain_statistics

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


def probabilities(n: int) -> np.ndarray:
    return (np.arange(n) + 0.5) / n


def of_pareto_tails(n: int, k: float) -> np.ndarray:
    """Return log ratios whose ratios are quantiles of a Pareto distribution of shape k."""
    return -k * np.log(1 - probabilities(n))


#: log ratios; k-hat, the largest log weight and the sum of squared weights by ArviZ 0.23.4
BY_ARVIZ = {
    "smooth": (
        of_pareto_tails(1000, 0.4),
        (0.4103202088048329, -4.375434871763272, 0.0015193579568126146),
    ),
    "few": (
        of_pareto_tails(23, 0.9),
        (0.6042117338168265, -1.295709935946768, 0.11487761702876695),
    ),
    "repeated": (
        np.repeat(of_pareto_tails(100, 0.6), 7),
        (0.43249701809761876, -4.20822264445553, 0.003167530935914669),
    ),
    "wide": (500 * norm.ppf(probabilities(300)), (102.8213716574841, 0.0, 1.0)),
    "rounded": (
        np.round(2 * norm.ppf(probabilities(500)), 1),
        (0.6381737384294184, -1.977846677948436, 0.03399727069851076),
    ),
}


@pytest.mark.parametrize("name", BY_ARVIZ)
def test_psis_does_not_depend_on_the_version_of_arviz(name: str) -> None:
    """ArviZ 1.3 cuts other tails, and gives NaN for repeated ratios and wide ones."""
    ratios, expected = BY_ARVIZ[name]
    log_weights, k = diagnostics.psis(ratios)
    found = (k, log_weights.max(), (np.exp(log_weights) ** 2).sum())
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("draws", [400, 2500])
def test_psis_equals_that_of_the_arviz_that_is_installed(draws: int) -> None:
    ratios = np.random.default_rng(draws).standard_t(4, size=(3, draws))
    log_weights, k = diagnostics.psis(ratios)
    theirs, shapes = either_arviz.psis(ratios)
    assert k == pytest.approx(shapes, rel=1e-10)
    assert log_weights == pytest.approx(theirs, rel=1e-10)


@pytest.mark.parametrize(
    "ratios", [np.zeros(200), X[0, :20], np.r_[np.zeros(196), -800.0, -900.0, 1.0, 2.0]]
)
def test_a_tail_that_is_too_short_is_not_smoothed(ratios: np.ndarray) -> None:
    log_weights, k = diagnostics.psis(ratios)
    assert k == np.inf
    assert log_weights == pytest.approx(ratios - logsumexp(ratios), rel=1e-13, abs=1e-13)


def test_the_tails_of_effective_sample_sizes_are_five_percent_each() -> None:
    """ArviZ 1.x takes other quantiles unless told."""
    both = [float(arviz().ess(X, method="quantile", prob=p)) for p in (0.05, 0.95)]
    found = chain_statistics({"x": torch.as_tensor(X)}, 4, ())
    assert found["ess_tail"] == pytest.approx([min(both)])
