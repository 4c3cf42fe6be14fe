"""The Laplace approximation of a Gaussian posterior is exact along a ridge with a wide prior."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import inference
from ppgp.errors import ConvergenceWarning

Y = torch.randn(50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def ridge(sites: int, sd: float) -> Callable[[Tensor], None]:
    """y ~ N(sum of the sites, 1), each N(0, sd)."""

    def program(y: Tensor) -> None:
        zero = torch.zeros((), dtype=torch.float64)
        total = sum(pyro.sample(f"a{i}", dist.Normal(zero, sd)) for i in range(sites))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(total, 1.0), obs=y)

    return program


@pytest.mark.parametrize("sites", [2, 3])
@pytest.mark.parametrize("sd", [1e3, 1e5, 1e7])
def test_the_spread_along_a_ridge_is_that_of_the_prior(sites: int, sd: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = ppgp.fit(ridge(sites, sd), {"y": Y}, inference.Laplace(draws=50), progress=False)
    prior = sd**2 * torch.eye(sites, dtype=torch.float64)
    gain = prior.sum(1) / (sites * sd**2 + 1 / len(Y))  # the information in the mean of y
    exact = prior - torch.outer(gain, prior.sum(0))
    torch.testing.assert_close(
        result.stats["covariance"].diagonal(), exact.diagonal(), rtol=1e-3, atol=0
    )
    one = torch.ones(sites, dtype=torch.float64)
    along = one @ result.stats["covariance"] @ one
    if sd < 1e6:  # beyond, the sum of entries of 1e14 has no digits left for 0.02
        torch.testing.assert_close(
            along, torch.tensor(1 / 50, dtype=torch.float64), rtol=0.02, atol=0
        )
    evidence = -0.5 * (Y @ Y - sites * sd**2 * Y.sum() ** 2 / (1 + 50 * sites * sd**2))
    evidence = evidence - 0.5 * (
        torch.log1p(torch.tensor(50.0 * sites * sd**2)) + 50 * torch.log(torch.tensor(2 * torch.pi))
    )
    assert result.stats["log_evidence"] == pytest.approx(float(evidence), abs=1e-2)


def test_a_ridge_that_is_no_parabola_gets_a_note() -> None:
    def program(y: Tensor) -> None:
        a, b = (
            pyro.sample(name, dist.StudentT(1.0, torch.zeros((), dtype=torch.float64), 1e6))
            for name in "ab"
        )
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(a + b, 1.0), obs=y)

    with pytest.warns(ConvergenceWarning, match="not negative definite"):
        ppgp.fit(program, {"y": Y}, inference.Laplace(draws=50), progress=False)
