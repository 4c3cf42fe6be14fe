"""Statistics that a posterior does not know are not attributes of it."""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import pytest
import torch

import ppgp
from ppgp import inference, models
from ppgp.errors import NotApplicable

X = torch.randn(12, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_hasattr_is_false_for_unknown_statistics() -> None:
    data = ppgp.Dataset(X, X[:, 0])
    draws = {"weight": torch.zeros(2, 5, 2), "bias": torch.zeros(2, 5), "noise": torch.ones(2, 5)}
    chains = ppgp.Posterior(models.LinearRegression(), data, draws, inference.NUTS())
    for name in ("aic", "bic", "log_evidence"):
        assert not hasattr(chains, name)
        assert getattr(chains, name, None) is None
        with pytest.raises(NotApplicable):
            getattr(chains, name)


def test_a_program_of_factors_alone_has_no_criterion() -> None:
    def program(y: torch.Tensor) -> None:
        level = pyro.sample("level", dist.Normal(y.new_zeros(()), 1.0))
        pyro.factor("data", -0.5 * (y - level).square().sum())

    posterior = ppgp.fit(program, {"y": X[:, 0]}, inference.Laplace(draws=5), progress=False)
    for name in ("aic", "bic"):
        assert not hasattr(posterior, name)
        with pytest.raises(NotApplicable, match="observed"):
            getattr(posterior, name)


def test_a_field_named_components_is_not_the_capability() -> None:
    draws = {"weight": torch.ones(1, 1, 2)}
    posterior = ppgp.Posterior(
        models.GaussianMixture(2), ppgp.Dataset(X, X[:, 0]), draws, inference.MAP()
    )
    with pytest.raises(NotApplicable, match="components"):
        posterior.components(X)
