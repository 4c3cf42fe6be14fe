"""Marginal distributions and expected log likelihoods of SVGP against integrals over f."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from svgp_examples import F64, LIKELIHOODS, number
from torch import Tensor

from ppgp import kernels, likelihoods
from ppgp.errors import NotApplicable
from ppgp.models import SVGP


@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_the_marginal_distribution_equals_the_integral(kind: str) -> None:
    """Compare with E p(y given f) by adaptive quadrature, or by many draws for classes."""
    lik = LIKELIHOODS[kind]
    if kind == "categorical":
        lik = likelihoods.Categorical(3)
        mean, variance = number([[[0.3], [-0.5], [1.0]]]), number([[[0.4], [1.5], [0.2]]])
        distribution = lik.marginal({}, mean, variance)
        g = torch.Generator().manual_seed(0)
        f = mean[0, :, 0] + variance[0, :, 0].sqrt() * torch.randn(
            200_000, 3, generator=g, dtype=F64
        )
        p = torch.softmax(f, -1)
        error = (
            4 * p.std(0) / math.sqrt(len(p)) + 1e-3
        )  # plus the error of 1,024 quasi-random points
        assert bool(((distribution.probs[0, 0] - p.mean(0)).abs() < error).all())
        return
    for m, v in ((0.4, 0.3), (-1.0, 4.0)):
        distribution = lik.marginal({}, number([[m]]), number([[v]]))
        for y in [0.0, 1.0] if kind in ("bernoulli", "probit") else [0.0, 2.0]:

            def integrand(f: float, y: float = y, m: float = m, v: float = v) -> float:
                return float(
                    lik.distribution({}, number([f])).log_prob(number([y])).exp()
                ) * stats.norm.pdf(f, m, math.sqrt(v))

            exact = integrate.quad(
                integrand, m - 9 * v**0.5, m + 9 * v**0.5, points=[y, m], limit=200
            )[0]
            assert float(distribution.log_prob(number([y])).exp()) == pytest.approx(exact, rel=2e-4)


@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_the_expected_log_likelihood_equals_the_integral(kind: str) -> None:
    lik = LIKELIHOODS[kind]
    g = torch.Generator().manual_seed(0)
    if kind == "categorical":
        lik = likelihoods.Categorical(3)
        mean, variance = number([[0.3], [-0.5], [1.0]]), number([[0.4], [1.5], [0.2]])
        f = mean[..., None] + variance[..., None].sqrt() * torch.randn(
            3, 1, 100_000, generator=g, dtype=F64
        )
        each = torch.log_softmax(f, 0)[2, 0]
        value = float(lik.expected({}, mean, variance, number([2.0])))
        assert abs(value - float(each.mean())) < 4 * float(each.std()) / math.sqrt(100_000) + 2e-3
        return
    mean, variance, y = number([0.4]), number([0.5]), number([1.0])

    def integrand(f: float) -> float:
        return float(lik.distribution({}, number([f])).log_prob(y)) * stats.norm.pdf(
            f, 0.4, math.sqrt(0.5)
        )

    exact = integrate.quad(integrand, 0.4 - 6.5, 0.4 + 6.5, limit=200)[0]
    assert float(lik.expected({}, mean, variance, y)) == pytest.approx(exact, rel=2e-4)


@pytest.mark.parametrize("rate", [0.5, 30.0, 2000.0])
def test_poisson_lognormal_against_quadrature(rate: float) -> None:
    from ppgp.distributions.distributions import PoissonLogNormal

    m, s = math.log(rate), 0.6
    distribution = PoissonLogNormal(number([m]), number([s]))
    for k in {0, int(rate), int(2 * rate)}:
        points = [math.log(max(k, 0.5))]
        mass = integrate.quad(
            lambda x, k=k: stats.poisson.pmf(k, np.exp(x)) * stats.norm.pdf(x, m, s),
            m - 6,
            m + 6,
            points=points,
            limit=500,
        )[0]
        upto = integrate.quad(
            lambda x, k=k: stats.poisson.cdf(k, np.exp(x)) * stats.norm.pdf(x, m, s),
            m - 6,
            m + 6,
            points=points,
            limit=500,
        )[0]
        assert float(distribution.log_prob(number([float(k)])).exp()) == pytest.approx(
            mass, rel=1e-6, abs=1e-12
        )
        assert float(distribution.cdf(number([float(k)]))) == pytest.approx(upto, abs=1e-6)
    draws = distribution.sample((200_000,))[:, 0].to(F64)
    assert abs(float(draws.mean()) - float(distribution.mean)) < 4 * float(draws.std()) / math.sqrt(
        len(draws)
    )


@pytest.mark.parametrize("kind", ["Bernoulli", "Categorical", "Poisson", "StudentT"])
def test_a_row_where_f_is_certain_does_not_change_the_gradient(kind: str) -> None:
    """Under a linear kernel f(0) = 0; the gradient is the same without that row."""
    likelihood = {
        "Bernoulli": likelihoods.Bernoulli(),
        "Categorical": likelihoods.Categorical(2),
        "Poisson": likelihoods.Poisson(),
        "StudentT": likelihoods.StudentT(4.0, 0.5),
    }[kind]
    shape = (2, 3) if kind == "Categorical" else (3,)
    Z = torch.tensor([[-1.0], [0.5], [2.0]], dtype=F64)
    X, y = torch.tensor([[-1.5], [1.0], [0.0]], dtype=F64), torch.tensor([0.0, 1.0, 1.0], dtype=F64)
    model = SVGP(kernels.Linear(), likelihood=likelihood, Z=Z)

    def slope(rows: int) -> Tensor:
        variance = torch.ones((), dtype=F64, requires_grad=True)
        q = {
            "v_loc": torch.full(shape, 0.3, dtype=F64),
            "v_scale_tril": 0.5 * torch.eye(3, dtype=F64).expand(*shape, 3),
        }
        theta = {"kernel.variance": variance, "inducing": Z, **q}
        return torch.autograd.grad(model.elbo(theta, X[:rows], y[:rows], total=rows), variance)[0]

    torch.testing.assert_close(slope(3), slope(2))


def test_a_weibull_shape_that_depends_on_x_is_refused() -> None:
    """E (y / e^f)^k over f is exp(k^2 v / 2), whose mean over a log-normal k is infinite."""
    k_of = likelihoods.Weibull(shape=likelihoods.Predicted())

    def cost(reach: float) -> float:
        return integrate.quad(
            lambda g: math.exp(0.5 * math.exp(2 * g)) * stats.norm.pdf(g), -reach, reach
        )[0]

    assert cost(2.5) > 1e12
    assert cost(3.0) > 1e30 * cost(2.5)
    with pytest.raises(NotApplicable, match="Gamma"):
        SVGP(likelihood=k_of)
    assert SVGP(likelihood=likelihoods.Weibull()).likelihood.latents == 1
