"""Quantiles of mixtures of narrow and wide components, and of heavy tails."""

from __future__ import annotations

from collections.abc import Callable

import pyro.distributions as dist
import pytest
import torch
from scipy import stats
from torch.distributions import Distribution

from ppgp.errors import NotApplicable
from ppgp.posterior.prediction import Prediction

F64 = torch.float64
P = (1e-3, 0.05, 0.25, 0.5, 0.75, 0.95, 0.999)


def alike(family: Callable[..., Distribution], *parameters: float) -> Prediction:
    """Return a mixture of two equal components, which has no closed form."""
    return Prediction(family(*(torch.full((2, 1), v, dtype=F64) for v in parameters)))


DISTRIBUTIONS = {
    "LogNormal 5": (alike(dist.LogNormal, 0.0, 5.0), stats.lognorm(5.0)),
    "LogNormal 10": (alike(dist.LogNormal, 0.0, 10.0), stats.lognorm(10.0)),
    "LogNormal 20": (alike(dist.LogNormal, 0.0, 20.0), stats.lognorm(20.0)),
    "Gamma": (alike(dist.Gamma, 0.05, 1.0), stats.gamma(0.05)),
    "Weibull": (alike(dist.Weibull, 1.0, 0.1), stats.weibull_min(0.1)),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_quantiles_of_heavy_tails(name: str) -> None:
    prediction, known = DISTRIBUTIONS[name]
    for p in P:
        assert float(prediction.quantile(p)[0]) == pytest.approx(
            float(known.ppf(p)), rel=1e-11, abs=0
        )


@pytest.mark.parametrize("wide", [1e4, 1e12, 1e16, 1e40, 1e150])
@pytest.mark.parametrize("draws", [2, 200])
def test_quantiles_of_a_narrow_component_and_a_wide_one(wide: float, draws: int) -> None:
    """One of 2, or of 200, draws has a much larger scale; the cdf of a quantile is exact."""
    scale = torch.ones(draws, 1, dtype=F64)
    scale[0] = wide
    prediction = Prediction(dist.Normal(torch.zeros(draws, 1, dtype=F64), scale))
    for p in (0.05, 0.27, 0.4, 0.7, 0.95):
        assert float(prediction.cdf(prediction.quantile(p))[0]) == pytest.approx(p, rel=1e-13)
    assert bool(prediction.interval(0.4).covers([0.0]))


def test_no_rows_have_no_quantiles() -> None:
    prediction = Prediction(dist.Normal(torch.zeros(3, 4, dtype=F64), 1.0))[[]]
    assert prediction.quantile(0.5).shape == (0,)
    assert prediction.interval(0.9).lower.shape == (0,)


def test_a_distribution_of_distributions_is_refused_if_its_rows_are_needed() -> None:
    which = dist.Categorical(torch.ones(3, 4, 2, dtype=F64))
    prediction = Prediction(
        dist.MixtureSameFamily(which, dist.Normal(torch.zeros(3, 4, 2, dtype=F64), 1.0))
    )
    for ask in (prediction.sample, lambda: prediction.log_prob([0.0] * 4), lambda: prediction[:2]):
        with pytest.raises(NotApplicable, match="MixtureSameFamily"):
            ask()
