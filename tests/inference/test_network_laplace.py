"""Laplace of networks: the Gauss-Newton matrix, and predictions of the linearised network."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal
from torch.func import functional_call, jacrev

from ppgp import Dataset, fit, load_posterior
from ppgp.density import Target
from ppgp.errors import NotApplicable, SettingError
from ppgp.inference import MAP, Laplace
from ppgp.inference.optimise import network_expansion
from ppgp.likelihoods import Bernoulli, Categorical, Gaussian, Poisson, Predicted
from ppgp.models import GP, NeuralRegression
from ppgp.networks import CNN, MLP
from ppgp.networks.linearised_networks import linearised_outputs
from ppgp.networks.networks import module_of, outputs
from ppgp.priors import Flat, HalfNormal, Normal

F64 = torch.float64
quiet = pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
SMALL = MLP((3,), dropout=0.0, activation="tanh")
PRIOR = Normal(0.0, 1.0)
GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(25, 2, generator=GENERATOR, dtype=F64)
Y = torch.sin(2 * X[:, 0]) + 0.3 * torch.randn(25, generator=GENERATOR, dtype=F64)
LIKELIHOODS: dict[str, tuple[Any, Tensor]] = {
    "noise a number": (Gaussian(noise=0.2), Y),
    "noise predicted": (Gaussian(noise=Predicted()), Y),
    "labels": (Bernoulli(), (Y > 0).to(F64)),
    "classes": (Categorical(), (Y > 0).to(F64) + (Y > 0.6).to(F64)),
    "counts": (Poisson(), (2 + Y).abs().round()),
}
every_likelihood = pytest.mark.parametrize(
    ("likelihood", "y"), LIKELIHOODS.values(), ids=LIKELIHOODS
)


def fitted(model: Any, y: Tensor = Y, x: Tensor = X, **options: Any) -> Any:
    """Return the posterior of a search of few steps: what is tested holds near the mode too."""
    how = Laplace(**{"draws": 40, "steps": 8, **options})
    data = Dataset(x, y)
    return how(Target(model.prepare(data), data, compile=False))


def functions(model: Any, theta: dict[str, Tensor], x: Tensor) -> Tensor:
    """Return the outputs of the network, [n, K], at weights {name of a parameter: value}."""
    return functional_call(module_of(model._sized(), x.shape[1]), theta, (x,))


def weights_of(target: Target, z: Tensor) -> dict[str, Tensor]:
    slices = target.slices.items()
    return {k.removeprefix("network."): s.of(z) for k, s in slices if k.startswith("network.")}


def jacobian(model: Any, target: Target, z: Tensor, x: Tensor) -> Tensor:
    """Return the derivatives of the outputs by z, [n, K, p]."""
    return jacrev(lambda z: functions(model, weights_of(target, z), x))(z)


# -- the full structure --------------------------------------------------------------------------


@quiet
def test_a_linear_network_is_bayesian_linear_regression() -> None:
    """The posterior and the evidence are Gaussian: Bishop (2006), equations 3.53, 3.54, 3.86."""
    model = NeuralRegression(MLP(()), Gaussian(noise=0.2), Normal(0.0, 0.7))
    posterior = fitted(model, steps=50)
    Phi = torch.cat([X, torch.ones(25, 1, dtype=F64)], 1)
    A = torch.eye(3, dtype=F64) / 0.49 + Phi.mT @ Phi / 0.2
    torch.testing.assert_close(
        posterior.stats["covariance"], torch.linalg.inv(A), rtol=1e-8, atol=1e-10
    )
    marginal = MultivariateNormal(
        torch.zeros(25, dtype=F64), 0.2 * torch.eye(25, dtype=F64) + 0.49 * Phi @ Phi.mT
    )
    assert posterior.log_evidence == pytest.approx(float(marginal.log_prob(Y)), abs=1e-8)


@quiet
@every_likelihood
def test_the_precision_is_the_gauss_newton_matrix(likelihood: Any, y: Tensor) -> None:
    """Minus the Hessian of log p(y given f) at targets of its own mean is the information."""
    posterior = fitted(NeuralRegression(SMALL, likelihood, PRIOR), y)
    target = Target(posterior.model, posterior.data)
    z = posterior.stats["mode"]
    J = jacobian(posterior.model, target, z, X)
    f = functions(posterior.model, weights_of(target, z), X)
    A = torch.eye(target.dim, dtype=F64)
    for row, (f_row, J_row) in enumerate(zip(f, J, strict=True)):
        A += J_row.mT @ information(posterior.model.likelihood, f_row, row) @ J_row
    torch.testing.assert_close(
        torch.linalg.inv(posterior.stats["covariance"]), A, rtol=1e-8, atol=1e-8
    )
    log_joint = float(target.log_density(z))
    evidence = log_joint + target.dim / 2 * math.log(2 * math.pi) - float(torch.logdet(A)) / 2
    assert posterior.stats["log_evidence"] == pytest.approx(evidence, abs=1e-8)


def information(likelihood: Any, f: Tensor, row: int) -> Tensor:
    """Return the Fisher information of one row in its functions f [K], in closed form."""
    if isinstance(likelihood, Poisson):
        return f.exp()[None]
    if isinstance(likelihood, Bernoulli):
        p = torch.sigmoid(f)
        return (p * (1 - p))[None]
    if isinstance(likelihood, Categorical):
        p = torch.softmax(f, 0)
        return torch.diag(p) - p[:, None] * p
    if likelihood.latents == 2:  # the mean, and the log of the sd or of the variance
        g = f.detach().clone()
        by_log = jacrev(lambda g: likelihood.distribution({}, g[:, None]).scale[0].log())(g)
        sd = likelihood.distribution({}, g[:, None]).scale[0]
        return torch.diag(torch.stack([1 / sd.square(), 2 * by_log[1].square()]))
    return torch.eye(1, dtype=F64) / 0.2


@quiet
def test_the_noise_has_its_own_row_in_the_precision() -> None:
    posterior = fitted(NeuralRegression(SMALL, Gaussian(), PRIOR), steps=50)
    target = Target(posterior.model, posterior.data)
    z = posterior.stats["mode"]
    A = torch.linalg.inv(posterior.stats["covariance"])
    i = target.slices["noise"].start
    H = -target.hessian(z)
    torch.testing.assert_close(A[i], H[i], rtol=1e-7, atol=1e-7)
    assert posterior.draws["noise"].std() > 0
    assert not torch.allclose(A, H)


# -- predictions ---------------------------------------------------------------------------------


@quiet
@every_likelihood
def test_predictions_are_those_of_the_linearised_network(likelihood: Any, y: Tensor) -> None:
    posterior = fitted(NeuralRegression(SMALL, likelihood, PRIOR), y, draws=7)
    model, new = posterior.model, X[:5] + 0.1
    target = Target(model, posterior.data)
    mode = posterior.stats["mode"]
    z = target.unconstrain(posterior.draws)[0]
    f = functions(model, weights_of(target, mode), new)
    f = f + torch.einsum("nkp,tp->tnk", jacobian(model, target, mode, new), z - mode)
    expected = model.likelihood.distribution(
        {}, f.mT if model.likelihood.latents > 1 else f[..., 0]
    )
    found = posterior.predict(new)
    torch.testing.assert_close(
        found.log_prob(y[:5]), expected.log_prob(y[:5]).logsumexp(0) - math.log(7)
    )
    assert not {"lp", "log_q"} & posterior.stats.keys()
    pointwise = posterior.log_likelihood()
    f = functions(model, weights_of(target, mode), X)
    f = f + torch.einsum("nkp,tp->tnk", jacobian(model, target, mode, X), z - mode)
    expected = model.likelihood.distribution(
        {}, f.mT if model.likelihood.latents > 1 else f[..., 0]
    )
    torch.testing.assert_close(pointwise[0], expected.log_prob(y))


@quiet
def test_their_variance_is_that_of_the_closed_form() -> None:
    """J S J' + noise; the error of a variance of t draws has relative sd sqrt(2 / t)."""
    draws = 4000
    posterior = fitted(NeuralRegression(SMALL, Gaussian(noise=0.2), PRIOR), draws=draws)
    target = Target(posterior.model, posterior.data)
    J = jacobian(posterior.model, target, posterior.stats["mode"], X)[:, 0]
    of_mean = (J @ posterior.stats["covariance"] * J).sum(1)
    ratio = (posterior.predict(X).variance - 0.2) / of_mean
    assert float((ratio - 1).abs().max()) < 5 * math.sqrt(2 / draws)


