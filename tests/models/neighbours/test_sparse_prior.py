"""Laplace's approximation with a sparse root of the precision, beside dense algebra."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from ppgp import likelihoods
from ppgp.kernels import Matern
from ppgp.likelihoods import Likelihood
from ppgp.likelihoods.joint_rows import LikelihoodRows
from ppgp.models.neighbours import sparse_laplace, sparse_prior
from ppgp.models.neighbours.nearest_rows import nearest_earlier
from ppgp.models.neighbours.sparse_laplace import SparseLaplace
from ppgp.models.neighbours.sparse_prior import Precision, SparsePrior, SparseRoot
from ppgp.models.neighbours.weights import Law, Sets

F64 = torch.float64
N, NEIGHBOURS = 120, 8
GENERATOR = torch.Generator().manual_seed(0)
X = torch.rand(N, 2, generator=GENERATOR, dtype=F64)
MEMBERS = torch.cat([nearest_earlier(X, NEIGHBOURS), torch.arange(N)[:, None]], 1).int()
MEAN = torch.full((N,), 0.2, dtype=F64)
F = MEAN + torch.linalg.cholesky(Matern(1.5, 1.0, 0.3)({}, X)) @ torch.randn(
    N, generator=GENERATOR, dtype=F64
)
COUNTS = torch.poisson(F.exp(), GENERATOR)
HEAVY = F + 0.3 * torch.randn(N, generator=GENERATOR, dtype=F64) / torch.rand(
    N, generator=GENERATOR, dtype=F64
)
Case = tuple[Likelihood, Tensor, tuple[float, ...]]
CASES: list[Case] = [
    (likelihoods.Bernoulli(), (HEAVY > 0).to(F64), ()),
    (likelihoods.Poisson(), COUNTS, ()),
    (likelihoods.NegativeBinomial(), COUNTS, (2.0,)),
    (likelihoods.StudentT(), HEAVY, (3.0, 0.4)),
]
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: type(case[0]).__name__)


def entries(theta: Tensor) -> Tensor:
    """Return the entries of U at the logs of the variance and of the lengthscale."""
    named = {"variance": theta[0].exp(), "lengthscale": theta[1].exp()}
    kernel = Matern(1.5)
    w = Law(kernel, named, kernel.diag(named, X), X).weights(Sets(MEMBERS))
    return w / w[-1].sqrt()


def problem(case: Case, inputs: list[Tensor]) -> SparseLaplace:
    likelihood, y, _ = case
    theta, mean, *own = inputs
    rows = LikelihoodRows(likelihood, tuple(likelihood.sites()), y)
    return SparseLaplace(entries(theta), MEMBERS, mean, rows, tuple(own))


def inputs_of(case: Case) -> list[Tensor]:
    own = [torch.tensor(value, dtype=F64) for value in case[2]]
    return [torch.tensor([0.2, -1.0], dtype=F64), MEAN.clone(), *own]


def value_and_slopes(of: Callable[[list[Tensor]], Tensor], at: list[Tensor]) -> list[Tensor]:
    leaves = [x.clone().requires_grad_() for x in at]
    value = of(leaves)
    return [value.detach(), *torch.autograd.grad(value, leaves)]


@pytest.fixture
def iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few rows be computed as many are."""
    monkeypatch.setattr(sparse_laplace, "MOST_DENSE", 0)
    monkeypatch.setattr(sparse_laplace, "MOST_DENSE_COVARIANCE", 0)
    monkeypatch.setattr(sparse_prior, "FIRST", 20)


def test_solves_and_products_at_the_entries() -> None:
    U = SparseRoot(entries(inputs_of(CASES[0])[0]), MEMBERS)
    V = torch.randn(N, 3, dtype=F64, generator=torch.Generator().manual_seed(1))
    dense = U.times(torch.eye(N, dtype=F64))
    torch.testing.assert_close(dense @ U.solved(V), V)
    torch.testing.assert_close(dense.mT @ U.solved_transposed(V), V)
    expected = torch.where(MEMBERS >= 0, (V @ V.mT).gather(1, MEMBERS.clamp_min(0).long()), 0.0)
    torch.testing.assert_close(U.at_entries(V, V), expected.T)


