"""Functions drawn from the posterior: exact moments, and one value per row."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import Dataset, inference
from ppgp.errors import NotApplicable, SettingError
from ppgp.kernels import (
    ARD,
    RBF,
    Constant,
    Cosine,
    Deep,
    Exponential,
    Kernel,
    Linear,
    Matern,
    Periodic,
    RationalQuadratic,
    Scale,
    SpectralMixture,
    Subspace,
    White,
)
from ppgp.kernels.fourier_features import Draw
from ppgp.models import GP, LinearRegression
from ppgp.networks.networks import MLP
from ppgp.posterior import Posterior

SPECTRAL: list[Kernel] = [
    RBF(1.3, 0.8),
    Matern(0.5, 1.3, 0.8),
    Matern(1.5, 1.3, 0.8),
    Matern(2.5, 1.3, 0.8),
    Exponential(0.7, 1.1),
    RationalQuadratic(1.3, 0.8, 0.6),
    ARD(RBF(1.3, 0.8)),
    Scale(Subspace(Matern(1.5, 1.0, 0.5), [1]) + Linear(0.5) + Constant(0.3), 2.0),
    Deep(MLP(hidden=(4,), out=2), RBF(1.3, 0.8)),
    SpectralMixture(2, 0.5, 0.4, 0.2),
    Subspace(Cosine(1.3, 2.0), [0]) + Constant(0.3),
]
SAMPLES = 4000


def table(n: int = 8) -> Dataset:
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    return Dataset(
        X,
        3.0
        + 2.0 * torch.sin(X[:, 0])
        + 0.1 * torch.randn(n, generator=generator, dtype=torch.float64),
    )


def fixed(kernel: Kernel) -> Posterior:
    """Return a posterior with known hyperparameters: only the noise is fitted, then overwritten."""
    posterior = ppgp.fit(GP(kernel, mean=0.2), table(), inference.MAP(steps=1), progress=False)
    posterior.draws["noise"] = torch.full((1, 1), 0.05, dtype=torch.float64)
    return posterior


def close_to(f: Tensor, mean: Tensor, covariance: Tensor) -> None:
    """Assert agreement within 5 standard errors of the samples, for some 60 figures per kernel."""
    error = f.std(0) / len(f) ** 0.5
    assert bool(((f.mean(0) - mean).abs() < 5 * error + 1e-9).all())
    centred = f - mean
    products = centred[:, :, None] * centred[:, None, :]
    error = products.std(0) / len(f) ** 0.5
    assert bool(((products.mean(0) - covariance).abs() < 5 * error + 1e-9).all())


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
@pytest.mark.parametrize("features", [None, 32], ids=["exact", "fourier"])
@pytest.mark.parametrize("kernel", SPECTRAL, ids=lambda k: repr(k)[:40])
def test_mean_and_covariance_equal_those_of_the_posterior(
    kernel: Kernel, features: int | None
) -> None:
    posterior = fixed(kernel)
    X = torch.randn(5, 2, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    joint = posterior.predict(X, joint=True).distribution
    assert not posterior.scaler.is_identity
    offset, scale = posterior.scaler.y_mean, posterior.scaler.y_sd
    noise = 0.05 * torch.eye(5, dtype=torch.float64)
    f = posterior.pathwise(SAMPLES, features=features, seed=3)(X)
    assert f.shape == (SAMPLES, 5)
    close_to(f, offset + scale * joint.mean[0], scale**2 * (joint.covariance_matrix[0] - noise))


@pytest.mark.parametrize("kernel", SPECTRAL, ids=lambda k: repr(k)[:40])
def test_prior_functions_have_the_covariance_of_the_kernel(kernel: Kernel) -> None:
    X = table(6).X
    theta = {name: s.value for name, s in kernel.sites(2).items() if hasattr(s, "value")}
    path = kernel.path(theta, 2, Draw(SAMPLES, 16, torch.Generator().manual_seed(5), X))
    close_to(path(X), torch.zeros(6, dtype=torch.float64), kernel(theta, X))


def test_functions_become_normal_as_features_grow() -> None:
    """With few features increments mix variances, with heavy tails; with many the kurtosis is 3."""
    X = torch.tensor([[0.0], [0.7]], dtype=torch.float64)

    def kurtosis(features: int) -> float:
        draw = Draw(10_000, features, torch.Generator().manual_seed(0), X)
        f = Matern(0.5, 1.0, 1.0).path({}, 1, draw)(X)
        u = f[:, 1] - f[:, 0]
        return float(u.pow(4).mean() / u.square().mean().square())

    assert kurtosis(1) > 3.5
    assert kurtosis(64) == pytest.approx(
        3.0, abs=5 * (24 / 10_000) ** 0.5
    )  # the standard error of a kurtosis is sqrt(24 / n)


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
@pytest.mark.parametrize("features", [None, 64])
def test_each_row_has_one_value(features: int | None) -> None:
    """The value of a row does not depend on the other rows; equal seeds give equal functions."""
    posterior = fixed(RBF(1.3, 0.8))
    X = torch.linspace(-2, 2, 80, dtype=torch.float64).reshape(-1, 2)
    f = posterior.pathwise(7, features=features, seed=3)
    all_at_once = f(X)
    torch.testing.assert_close(
        torch.cat([f(X[20:]), f(X[:20])], 1).roll(20, 1), all_at_once, rtol=1e-9, atol=1e-9
    )
    assert torch.equal(posterior.pathwise(7, features=features, seed=3)(X), all_at_once)
    assert not torch.equal(posterior.pathwise(7, features=features, seed=4)(X), all_at_once)
    near = f(X + 1e-5)  # the function is smooth, with slopes of order 1
    assert float((near - all_at_once).abs().max()) < 2e-3


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
def test_functions_over_draws_of_hyperparameters_have_the_moments_of_the_mixture() -> None:
    posterior = ppgp.fit(GP(RBF()), table(), inference.Laplace(draws=30), progress=False)
    X = table().X[:3] + 0.3
    f = posterior.pathwise(SAMPLES, features=16, seed=0)(X)
    latent = posterior.latent(X)
    assert bool(((f.mean(0) - latent.mean).abs() < 5 * f.std(0) / SAMPLES**0.5).all())
    products = (f - latent.mean).square()
    # each function has a random draw, which adds to the variance of the samples
    assert bool(
        ((products.mean(0) - latent.variance).abs() < 5 * products.std(0) / SAMPLES**0.5).all()
    )


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(NotApplicable, match="features=None"):
        fixed(Periodic(1.0, 1.0, 1.0)).pathwise(3)
    assert fixed(Periodic(1.0, 1.0, 1.0)).pathwise(3, features=None)(table().X).shape == (3, 8)
    with pytest.raises(SettingError, match="positive samples"):
        fixed(RBF(1.0, 1.0)).pathwise(0)
    linear = ppgp.fit(LinearRegression(), table(), inference.MAP(), progress=False)
    with pytest.raises(NotApplicable, match="joint=True"):
        linear.pathwise(3)


def test_white_differs_between_a_training_row_and_a_new_row_at_its_place() -> None:
    X = torch.tensor([[0.0], [0.0], [0.6], [1.5]], dtype=torch.float64)
    data = Dataset(X, [0.3, 0.9, 0.2, -0.4])
    model = GP(RBF(1.0, 0.8) + White(0.5), noise=0.1)
    at = torch.tensor([[0.0], [0.6], [0.9]], dtype=torch.float64)
    result = model.pathwise({}, data, 20_000, None, torch.Generator().manual_seed(0))(at)
    distribution = GP(RBF(1.0, 0.8), noise=0.6).predict(
        {}, at, data, joint=True
    )  # White and the noise of the rows together
    torch.testing.assert_close(
        result.mean(0), distribution.mean[0], atol=0.03, rtol=0
    )  # 4 standard errors
    wanted = distribution.covariance_matrix[0] - 0.1 * torch.eye(3, dtype=torch.float64)
    torch.testing.assert_close(torch.cov(result.mT), wanted, atol=0.03, rtol=0)
