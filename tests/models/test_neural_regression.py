"""Neural regression beside torch by hand."""

from __future__ import annotations

import math

import pytest
import torch
from jaxtyping import config
from torch import Tensor, nn

from ppgp import Dataset, fit, load_posterior
from ppgp.density import Target
from ppgp.errors import NotEnoughMemory, SettingError
from ppgp.inference import MAP, NUTS, SVI, Ensemble, Laplace
from ppgp.likelihoods import Bernoulli, Categorical, Gamma, Gaussian, Poisson, Predicted
from ppgp.models import NeuralRegression
from ppgp.networks import CNN, MLP, training
from ppgp.priors import InUnitsOfData, LogNormal, Normal

F64 = torch.float64
SMALL = MLP((4,), dropout=0.0, activation="tanh", seed=3)
quiet = pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")


def rows(n: int, seed: int = 0) -> Dataset:
    g = torch.Generator().manual_seed(seed)
    X = torch.randn(n, 2, generator=g, dtype=F64)
    noise = (0.1 + 0.5 * torch.sigmoid(3 * X[:, 0])) * torch.randn(n, generator=g, dtype=F64)
    return Dataset(X, torch.sin(2 * X[:, 0]) + X[:, 1] + noise)


def by_hand(theta: dict[str, Tensor], X: Tensor) -> tuple[Tensor, Tensor]:
    hidden = torch.tanh(X @ theta["network.0.weight"].mT + theta["network.0.bias"])
    out = hidden @ theta["network.3.weight"].mT + theta["network.3.bias"]
    return out[:, 0], out[:, 1].exp()


def test_the_density_is_that_of_torch_by_hand() -> None:
    data = rows(20)
    model = NeuralRegression(SMALL, prior=Normal(0.0, 2.0))
    target = Target(model.prepare(data), data)
    z = target.start(1, 0.5)
    theta = target.constrain(z)
    mean, variance = by_hand(theta, data.X)
    error = (data.y - mean).square() / variance
    likelihood = -0.5 * (error + variance.log() + math.log(2 * math.pi)).sum()
    weights = torch.cat([value.flatten() for value in theta.values()])
    prior = torch.distributions.Normal(0.0, 2.0).log_prob(weights).sum()
    torch.testing.assert_close(target.log_density(z), likelihood + prior)


def test_draws_are_evaluated_together_as_one_by_one() -> None:
    data = rows(7)
    for likelihood in (Gaussian(), Gaussian(noise=Predicted())):
        model = NeuralRegression(SMALL, likelihood)
        shapes = {name: s.shape for name, s in model.sites(2).items()}
        draws = {name: torch.rand(5, *shape, dtype=F64) for name, shape in shapes.items()}
        together = model.distribution(draws, data.X)
        assert together.batch_shape == (5, 7)
        each = [
            model.distribution({k: v[i] for k, v in draws.items()}, data.X).mean for i in range(5)
        ]
        torch.testing.assert_close(together.mean, torch.stack(each))


def test_the_search_starts_at_the_weights_of_the_recipe_and_members_elsewhere() -> None:
    data = rows(20)
    model = NeuralRegression(SMALL).prepare(data)
    own = MLP((4,), 2, dropout=0.0, activation="tanh", seed=3, bounded=False).build(2)
    start = Target(model, data).constrain(Target(model, data).origin())
    torch.testing.assert_close(start["network.0.weight"], own[0].weight)
    assert start["network.3.bias"][0] == pytest.approx(float(data.y.mean()), rel=1e-5)
    one, two, again = (model.initial_weights(data, seed) for seed in (1, 2, 1))
    assert torch.equal(one["network.0.weight"], again["network.0.weight"])
    assert not torch.equal(one["network.0.weight"], two["network.0.weight"])


LIKELIHOODS = {
    "poisson": (Poisson(), torch.tensor([0.0, 3.0, 1.0, 2.0] * 5, dtype=F64)),
    "bernoulli": (Bernoulli(), torch.tensor([0.0, 1.0] * 10, dtype=F64)),
    "categorical": (Categorical(), torch.tensor([0.0, 1.0, 2.0, 1.0] * 5, dtype=F64)),
    "gamma": (Gamma(shape=Predicted()), 1e3 + torch.arange(20, dtype=F64)),
}


@quiet
@pytest.mark.parametrize(("likelihood", "y"), LIKELIHOODS.values(), ids=LIKELIHOODS)
def test_any_likelihood_has_as_many_outputs_as_functions(likelihood, y: Tensor, tmp_path) -> None:
    data = Dataset(rows(20).X, y)
    before = repr(NeuralRegression(SMALL, likelihood))
    model = NeuralRegression(SMALL, likelihood)
    posterior = fit(model, data, MAP("adam", steps=30), progress=False)
    assert bool(torch.isfinite(posterior.predict(data.X).log_prob(y)).all())
    assert len(posterior.draws["network.3.bias"][0, 0]) == posterior.model.likelihood.latents
    assert repr(model) == before
    again = load_posterior(posterior.save(tmp_path / "p.safetensors"))
    assert again.recipe == model