@every_case
def test_with_probes_of_all_directions_it_is_dense_algebra(
    case: Case, iterations: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mean of m e'log(M) e over the unit vectors e is log|M| itself."""
    at = inputs_of(case)
    monkeypatch.setattr(SparsePrior, "probes", torch.eye(N - 20, dtype=F64))
    found = value_and_slopes(lambda inputs: problem(case, inputs).log_evidence(), at)
    monkeypatch.setattr(sparse_laplace, "MOST_DENSE", N)
    dense = value_and_slopes(lambda inputs: problem(case, inputs).log_evidence(), at)
    torch.testing.assert_close(found[0], dense[0], rtol=0, atol=1e-7)
    torch.testing.assert_close(found[1:], dense[1:], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("case", CASES[2:], ids=lambda case: type(case[0]).__name__)
def test_slopes_are_those_of_the_estimate(case: Case, iterations: None) -> None:
    at = inputs_of(case)

    def value(inputs: list[Tensor]) -> Tensor:
        return problem(case, inputs).log_evidence()

    _, *slopes = value_and_slopes(value, at)
    again = value_and_slopes(value, at)
    assert all(torch.equal(a, b) for a, b in zip(slopes, again[1:], strict=True))
    for i, x in enumerate(at):
        direction = torch.ones_like(x)
        ends = []
        for step in (1e-5, -1e-5):
            moved = [*at[:i], x + step * direction, *at[i + 1 :]]
            with torch.no_grad():
                ends.append(float(value(moved)))
        difference = (ends[0] - ends[1]) / 2e-5
        assert float(slopes[i].sum()) == pytest.approx(difference, rel=1e-5, abs=1e-5)


def test_second_derivatives_are_those_of_dense_algebra(
    iterations: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[1]
    theta, mean = inputs_of(case)
    monkeypatch.setattr(SparsePrior, "probes", torch.eye(N - 20, dtype=F64))

    def value(theta: Tensor) -> Tensor:
        return problem(case, [theta, mean]).log_evidence()

    found = torch.autograd.functional.hessian(value, theta)
    monkeypatch.setattr(sparse_laplace, "MOST_DENSE", N)
    torch.testing.assert_close(
        found, torch.autograd.functional.hessian(value, theta), rtol=1e-4, atol=1e-4
    )


def test_the_standard_error_covers_the_estimates(iterations: None) -> None:
    """Over 20 seeds of the probes, the squared errors average to the squared standard errors."""
    found = problem(CASES[1], inputs_of(CASES[1]))
    seeds = [replace(found, seed=seed) for seed in range(20)]
    with torch.no_grad():
        values = torch.stack([one.log_evidence() for one in seeds])
    errors = torch.tensor([one.error() for one in seeds], dtype=F64)
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(sparse_laplace, "MOST_DENSE", N)
        exact = found.log_evidence()
    ratio = float((values - exact).square().mean() / errors.square().mean())
    # a chi-squared of 20 degrees over another of many: 0.37 to 2.0 with probability 0.99
    assert 0.35 < ratio < 2.1


@pytest.mark.parametrize("case", [CASES[1], CASES[3]], ids=["Poisson", "StudentT"])
def test_the_covariance_from_draws_is_that_of_dense_algebra(case: Case, iterations: None) -> None:
    found = problem(case, inputs_of(case))
    h, a, W, C = found.posterior()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparse_laplace, "MOST_DENSE_COVARIANCE", N)
        exact = found.posterior()
    torch.testing.assert_close((h, a, W), exact[:3], rtol=1e-6, atol=1e-7)
    variance = exact[3].square().sum(1)
    # relative errors have an sd of at most sqrt(2 / 200) = 0.1: the largest of 120 is below 0.4
    assert float((C.square().sum(1) / variance - 1).abs().max()) < 0.4
    assert float(C.square().sum(1).sum() / variance.sum()) == pytest.approx(1, abs=0.06)


def test_no_gaussian_is_told_by_nan() -> None:
    prior = SparsePrior(entries(inputs_of(CASES[0])[0]), MEMBERS, 0)
    W = torch.full((N,), -50.0, dtype=F64)
    assert bool(prior.given(W, MEAN).h.isnan().all())
    assert bool(Precision(prior, W).half_log_det().isnan())
