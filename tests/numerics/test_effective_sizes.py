"""R-hat, effective sizes and Monte Carlo errors equal those of ArviZ, and have their laws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ppgp.numerics import effective_sizes as own
from ppgp.numerics.effective_sizes import effective_sizes, errors_of_means, errors_of_sds, r_hats
from ppgp.posterior.arviz import arviz
from ppgp.runtime.process_locks import silenced

METHODS = ["bulk", "tail", "median", "mean", "sd"]


def autoregressive(
    shape: tuple[int, ...], correlation: float, seed: int = 0, jump: float = 0.0
) -> np.ndarray:
    """Draws [chain, draw, *event] of x_t = r x_{t-1} + e_t; the first chain is moved by a jump."""
    noise = np.random.default_rng(seed).normal(size=shape)
    x = noise.copy()
    for t in range(1, shape[1]):
        x[:, t] = correlation * x[:, t - 1] + noise[:, t]
    x[0] += jump
    return x


CHAINS = {
    "independent": autoregressive((4, 500), 0.0),
    "slow": autoregressive((4, 1000), 0.95),
    "very slow": autoregressive((2, 200), 0.999),
    "alternating": autoregressive((3, 301), -0.9),
    "one chain": autoregressive((1, 400), 0.5),
    "apart": autoregressive((4, 300), 0.2, jump=8.0),
    "four draws": autoregressive((4, 4), 0.0),
    "five draws": autoregressive((2, 5), 0.3),
    "nine draws": autoregressive((3, 9), 0.3),
    "heavy tails": np.random.default_rng(3).standard_cauchy((4, 250)),
    "counts": np.random.default_rng(4).poisson(1.5, (4, 321)).astype(float),
    "two values": (autoregressive((4, 200), 0.7) > 0).astype(float),
    "constant": np.full((4, 100), 2.5),
    "one constant chain": np.r_[np.zeros((1, 100)), autoregressive((3, 100), 0.3)],
    "not finite": np.r_[np.full((1, 100), np.nan), autoregressive((3, 100), 0.3)],
    "large": 1e9 + autoregressive((4, 100), 0.3),
}


def of_arviz(x: np.ndarray, method: str) -> float:
    options: dict[str, Any] = {"prob": own.TAILS} if method == "tail" else {}
    return float(arviz().ess(x, method=method, **options))


@pytest.mark.parametrize("name", CHAINS)
def test_statistics_equal_those_of_the_arviz_that_is_installed(name: str) -> None:
    x = CHAINS[name]
    with silenced(RuntimeWarning):
        for method in METHODS:
            wanted = pytest.approx(of_arviz(x, method), rel=1e-9, nan_ok=True)
            assert effective_sizes(x, method) == wanted, method
        if len(x) > 1:
            assert r_hats(x) == pytest.approx(float(arviz().rhat(x)), rel=1e-12, nan_ok=True)
        mean = pytest.approx(float(arviz().mcse(x, method="mean")), rel=1e-9, nan_ok=True)
        assert errors_of_means(x) == mean
        sd = pytest.approx(float(arviz().mcse(x, method="sd")), rel=1e-9, nan_ok=True)
        assert errors_of_sds(x) == sd


def test_each_scalar_of_a_site_has_the_statistics_that_it_has_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = autoregressive((4, 100, 3, 5), 0.4)
    x[0, 0, 1, 2] = np.inf
    x[..., 2, 2] = 1.0
    monkeypatch.setattr(own, "AT_ONCE", 1500)  # three scalars or so at once
    for statistic in (*[lambda x, m=m: effective_sizes(x, m) for m in METHODS], r_hats):
        found = statistic(x)
        alone = [[float(statistic(x[..., i, j])) for j in range(5)] for i in range(3)]
        np.testing.assert_allclose(found, alone, rtol=1e-12)
    assert np.isnan(effective_sizes(x, "bulk")[1, 2])
    assert effective_sizes(x, "bulk")[2, 2] == 400


def test_sites_without_scalars_have_no_statistics() -> None:
    assert effective_sizes(np.zeros((4, 100, 0)), "bulk").shape == (0,)


@pytest.mark.parametrize("correlation", [0.0, 0.6, -0.4])
def test_the_size_of_an_autoregressive_chain_is_that_of_its_law(correlation: float) -> None:
    """n (1 - r) / (1 + r); the sums end early, which is a bias of a few per cent."""
    x = autoregressive((4, 20_000, 20), correlation)
    wanted = 80_000 * (1 - correlation) / (1 + correlation)
    sizes = effective_sizes(x, "mean") / wanted
    error = sizes.std(ddof=1) / np.sqrt(20)
    assert abs(sizes.mean() - 1) < 4 * error + 0.02


def test_the_errors_of_means_are_the_spread_of_means() -> None:
    """400 fits of one chain have means whose spread is what each fit states, on average."""
    x = autoregressive((4, 500, 400), 0.5, seed=5)
    spread = x.mean((0, 1)).std(ddof=1)
    stated = np.sqrt(np.square(errors_of_means(x)).mean())
    assert stated == pytest.approx(spread, rel=4 / np.sqrt(2 * 400) + 0.02)


@pytest.mark.parametrize("unit", [1e-18, 1e12])
def test_the_unit_does_not_matter(unit: float) -> None:
    x = autoregressive((4, 200), 0.5)
    for method in METHODS:
        assert effective_sizes(unit * x, method) == pytest.approx(
            float(effective_sizes(x, method)), rel=1e-9
        )