@quiet
def test_draws_can_go_through_the_network_itself() -> None:
    model = NeuralRegression(SMALL, Gaussian(noise=0.2), PRIOR)
    posterior = fitted(model, linearised=False)
    draws = {k.removeprefix("network."): v[0] for k, v in posterior.draws.items()}
    expected = torch.vmap(lambda w: functions(posterior.model, w, X))(draws)[..., 0]
    torch.testing.assert_close(posterior.predict(X).mean, expected.mean(0))
    target = Target(posterior.model, posterior.data)
    z = target.unconstrain(posterior.draws)[0]
    log_q = MultivariateNormal(posterior.stats["mode"], posterior.stats["covariance"]).log_prob(z)
    torch.testing.assert_close(posterior.stats["log_q"][0], log_q)
    for point, lp in zip(z[:3], posterior.stats["lp"][0], strict=False):
        torch.testing.assert_close(lp, target.log_density(point))


@pytest.mark.slow
@quiet
def test_the_linearised_network_predicts_better_where_the_gaussian_is_wide() -> None:
    """Immer et al. (2021): wide Gaussians of weights in the network itself underfit."""
    model = NeuralRegression(MLP((50,), dropout=0.0, activation="tanh"), Gaussian(noise=0.1), PRIOR)
    linear, sampled = (fitted(model, draws=300, steps=100, linearised=on) for on in (True, False))
    assert torch.equal(linear.draws["network.0.weight"], sampled.draws["network.0.weight"])
    assert float(linear.predict(X).log_prob(Y).mean() - sampled.predict(X).log_prob(Y).mean()) > 0.1


