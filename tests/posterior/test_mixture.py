"""The cdf, quantiles and intervals of an equal mixture against SciPy."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pyro.distributions as dist
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mixtures import ALL, CONTINUOUS, COUNTS, ROWS, Mixture

from ppgp.errors import NotApplicable, SettingError
from ppgp.posterior.prediction import Prediction

every = pytest.mark.parametrize("m", ALL.values(), ids=ALL.keys())
continuous = pytest.mark.parametrize("m", CONTINUOUS.values(), ids=CONTINUOUS.keys())
counts = pytest.mark.parametrize("m", COUNTS.values(), ids=COUNTS.keys())
P = (1e-6, 0.01, 0.05, 0.3, 0.5, 0.9, 0.995, 1 - 1e-6)


@every
def test_cdf_is_the_mean_of_the_components(m: Mixture) -> None:
    x = np.array([[m.quantile(i, p) for i in range(ROWS)] for p in P])
    ours = Prediction(m.distribution).cdf(x)
    theirs = [[m.cdf(i, row[i]) for i in range(ROWS)] for row in x]
    assert ours.shape == (len(P), ROWS)
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-9, atol=1e-12)


@every
def test_cdf_outside_the_support_is_zero_or_one(m: Mixture) -> None:
    low, high = m.row(0).support()
    below = np.min(low) - 1 if np.isfinite(low).all() else -np.inf
    above = np.max(high) + 1 if np.isfinite(high).all() else np.inf
    assert Prediction(m.distribution).cdf([below] * ROWS).tolist() == [0.0] * ROWS
    assert Prediction(m.distribution).cdf([above] * ROWS).tolist() == [1.0] * ROWS


@every
def test_quantile_is_that_of_root_finding(m: Mixture) -> None:
    for p in P:
        ours = Prediction(m.distribution).quantile(p).numpy()
        theirs = [m.quantile(i, p) for i in range(ROWS)]
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=0 if m.discrete else 1e-7)


LOCS, SCALES = (-1.2, 0.3, 0.7), (0.6, 1.1, 0.8)
NEAR_0 = {
    "Normal": (dist.Normal, lambda z: mpmath.ncdf(z)),
    "Laplace": (dist.Laplace, lambda z: mpmath.exp(z) / 2),
    "Cauchy": (dist.Cauchy, lambda z: mpmath.atan2(1, -z) / mpmath.pi),
}


@pytest.mark.parametrize("family", NEAR_0)
@pytest.mark.parametrize("p", [1e-300, 1e-40, 1e-18, 1e-12, 1e-7])
def test_quantiles_of_tiny_probabilities_have_all_digits(family: str, p: float) -> None:
    """The root is bisected with 40 digits; the quantile is right to a few roundings of it."""
    kind, one = NEAR_0[family]
    loc, scale = (torch.tensor(v, dtype=torch.float64)[:, None] for v in (LOCS, SCALES))
    prediction = Prediction(kind(loc, scale))
    found = prediction.quantile(p)
    with mpmath.workdps(40):
        pairs = [(mpmath.mpf(m), mpmath.mpf(s)) for m, s in zip(LOCS, SCALES, strict=True)]

        def cdf(x: Any) -> Any:
            return sum(one((x - m) / s) for m, s in pairs) / len(pairs)

        x = mpmath.mpf(float(found[0]))
        reach = abs(x) * mpmath.mpf(2e-15)
        assert cdf(x - reach) < p < cdf(x + reach)
        # a rounding of z changes the cdf of a normal by z^2 roundings
        exact = float(cdf(x))
    assert float(prediction.cdf(found)) == pytest.approx(exact, rel=1e-12)


def test_small_probabilities_of_an_exponential_distribution_have_all_digits() -> None:
    prediction = Prediction(dist.Exponential(torch.tensor([[1.0], [3.0]], dtype=torch.float64)))
    assert float(prediction.cdf([1e-20])) == pytest.approx(2e-20, rel=1e-14)
    assert float(prediction.quantile(1e-20)) == pytest.approx(5e-21, rel=1e-14)


@continuous
@given(p=st.floats(1e-4, 1 - 1e-4))
def test_cdf_of_the_quantile_is_p(m: Mixture, p: float) -> None:
    prediction = Prediction(m.distribution)
    torch.testing.assert_close(
        prediction.cdf(prediction.quantile(p)),
        torch.full((ROWS,), p, dtype=torch.float64),
        rtol=1e-8,
        atol=1e-9,
    )


@counts
@given(p=st.floats(1e-4, 1 - 1e-4))
def test_quantile_of_counts_is_the_smallest_count_that_reaches_p(m: Mixture, p: float) -> None:
    prediction = Prediction(m.distribution)
    k = prediction.quantile(p)
    assert torch.equal(k, k.round())
    assert bool((prediction.cdf(k) >= p).all())
    assert bool((prediction.cdf(k - 1) < p).all())


@every
def test_quantile_grows_with_p(m: Mixture) -> None:
    q = torch.stack([Prediction(m.distribution).quantile(p) for p in P])
    assert bool((q.diff(dim=0) >= 0).all())


@every
@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_interval_is_central_and_has_its_level(m: Mixture, level: float) -> None:
    prediction = Prediction(m.distribution)
    region = prediction.interval(level)
    torch.testing.assert_close(
        region.lower, prediction.quantile((1 - level) / 2), rtol=1e-10, atol=1e-10
    )
    inside = prediction.cdf(region.upper) - prediction.cdf(region.lower - (1 if m.discrete else 0))
    assert bool((inside >= level - 1e-9).all())
    assert m.discrete or torch.allclose(inside, torch.full_like(inside, level), atol=1e-9)
    assert region.level == level
    assert "none beyond the model" in region.guarantee


def test_a_quantile_of_a_mixture_is_not_the_mean_of_quantiles() -> None:
    distribution = torch.distributions.Normal(
        torch.tensor([[-10.0], [10.0]]).double(), torch.ones(2, 1).double()
    )
    assert float(Prediction(distribution).quantile(0.25)) == pytest.approx(-10.0, abs=1e-9)


def test_a_million_to_one_mixture_of_scales_is_bracketed() -> None:
    scale = torch.tensor([[1e-6], [1e6]], dtype=torch.float64)
    prediction = Prediction(torch.distributions.Normal(torch.zeros_like(scale), scale))
    for p in (1e-6, 0.3, 0.51, 0.9999):
        assert float(prediction.cdf(prediction.quantile(p))) == pytest.approx(p, rel=1e-9)


def test_float32_stays_float32() -> None:
    distribution = torch.distributions.Normal(torch.zeros(4, 2), torch.ones(4, 2))
    prediction = Prediction(distribution)
    assert (
        prediction.quantile(0.3).dtype
        == prediction.cdf(np.zeros(2)).dtype
        == prediction.interval().lower.dtype
        == torch.float32
    )


@pytest.mark.parametrize("p", [0.0, 1.0, -0.1, 95.0])
def test_a_probability_outside_0_1_is_refused(p: float) -> None:
    with pytest.raises(SettingError, match=r"a probability in \(0, 1\)"):
        Prediction(ALL["Normal"].distribution).quantile(p)


def test_a_distribution_without_a_cdf_is_refused_with_advice() -> None:
    distribution = torch.distributions.VonMises(torch.zeros(2, 3), torch.ones(2, 3))
    with pytest.raises(NotApplicable, match="use log_prob and sample"):
        Prediction(distribution).cdf(torch.zeros(3))
