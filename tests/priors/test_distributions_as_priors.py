"""Distributions of PyTorch and Pyro as priors of kernels, noise and likelihoods."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from scipy import stats
from torch import distributions
from torch.distributions import transforms

import ppgp
from ppgp import Dataset, inference, kernels, likelihoods, models, priors
from ppgp.errors import SettingError, StorageError
from ppgp.priors import FromDistribution, LogUniform

F64 = torch.float64
LIKE = torch.zeros(1, dtype=F64)
SAME: dict[str, tuple[Any, priors.Prior]] = {
    "torch": (distributions.Gamma(2.0, 0.1), priors.Gamma(2.0, 0.1)),
    "Pyro": (dist.LogNormal(0.3, 0.7), priors.LogNormal(0.3, 0.7)),
    "InverseGamma": (dist.InverseGamma(2.0, 0.1), priors.InverseGamma(2.0, 0.1)),
    "HalfNormal": (distributions.HalfNormal(0.7), priors.HalfNormal(0.7)),
    "HalfCauchy": (distributions.HalfCauchy(0.7), priors.HalfCauchy(0.7)),
    "Uniform": (dist.Uniform(0.1, 0.7), priors.Uniform(0.1, 0.7)),
    "Exponential": (dist.Exponential(0.7), priors.Exponential(0.7)),
}
OTHERS: dict[str, tuple[Any, Any]] = {
    "Weibull": (distributions.Weibull(1.7, 2.5), stats.weibull_min(2.5, scale=1.7)),
    "Kumaraswamy": (distributions.Kumaraswamy(2.0, 2.0), None),
    "Beta": (dist.Beta(2.0, 3.0), stats.beta(2.0, 3.0)),
    "log of Student's t": (
        distributions.TransformedDistribution(
            distributions.StudentT(5.0), [transforms.ExpTransform()]
        ),
        None,
    ),
}


def wave(n: int = 20) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    X = torch.linspace(-2.0, 2.0, n, dtype=F64)[:, None]
    noise = torch.randn(n, generator=generator, dtype=F64)
    return Dataset(X, torch.sin(2 * X[:, 0]) + 0.2 * noise)


@pytest.mark.parametrize(("given", "record"), SAME.values(), ids=SAME)
def test_a_family_of_the_library_becomes_its_record(given: Any, record: priors.Prior) -> None:
    assert kernels.RBF(lengthscale=given).lengthscale == record
    assert models.GP(kernels.RBF(), noise=given).noise == record
    assert likelihoods.StudentT(scale=given).scale == record
    assert priors.InUnitsOfData(given) == priors.InUnitsOfData(record)


@pytest.mark.parametrize(("given", "expected"), OTHERS.values(), ids=OTHERS)
def test_any_other_is_a_prior_with_its_own_density(given: Any, expected: Any) -> None:
    prior: Any = kernels.RBF(lengthscale=given).lengthscale
    assert prior == FromDistribution(given)
    assert prior.positive
    ours = prior.distribution(LIKE)
    x = torch.tensor([0.1, 0.4, 0.9], dtype=F64)
    assert ours.log_prob(x).dtype == F64
    torch.testing.assert_close(ours.log_prob(x).float(), given.log_prob(x.float()))
    if expected is not None:
        np.testing.assert_allclose(ours.log_prob(x), expected.logpdf(x.numpy()), rtol=1e-6)


def test_equal_distributions_make_equal_recipes() -> None:
    def recipe(scale: float) -> Any:
        return kernels.RBF(lengthscale=distributions.Weibull(scale, 2.5))

    assert recipe(1.0) == recipe(1.0)
    assert recipe(1.0) != recipe(1.1)
    assert "Weibull(scale=1.1, concentration=2.5)" in repr(recipe(1.1))


def test_moments_of_the_log_uniform_are_those_of_scipy() -> None:
    ours, theirs = LogUniform(0.3, 1.7).distribution(LIKE), stats.loguniform(0.3, 1.7)
    assert float(ours.mean) == pytest.approx(theirs.mean())
    assert float(ours.variance) == pytest.approx(theirs.var())
    x = torch.tensor([0.2, 0.3, 0.9, 1.7, 2.0], dtype=F64)
    np.testing.assert_allclose(ours.cdf(x), theirs.cdf(x.numpy()), atol=1e-12)
    np.testing.assert_allclose(ours.icdf(ours.cdf(x[1:4])), x[1:4], rtol=1e-12)
    assert ours.log_prob(x)[[0, 4]].tolist() == [-float("inf")] * 2


@pytest.mark.parametrize(
    "prior", [LogUniform(0.1, 2.0), distributions.Weibull(0.5, 2.5)], ids=["LogUniform", "Weibull"]
)
def test_the_density_that_methods_see_is_on_the_real_line(prior: Any) -> None:
    """log p(y, noise) + log |d noise / dz|, with the derivative by differences."""
    y = torch.randn(12, generator=torch.Generator().manual_seed(0), dtype=F64)
    data = Dataset(torch.zeros(12, 1, dtype=F64), y)
    model = models.LinearRegression(weight=0.0, bias=0.0, noise=prior)
    own: Any = model.noise
    target, law = ppgp.Target(model, data), own.distribution(LIKE)

    def noise(z: float) -> float:
        return float(target.constrain(torch.tensor([[z]], dtype=F64))["noise"])

    for z in (-1.5, -0.2, 0.9):
        v, slope = noise(z), (noise(z + 1e-5) - noise(z - 1e-5)) / 2e-5
        expected = float(law.log_prob(torch.tensor(v, dtype=F64))) + np.log(abs(slope))
        expected += stats.norm(0, np.sqrt(v)).logpdf(y.numpy()).sum()
        found = float(target.log_density(torch.tensor([z], dtype=F64)))
        assert found == pytest.approx(expected, abs=1e-5)  # of the differences


def test_priors_of_any_distribution_are_fitted_and_predicted() -> None:
    model = models.GP(
        kernels.RBF(lengthscale=distributions.Weibull(1.0, 2.0), variance=LogUniform(0.1, 10.0)),
        noise=distributions.TransformedDistribution(
            distributions.StudentT(5.0, -2.0), [transforms.ExpTransform()]
        ),
    )
    posterior = ppgp.fit(model, wave(), inference.MAP(), progress=False)
    rmse = (posterior.predict(wave().X).mean - wave().y).square().mean().sqrt()
    assert float(rmse) < 0.25
    assert 0.1 <= float(posterior.draws["kernel.variance"]) <= 10.0


def test_a_saved_fit_takes_the_distribution_from_the_recipe(tmp_path: Path) -> None:
    model = models.GP(kernels.RBF(lengthscale=distributions.Weibull(1.0, 2.0)))
    posterior = ppgp.fit(model, wave(), inference.MAP(), progress=False)
    path = posterior.save(tmp_path / "gp.safetensors")
    again = ppgp.load_posterior(path, model=model)
    assert torch.equal(again.predict(wave().X).mean, posterior.predict(wave().X).mean)
    with pytest.raises(StorageError, match="Weibull"):
        ppgp.load_posterior(path)
    other = models.GP(kernels.RBF(lengthscale=distributions.Weibull(1.0, 2.5)))
    with pytest.raises(StorageError, match="options"):
        ppgp.load_posterior(path, model=other)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "real line": (
        lambda: kernels.RBF(lengthscale=distributions.Gumbel(0.0, 1.0)).sites(1),
        "a prior on positive numbers for RBF.lengthscale",
    ),
    "discrete": (lambda: kernels.RBF(lengthscale=dist.Poisson(2.0)), "a continuous"),
    "vectors": (lambda: models.GP(noise=dist.Dirichlet(torch.ones(3))), "of one number"),
    "too many entries": (
        lambda: models.GP(noise=dist.Weibull(torch.ones(3), torch.ones(3))).sites(1),
        "one number",
    ),
    "mixture": (
        lambda: models.GP(
            noise=dist.MixtureSameFamily(
                dist.Categorical(torch.ones(2)), dist.LogNormal(torch.zeros(2), torch.ones(2))
            )
        ),
        "biject_to",
    ),
    "empty interval": (lambda: LogUniform(2.0, 1.0), "low < high"),
    "no equivalent": (
        lambda: ppgp.fit(
            models.GP(noise=priors.InUnitsOfData(distributions.Weibull(1.0, 2.0))),
            wave(),
            inference.MAP(),
            progress=False,
        ),
        r"equivalent on the standardised scale.*use a member of ppgp\.priors there",
    ),
}


@pytest.mark.parametrize(("call", "said"), REFUSED.values(), ids=REFUSED)
def test_priors_that_do_not_suit_are_refused(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        call()