@pytest.mark.parametrize("network", [SMALL, CNN((2,), dropout=0.0)], ids=["MLP", "CNN"])
def test_linearised_outputs_are_by_the_jacobian(network: Any) -> None:
    x = torch.randn(6, 16, generator=GENERATOR, dtype=F64)
    module = module_of(network, 16)
    at = {k: v.detach() for k, v in module.named_parameters()}
    moved = {
        k: v + torch.randn(2, 3, *v.shape, generator=GENERATOR, dtype=F64) for k, v in at.items()
    }
    found = linearised_outputs(network, at, moved, x)
    J = jacrev(lambda w: functional_call(module, w, (x,)))(at)
    expected = outputs(network, at, x).expand(2, 3, 6, -1).clone()
    for k, v in at.items():
        step = (moved[k] - v).flatten(2)
        expected += torch.einsum("nkp,abp->abnk", J[k].flatten(2), step)
    torch.testing.assert_close(found, expected)
    first = next(iter(at))
    partly = linearised_outputs(network, at, {first: moved[first]}, x)
    assert partly.shape == found.shape


@quiet
def test_a_module_and_its_linearised_predictions_are_saved(tmp_path: Any) -> None:
    module = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    model = NeuralRegression(module, Gaussian(noise=0.2), PRIOR)
    posterior = fit(model, Dataset(X, Y), Laplace(9, steps=5), progress=False)
    again = load_posterior(posterior.save(tmp_path / "p.safetensors"), model=model)
    assert torch.equal(again.predict(X).mean, posterior.predict(X).mean)
    assert again.how == posterior.how


# -- how the mode is found, and what is refused --------------------------------------------------


@quiet
def test_the_mode_may_come_from_another_search() -> None:
    model = NeuralRegression(SMALL, Gaussian(noise=0.2), PRIOR)
    base = MAP("gauss_newton", starts=1)
    posterior = fitted(model, base=base)
    target = Target(posterior.model, posterior.data)
    mode = base(target).draws
    torch.testing.assert_close(posterior.stats["mode"], target.unconstrain(mode)[0, 0])


def test_other_models_take_no_base() -> None:
    with pytest.raises(SettingError, match="no base for a model that is no network"):
        fitted(GP(), base=MAP("adam"))


@quiet
def test_positive_weights_have_the_hessian() -> None:
    posterior = fitted(NeuralRegression(SMALL, Gaussian(noise=0.2), HalfNormal(1.0)))
    assert {"lp", "log_q"} <= posterior.stats.keys()
    assert list(posterior.params) == []


def test_a_large_network_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_expansion, "LARGEST_FULL", 12)
    with pytest.raises(NotApplicable, match=r"at most 12 weights .* use structure='kron' or str"):
        fitted(NeuralRegression(SMALL, Gaussian(), Flat()))
