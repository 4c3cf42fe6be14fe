"""StateSpaceGP of any likelihood: beside GP with the same likelihood, and as a model of its own."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyro
import pytest
import torch

import ppgp
from ppgp import inference, likelihoods, models, priors
from ppgp.data import Dataset
from ppgp.density import Target
from ppgp.errors import DataError, NotApplicable, SettingError
from ppgp.estimators import ProbabilisticRegressor
from ppgp.kernels import RBF, Constant, Cosine, Linear, Matern
from ppgp.likelihoods import Bernoulli, Binomial, Gaussian, NegativeBinomial, Poisson, StudentT
from ppgp.models import GP, StateSpaceGP
from ppgp.models.markov import latent_state_space_gp

F64 = torch.float64
RANDOM = torch.Generator().manual_seed(0)
N = 120
T = 10 * torch.rand(N, 1, generator=RANDOM, dtype=F64)
T[3:9] = T[50]
TRUTH = torch.sin(T[:, 0])
NORMAL = torch.randn(N, generator=RANDOM, dtype=F64)
COUNTS = torch.poisson(TRUTH.exp(), generator=RANDOM)
HEAVY = NORMAL / torch.rand(N, generator=RANDOM, dtype=F64).sqrt()
NEW = torch.linspace(-3.0, 14.0, 40, dtype=F64)[:, None]
CASES: dict[str, tuple[likelihoods.Likelihood, Dataset]] = {
    "counts": (Poisson(), Dataset(T, COUNTS)),
    "labels": (Bernoulli(), Dataset(T, (TRUTH + NORMAL > 0).to(F64))),
    "overdispersed counts": (NegativeBinomial(), Dataset(T, COUNTS)),
    "numbers with outliers": (StudentT(), Dataset(T, TRUTH + 0.3 * HEAVY)),
}
every_case = pytest.mark.parametrize("name", list(CASES))


def at_two_draws(target: Target, z: torch.Tensor) -> dict[str, torch.Tensor]:
    one, two = target.constrain(z), target.constrain(0.8 * z)
    return {name: torch.stack([value, two[name]]) for name, value in one.items()}


@pytest.fixture(autouse=True)
def by_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the density of few rows go by their states too."""
    monkeypatch.setattr(latent_state_space_gp, "ROWS_BY_MATRIX", 0)


