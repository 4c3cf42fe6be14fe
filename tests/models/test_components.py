"""The terms of a sum of kernels against the joint Gaussian distribution of all terms."""

from __future__ import annotations

import pytest
import torch

import ppgp
from ppgp import Dataset, inference
from ppgp.errors import NotApplicable, SettingError
from ppgp.kernels import (
    ARD,
    RBF,
    Cosine,
    Kernel,
    Linear,
    Matern,
    Periodic,
    Scale,
    SpectralMixture,
    Subspace,
)
from ppgp.kernels.wrappers import roles_of_terms
from ppgp.models import GP, LinearRegression, StateSpaceGP
from ppgp.posterior import Posterior
from ppgp.priors import Normal, under

KERNEL = Subspace(RBF(), [0]) + Linear() + Matern(1.5)


def fitted(standardise: bool = True) -> tuple[Posterior, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(15, 2, generator=generator, dtype=torch.float64)
    y = (
        5
        + torch.sin(2 * X[:, 0])
        + X[:, 1]
        + 0.1 * torch.randn(15, generator=generator, dtype=torch.float64)
    )
    model = GP(KERNEL, mean=Normal(0.0, 1.0))
    posterior = ppgp.fit(
        model, Dataset(X, y), inference.Laplace(draws=6), standardise=standardise, progress=False
    )
    return posterior, torch.randn(4, 2, generator=generator, dtype=torch.float64)


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
@pytest.mark.parametrize("standardise", [True, False])
def test_the_means_of_the_terms_add_up_to_the_mean(standardise: bool) -> None:
    posterior, X = fitted(standardise)
    parts = posterior.components(X)
    assert list(parts) == ["0 Subspace", "1 Linear", "2 Matern"]
    scaler = posterior.scaler
    offset, scale = scaler.location_and_scale
    constant = offset + scale * posterior.draws["mean"].mean()
    total = sum((p.mean for p in parts.values()), start=torch.zeros(4, dtype=torch.float64))
    torch.testing.assert_close(total + constant, posterior.latent(X).mean, rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
def test_each_term_is_conditioned_from_one_joint_distribution() -> None:
    """Condition the Gaussian (f_i(X*), y), with cross-covariance k_i, by inverting its matrix."""
    posterior, X = fitted(standardise=False)
    train, theta = posterior.data, posterior.theta
    for i, part in enumerate(posterior.components(X).values()):
        for s in range(6):
            one = {name: value[s] for name, value in theta.items()}
            hyper = under("kernel", one)
            child, own = KERNEL.children[i], under(str(i), hyper)
            C = KERNEL(hyper, train.X) + one["noise"] * torch.eye(15, dtype=torch.float64)
            k = child(own, X, train.X)
            mean = k @ torch.linalg.inv(C) @ (train.y - one["mean"])
            variance = (child(own, X) - k @ torch.linalg.inv(C) @ k.mT).diagonal()
            torch.testing.assert_close(part.distribution.mean[s], mean, rtol=1e-6, atol=1e-8)
            torch.testing.assert_close(
                part.distribution.variance[s], variance, rtol=1e-6, atol=1e-8
            )


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
def test_a_single_kernel_has_no_components() -> None:
    posterior, X = fitted()
    alone = ppgp.fit(GP(RBF()), posterior.data, inference.MAP(), progress=False)
    with pytest.raises(NotApplicable, match=r"RBF.*use latent"):
        alone.components(X)
    fixed = ppgp.fit(GP(ARD(RBF(1.0, 2.0))), posterior.data, inference.MAP(), progress=False)
    # the message names the kernel as the user wrote it
    with pytest.raises(NotApplicable, match=r"ARD.*use latent"):
        fixed.components(X)


@pytest.mark.parametrize("model", [GP, StateSpaceGP])
def test_a_line_is_0_at_the_origin_without_doubt(model: type[GP | StateSpaceGP]) -> None:
    t = torch.linspace(0.0, 1.0, 12, dtype=torch.float64)[:, None]
    data = Dataset(t, torch.sin(3 * t[:, 0]))
    options = inference.MAP(), {"standardise": False, "progress": False}
    of_sum = ppgp.fit(model(Matern(1.5) + Linear()), data, options[0], **options[1])
    line = of_sum.components(t[:1])["1 Linear"]
    alone = ppgp.fit(model(Linear(), mean=0.0), data, options[0], **options[1]).latent(t[:1])
    for found in (line, alone):
        assert float(found.mean) == 0.0
        assert float(found.std) < 1e-100


SERIES = Linear() + Matern(1.5) + Periodic(period=7.0) * Matern(1.5) + Cosine() * Matern(0.5)


def test_the_terms_of_a_series_have_roles() -> None:
    assert roles_of_terms(SERIES) == ["trend", "trend", "season", "cycle"]
    assert roles_of_terms(Cosine(1.0, 12.0) * Matern(1.5)) == ["season"]
    assert roles_of_terms(2.0 * (Scale(RBF(), 3.0))) == ["trend"]
    assert roles_of_terms(SpectralMixture(2)) == ["cycle"]


def of_series(model: type[GP | StateSpaceGP], kernel: Kernel) -> tuple[Posterior, torch.Tensor]:
    """Return a fit in which nothing is estimated, and rows of the series and ahead of it."""
    t = torch.arange(30, dtype=torch.float64)
    y = 0.1 * t + torch.cos(2 * torch.pi * t / 7)
    data = Dataset(t[:, None], y)
    recipe = model(kernel, noise=0.05, mean=0.3)
    fit = ppgp.fit(recipe, data, inference.MAP(), standardise=False, progress=False)
    return fit, torch.tensor([[3.5], [12.0], [33.0]], dtype=torch.float64)


NUMBERS = Linear(0.01) + Matern(1.5, 1.0, 9.0) + Cosine(0.5, 7.0) * Matern(1.5, 1.0, 50.0)


def test_parts_by_role_are_those_of_the_sum_of_their_terms() -> None:
    """The trend is conditioned here with the covariance of both of its terms together."""
    for model in (GP, StateSpaceGP):
        fit, X = of_series(model, NUMBERS)
        parts = fit.components(X, by="role")
        assert list(parts) == ["trend", "season"]
        total = sum((part.mean for part in parts.values()), start=torch.tensor(0.3))
        torch.testing.assert_close(total, fit.latent(X).mean, rtol=1e-8, atol=1e-8)
        trend = NUMBERS.children[0] + NUMBERS.children[1]
        train = fit.data
        inverse = torch.linalg.inv(NUMBERS({}, train.X) + 0.05 * torch.eye(30).double())
        k = trend({}, X, train.X)
        mean = k @ inverse @ (train.y - 0.3)
        variance = (trend({}, X) - k @ inverse @ k.mT).diagonal()
        torch.testing.assert_close(parts["trend"].mean, mean, rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(parts["trend"].variance, variance, rtol=1e-5, atol=1e-7)


def test_one_kernel_is_one_part_by_role() -> None:
    for model in (GP, StateSpaceGP):
        fit, X = of_series(model, Matern(1.5, 1.0, 9.0))
        parts = fit.components(X, by="role")
        assert list(parts) == ["trend"]
        torch.testing.assert_close(parts["trend"].mean + 0.3, fit.latent(X).mean)
        torch.testing.assert_close(parts["trend"].variance, fit.latent(X).variance)


def test_another_by_is_refused() -> None:
    fit, X = of_series(GP, NUMBERS)
    with pytest.raises(SettingError, match='by="term" or by="role"'):
        fit.components(X, by="kind")
    line = ppgp.fit(LinearRegression(), fit.data, inference.Exact(draws=10), progress=False)
    with pytest.raises(NotApplicable, match="a model with a kernel"):
        line.components(X, by="role")


def test_the_components_of_an_average_are_mixtures_by_role() -> None:
    both, X = of_series(StateSpaceGP, NUMBERS)
    alone, _ = of_series(StateSpaceGP, Matern(1.5, 1.0, 9.0))
    average = ppgp.average({"both": both, "alone": alone}, by=[0.75, 0.25])
    parts = average.components(X)
    assert list(parts) == ["trend", "season"]
    one, two = both.components(X, by="role"), alone.components(X, by="role")
    expected = 0.75 * one["trend"].mean + 0.25 * two["trend"].mean
    torch.testing.assert_close(parts["trend"].mean, expected)
    season = parts["season"]
    torch.testing.assert_close(season.mean, 0.75 * one["season"].mean)
    second_moment = 0.75 * (one["season"].variance + one["season"].mean.square())
    torch.testing.assert_close(
        season.variance, second_moment - season.mean.square(), rtol=1e-6, atol=1e-9
    )
    total = sum((part.mean for part in parts.values()), start=torch.tensor(0.3))
    torch.testing.assert_close(total, average.latent(X).mean, rtol=1e-8, atol=1e-8)
    lower, upper = season.interval(0.5)
    assert bool((lower <= upper).all())


def test_parts_of_y_and_of_log_y_are_not_added() -> None:
    of_y, X = of_series(StateSpaceGP, NUMBERS)
    data = Dataset(of_y.data.X, of_y.data.y + 5)
    recipes = [StateSpaceGP(NUMBERS, noise=0.05, log=log) for log in (True, False)]
    fits = [ppgp.fit(one, data, inference.MAP(), progress=False) for one in recipes]
    average = ppgp.average(fits, by=[0.5, 0.5])
    with pytest.raises(NotApplicable, match="parts in one unit, got models of y and of log y"):
        average.components(X)
    y = torch.full((3,), 6.0).double()
    mixed = 0.5 * sum(fit.predict(X).cdf(y) for fit in fits)
    torch.testing.assert_close(average.predict(X).cdf(y), mixed)
