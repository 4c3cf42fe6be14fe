"""FromDistribution agrees with likelihoods in closed form, and boosts where there is none."""

from __future__ import annotations

import math
from pathlib import Path

import pyro.distributions as dist
import pytest
import torch
from scipy import special
from torch import Tensor
from torch.distributions import Distribution

import ppgp
from ppgp import Dataset, fit, learners, likelihoods, models
from ppgp.errors import DataError, NotApplicable, SettingError
from ppgp.inference import NaturalGradientBoosting
from ppgp.likelihoods import FromDistribution, Predicted, Scored

F64 = torch.float64
ROWS = 9


def normal(f: Tensor) -> Distribution:
    return dist.Normal(f[..., 0, :], (0.5 * f[..., 1, :]).exp())


def weibull(f: Tensor) -> Distribution:
    return dist.Weibull(f[..., 0, :].exp(), f[..., 1, :].exp())


def gumbel(f: Tensor) -> Distribution:
    return dist.Gumbel(f[..., 0, :], f[..., 1, :].exp())


def student(f: Tensor) -> Distribution:
    return dist.StudentT(5.0, f[..., 0, :], f[..., 1, :].exp())


def exponential(f: Tensor) -> Distribution:
    return dist.Exponential(torch.exp(-f[..., 0, :]))


PAIRS: dict[str, tuple[FromDistribution, Scored]] = {
    "gaussian": (FromDistribution(normal, 2), likelihoods.Gaussian(noise=Predicted())),
    "weibull": (FromDistribution(weibull, 2), likelihoods.Weibull(shape=Predicted())),
    "student": (FromDistribution(student, 2), likelihoods.StudentT(df=5.0, scale=Predicted())),
    "exponential": (FromDistribution(exponential, 1), likelihoods.Exponential()),
}
each = pytest.mark.parametrize("name", list(PAIRS))


def rows(name: str) -> tuple[FromDistribution, Scored, Tensor, Tensor]:
    """Return both likelihoods, f [K, n] and y [n]."""
    ours, theirs = PAIRS[name]
    g = torch.Generator().manual_seed(4)
    f = 0.5 * torch.randn(ours.parameters, ROWS, generator=g, dtype=F64) + 0.2
    with ppgp.runtime.seeding.seeded(6):
        y = ours.build(f).sample()
    return ours, theirs, f, y


@each
def test_the_log_score_is_that_of_the_closed_form(name: str) -> None:
    ours, theirs, f, y = rows(name)
    close = torch.testing.assert_close
    close(ours.score({}, f, y), theirs.score({}, f, y), rtol=1e-10, atol=1e-10)
    close(ours.gradient({}, f, y), theirs.gradient({}, f, y), rtol=1e-8, atol=1e-10)
    close(ours.metric({}, f), theirs.metric({}, f), rtol=1e-6, atol=1e-8)
    close(ours.natural({}, f, y), theirs.natural({}, f, y), rtol=1e-5, atol=1e-7)
    close(ours.initial(y), theirs.initial(y), rtol=1e-5, atol=1e-6)


@each
def test_the_crps_is_that_of_the_closed_form(name: str) -> None:
    ours, theirs, f, y = rows(name)
    tolerance = 1e-6 if name != "student" else 1e-4  # heavy tails beyond the last quantile
    options = {"rtol": tolerance, "atol": tolerance}
    for method in ("score", "gradient", "natural"):
        found, exact = (getattr(law, method)({}, f, y, "crps") for law in (ours, theirs))
        torch.testing.assert_close(found, exact, **options)
    torch.testing.assert_close(ours.metric({}, f, "crps"), theirs.metric({}, f, "crps"), **options)


def test_draws_are_a_loop() -> None:
    ours, _, f, y = rows("gaussian")
    both = torch.stack([f, f.flip(-1)])
    for kind in ("nll", "crps"):
        for method in ("score", "gradient", "natural"):
            found = getattr(ours, method)({}, both, y, kind)
            for i in (0, 1):
                torch.testing.assert_close(found[i], getattr(ours, method)({}, both[i], y, kind))
        torch.testing.assert_close(ours.metric({}, both, kind)[1], ours.metric({}, both[1], kind))