@every_case
def test_the_covariance_of_few_rows_gives_the_density_of_the_states(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    likelihood, data = CASES[name]
    model = StateSpaceGP(Matern(1.5) + Cosine(1.0, 6.0), likelihood=likelihood).prepare(data)
    found = []
    for rows in (0, N):
        monkeypatch.setattr(latent_state_space_gp, "ROWS_BY_MATRIX", rows)
        assert model.by_matrix(N, 1) == (rows == N)
        assert not model.by_matrix(N, 2)
        target = Target(model, data)
        found.append(target.value_and_grad(target.origin() + 0.1, compile=False))
    (value, gradient), (by_matrix, of_matrix) = found
    assert torch.allclose(value, by_matrix, rtol=1e-9)
    assert torch.allclose(gradient, of_matrix, rtol=1e-6, atol=1e-6)


@every_case
def test_it_is_gp_with_the_same_likelihood(name: str) -> None:
    likelihood, data = CASES[name]
    dense = GP(Matern(2.5), likelihood=likelihood, latent="laplace", mean=0.1).prepare(data)
    ours = StateSpaceGP(Matern(2.5), likelihood=likelihood, mean=0.1, latent="laplace")
    ours = ours.prepare(data)
    compile = name == "counts"  # whose graphs are enough
    targets = [Target(model, data, compile=compile) for model in (ours, dense)]
    z = targets[0].start(seed=1, spread=0.3)
    (value, slopes), (other, others) = (target.value_and_grad(z) for target in targets)
    assert float(value) == pytest.approx(float(other), abs=1e-8)
    torch.testing.assert_close(slopes, others, rtol=0, atol=1e-6)
    again, same = targets[0].value_and_grad(z)
    assert torch.equal(value, again)
    assert torch.equal(slopes, same)
    theta = at_two_draws(targets[0], z)
    for joint in (False, True):
        moments = [model.moments(theta, NEW, data, joint, None) for model in (ours, dense)]
        torch.testing.assert_close(*moments, rtol=0, atol=1e-7)
    new = data.y[: len(NEW)]
    predicted = [model.predict(theta, NEW, data).log_prob(new) for model in (ours, dense)]
    torch.testing.assert_close(*predicted, rtol=0, atol=1e-7)
    left_out = [model.log_likelihood(theta, data)["y"] for model in (ours, dense)]
    torch.testing.assert_close(*left_out, rtol=0, atol=1e-7)


def test_gaussian_rows_give_the_exact_model() -> None:
    X = torch.cat([T, NORMAL[:, None]], 1)[:60]
    data, new = Dataset(X, TRUTH[:60] + 0.3 * NORMAL[:60]), torch.cat([NEW, NEW.cos()], 1)
    kernel = Matern(1.5, 1.3, 0.9) + Linear(0.2)
    options: dict[str, Any] = {"mean": 0.3, "regressors": priors.Normal(0.0, 0.5)}
    exact = StateSpaceGP(kernel, 0.2, **options)
    latent = StateSpaceGP(kernel, likelihood=Gaussian(0.2), **options)
    one, two = (ppgp.fit(model, data, progress=False) for model in (exact, latent))
    assert one.log_evidence == pytest.approx(two.log_evidence, rel=1e-10)
    for a, b in (
        (one.predict(new), two.predict(new)),
        (one.loo(), two.loo()),
        (one.latent(new), two.latent(new)),
        *((one.components(new)[name], two.components(new)[name]) for name in one.components(new)),
    ):
        torch.testing.assert_close(a.mean, b.mean, rtol=0, atol=1e-8)
        torch.testing.assert_close(a.std, b.std, rtol=0, atol=1e-7)
    draws = two.predict(new, joint=True).sample(2000)
    error = two.predict(new).std / math.sqrt(2000)
    assert bool(((draws.mean(0) - two.predict(new).mean).abs() < 5 * error).all())


@pytest.mark.parametrize("level", [0.0, 1e6])
@pytest.mark.parametrize("likelihood", [Poisson(), NegativeBinomial()], ids=["", "overdispersed"])
def test_extreme_counts_have_finite_results(level: float, likelihood: Any) -> None:
    data = Dataset(T[:60], torch.full((60,), level, dtype=F64))
    model = StateSpaceGP(Matern(2.5), likelihood=likelihood).prepare(data)
    target = Target(model, data)
    z = target.start(seed=0, spread=0.3)
    value, slopes = target.value_and_grad(z)
    assert bool(torch.isfinite(value))
    assert bool(torch.isfinite(slopes).all())
    theta = {name: value[None] for name, value in target.constrain(z).items()}
    mean, variance = model.moments(theta, NEW, data, False, None)
    assert bool(torch.isfinite(mean).all())
    assert bool((variance > 0).all())


def test_prior_draws_have_the_moments_of_the_likelihood() -> None:
    model = StateSpaceGP(Matern(1.5, 0.5, 1.0), likelihood=Poisson(), mean=0.2)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        trace = pyro.poutine.trace(model.model).get_trace(T[:5])
        draws = trace.nodes["y"]["fn"].sample((2000,))
    mean = math.exp(0.2 + 0.25)
    variance = mean + mean**2 * (math.exp(0.5) - 1)
    error = math.sqrt(variance / 2000)
    assert bool(((draws.mean(0) - mean).abs() < 4.5 * error).all())


def test_a_fit_predicts_and_opens_from_a_file(tmp_path: Path) -> None:
    data = Dataset(T, COUNTS)
    model = StateSpaceGP(Matern(1.5) + Constant(), likelihood=Poisson())
    posterior = ppgp.fit(model, data, inference.MAP(starts=1), progress=False)
    prediction = posterior.predict(NEW)
    log_score = posterior.predict(T).log_prob(COUNTS).mean()
    flat = torch.distributions.Poisson(COUNTS.mean()).log_prob(COUNTS).mean()
    assert log_score > flat
    parts = posterior.components(NEW)
    total = sum(part.mean for part in parts.values()) + posterior.model.mean
    torch.testing.assert_close(total, posterior.latent(NEW).mean, rtol=0, atol=1e-9)
    posterior.save(tmp_path / "fit")
    again = ppgp.load_posterior(tmp_path / "fit")
    assert again.model == posterior.model
    assert torch.equal(again.predict(NEW).mean, prediction.mean)
    with pytest.raises(NotApplicable, match="fit all rows again"):
        posterior.update(NEW, torch.ones(len(NEW)))
    with pytest.raises(NotApplicable, match="fit all rows again"):
        posterior.one_step_ahead(NEW + 20, torch.ones(len(NEW)))


def test_estimators_take_the_likelihood_by_name() -> None:
    regressor = ProbabilisticRegressor("state_space", "map", likelihood="poisson")
    regressor.fit(T[:40].numpy(), COUNTS[:40].numpy())
    assert isinstance(regressor.posterior_.model, models.LatentStateSpaceGP)
    assert bool((regressor.predict(NEW.numpy()) > 0).all())


def test_a_state_space_gp_with_a_likelihood_is_a_latent_one() -> None:
    model = StateSpaceGP(Matern(1.5), likelihood=Poisson(), mean=1.0)
    assert model == models.LatentStateSpaceGP(Matern(1.5), Poisson(), 1.0)
    assert type(StateSpaceGP(Matern(), likelihood=None)) is StateSpaceGP


def test_what_it_refuses() -> None:
    with pytest.raises(SettingError, match="leave noise out"):
        StateSpaceGP(Matern(), 0.1, likelihood=Poisson())
    with pytest.raises(SettingError, match="a likelihood beside latent"):
        StateSpaceGP(Matern(), latent="laplace")
    with pytest.raises(NotApplicable, match=r"latent='laplace' for StateSpaceGP.*use GP"):
        StateSpaceGP(Matern(), likelihood=Bernoulli(), latent="ep")
    with pytest.raises(NotApplicable, match="use SVGP"):
        StateSpaceGP(Matern(), likelihood=likelihoods.Categorical())
    with pytest.raises(NotApplicable, match=r"Matern\(2.5\)"):
        StateSpaceGP(RBF(), likelihood=Poisson())
    model = StateSpaceGP(Matern(), likelihood=Poisson())
    with pytest.raises(SettingError, match="one column of X"):
        ppgp.fit(model, Dataset(torch.cat([T, T], 1), COUNTS), progress=False)
    for refused in ("offset", "weights", "noise_sd"):
        table = Dataset(T, COUNTS, **{refused: torch.ones(N, dtype=F64)})
        with pytest.raises((SettingError, NotApplicable), match=refused):
            ppgp.fit(model, table, progress=False)
    trials = Dataset(T, COUNTS, trials=torch.full((N,), 50.0, dtype=F64))
    with pytest.raises((SettingError, NotApplicable), match="trials"):
        ppgp.fit(StateSpaceGP(Matern(), likelihood=Binomial()), trials, progress=False)
    with pytest.raises(DataError, match="counts"):
        ppgp.fit(model, Dataset(T, COUNTS + 0.5), progress=False)
    with pytest.raises(NotApplicable, match="a mini-batch of 4"):
        Target(model, Dataset(T, COUNTS)).log_density(torch.zeros(2, dtype=F64), torch.arange(4))


@pytest.mark.slow
def test_intervals_of_the_rate_of_counts_cover() -> None:
    """The tolerance is four standard errors over the series, and 0.01 for the approximation."""
    kernel, generator = Matern(1.5, 1.0, 1.0), torch.Generator().manual_seed(3)
    model = StateSpaceGP(kernel, likelihood=Poisson(), mean=1.0)
    shares = []
    for _ in range(60):
        t = (20 * torch.rand(240, 1, generator=generator, dtype=F64)).sort(0).values
        root = torch.linalg.cholesky(kernel({}, t) + 1e-9 * torch.eye(240, dtype=F64))
        f = 1.0 + root @ torch.randn(240, generator=generator, dtype=F64)
        y = torch.poisson(f.exp(), generator=generator)
        data = Dataset(t[::2], y[::2])
        fit = ppgp.fit(model, data, inference.MAP(), progress=False, standardise=False)
        found = fit.latent(t[1::2])
        inside = (f[1::2] - found.mean).abs() < 1.6449 * found.std
        shares.append(inside.to(F64).mean())
    share = torch.stack(shares)
    error = float(share.std()) / math.sqrt(len(share))
    assert float(share.mean()) == pytest.approx(0.9, abs=4 * error + 0.01)
