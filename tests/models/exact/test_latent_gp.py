"""GPs of any likelihood: beside scikit-learn, and as models of this package."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyro.distributions
import pytest
import torch
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF as SklearnRBF
from sklearn.gaussian_process.kernels import ConstantKernel

import ppgp
from ppgp import inference, likelihoods, models
from ppgp.data import Dataset
from ppgp.density import Target
from ppgp.errors import NotApplicable, SettingError, UnknownName
from ppgp.kernels import ARD, RBF, Linear
from ppgp.likelihoods import Bernoulli, Gaussian, Ordinal, Poisson, StudentT
from ppgp.likelihoods.base import check_is_likelihood

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(80, 3))
NEW = RANDOM.normal(size=(15, 3))
Y = (np.sin(2 * X[:, 0]) + X[:, 1] + RANDOM.logistic(size=80) > 0).astype(float)
COUNTS = Dataset(X, RANDOM.poisson(np.exp(0.5 * X[:, 0])).astype(float))
LABELS = Dataset(X, Y)
NUMBERS = RBF(2.0, 1.3)
FIXED = models.GP(NUMBERS, likelihood=Bernoulli(), mean=0.0)


def fit(model: models.Model, data: Dataset = LABELS, **options: object) -> ppgp.Posterior:
    return ppgp.fit(model, data, inference.MAP(), progress=False, **options)


def test_at_the_same_hyperparameters_it_is_scikit_learns_classifier() -> None:
    """Its averaged probabilities are approximate, and differ by up to 4e-4."""
    peer = GaussianProcessClassifier(ConstantKernel(2.0) * SklearnRBF(1.3), optimizer=None)
    inner = peer.fit(X, Y).base_estimator_
    cross = inner.kernel_(inner.X_train_, NEW)
    mean = cross.T @ (inner.y_train_ - inner.pi_)
    V = np.linalg.solve(inner.L_, inner.W_sr_[:, None] * cross)
    posterior = fit(FIXED, standardise=False)
    f = posterior.latent(NEW)
    assert posterior.stats["log_evidence"] == pytest.approx(
        peer.log_marginal_likelihood_value_, rel=1e-10
    )
    np.testing.assert_allclose(f.mean, mean, rtol=0, atol=1e-9)
    np.testing.assert_allclose(f.variance, 2.0 - (V * V).sum(0), rtol=0, atol=1e-9)
    found = posterior.predict(NEW).probabilities
    np.testing.assert_allclose(found, peer.predict_proba(NEW), rtol=0, atol=1e-3)


def test_hyperparameters_of_greatest_evidence_are_scikit_learns() -> None:
    peer = GaussianProcessClassifier(ConstantKernel(2.0) * SklearnRBF(1.3)).fit(X, Y)
    flat = RBF(ppgp.priors.Flat(), ppgp.priors.Flat())
    posterior = ppgp.fit(
        models.GP(flat, likelihood=Bernoulli(), mean=0.0),
        LABELS,
        inference.MAP(starts=1),
        progress=False,
        standardise=False,
    )
    variance, lengthscale = np.exp(peer.kernel_.theta)
    assert posterior.stats["log_likelihood"] == pytest.approx(
        peer.log_marginal_likelihood_value_, abs=1e-5
    )
    assert float(posterior.draws["kernel.variance"]) == pytest.approx(variance, rel=0.02)
    assert float(posterior.draws["kernel.lengthscale"]) == pytest.approx(lengthscale, rel=0.02)


def test_a_gaussian_likelihood_gives_the_exact_gp() -> None:
    data = Dataset(X, X[:, 0] + 0.1 * RANDOM.normal(size=80))
    latent = models.GP(NUMBERS, likelihood=Gaussian(0.3))
    one, two = fit(models.GP(NUMBERS, noise=0.3), data), fit(latent, data)
    assert one.stats["log_evidence"] == pytest.approx(two.stats["log_evidence"])
    for a, b in ((one.predict(NEW), two.predict(NEW)), (one.loo(), two.loo())):
        torch.testing.assert_close(a.mean, b.mean)
        torch.testing.assert_close(a.std, b.std)
    joint = [p.predict(NEW, joint=True) for p in (one, two)]
    y = torch.zeros(15, dtype=torch.float64)
    torch.testing.assert_close(joint[0].log_prob(y), joint[1].log_prob(y))


@pytest.mark.parametrize("likelihood", [Gaussian(0.3), likelihoods.LogNormal(noise=0.3)])
def test_a_curvature_that_reads_no_f_leaves_a_fit(likelihood: likelihoods.Likelihood) -> None:
    data = Dataset(X, np.exp(0.3 * X[:, 0] + 0.1 * RANDOM.normal(size=80)))
    model = models.GP(RBF(), likelihood=likelihood)
    posterior = ppgp.fit(model, data, inference.MAP(starts=1), progress=False, standardise=False)
    target = Target(posterior.model, data)
    z = target.unconstrain({name: draws[0, 0] for name, draws in posterior.draws.items()})
    assert float(target.value_and_grad(z, jacobian=False)[1].abs().max()) < 1e-2


@pytest.mark.parametrize(
    ("likelihood", "data"),
    [
        (Bernoulli(), LABELS),
        (Poisson(), COUNTS),
        (Ordinal(), Dataset(X, COUNTS.y.clamp(max=2))),
        (likelihoods.NegativeBinomial(), COUNTS),
        (StudentT(), Dataset(X, X[:, 0] + 0.3 * RANDOM.standard_t(3, size=80))),
    ],
    ids=lambda value: type(value).__name__,
)
def test_it_predicts_and_is_saved(
    likelihood: likelihoods.Likelihood, data: Dataset, tmp_path: Path
) -> None:
    posterior = fit(models.GP(ARD(RBF()), likelihood=likelihood), data)
    prediction = posterior.predict(NEW)
    assert bool(torch.isfinite(prediction.log_prob(data.y[:15])).all())
    constant = data.y.float().var() if prediction.kind != "classes" else None
    if constant is not None:
        assert float((posterior.predict(X).mean - data.y).square().mean()) < constant
    draws = posterior.predict(NEW, joint=True).sample(20)
    assert draws.shape == (20, 15)
    assert bool(torch.isfinite(posterior.loo().log_prob(data.y)).all())
    posterior.save(tmp_path / "fit")
    again = ppgp.load_posterior(tmp_path / "fit")
    torch.testing.assert_close(
        again.predict(NEW).log_prob(data.y[:15]), prediction.log_prob(data.y[:15])
    )


def test_leave_one_out_is_near_a_fit_without_the_row() -> None:
    loo = fit(FIXED, standardise=False).loo().probabilities
    for i in range(5):
        keep = torch.arange(80) != i
        other = fit(FIXED, LABELS.rows(keep), standardise=False)
        alone = other.predict(X[i : i + 1]).probabilities[0]
        torch.testing.assert_close(loo[i], alone, rtol=0, atol=2e-3)


def test_gp_with_a_likelihood_is_a_latent_gp() -> None:
    model = models.GP(RBF(), likelihood=Poisson(), mean=1.0)
    assert model == models.LatentGP(RBF(), Poisson(), "laplace", 1.0)
    assert models.GP(RBF(), likelihood=None) == models.GP(RBF())
    assert type(models.GP(RBF())) is models.GP


def test_what_it_refuses() -> None:
    with pytest.raises(SettingError, match="leave noise out"):
        models.GP(RBF(), 0.1, likelihood=Bernoulli())
    with pytest.raises(SettingError, match="a likelihood beside latent"):
        models.GP(RBF(), latent="laplace")
    with pytest.raises(UnknownName, match="approximation"):
        models.GP(RBF(), likelihood=Bernoulli(), latent="variational")
    for other in ("poison", "negative-binomial", pyro.distributions.Poisson):
        with pytest.raises(SettingError, match=r"pass likelihoods\.(Poisson|NegativeBinomial)\(\)"):
            check_is_likelihood(other)
    for likelihood in (
        likelihoods.Categorical(),
        likelihoods.Laplace(),
        Gaussian(noise=likelihoods.Predicted()),
    ):
        with pytest.raises(NotApplicable, match="use SVGP"):
            models.GP(RBF(), likelihood=likelihood)
    with pytest.raises(NotApplicable, match="mini-batches"):
        Target(FIXED, LABELS, empty=True).log_density(
            torch.zeros(0, dtype=torch.float64), torch.arange(4)
        )


SAMPLED = models.GP(RBF() + Linear(), likelihood=Bernoulli(), latent="sampled")


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
def test_sampled_f_has_a_draw_per_row_and_no_closed_form_of_leaving_one_out(
    tmp_path: Path,
) -> None:
    how = inference.NUTS(draws=10, warmup=10, chains=2)
    data = LABELS.rows(slice(0, 30))
    posterior = ppgp.fit(SAMPLED, data, how, progress=False)
    assert posterior.draws["v"].shape == (2, 10, 30)
    draws = posterior.log_likelihood().flatten(0, 1)
    inside = torch.logsumexp(draws, 0) - np.log(20)
    torch.testing.assert_close(
        posterior.predict(data.X).log_prob(data.y), inside, rtol=0, atol=1e-4
    )
    with pytest.raises(NotApplicable, match="PSIS-LOO"):
        posterior.loo()
    posterior.save(tmp_path / "fit")
    again = ppgp.load_posterior(tmp_path / "fit")
    one, two = again.predict(NEW), posterior.predict(NEW)
    torch.testing.assert_close(one.log_prob(Y[:15]), two.log_prob(Y[:15]))


@pytest.mark.slow
def test_laplace_predicts_as_sampled_f_does() -> None:
    how = inference.NUTS(draws=2000, warmup=500, chains=2)
    sampled = models.GP(NUMBERS, likelihood=Bernoulli(), latent="sampled", mean=0.0)
    exact = ppgp.fit(sampled, LABELS, how, progress=False, standardise=False)
    found = fit(FIXED, standardise=False).predict(NEW).probabilities
    torch.testing.assert_close(found, exact.predict(NEW).probabilities, rtol=0, atol=0.04)


def test_ep_is_the_evidence_and_the_prediction_of_its_own_fit() -> None:
    """scikit-learn has no EP; f of each approximation is near that of the other."""
    model = models.GP(NUMBERS, likelihood=Bernoulli("probit"), latent="ep", mean=0.0)
    laplace = models.GP(NUMBERS, likelihood=Bernoulli("probit"), mean=0.0)
    one, two = (fit(m, standardise=False) for m in (model, laplace))
    assert one.stats["log_evidence"] - two.stats["log_evidence"] > 0.1
    apart = (one.predict(NEW).probabilities - two.predict(NEW).probabilities).abs().max()
    assert 1e-4 < float(apart) < 0.05
    assert bool(torch.isfinite(one.loo().log_prob(Y)).all())
    with pytest.raises(NotApplicable, match="Bernoulli for EP"):
        models.GP(likelihood=Poisson(), latent="ep")
