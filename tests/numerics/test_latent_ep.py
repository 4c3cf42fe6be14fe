"""Expectation propagation of two classes: brute force, derivatives and one row."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from ppgp.likelihoods import Bernoulli
from ppgp.likelihoods.base import hermite
from ppgp.likelihoods.joint_rows import LatentMarginal, LikelihoodRows
from ppgp.numerics.latent_ep import ep_log_evidence, expand_by_ep
from ppgp.numerics.latent_laplace import expand_at_mode

F64 = torch.float64
GENERATOR = torch.Generator().manual_seed(1)
N = 6
X = torch.randn(N, 2, generator=GENERATOR, dtype=F64)
Y = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 1.0], dtype=F64)
MEAN = torch.full((N,), 0.3, dtype=F64)
LINKS = ("logit", "probit")
both_links = pytest.mark.parametrize("link", LINKS)


def covariance(variance: float | Tensor, lengthscale: float | Tensor) -> Tensor:
    square = (X[:, None] - X[None]).square().sum(-1)
    return variance * torch.exp(-0.5 * square / lengthscale**2) + 1e-6 * torch.eye(N, dtype=F64)


def by_importance_sampling(link: str, K: Tensor, draws: int) -> float:
    """Return the log evidence, with a Student-t proposal at Laplace's approximation."""
    likelihood = Bernoulli(link)
    rows = LikelihoodRows(likelihood, [], Y)
    found = expand_at_mode(K, MEAN, rows)
    loc = MEAN + found.mean(K)
    root = torch.linalg.cholesky(K - found.covariance_explained(K))
    proposal = torch.distributions.StudentT(8.0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        e = proposal.sample(torch.Size([draws, N])).to(F64)
    f = loc + e @ root.mT
    prior = torch.distributions.MultivariateNormal(MEAN, K)
    log_q = proposal.log_prob(e).sum(-1) - root.diagonal().log().sum()
    rows_of_f = likelihood.distribution({}, f).log_prob(Y).sum(-1)
    return float(torch.logsumexp(rows_of_f + prior.log_prob(f) - log_q, 0) - math.log(draws))


@both_links
@pytest.mark.parametrize("variance", [0.5, 2.0, 6.0])
def test_the_evidence_is_within_a_hundredth_of_brute_force(link: str, variance: float) -> None:
    K = covariance(variance, 1.2)
    exact = by_importance_sampling(link, K, 100_000)
    found = float(LatentMarginal(Bernoulli(link), {}, MEAN, K, "ep").log_prob(Y))
    laplace = float(LatentMarginal(Bernoulli(link), {}, MEAN, K).log_prob(Y))
    assert found == pytest.approx(exact, abs=0.01)
    assert abs(found - exact) < abs(laplace - exact)


@both_links
def test_first_and_second_derivatives_are_those_of_the_value(link: str) -> None:
    def value(variance: Tensor, lengthscale: Tensor, level: Tensor) -> Tensor:
        K = covariance(variance, lengthscale)
        return LatentMarginal(Bernoulli(link), {}, level.expand(N), K, "ep").log_prob(Y)

    arguments = [torch.tensor(v, dtype=F64, requires_grad=True) for v in (2.0, 1.2, 0.3)]
    assert torch.autograd.gradcheck(value, arguments, eps=1e-5, atol=1e-6, rtol=1e-5)
    assert torch.autograd.gradgradcheck(value, arguments, eps=1e-5, atol=1e-5, rtol=1e-4)


@both_links
def test_one_row_is_exact(link: str) -> None:
    K, mean, y = (torch.full(s, v, dtype=F64) for s, v in (((1, 1), 3.0), ((1,), 0.4), ((1,), 1.0)))
    likelihood = Bernoulli(link)
    found = LatentMarginal(likelihood, {}, mean, K, "ep").log_prob(y)
    torch.testing.assert_close(found, likelihood.marginal({}, mean, K[0]).log_prob(y)[0])
    sites = expand_by_ep(K, mean, LikelihoodRows(likelihood, [], y))
    nodes, weights = hermite(200, mean)
    f = mean + math.sqrt(3.0) * nodes
    weights = weights * likelihood.distribution({}, f).log_prob(y).exp()
    weights = weights / weights.sum()
    center = (weights * f).sum()
    torch.testing.assert_close(mean[0] + sites.mean(K)[0], center, rtol=1e-7, atol=0)
    spread = K[0, 0] - sites.variance_explained(K)[0]
    torch.testing.assert_close(spread, (weights * (f - center).square()).sum(), rtol=1e-6, atol=0)


@both_links
@pytest.mark.parametrize("variance", [1e-3, 0.3, 4.0, 400.0])
def test_tilted_averages_are_those_of_quadrature(link: str, variance: float) -> None:
    mean = torch.linspace(-8.0, 8.0, 9, dtype=F64).requires_grad_()
    y, spread = torch.ones(9, dtype=F64), torch.full((9,), variance, dtype=F64)
    e = torch.linspace(-12.0, 12.0, 40_001, dtype=F64)[:, None]
    own = Bernoulli(link).distribution({}, mean + spread.sqrt() * e).log_prob(y)
    logs = torch.logsumexp(own - 0.5 * e.square(), 0) - torch.logsumexp(-0.5 * e.square(), 0)
    (first,) = torch.autograd.grad(logs.sum(), mean, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), mean)
    found = Bernoulli(link).tilted(mean.detach(), spread, y)
    for one, two in zip(found, (logs, first, -second), strict=True):
        torch.testing.assert_close(one, two.detach(), rtol=1e-7, atol=1e-10)


def test_a_wide_prior_far_from_the_targets_keeps_the_digits() -> None:
    """The gradient in the mean is that of the value, which K a with large K would spoil."""
    x = torch.linspace(-2, 2, 20, dtype=F64)[:, None]
    y = (torch.arange(20) * 7 % 20 > 8).to(F64)
    rows = LikelihoodRows(Bernoulli("probit"), (), y)

    def value(level: float, variance: float = 3e3) -> tuple[float, float]:
        K = variance * torch.exp(-0.5 * ((x - x.mT) / 148.0) ** 2)
        mean = torch.full((20,), level, dtype=F64, requires_grad=True)
        found = ep_log_evidence(K, mean, rows)
        return float(found.detach()), float(torch.autograd.grad(found, mean)[0].sum())

    step = 0.05
    slope = (value(-20 + step)[0] - value(-20 - step)[0]) / (2 * step)
    assert slope == pytest.approx(value(-20.0)[1], rel=1e-4)
    assert math.isfinite(value(-20.0, 1.2e6)[0])
