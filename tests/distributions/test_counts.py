"""The cdf and quantiles of count distributions, and single tails of continuous ones."""

from __future__ import annotations

import pyro.distributions as dist
import pytest
import torch
from scipy import stats
from torch import Tensor

from ppgp import Prediction
from ppgp.distributions import tails, univariate
from ppgp.distributions.univariate import cdf

F64 = torch.float64


def number(x: float) -> Tensor:
    return torch.tensor([[x]], dtype=F64)


LAWS = {
    "NegativeBinomial": (
        dist.NegativeBinomial(number(2.5), probs=number(0.7)),
        stats.nbinom(2.5, 0.3),
    ),
    "GammaPoisson": (dist.GammaPoisson(number(2.5), number(0.4)), stats.nbinom(2.5, 0.4 / 1.4)),
    "Binomial": (dist.Binomial(12, probs=number(0.3)), stats.binom(12, 0.3)),
    "Geometric": (dist.Geometric(probs=number(0.2)), stats.geom(0.2, loc=-1)),
    "Poisson": (dist.Poisson(number(4.0)), stats.poisson(4.0)),
}


@pytest.mark.parametrize("name", LAWS)
def test_the_cdf_of_counts_equals_scipys(name: str) -> None:
    ours, theirs = LAWS[name]
    x = torch.tensor([-1.0, 0.0, 0.5, 3.0, 11.0, 12.0, 40.0, torch.inf], dtype=F64)
    found = cdf(ours, x[:, None, None])[:, 0, 0]
    torch.testing.assert_close(
        found, torch.as_tensor(theirs.cdf(x.numpy())), rtol=1e-12, atol=1e-14
    )


def test_quantiles_from_a_mass_function_sum_it_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    law = dist.BetaBinomial(
        torch.tensor([[2.0, 3.0], [5.0, 0.7]], dtype=F64), torch.tensor(1.5, dtype=F64), 400
    )
    assert univariate.has_only_mass(law)
    k = torch.arange(401, dtype=F64)
    F = law.log_prob(k[:, None, None]).exp().mean(1).cumsum(0)
    calls = []
    original = univariate.log_prob
    monkeypatch.setattr(
        "ppgp.distributions.mixture.component_log_prob",
        lambda d, x: calls.append(x.numel()) or original(d, x),
    )
    for p in (1e-6, 0.05, 0.5, 0.95):
        calls.clear()
        found = Prediction(law).quantile(p)
        assert found.tolist() == (p > F).sum(0).tolist()
        assert sum(calls) <= 4 * (
            401 + 16
        )  # of two rows: no more than twice as far as the law goes


@pytest.mark.parametrize("name", ["Normal", "LogNormal", "StudentT"])
def test_a_single_tail_equals_that_of_the_pair(name: str) -> None:
    make = {
        "Normal": dist.Normal,
        "LogNormal": dist.LogNormal,
        "StudentT": lambda m, s: dist.StudentT(3.0, m, s),
    }[name]
    law = make(torch.zeros(2, 5, dtype=F64), torch.ones(2, 5, dtype=F64))
    x = torch.tensor([-30.0, -1.0, 0.0, 1.0, 30.0], dtype=F64)
    both = tails.log_tails(law, x)
    for right in (False, True):
        assert torch.equal(tails.log_tail(law, x, right), both[right])
