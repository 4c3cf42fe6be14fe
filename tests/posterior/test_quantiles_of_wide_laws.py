"""Quantiles where the sd of a law says nothing of where they lie: sharp components beside wide ones, heavy tails."""

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
    """A mixture of two equal laws, which no closed form serves."""
    return Prediction(family(*(torch.full((2, 1), v, dtype=F64) for v in parameters)))


LAWS = {
    "LogNormal 5": (alike(dist.LogNormal, 0.0, 5.0), stats.lognorm(5.0)),
    "LogNormal 10": (alike(dist.LogNormal, 0.0, 10.0), stats.lognorm(10.0)),
    "LogNormal 20": (alike(dist.LogNormal, 0.0, 20.0), stats.lognorm(20.0)),
    "Gamma": (alike(dist.Gamma, 0.05, 1.0), stats.gamma(0.05)),
    "Weibull": (alike(dist.Weibull, 1.0, 0.1), stats.weibull_min(0.1)),
}


@pytest.mark.parametrize("name", LAWS)
def test_quantiles_of_heavy_tails(name: str) -> None:
    law, known = LAWS[name]
    for p in P:
        assert float(law.quantile(p)[0]) == pytest.approx(float(known.ppf(p)), rel=1e-11, abs=0)


@pytest.mark.parametrize("wide", [1e4, 1e12, 1e16, 1e40, 1e150])
@pytest.mark.parametrize("draws", [2, 200])
def test_quantiles_of_a_sharp_component_beside_a_wide_one(wide: float, draws: int) -> None:
    """One draw of 2, or of 200, has a scale that is so much larger: the probabilities are those asked for."""
    scale = torch.ones(draws, 1, dtype=F64)
    scale[0] = wide
    law = Prediction(dist.Normal(torch.zeros(draws, 1, dtype=F64), scale))
    for p in (0.05, 0.27, 0.4, 0.7, 0.95):
        assert float(law.cdf(law.quantile(p))[0]) == pytest.approx(p, rel=1e-13)
    assert bool(law.interval(0.4).covers([0.0]))


def test_a_law_made_from_others_is_refused_where_its_rows_are_needed() -> None:
    which = dist.Categorical(torch.ones(3, 4, 2, dtype=F64))
    law = Prediction(
        dist.MixtureSameFamily(which, dist.Normal(torch.zeros(3, 4, 2, dtype=F64), 1.0))
    )
    for ask in (law.sample, lambda: law.log_prob([0.0] * 4), lambda: law[:2]):
        with pytest.raises(NotApplicable, match="MixtureSameFamily"):
            ask()
