"""MC dropout, SWAG and the Laplace approximation of the last layer, beside their formulas."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch.distributions import MultivariateNormal, Normal

from ppgp import Dataset, compare, diagnose, fit, load_posterior
from ppgp.density import Target
from ppgp.errors import NotApplicable, SettingError
from ppgp.inference import MAP, SWAG, Laplace, MCDropout
from ppgp.inference.optimise import mc_dropout
from ppgp.inference.optimise.dense_network import Dense
from ppgp.inference.optimise.last_layer import by_evidence, last_layer
from ppgp.inference.optimise.mc_dropout import best_precision, log_score
from ppgp.inference.optimise.swag import Moments
from ppgp.kernels import RBF
from ppgp.likelihoods import Bernoulli, Gaussian
from ppgp.metrics import metrics
from ppgp.models import GP, LinearRegression, NeuralRegression
from ppgp.networks import CNN, MLP

F64 = torch.float64
quiet = pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
NETWORK = NeuralRegression(MLP((20,), dropout=0.0), Gaussian())


def rows(n: int = 60, seed: int = 0) -> Dataset:
    g = torch.Generator().manual_seed(seed)
    X = torch.randn(n, 2, generator=g, dtype=F64)
    y = 5 + torch.sin(2 * X[:, 0]) + 0.2 * torch.randn(n, generator=g, dtype=F64)
    return Dataset(X, y)


# -- dense layers --------------------------------------------------------------------------------


def test_dense_layers_are_the_network_of_the_model() -> None:
    data = rows()
    for network in (MLP((4, 3), dropout=0.0, activation="silu"), MLP((), dropout=0.0)):
        model = NeuralRegression(network, Gaussian()).prepare(data)
        target = Target(model, data)
        z = torch.randn(5, target.dim, dtype=F64)
        expected = model.distribution(target.constrain(z), data.X).mean
        dense = Dense(model, target)
        torch.testing.assert_close(dense.means(z, data.X), expected)
        torch.testing.assert_close(dense.forward(dense.layers(z), data.X), expected)
        W, b = dense.layers(z)[-1]
        features = dense.features(dense.layers(z), data.X)
        torch.testing.assert_close((features @ W.mT)[..., 0] + b, expected)


# -- MC dropout ----------------------------------------------------------------------------------


def test_thinned_draws_have_the_frequencies_and_the_mean_of_the_masks() -> None:
    data, rate, draws = rows(), 0.3, 4000
    model = NETWORK.prepare(data)
    target = Target(model, data)
    dense = Dense(model, target)
    z = 1 + torch.rand(target.dim, dtype=F64)
    thinned = dense.thinned(z, rate, draws, torch.Generator().manual_seed(0))
    for (W, b), (kept, biases) in zip(dense.layers(z), dense.layers(thinned), strict=True):
        assert torch.equal(biases, b.expand(draws, -1))
        ratio = kept / W  # one mask per input of the layer, whatever the unit
        assert torch.allclose(ratio, ratio[:, :1].expand_as(ratio))
        mask = ratio[:, 0]
        assert bool(((mask - 1 / (1 - rate)).abs() < 1e-9).logical_or(mask == 0).all())
        error = 4.5 * math.sqrt(rate * (1 - rate) / draws)
        assert float(((mask == 0).to(F64).mean(0) - rate).abs().max()) < error
        assert float((mask.mean(0) - 1).abs().max()) < error / (1 - rate)


def test_the_precision_is_that_of_the_highest_log_score() -> None:
    g = torch.Generator().manual_seed(0)
    f, y = torch.randn(50, 30, generator=g, dtype=F64), torch.randn(30, generator=g, dtype=F64)
    precision = best_precision(f, y, None)
    best = float(log_score(f, y, precision))
    by_hand = Normal(f, precision**-0.5).log_prob(y).exp().mean(0).log().mean()
    assert best == pytest.approx(float(by_hand), rel=1e-12)
    for factor in (0.9, 0.99, 1.01, 1.1):
        assert float(log_score(f, y, precision * factor)) < best
    assert best_precision(f, y, 0.25) == 4.0


@quiet
def test_mc_dropout_fits_and_has_the_chosen_noise_in_every_draw() -> None:
    data, test = rows(200), rows(100, seed=1)
    how = MCDropout(rates=(0.01, 0.5), epochs=60, batch_size=32, draws=50, learning_rate=0.01)
    posterior = fit(NETWORK, data, how, progress=False)
    assert posterior.stats["rate"] == 0.01
    assert posterior.stats["held_out_nlpd"].shape == (2,)
    noise = posterior.draws["noise"]
    torch.testing.assert_close(noise, torch.full_like(noise, 1 / posterior.stats["precision"]))
    assert posterior.draws["network.0.weight"].shape == (1, 50, 20, 2)
    assert float(metrics.rmse(posterior.predict(test.X), test.y)) < 0.4
    again = fit(NETWORK, data, how, progress=False)
    assert all(torch.equal(v, again.draws[k]) for k, v in posterior.draws.items())


def test_the_loss_is_that_of_torch_by_hand() -> None:
    data = rows(9)
    model = NETWORK.prepare(data)
    dense = Dense(model, Target(model, data))
    g = torch.Generator().manual_seed(0)
    p = torch.tensor([0.2, 0.5], dtype=F64)[:, None, None]
    z = torch.randn(2, Target(model, data).dim, generator=g, dtype=F64).requires_grad_()
    masks = mc_dropout.draw_masks(p, 9, [2, 20], g)
    assert set(masks[0][1].unique().tolist()) == {0.0, 2.0}
    value, gradient = mc_dropout.penalised_loss(dense, 0.1 * p)(z, data.X, data.y, *masks)
    total = torch.zeros((), dtype=F64)
    for i in range(2):
        (W, b), (V, c) = dense.layers(z[i])
        hidden = torch.relu((data.X * masks[0][i]) @ W.mT + b) * masks[1][i]
        total = total + (data.y - (hidden @ V.mT + c)[:, 0]).square().mean()
        total = total + 0.1 * p[i, 0, 0] * (W.square().sum() + V.square().sum())
    torch.testing.assert_close(value, total.detach())
    torch.testing.assert_close(gradient, torch.autograd.grad(total, z)[0])


@quiet
def test_compiled_steps_are_those_of_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    data, how = rows(), MCDropout(epochs=10, draws=5, batch_size=25)
    draws = []
    for start in (1, 10**9):
        monkeypatch.setattr(mc_dropout, "COMPILE_FROM", start)
        draws.append(fit(NETWORK, data, how, progress=False).draws)
    for name, value in draws[0].items():
        torch.testing.assert_close(draws[1][name], value, rtol=1e-8, atol=1e-9)


@quiet
def test_mc_dropout_keeps_a_known_noise() -> None:
    data = rows()
    model = NeuralRegression(MLP((5,), dropout=0.0), Gaussian(noise=0.04))
    posterior = fit(model, data, MCDropout(epochs=2, draws=10), progress=False)
    sd = float(data.y.std(correction=0))
    assert posterior.stats["precision"] == pytest.approx(sd**2 / 0.04, rel=0.05)
    assert "noise" not in posterior.draws


@quiet
def test_ctrl_c_keeps_the_networks_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, masks = itertools.count(), mc_dropout.draw_masks

    def interrupted(*args):
        if next(calls) == 50:
            raise KeyboardInterrupt
        return masks(*args)

    monkeypatch.setattr(mc_dropout, "draw_masks", interrupted)
    posterior = fit(NETWORK, rows(), MCDropout(draws=10, batch_size=20), progress=False)
    assert posterior.stats["interrupted"]
    assert any("Ctrl-C" in sentence for sentence in posterior.warnings)


def test_what_is_no_gaussian_network_is_refused() -> None:
    data, labels = rows(), Dataset(rows().X, (rows().y > 5).to(F64))
    own = "use NUTS, or NeuralRegression"
    cases = {
        "got GP": (GP(RBF()), data),
        "Gaussian noise of one variance": (NeuralRegression(MLP((3,), dropout=0.0)), data),
        "got Bernoulli": (NeuralRegression(MLP((3,), dropout=0.0), Bernoulli()), labels),
        "an MLP as network, got a CNN": (
            NeuralRegression(CNN((2,)), Gaussian()),
            Dataset(torch.randn(9, 4, dtype=F64), torch.randn(9, dtype=F64)),
        ),
    }
    for sentence, (model, table) in cases.items():
        for how in (MCDropout(), Laplace(structure="last_layer")):
            with pytest.raises(NotApplicable, match=sentence) as caught:
                fit(model, table, how, progress=False)
            assert own in str(caught.value) or "models.NeuralRegression" in str(caught.value)
    for rates in ((), (0.0,), (1.0,), (0.1, 2.0)):
        with pytest.raises(SettingError, match="rates of dropout between 0 and 1"):
            MCDropout(rates=rates)
    with pytest.raises(SettingError, match="rows for validation"):
        fit(NETWORK, rows(10), MCDropout(validation=0.05), progress=False)


@quiet
def test_posteriors_are_saved_diagnosed_and_compared(tmp_path) -> None:
    data, test = rows(), rows(30, seed=1)
    hows = {
        "dropout": MCDropout(epochs=2, draws=10),
        "swag": SWAG(steps=10, draws=10, base=MAP("adam", steps=5)),
        "last": Laplace(10, structure="last_layer", base=MAP("adam", steps=5)),
    }
    posteriors = {k: fit(NETWORK, data, how, progress=False) for k, how in hows.items()}
    for posterior in posteriors.values():
        again = load_posterior(posterior.save(tmp_path / "p.safetensors"))
        assert again.how == posterior.how
        assert torch.equal(again.predict(test.X).mean, posterior.predict(test.X).mean)
        assert len(posterior.summary()) == 2 * 20 + 20 + 20 + 1 + 1
        posterior.to_arviz()
        diagnose(posterior)
    assert set(compare(posteriors, test=test).predictive.index) == set(hows)


# -- SWAG ----------------------------------------------------------------------------------------


def test_moments_are_those_of_the_iterates() -> None:
    g = torch.Generator().manual_seed(0)
    iterates = 100 + torch.randn(30, 4, generator=g, dtype=F64)
    moments = Moments(torch.zeros(4, dtype=F64), 6)
    for z in iterates:
        moments.add(z)
    torch.testing.assert_close(moments.mean, iterates.mean(0))
    torch.testing.assert_close(moments.diagonal, iterates.var(0, correction=0))
    deviations = torch.stack([iterates[i] - iterates[: i + 1].mean(0) for i in range(24, 30)])
    torch.testing.assert_close(moments.last, deviations)
    draws = moments.sample(200_000, g)
    covariance = (moments.diagonal.diag() + deviations.mT @ deviations / 5) / 2
    torch.testing.assert_close(draws.mean(0), moments.mean, atol=0.02, rtol=0)
    torch.testing.assert_close(draws.mT.cov(), covariance, atol=0.02, rtol=0)


@quiet
def test_swag_records_the_iterates_of_gradient_descent() -> None:
    """Full batches and one iterate per step: the path follows from the gradients by hand."""
    data = rows(20)
    how = SWAG(3, steps=5, learning_rate=0.05, batch_size=20, every=1, draws=7)
    how = SWAG(**{**vars(how), "base": MAP("adam", steps=10)})
    target = Target(LinearRegression(), data)
    posterior = how(target, seed=2)
    z = target.unconstrain(how.base(target, seed=2).draws)[0, 0]
    path = []
    for _ in range(5):
        z = z + 0.05 / data.n * target.value_and_grad(z, jacobian=False)[1]
        path.append(z)
    iterates = torch.stack(path)
    torch.testing.assert_close(posterior.stats["mean"], iterates.mean(0))
    torch.testing.assert_close(posterior.stats["diagonal"], iterates.var(0, correction=0))
    assert posterior.stats["deviations"].shape == (3, 4)
    assert posterior.draws["weight"].shape == (1, 7, 2)


@quiet
def test_a_run_that_diverges_starts_again_at_a_lower_rate() -> None:
    data = rows(100)
    model = NeuralRegression(MLP((10,), dropout=0.0), Gaussian(noise=0.02))
    how = SWAG(steps=100, draws=5, learning_rate=1.0, base=MAP("adam", steps=200))
    posterior = fit(model, data, how, progress=False)
    assert posterior.stats["learning_rate"] < 1.0
    assert float(metrics.rmse(posterior.predict(data.X), data.y)) < 0.6
    assert not any("diverged" in sentence for sentence in posterior.warnings)


@quiet
def test_swag_of_a_network_spreads_around_its_mode() -> None:
    data = rows(200)
    how = SWAG(steps=400, draws=40, base=MAP("adam", steps=300, batch_size=50))
    posterior = fit(NeuralRegression(MLP((10,), dropout=0.0)), data, how, progress=False)
    assert posterior.stats["iterates"] >= 20
    assert posterior.draws["network.0.weight"].shape == (1, 40, 10, 2)
    prediction = posterior.predict(data.X)
    assert bool((prediction.std > 0).all())
    assert float(metrics.rmse(prediction, data.y)) < 0.4


# -- the last layer ------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [None, 0.3])
@pytest.mark.parametrize("n", [8, 40])
def test_evidence_is_the_highest_density_of_the_targets(noise: float | None, n: int) -> None:
    g = torch.Generator().manual_seed(1)
    Phi = torch.randn(n, 12, generator=g, dtype=F64)
    y = Phi[:, :2].sum(1) + 0.5 * torch.randn(n, generator=g, dtype=F64)
    found = by_evidence(Phi, y, noise)

    def evidence(precision: float, variance: float) -> float:
        covariance = variance * torch.eye(n, dtype=F64) + Phi @ Phi.mT / precision
        return float(MultivariateNormal(torch.zeros(n, dtype=F64), covariance).log_prob(y))

    assert found.log_evidence == pytest.approx(evidence(found.precision, found.noise), rel=1e-9)
    for factor in (0.9, 0.99, 1.01, 1.1):
        assert evidence(found.precision * factor, found.noise) < found.log_evidence
        if noise is None:
            assert evidence(found.precision, found.noise * factor) < found.log_evidence
    assert noise is None or found.noise == noise
    # the posterior of Bishop (2006), equations 3.53 and 3.54
    A = found.precision * torch.eye(12, dtype=F64) + Phi.mT @ Phi / found.noise
    torch.testing.assert_close(found.mean, torch.linalg.solve(A, Phi.mT @ y) / found.noise)
    draws = found.sample(100_000, g)
    covariance = torch.linalg.inv(A)
    scale = float(covariance.abs().max())
    torch.testing.assert_close(draws.mean(0), found.mean, atol=0.02 * scale**0.5, rtol=0)
    torch.testing.assert_close(draws.mT.cov(), covariance, atol=0.03 * scale, rtol=0)


@quiet
def test_the_last_layer_is_bayesian_linear_regression_on_the_features() -> None:
    data = rows(80)
    how = Laplace(draws=500, structure="last_layer", base=MAP("adam", steps=100))
    posterior = fit(NETWORK, data, how, progress=False)
    W, b = posterior.draws["network.0.weight"], posterior.draws["network.0.bias"]
    assert torch.equal(W, W[:, :1].expand_as(W))
    Phi = torch.relu(posterior.data.X @ W[0, 0].mT + b[0, 0])
    Phi = torch.cat([Phi, torch.ones(80, 1, dtype=F64)], 1)
    expected = by_evidence(Phi, posterior.data.y, None)
    assert posterior.stats["log_evidence"] == pytest.approx(expected.log_evidence)
    assert posterior.log_evidence == pytest.approx(
        expected.log_evidence - 80 * math.log(float(data.y.std(correction=0)))
    )
    noise = posterior.draws["noise"]
    torch.testing.assert_close(noise, torch.full_like(noise, expected.noise))
    # the predictive variance is that of the closed form
    A = expected.precision * torch.eye(21, dtype=F64) + Phi.mT @ Phi / expected.noise
    variance = expected.noise + (Phi @ torch.linalg.inv(A) * Phi).sum(1)
    scaled = posterior.predict(data.X).variance / data.y.var(correction=0)
    torch.testing.assert_close(scaled, variance, rtol=0.25, atol=0)
    assert float((scaled / variance).mean()) == pytest.approx(1.0, abs=0.03)


@quiet
def test_the_last_layer_starts_at_init_and_takes_a_number_as_noise() -> None:
    data = rows(40)
    model = NeuralRegression(MLP((3,), dropout=0.0), Gaussian(noise=0.04))
    first = fit(model, data, MAP("adam", steps=50), progress=False)
    how = Laplace(draws=5, structure="last_layer", base=MAP("adam", steps=1, learning_rate=1e-12))
    posterior = fit(model, data, how, init=first, progress=False)
    torch.testing.assert_close(
        posterior.draws["network.0.weight"][:, :1], first.draws["network.0.weight"]
    )
    target = Target(posterior.model, posterior.data)
    z, _, found = last_layer(target, posterior.stats["mode"], 5, torch.Generator().manual_seed(0))
    assert found.noise == pytest.approx(float(posterior.stats["noise"]))
    torch.testing.assert_close(
        target.constrain(z)["network.3.bias"], posterior.draws["network.3.bias"][0]
    )
