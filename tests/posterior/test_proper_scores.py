"""log_prob, CRPS and PIT of a prediction against closed forms, integrals and Monte Carlo."""

from __future__ import annotations

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from mixtures import ALL, CONTINUOUS, COUNTS, ROWS, Mixture
from panels import nodes_and_weights
from scipy import stats

from ppgp.distributions.crps import CLOSED_FORM_DRAWS, integral
from ppgp.posterior.prediction import Prediction

every = pytest.mark.parametrize("m", ALL.values(), ids=ALL.keys())
P = (0.02, 0.6)
TAIL = (1e-9, 1e-6, 1e-4, 0.01, 0.1, 0.25)
EDGES = (*TAIL, 0.5, *(1 - p for p in TAIL))


def targets(m: Mixture, p: float) -> np.ndarray:
    return np.array([m.quantile(i, p) for i in range(ROWS)])


@every
@pytest.mark.parametrize("p", P)
def test_log_prob_is_the_log_of_the_mean_density(m: Mixture, p: float) -> None:
    y = targets(m, p)
    theirs = np.log([m.density(i, y[i]) for i in range(ROWS)])
    np.testing.assert_allclose(
        Prediction(m.distribution).log_prob(y).numpy(), theirs, rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("name", ["Gamma", "LogNormal", "Uniform", "Poisson", "NegativeBinomial"])
def test_impossible_values_have_log_density_minus_infinity(name: str) -> None:
    prediction = Prediction(ALL[name].distribution)
    assert prediction.log_prob([-5.0] * ROWS).tolist() == [-np.inf] * ROWS
    if ALL[name].discrete:
        assert prediction.log_prob([0.5] * ROWS).tolist() == [-np.inf] * ROWS


@every
@pytest.mark.parametrize("p", P)
def test_crps_is_the_integral_of_the_squared_difference_of_cdfs(m: Mixture, p: float) -> None:
    y = targets(m, p)
    ours = Prediction(m.distribution).crps(y).numpy()
    for i in range(ROWS):
        rough = "StudentT" in repr(m.distribution) or "Uniform" in repr(
            m.distribution
        )  # tails without an end, or a cdf with corners
        if m.discrete:
            k = np.arange(int(m.quantile(i, 1 - 1e-13)) + int(y[i]) + 2)
            expected = float(np.square(m.cdfs(i, k) - (k >= y[i])).sum())
        else:
            edges = sorted({y[i], *np.ravel([m.row(i).ppf(p) for p in EDGES])})
            x, weights = nodes_and_weights(edges, parts=2)
            expected = float(weights @ np.square(m.cdfs(i, x) - (x > y[i])))
        assert ours[i] == pytest.approx(expected, rel=1e-3 if rough else 1e-6, abs=1e-9)


@pytest.mark.parametrize("at", [-3.0, 0.0, 97_500.0, 100_000.5, 140_000.0])
def test_crps_of_large_counts_is_the_sum_over_all_counts(at: float) -> None:
    """One row has large counts and one small; y lies among, between and beyond the counts."""
    rates = np.array([[1e5, 3.0], [9.8e4, 5.0]])
    k = np.arange(150_000)
    ours = Prediction(dist.Poisson(torch.as_tensor(rates))).crps([at, at])
    for row, each in enumerate(rates.T):
        F = stats.poisson.cdf(k[:, None], each).mean(1)
        before = np.clip(at - k, 0.0, 1.0)
        expected = float((before * F**2 + (1 - before) * (1 - F) ** 2).sum()) + max(0.0, -at)
        assert float(ours[row]) == pytest.approx(expected, rel=1e-11)


def test_crps_of_counts_with_a_mass_function_alone_is_the_sum_over_all_counts() -> None:
    """A zero-inflated Poisson has no closed cdf."""
    gate, rate = torch.tensor([[0.3, 0.1]]).double(), torch.tensor([[4.0, 40.0]]).double()
    ours = Prediction(dist.ZeroInflatedPoisson(rate, gate=gate)).crps([2.0, 60.0])
    k = np.arange(300)
    for i, y in enumerate((2.0, 60.0)):
        g, r = float(gate[0, i]), float(rate[0, i])
        F = g + (1 - g) * stats.poisson.cdf(k, r)
        assert float(ours[i]) == pytest.approx(float(np.square(F - (k >= y)).sum()), rel=1e-11)


def test_crps_of_one_normal_is_its_closed_form() -> None:
    mu, sigma, y = (
        torch.tensor([0.3, -1.0]).double(),
        torch.tensor([0.5, 2.0]).double(),
        torch.tensor([1.0, -4.0]).double(),
    )
    z = ((y - mu) / sigma).numpy()
    closed = sigma.numpy() * (
        z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi)
    )
    np.testing.assert_allclose(
        Prediction(torch.distributions.Normal(mu, sigma)).crps(y).numpy(), closed, rtol=1e-12
    )