@quiet
@pytest.mark.parametrize(
    "how",
    [
        MAP("adam", steps=5, batch_size=8),
        SVI(steps=5, batch_size=8),
        Laplace(draws=3),
        NUTS(draws=3, warmup=3, chains=1, max_depth=3),
        Ensemble(MAP("adam", steps=5, batch_size=8), members=3),
    ],
    ids=lambda how: type(how).__name__,
)
def test_methods(how) -> None:
    data = rows(20)
    model = NeuralRegression(MLP((2,), dropout=0.0), Gaussian(), Normal(0.0, 1.0))
    posterior = fit(model, data, how, progress=False)
    assert bool(torch.isfinite(posterior.predict(data.X).mean).all())
    if isinstance(how, Ensemble):
        assert posterior.draws["network.0.weight"].shape == (1, 3, 2, 2)


@quiet
def test_noise_that_depends_on_x_is_found_in_any_unit() -> None:
    data = rows(400)
    far = Dataset(data.X * 100 + 5, data.y * 1e3 - 7)
    how = MAP("adam", steps=400, batch_size=50, learning_rate=0.02)
    one, two = (fit(NeuralRegression(SMALL), d, how, progress=False) for d in (data, far))
    torch.testing.assert_close(
        two.predict(far.X).std / 1e3, one.predict(data.X).std, rtol=1e-4, atol=1e-6
    )
    sd = one.predict(torch.tensor([[-1.5, 0.0], [1.5, 0.0]], dtype=F64)).std
    assert float(sd[1]) > 2 * float(sd[0])
    # a number and its draws are in the units of the data
    fixed = NeuralRegression(SMALL, Gaussian(noise=InUnitsOfData(LogNormal(11.0, 0.5))))
    posterior = fit(fixed, far, how, progress=False)
    assert 1e4 < float(posterior.draws_in("data")["noise"]) < 1e6


def test_dropout_acts_in_training_and_in_no_prediction() -> None:
    data = rows(30)
    model = NeuralRegression(MLP((8,), dropout=0.5)).prepare(data)
    theta = {k: v[None] for k, v in model.start(data).items()}
    with training():
        assert not torch.equal(
            model.distribution(theta, data.X).mean, model.distribution(theta, data.X).mean
        )
    assert torch.equal(
        model.predict(theta, data.X, data).mean, model.predict(theta, data.X, data).mean
    )


def test_modules_and_images_are_networks_too() -> None:
    data = rows(20)
    module = nn.Sequential(nn.Linear(2, 3, dtype=F64), nn.Tanh(), nn.Linear(3, 2, dtype=F64))
    model = NeuralRegression(module).prepare(data)
    assert set(model.sites(2)) == {f"network.{i}.{w}" for i in (0, 2) for w in ("weight", "bias")}
    images = Dataset(torch.randn(6, 16, dtype=F64), torch.randn(6, dtype=F64))
    pictures = NeuralRegression(CNN((2,), dropout=0.0)).prepare(images)
    theta = {k: v[None] for k, v in pictures.start(images).items()}
    assert pictures.predict(theta, images.X, images).mean.shape == (1, 6)
    assert float(pictures._sized().build(16)(100 * images.X).detach().abs().max()) > 2  # no bound


@quiet
def test_a_saved_fit_predicts_the_same_numbers(tmp_path) -> None:
    data = rows(20)
    module = nn.Sequential(nn.Linear(2, 3, dtype=F64), nn.Tanh(), nn.Linear(3, 2, dtype=F64))
    for network, own in ((SMALL, {}), (module, {"model": NeuralRegression(module)})):
        posterior = fit(NeuralRegression(network), data, MAP("adam", steps=5), progress=False)
        again = load_posterior(posterior.save(tmp_path / "p.safetensors"), **own)
        assert torch.equal(again.predict(data.X).mean, posterior.predict(data.X).mean)


def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "jaxtyping_disable", True)
    data = rows(20)
    with pytest.raises(SettingError, match="a network in NeuralRegression"):
        NeuralRegression("mlp")
    with pytest.raises(SettingError, match="likelihood"):
        NeuralRegression(SMALL, "gaussian")  # type: ignore[arg-type]
    for prior in (1.0, InUnitsOfData(Normal())):
        with pytest.raises(SettingError, match="a prior on the scale of the model"):
            NeuralRegression(SMALL, prior=prior)
    with pytest.raises(SettingError, match="2 outputs, as Gaussian has functions, got 3"):
        NeuralRegression(nn.Linear(2, 3, dtype=F64)).prepare(data)


def test_rows_that_do_not_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ppgp.runtime.memory.available", lambda device=None: 1e9)
    model = NeuralRegression(MLP((100,), dropout=0.0))
    model.check_memory(10_000, 5, torch.zeros((), dtype=F64))
    with pytest.raises(NotEnoughMemory, match="batch_size"):
        model.check_memory(1_000_000, 5, torch.zeros((), dtype=F64))
