"""Kronecker factors of layers by brute force, and the Laplace approximation that they give."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal
from torch.func import functional_call, jacrev

from ppgp import Dataset, fit, load_posterior
from ppgp.density import Target
from ppgp.errors import ImproperPosterior, NotApplicable
from ppgp.inference import Laplace
from ppgp.inference.optimise import kronecker_factors
from ppgp.inference.optimise.curvature_of_rows import CurvatureOfRows
from ppgp.inference.optimise.kronecker_factors import KroneckerFactors, directions, layers_of
from ppgp.likelihoods import Categorical, Gaussian, Poisson, Predicted
from ppgp.models import GP, LogisticRegression, NeuralRegression
from ppgp.networks import CNN, MLP
from ppgp.networks.networks import module_of
from ppgp.priors import Flat, HalfNormal, Normal, StudentT

F64 = torch.float64
quiet = pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
PRIOR = Normal(0.0, 1.0)
GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(25, 2, generator=GENERATOR, dtype=F64)
Y = torch.sin(2 * X[:, 0]) + 0.3 * torch.randn(25, generator=GENERATOR, dtype=F64)
CLASSES = (Y > 0).to(F64) + (Y > 0.6).to(F64)
IMAGES = torch.randn(7, 16, generator=GENERATOR, dtype=F64)
TANH = MLP((3,), dropout=0.0, activation="tanh")


def target_of(model: Any, y: Tensor = Y, x: Tensor = X, **columns: Any) -> Target:
    data = Dataset(x, y, **columns)
    return Target(model.prepare(data), data, compile=False)


def factors_at(target: Target, z: Tensor, **options: Any) -> list[tuple[Tensor, Tensor]]:
    curvature = CurvatureOfRows(target, True)
    return KroneckerFactors(curvature, layers_of(target)).at(z, **options)


def point(target: Target) -> Tensor:
    return 0.7 * torch.randn(target.dim, generator=GENERATOR, dtype=F64)


def weights_of(target: Target, z: Tensor) -> dict[str, Tensor]:
    slices = target.slices.items()
    return {k.removeprefix("network."): s.of(z) for k, s in slices if k.startswith("network.")}


def metric_of(target: Target, z: Tensor, f: Tensor) -> Tensor:
    return CurvatureOfRows(target, True).metric(z, f.mT, target.data.weights)


# -- the factors ---------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_factors_of_linear_layers_are_the_sums_over_rows(weighted: bool) -> None:
    """Each row by itself, with the derivatives by the outputs of a layer from autograd."""
    columns = {"weights": torch.arange(1.0, 26.0, dtype=F64)} if weighted else {}
    target = target_of(NeuralRegression(TANH, Categorical(), PRIOR), CLASSES, **columns)
    z = point(target)
    w = columns.get("weights", torch.ones(25, dtype=F64))
    W = weights_of(target, z)
    first = X @ W["0.weight"].mT + W["0.bias"]
    hidden = torch.tanh(first)

    def rest(s: Tensor) -> Tensor:
        return W["3.weight"] @ torch.tanh(s) + W["3.bias"]

    f = torch.stack([rest(s) for s in first])
    metric = metric_of(target, z, f)
    one = torch.ones(25, 1, dtype=F64)
    A = [torch.cat([a, one], 1) for a in (X, hidden)]
    J = [torch.stack([jacrev(rest)(s) for s in first]), torch.eye(3, dtype=F64).expand(25, 3, 3)]
    for (found_A, found_G), a, by in zip(factors_at(target, z), A, J, strict=True):
        torch.testing.assert_close(found_A, (w[:, None] * a).mT @ a / w.sum())
        torch.testing.assert_close(found_G, (by.mT @ metric @ by).sum(0))


def test_factors_of_convolutions_are_means_over_positions_too() -> None:
    """Patches are cut out by hand. Grosse & Martens (2016), theorem 1."""
    module = nn.Sequential(
        nn.Unflatten(1, (1, 4, 4)),
        nn.Conv2d(1, 2, (3, 2), stride=(1, 2), padding=(1, 0), padding_mode="replicate"),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(16, 2),
    ).double()
    target = target_of(NeuralRegression(module, Gaussian(noise=Predicted()), PRIOR), Y[:7], IMAGES)
    z = point(target)
    W = weights_of(target, z)
    images = IMAGES.reshape(7, 1, 4, 4)
    above, below = images[:, :, :1], images[:, :, -1:]
    padded = torch.cat([above, images, below], 2)
    places = list(itertools.product(range(4), (0, 2)))
    patches = [padded[:, :, i : i + 3, j : j + 2].flatten(1) for i, j in places]
    a = torch.stack([torch.cat([x, torch.ones(7, 1, dtype=F64)], 1) for x in patches], 1)
    kernel = torch.cat([W["1.weight"].flatten(1), W["1.bias"][:, None]], 1)
    s = a @ kernel.mT  # [row, position, channel]

    def rest(s: Tensor) -> Tensor:
        return W["4.weight"] @ torch.relu(s.mT.flatten()) + W["4.bias"]

    f = torch.stack([rest(one) for one in s])
    torch.testing.assert_close(f, functional_call(module, W, (IMAGES,)))
    metric = metric_of(target, z, f)
    J = torch.stack([jacrev(rest)(one) for one in s])  # [row, K, position, channel]
    A, G = factors_at(target, z)[0]
    torch.testing.assert_close(A, torch.einsum("nti,ntj->ij", a, a) / (7 * 8))
    torch.testing.assert_close(G, torch.einsum("nkto,nkl,nltp->op", J, metric, J))


@pytest.mark.parametrize("network", [TANH, CNN((2,), dropout=0.0)], ids=["MLP", "CNN"])
def test_factors_do_not_depend_on_chunks_of_rows(
    network: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = target_of(
        NeuralRegression(network, Poisson(), PRIOR), (2 + Y[:7]).abs().round(), IMAGES
    )
    z = point(target)
    whole = factors_at(target, z)
    monkeypatch.setattr(kronecker_factors, "AT_ONCE", 1)
    for (A, G), (B, H) in zip(factors_at(target, z), whole, strict=True):
        torch.testing.assert_close(A, B)
        torch.testing.assert_close(G, H)
    some = torch.tensor([0, 3, 4])
    rows = target_of(target.model, target.data.y[some], IMAGES[some])
    for (A, G), (B, H) in zip(factors_at(target, z, rows=some), factors_at(rows, z), strict=True):
        torch.testing.assert_close(A, B)
        torch.testing.assert_close(G, H)


def test_random_signs_have_the_information_as_their_mean() -> None:
    """The error of a mean of s products of signs is at most their bound over sqrt(s)."""
    root = torch.randn(4, 3, 3, generator=GENERATOR, dtype=F64)
    metric = root @ root.mT
    exact = sum(v[:, :, None] * v[:, None] for v in directions(metric, None))
    torch.testing.assert_close(exact, metric)
    samples = 2000
    mean = torch.zeros_like(metric)
    for _ in range(samples):
        (v,) = directions(metric, GENERATOR)
        mean += v[:, :, None] * v[:, None] / samples
    size = metric.diagonal(dim1=1, dim2=2).sum(1)[:, None, None]
    assert float(((mean - metric).abs() / size).max()) < 5 / math.sqrt(samples)


@pytest.mark.parametrize("convolution", [False, True])
def test_one_row_and_one_layer_have_the_whole_matrix(convolution: bool) -> None:
    module: nn.Module = nn.Linear(16, 3)
    if convolution:
        module = nn.Sequential(nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 3, 4), nn.Flatten())
    target = target_of(
        NeuralRegression(module.double(), Categorical(3), PRIOR), CLASSES[:7], IMAGES
    )
    one = torch.tensor([2])
    alone = target_of(target.model, target.data.y[one], IMAGES[one])
    z = point(target)
    ((A, G),) = factors_at(target, z, rows=one)
    (layer,) = layers_of(target)
    order = layer.of(torch.arange(target.dim)).flatten()  # of z in the matrix
    whole = CurvatureOfRows(alone, True).matrix(z) - torch.eye(target.dim, dtype=F64)
    torch.testing.assert_close(whole[order][:, order], torch.kron(G, A))


# -- the approximation ---------------------------------------------------------------------------


def laplace(target: Target, **options: Any) -> Any:
    return Laplace(**{"structure": "kron", "draws": 50, "steps": 8, **options})(target)


def test_kron_is_exact_for_linear_regression() -> None:
    model = NeuralRegression(MLP(()), Gaussian(noise=0.2), Normal(0.0, 0.7))
    posterior = laplace(target_of(model), steps=50, draws=4000)
    Phi = torch.cat([X, torch.ones(25, 1, dtype=F64)], 1)
    A = torch.eye(3, dtype=F64) / 0.49 + Phi.mT @ Phi / 0.2
    marginal = MultivariateNormal(
        torch.zeros(25, dtype=F64), 0.2 * torch.eye(25, dtype=F64) + 0.49 * Phi @ Phi.mT
    )
    assert posterior.log_evidence == pytest.approx(float(marginal.log_prob(Y)), abs=1e-8)
    z = Target(posterior.model, posterior.data, compile=False).unconstrain(posterior.draws)[0]
    covariance = torch.linalg.inv(A)
    scale = covariance.diagonal().sqrt()
    error = (z.mT.cov() - covariance) / (scale[:, None] * scale)
    assert float(error.abs().max()) < 5 * math.sqrt(2 / 4000)


@pytest.mark.parametrize("likelihood", [Categorical(), Gaussian()], ids=["classes", "noise"])
def test_evidence_and_draws_are_those_of_the_matrix_by_brute_force(likelihood: Any) -> None:
    y = CLASSES if isinstance(likelihood, Categorical) else Y
    target = target_of(NeuralRegression(TANH, likelihood, Normal(0.0, 0.5)), y)
    draws = 5000
    posterior = laplace(target, draws=draws)
    mode = posterior.stats["mode"]
    A = torch.zeros(target.dim, target.dim, dtype=F64)
    layers = layers_of(target)
    for layer, (a, g) in zip(layers, factors_at(target, mode), strict=True):
        order = layer.of(torch.arange(target.dim)).flatten()
        A[order[:, None], order] = torch.kron(g, a) + 4 * torch.eye(len(order), dtype=F64)
    if "noise" in target.slices:
        i = target.slices["noise"].start
        A[i, i] = -target.hessian(mode)[i, i]
    evidence = float(target.log_density(mode)) + target.dim / 2 * math.log(2 * math.pi)
    evidence -= float(torch.logdet(A)) / 2
    assert posterior.stats["log_evidence"] == pytest.approx(evidence, abs=1e-8)
    z = target.unconstrain(posterior.draws)[0]
    whitened = (z - mode) @ torch.linalg.cholesky(A)
    error = whitened.mT.cov() - torch.eye(target.dim, dtype=F64)
    assert float(error.abs().max()) < 5.5 * math.sqrt(2 / draws)


@quiet
def test_a_convolution_is_fitted_predicted_and_saved(tmp_path: Any) -> None:
    labels = (IMAGES[:, 0] > 0).to(F64)
    model = NeuralRegression(CNN((2,), dropout=0.0), Categorical(), PRIOR)
    how = Laplace(draws=9, steps=5, structure="kron")
    posterior = fit(model, Dataset(IMAGES, labels), how, progress=False)
    predicted = posterior.predict(IMAGES)
    assert "linearised_at.network.1.weight" in posterior.params
    again = load_posterior(posterior.save(tmp_path / "p.safetensors"))
    assert torch.equal(again.predict(IMAGES).probabilities, predicted.probabilities)
    sampled = laplace(target_of(posterior.model, labels, IMAGES), linearised=False, draws=9)
    assert {"lp", "log_q"} <= sampled.stats.keys()


def test_what_has_no_factors_is_refused() -> None:
    normed = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)).double()
    twice = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 1)).double()
    twice[1].weight = twice[0].weight
    gaussian = Gaussian(noise=0.2)
    cases: list[tuple[str, type[Exception], Any, Tensor]] = [
        ("a model that is a network", NotApplicable, GP(), Y),
        ("a model that is a network", NotApplicable, LogisticRegression(), (Y > 0).to(F64)),
        (r"got network.1.weight", NotApplicable, NeuralRegression(normed, gaussian, PRIOR), Y),
        ("share no weights", NotApplicable, NeuralRegression(twice, gaussian, PRIOR), Y),
        ("unbounded", NotApplicable, NeuralRegression(TANH, gaussian, HalfNormal(1.0)), Y),
        ("one variance", NotApplicable, NeuralRegression(TANH, gaussian, StudentT(4.0)), Y),
        ("a proper prior", ImproperPosterior, NeuralRegression(MLP((40,)), gaussian, Flat()), Y),
    ]
    for sentence, kind, model, y in cases:
        with pytest.raises(kind, match=sentence):
            laplace(target_of(model, y), steps=1)


def test_hooks_leave_no_trace() -> None:
    target = target_of(NeuralRegression(TANH, Gaussian(), PRIOR))
    factors_at(target, point(target))
    assert not any(m._forward_hooks for m in module_of(target.model._sized(), 2).modules())