@pytest.mark.parametrize("spread", [0.1, 2.0, 30.0], ids=["overlapping", "wide", "far apart"])
def test_crps_of_normals_by_integral_agrees_with_pairs(spread: float) -> None:
    """The closed form is used for up to some hundreds of draws, the integral for more."""
    generator = torch.Generator().manual_seed(0)
    m = spread * torch.randn(40, 6, generator=generator, dtype=torch.float64)
    s = 0.3 + torch.rand(40, 6, generator=generator, dtype=torch.float64)
    distribution, y = (
        torch.distributions.Normal(m, s),
        torch.linspace(-3, 3, 6, dtype=torch.float64) * spread,
    )
    torch.testing.assert_close(
        integral(distribution, y),
        Prediction(distribution).crps(y),
        rtol=2e-3,
        atol=1e-6,
    )


def test_crps_of_many_draws_is_that_of_a_few_repeated() -> None:
    few = CONTINUOUS["Normal"].distribution
    many = torch.distributions.Normal(few.loc.repeat(60, 1), few.scale.repeat(60, 1))
    assert len(many.loc) > CLOSED_FORM_DRAWS
    y = torch.tensor([-1.0, 0.0, 2.0]).double()
    torch.testing.assert_close(
        Prediction(many).crps(y), Prediction(few).crps(y), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("name", ["Normal", "StudentT", "Gamma", "Poisson", "NegativeBinomial"])
def test_crps_is_the_energy_form_by_monte_carlo(name: str) -> None:
    """It is E|Y - y| - E|Y - Y'| / 2, within five standard errors."""
    k, prediction = 40_000, Prediction(ALL[name].distribution)
    y = prediction.quantile(0.7)
    draws, others = prediction.sample(k, seed=1), prediction.sample(k, seed=2)
    terms = (draws - y).abs() - 0.5 * (
        draws - others[torch.randperm(k, generator=torch.Generator().manual_seed(0))]
    ).abs()
    error = terms.std(0) / k**0.5
    assert bool(((terms.mean(0) - prediction.crps(y)).abs() < 5 * error).all())


def test_crps_of_a_distant_target_is_the_distance_minus_half_the_spread() -> None:
    distribution = torch.distributions.Normal(torch.zeros(1, 1).double(), torch.ones(1, 1).double())
    assert float(Prediction(distribution).crps([1e3])) == pytest.approx(
        1e3 - 1 / np.sqrt(np.pi), rel=1e-12
    )


@every
def test_pit_of_its_own_draws_is_uniform(m: Mixture) -> None:
    """Kolmogorov-Smirnov test at a fixed seed."""
    y = Prediction(m.distribution).sample(400, seed=3)
    u = torch.stack([Prediction(m.distribution).pit(row, seed=i) for i, row in enumerate(y)])
    assert bool(((u >= 0) & (u <= 1)).all())
    assert all(stats.kstest(u[:, i].numpy(), "uniform").pvalue > 1e-3 for i in range(ROWS))


@pytest.mark.parametrize("m", COUNTS.values(), ids=COUNTS.keys())
def test_pit_of_a_count_lies_between_its_two_cdfs_and_follows_the_seed(m: Mixture) -> None:
    prediction = Prediction(m.distribution)
    y = prediction.quantile(0.6)
    u = prediction.pit(y, seed=4)
    assert bool(((prediction.cdf(y - 1) <= u) & (u <= prediction.cdf(y))).all())
    assert torch.equal(u, prediction.pit(y, seed=4))
    assert not torch.equal(u, prediction.pit(y, seed=5))


@pytest.mark.parametrize("m", CONTINUOUS.values(), ids=CONTINUOUS.keys())
def test_pit_of_a_continuous_distribution_is_its_cdf(m: Mixture) -> None:
    y = targets(m, 0.3)
    assert torch.equal(Prediction(m.distribution).pit(y), Prediction(m.distribution).cdf(y))