def table(n: int = 300, seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    X = 4 * torch.rand(n, 2, generator=g, dtype=F64)
    noise = -torch.log(torch.empty(n, dtype=F64).exponential_(generator=g))
    return X, torch.sin(3 * X[:, 0]) + X[:, 1] + (0.1 + 0.2 * X[:, 0]) * noise


@pytest.mark.parametrize("score", ["nll", "crps"])
def test_a_boosted_fit_is_nearly_that_of_the_gaussian(score: str) -> None:
    X, y = table()
    how = NaturalGradientBoosting(score=score, steps=15, learning_rate=0.1, folds=None)
    fits = [
        fit(models.Boosted(law), Dataset(X, y), how, progress=False).predict(X)
        for law in PAIRS["gaussian"]
    ]
    assert float((fits[0].mean - fits[1].mean).abs().mean()) < 0.02 * float(y.std())
    assert float((fits[0].std / fits[1].std).log().abs().mean()) < 0.02


def test_a_law_without_a_likelihood_of_its_own_boosts_and_is_saved(tmp_path: Path) -> None:
    X, y = table(400)
    new, truth = table(400, seed=1)
    how = NaturalGradientBoosting(score="nll", steps=40, learning_rate=0.1, folds=None)
    law = FromDistribution(gumbel, 2)
    model = models.Boosted(law, learners.Trees(leaves=6, min_rows=20))
    posterior = fit(model, Dataset(X, y), how, progress=False)
    constant = law.build(law.initial(y)[:, None].expand(-1, len(new))).log_prob(truth).mean()
    prediction = posterior.predict(new)
    assert float(prediction.log_prob(truth).mean()) > float(constant) + 0.3
    path = posterior.save(tmp_path / "gumbel.ppgp")
    loaded = ppgp.load_posterior(path, model=gumbel)
    assert torch.equal(loaded.predict(new).quantile(0.3), prediction.quantile(0.3))
    with pytest.raises(ppgp.errors.StorageError, match="gumbel"):
        ppgp.load_posterior(path)
    assert len(posterior.importance().columns) == 2


def test_counts_have_the_log_score_alone() -> None:
    law = FromDistribution(lambda f: dist.Poisson(f[..., 0, :].exp()))
    f, y = torch.zeros(1, 3, dtype=F64), torch.tensor([0.0, 1.0, 4.0], dtype=F64)
    exact = likelihoods.Poisson().gradient({}, f, y)
    torch.testing.assert_close(law.gradient({}, f, y), exact)
    with pytest.raises(NotApplicable, match="use 'nll'"):
        law.score({}, f, y, "crps")


def summed(law: FromDistribution, f: Tensor, counts: int) -> Tensor:
    """Return E[gradient gradient'] of every row, [n, K, K], summed by autograd over counts."""
    total = 0.0
    for k in range(counts):
        at = f.clone().requires_grad_()
        log_mass = law.build(at).log_prob(torch.full_like(f[0], float(k)))
        (g,) = torch.autograd.grad(log_mass.sum(), at)
        total = total + log_mass.detach().exp()[:, None, None] * g.mT[..., None] * g.mT[:, None]
    return total  # type: ignore[return-value]


COUNTS: dict[str, tuple[FromDistribution, int]] = {
    "bernoulli": (FromDistribution(lambda f: dist.Bernoulli(logits=f[..., 0, :])), 2),
    "binomial": (FromDistribution(lambda f: dist.Binomial(9, logits=f[..., 0, :])), 10),
    "classes": (FromDistribution(lambda f: dist.Categorical(logits=f.mT), 3), 3),
    "zero-inflated": (
        FromDistribution(
            lambda f: dist.ZeroInflatedPoisson(f[..., 0, :].exp(), gate_logits=f[..., 1, :]), 2
        ),
        90,
    ),
}


@pytest.mark.parametrize("name", list(COUNTS))
def test_the_metric_of_counts_is_a_sum(name: str) -> None:
    law, counts = COUNTS[name]
    f = torch.linspace(-3.0, 2.5, 12, dtype=F64).expand(law.parameters, -1)
    f = f + 0.3 * torch.arange(law.parameters, dtype=F64)[:, None]
    torch.testing.assert_close(law.metric({}, f), summed(law, f, counts), rtol=1e-7, atol=1e-9)


def test_the_metric_of_rates_far_apart_is_the_rate() -> None:
    law = FromDistribution(lambda f: dist.Poisson(f[..., 0, :].exp()))
    f = torch.linspace(-6.0, 8.0, 57, dtype=F64)[None]
    torch.testing.assert_close(law.metric({}, f)[:, 0, 0], f[0].exp(), rtol=1e-7, atol=0)


@pytest.mark.parametrize(("a", "b"), [(0.02, 3.0), (0.5, 0.5), (0.05, 0.05)])
def test_the_metric_is_finite_where_quantiles_round_to_an_end_of_the_support(
    a: float, b: float
) -> None:
    """The information of log a and log b, by SciPy's trigamma."""
    gamma = FromDistribution(lambda f: dist.Gamma(f[..., 0, :].exp(), f[..., 1, :].exp()), 2)
    beta = FromDistribution(lambda f: dist.Beta(f[..., 0, :].exp(), f[..., 1, :].exp()), 2)
    f = torch.tensor([[math.log(a)], [math.log(b)]], dtype=F64)
    exact = [[a * a * float(special.polygamma(1, a)), -a], [-a, a]]
    torch.testing.assert_close(
        gamma.metric({}, f)[0], torch.tensor(exact, dtype=F64), rtol=2e-3, atol=0
    )
    found, both = beta.metric({}, f)[0], float(special.polygamma(1, a + b))
    assert bool(torch.isfinite(found).all())
    if b == 0.5:  # where y next to 1 is a float
        own = a * a * (float(special.polygamma(1, a)) - both)
        exact = [[own, -a * b * both], [-a * b * both, own]]
        torch.testing.assert_close(found, torch.tensor(exact, dtype=F64), rtol=1e-3, atol=1e-4)


def test_bad_arguments_are_named() -> None:
    X, y = table(20)
    with pytest.raises(SettingError, match="a function as build"):
        FromDistribution("normal")
    for count in (0, True):
        with pytest.raises(SettingError, match="at least 1"):
            FromDistribution(normal, count)
    with pytest.raises(SettingError, match=r"batch \[20\]"):
        FromDistribution(lambda f: dist.Normal(f, 1.0), 2).prepare(Dataset(X, y))
    with pytest.raises(DataError, match="support of Weibull"):
        FromDistribution(weibull, 2).prepare(Dataset(X, y - 100))
    assert math.isfinite(float(FromDistribution(weibull, 2).initial(y.exp())[0]))
