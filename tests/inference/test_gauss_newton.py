"""MAP("gauss_newton"): the matrix is J' F J + P, and the search ends where L-BFGS and IRLS do."""

from __future__ import annotations

from itertools import count
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import priors
from ppgp.data import Dataset
from ppgp.density import Target
from ppgp.errors import NotApplicable
from ppgp.inference import MAP
from ppgp.inference.optimise import curvature_of_rows, gauss_newton
from ppgp.inference.optimise.curvature_of_rows import CurvatureOfRows
from ppgp.likelihoods import Bernoulli, Categorical, Gaussian, Poisson, Predicted, StudentT
from ppgp.models import (
    GP,
    LinearRegression,
    LogisticRegression,
    NeuralRegression,
    Program,
    SoftmaxRegression,
)
from ppgp.networks.networks import CNN, MLP
from ppgp.priors import Flat, InverseGamma, Normal

N = 40
RANDOM = torch.Generator().manual_seed(0)
X = torch.randn(N, 3, generator=RANDOM, dtype=torch.float64)
NOISE = torch.randn(N, generator=RANDOM, dtype=torch.float64)
Y = torch.sin(X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + 0.2 * NOISE
LABELS = (Y > 0).double()
CLASSES = (Y > -0.5).double() + (Y > 0.5).double()
COUNTS = torch.poisson(Y.exp(), generator=RANDOM)
TANH = MLP(hidden=(4,), activation="tanh", dropout=0.0)


def network(likelihood: Any, prior: Any = Normal(0, 1)) -> NeuralRegression:
    return NeuralRegression(TANH, likelihood, prior)


LINEAR: dict[str, tuple[Any, Tensor]] = {
    "linear": (LinearRegression(), Y),
    "conjugate": (LinearRegression(conjugate=True, noise=InverseGamma(2.0, 1.0)), Y),
    "flat": (LinearRegression(Flat(), Flat(), 0.3), Y),
    "logistic": (LogisticRegression(), LABELS),
    "softmax": (SoftmaxRegression(), CLASSES),
    "flat classes": (SoftmaxRegression(Normal(0, 2), Flat()), CLASSES),
}
NETWORKS: dict[str, tuple[Any, Tensor]] = {
    "noise with a prior": (network(Gaussian()), Y),
    "noise a number": (network(Gaussian(noise=0.1)), Y),
    "noise an output": (network(Gaussian(noise=Predicted())), Y),
    "two sites": (network(StudentT()), Y),
    "labels": (network(Bernoulli()), LABELS),
    "classes": (network(Categorical()), CLASSES),
    "counts": (network(Poisson()), COUNTS),
}


def target_of(model: Any, y: Tensor, inputs: Tensor = X) -> Target:
    data = Dataset(inputs, y)
    return Target(model.prepare(data), data)


def a_point(target: Target) -> Tensor:
    random = torch.Generator().manual_seed(1)
    move = torch.randn(target.dim, generator=random, dtype=torch.float64)
    return target.origin() + 0.3 * move


@pytest.mark.parametrize("jacobian", [True, False])
@pytest.mark.parametrize("name", LINEAR)
def test_for_linear_functions_the_matrix_is_minus_the_hessian(name: str, jacobian: bool) -> None:
    """Their second derivatives are 0, and the Fisher information is the observed one."""
    target = target_of(*LINEAR[name])
    z = a_point(target)
    A = CurvatureOfRows(target, jacobian).matrix(z)
    torch.testing.assert_close(A, -target.hessian(z, jacobian=jacobian), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_matrix_is_the_sum_over_rows_of_its_definition(name: str) -> None:
    target = target_of(*NETWORKS[name])
    z = a_point(target)
    likelihood = target.model.likelihood

    def functions(z: Tensor) -> Tensor:
        theta = {site: s.transform(s.of(z)) for site, s in target.slices.items()}
        return target.model.functions(theta, X).reshape(-1, N)

    J = torch.autograd.functional.jacobian(functions, z)
    theta = {site: s.transform(s.of(z)) for site, s in target.slices.items()}
    F = likelihood.metric(theta, functions(z))
    expected = torch.zeros(target.dim, target.dim, dtype=torch.float64)
    for i in range(N):
        expected += J[:, i].mT @ F[i] @ J[:, i]
    own = [site for site in likelihood.sites() if site in target.slices]
    H = target.hessian(z, jacobian=False)
    for site in own:
        place = slice(target.slices[site].start, target.slices[site].stop)
        expected[place], expected[:, place] = -H[place], -H[:, place]
    prior = torch.ones(target.dim, dtype=torch.float64)
    for site in own:
        prior[target.slices[site].start : target.slices[site].stop] = 0.0
    A = CurvatureOfRows(target, False).matrix(z)
    torch.testing.assert_close(A, expected + torch.diag(prior), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", [*LINEAR, *NETWORKS])
def test_a_product_and_a_matrix_over_chunks_of_rows_are_those_of_the_whole(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = target_of(*{**LINEAR, **NETWORKS}[name])
    z = a_point(target)
    A = CurvatureOfRows(target, False).matrix(z)
    v = torch.randn(target.dim, generator=RANDOM, dtype=torch.float64)
    torch.testing.assert_close(CurvatureOfRows(target, False).product(z)(v), A @ v)
    monkeypatch.setattr(curvature_of_rows, "AT_ONCE", 7 * target.dim)
    curvature = CurvatureOfRows(target, False)
    torch.testing.assert_close(curvature.matrix(z), A)
    torch.testing.assert_close(curvature.product(z)(v), A @ v)
    torch.testing.assert_close(A, A.mT)


def test_a_network_of_convolutions_has_the_matrix_too() -> None:
    images = torch.randn(12, 16, generator=RANDOM, dtype=torch.float64)
    model = NeuralRegression(CNN(channels=(2,), dropout=0.0), Gaussian(noise=0.1), Normal(0, 1))
    target = target_of(model, NOISE[:12], images)
    z = a_point(target)
    A = CurvatureOfRows(target, False).matrix(z)
    v = torch.randn(target.dim, generator=RANDOM, dtype=torch.float64)
    torch.testing.assert_close(CurvatureOfRows(target, False).product(z)(v), A @ v)


def test_a_prior_that_is_not_quadratic_counts_where_it_is_concave() -> None:
    """The log of a Cauchy density is convex where |w| > 1, and its curvature is left out there."""
    target = target_of(LogisticRegression(priors.StudentT(1.0, 0.0, 1.0), Normal(0, 1)), LABELS)
    curvature = CurvatureOfRows(target, False)
    flat = CurvatureOfRows(target_of(LogisticRegression(Flat(), Normal(0, 1)), LABELS), False)
    for weight in ([0.1, 0.5, 3.0], [0.4, -2.0, 0.0], [0.0, 0.0, 0.0]):
        w = torch.tensor(weight, dtype=torch.float64)
        z = target.placed({"weight": w})
        own = (curvature.matrix(z) - flat.matrix(z)).diagonal()[:3]
        expected = 2 * (1 - w.square()) / (1 + w.square()).square()
        torch.testing.assert_close(own, expected.clamp_min(0.0), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("formed", [True, False])
@pytest.mark.parametrize("name", LINEAR)
def test_the_mode_of_a_linear_model_is_that_of_other_searches(
    name: str, formed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not formed:
        monkeypatch.setattr(gauss_newton, "LARGEST_FORMED", 0)
    model, y = LINEAR[name]
    found = ppgp.fit(model, Dataset(X, y), MAP("gauss_newton", starts=1), progress=False)
    other = ppgp.fit(model, Dataset(X, y), MAP("newton", starts=1), progress=False)
    assert not found.warnings
    assert found.stats["gradient"] < 1e-3
    gap = found.stats["log_density"] - other.stats["log_density"]
    assert abs(gap) < 1e-8
    for site, value in found.draws.items():
        torch.testing.assert_close(value, other.draws[site], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "two sites"])
def test_the_gradient_is_zero_at_the_mode_of_a_network(name: str) -> None:
    model, y = NETWORKS[name]
    posterior = ppgp.fit(model, Dataset(X, y), MAP("gauss_newton", starts=1), progress=False)
    assert not posterior.warnings
    assert posterior.stats["gradient"] < 1e-3
    assert bool((posterior.stats["losses"].diff() < 0).all())


@pytest.mark.parametrize("name", ["labels", "counts", "noise a number"])
def test_conjugate_gradients_find_a_mode_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gauss_newton, "LARGEST_FORMED", 0)
    model, y = NETWORKS[name]
    posterior = ppgp.fit(model, Dataset(X, y), MAP("gauss_newton", starts=1), progress=False)
    assert not posterior.warnings
    assert posterior.stats["gradient"] < 1e-3


def program() -> None:
    pyro.sample("z", dist.Normal(0.0, 1.0))


@pytest.mark.parametrize("model", [GP(), Program(program)], ids=["GP", "Program"])
def test_other_models_are_refused(model: Any) -> None:
    data: Any = {} if isinstance(model, Program) else Dataset(X, Y)
    with pytest.raises(NotApplicable, match=r"a network, or LinearRegression.*MAP\('lbfgs'\)"):
        ppgp.fit(model, data, MAP("gauss_newton"), progress=False)


class Interrupted(Target):
    """A target that is interrupted by Ctrl-C at an evaluation."""

    def __init__(self, after: int, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.after, self.calls = after, count(1)

    def value_and_grad(self, *arguments: Any, **options: Any) -> tuple[Tensor, Tensor]:
        if next(self.calls) == self.after:
            raise KeyboardInterrupt
        return super().value_and_grad(*arguments, **options)


def test_ctrl_c_keeps_the_best_point_so_far() -> None:
    data = Dataset(X, Y)
    model = network(Gaussian()).prepare(data)
    whole = MAP("gauss_newton", starts=1)(Target(model, data, True))
    posterior = MAP("gauss_newton", starts=1)(Interrupted(10, model, data, True))
    assert posterior.stats["interrupted"]
    assert any("Ctrl-C" in sentence for sentence in posterior.warnings)
    losses = posterior.stats["losses"]
    assert torch.equal(losses, whole.stats["losses"][: len(losses)])
    assert posterior.stats["log_density"] == -float(losses[-1])


def test_few_steps_leave_a_warning() -> None:
    posterior = MAP("gauss_newton", steps=3, starts=1)(target_of(network(Gaussian()), Y))
    assert any("ended after 3 iterations" in sentence for sentence in posterior.warnings)
