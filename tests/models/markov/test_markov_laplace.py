"""Laplace's approximation along a Markov process beside that with a covariance matrix."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from ppgp.kernels import Constant, Cosine, Kernel, Linear, Matern
from ppgp.kernels.state_space import require
from ppgp.likelihoods import Bernoulli, Likelihood, NegativeBinomial, Poisson, StudentT
from ppgp.likelihoods.joint_rows import LikelihoodRows
from ppgp.models.markov.markov_laplace import MarkovPrior
from ppgp.models.markov.state_space_rows import steps_of
from ppgp.numerics.laplace_evidence import laplace_log_evidence_under
from ppgp.numerics.latent_laplace import DensePrior, laplace_log_evidence
from ppgp.numerics.latent_mode import LatentPrior, RowDensity, mode_of, require_mode

F64 = torch.float64
RANDOM = torch.Generator().manual_seed(0)
N = 300
T = (10 * torch.rand(N, generator=RANDOM, dtype=F64)).sort().values
T[5:20] = T[4]
TRUTH = torch.sin(T)
NORMAL = torch.randn(N, generator=RANDOM, dtype=F64)
COUNTS = torch.poisson(TRUTH.exp(), generator=RANDOM)
HEAVY = NORMAL / (torch.randn(N, 2, generator=RANDOM, dtype=F64).square().sum(-1) / 2).sqrt()
#: name -> the likelihood, y and the values of its sites
CASES: dict[str, tuple[Likelihood, Tensor, dict[str, float]]] = {
    "counts": (Poisson(), COUNTS, {}),
    "labels": (Bernoulli(), (TRUTH + NORMAL > 0).to(F64), {}),
    "overdispersed counts": (NegativeBinomial(), COUNTS, {"shape": 1.5}),
    "numbers with outliers": (StudentT(), TRUTH + 0.3 * HEAVY, {"df": 3.0, "scale": 0.2}),
}
every_case = pytest.mark.parametrize("name", list(CASES))


def number(value: float) -> Tensor:
    return torch.tensor(value, dtype=F64, requires_grad=True)


def both(
    kernel: Kernel, theta: dict[str, Tensor], mean: Tensor, rows: RowDensity, *own: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the evidence along the process, and with the covariance matrix."""
    K = kernel(theta, T[:, None])
    prior, tensors = markov(kernel, theta)
    return (
        laplace_log_evidence_under(prior, tensors, mean, rows, own),
        laplace_log_evidence(K, mean, rows, own),
    )


def markov(
    kernel: Kernel, theta: dict[str, Tensor]
) -> tuple[Callable[..., LatentPrior], tuple[Tensor, ...]]:
    space = require(kernel).state_space(theta, T[:, None])
    steps = steps_of(space, T, torch.ones(1, dtype=F64))
    return partial(MarkovPrior, observed=steps.observed, n=N), (steps.F, steps.Q, steps.P0)


@every_case
def test_value_and_two_derivatives_are_those_with_a_covariance_matrix(name: str) -> None:
    likelihood, y, values = CASES[name]
    rows = LikelihoodRows(likelihood, tuple(values), y)
    variance, lengthscale, level = number(1.3), number(0.8), number(0.2)
    own = tuple(number(value) for value in values.values())
    theta = {"variance": variance, "lengthscale": lengthscale}
    found = both(Matern(2.5), theta, level.expand(N), rows, *own)
    torch.testing.assert_close(*found, rtol=0, atol=1e-8)
    arguments = (variance, lengthscale, level, *own)
    first = [torch.autograd.grad(value, arguments, create_graph=True) for value in found]
    torch.testing.assert_close(*first, rtol=0, atol=1e-6)
    second = [torch.autograd.grad(slopes[1], arguments) for slopes in first]
    torch.testing.assert_close(*second, rtol=0, atol=1e-6)


def test_sums_and_products_of_kernels_have_the_same_slopes() -> None:
    kernel = Matern(1.5) * Cosine() + Linear() + Constant()
    sites = kernel.sites(1)
    theta = {name: number(0.9 - 0.1 * i) for i, name in enumerate(sites)}
    likelihood, y, _ = CASES["counts"]
    rows = LikelihoodRows(likelihood, (), y)
    found = both(kernel, theta, torch.zeros(N, dtype=F64), rows)
    torch.testing.assert_close(*found, rtol=0, atol=1e-8)
    slopes = [torch.autograd.grad(value, tuple(theta.values())) for value in found]
    torch.testing.assert_close(*slopes, rtol=0, atol=1e-6)


@every_case
def test_the_gaussian_at_the_mode_is_that_with_a_covariance_matrix(name: str) -> None:
    likelihood, y, values = CASES[name]
    rows = LikelihoodRows(likelihood, tuple(values), y)
    own = tuple(torch.tensor(value, dtype=F64) for value in values.values())
    theta = {name: torch.tensor(1.0, dtype=F64) for name in ("variance", "lengthscale")}
    kernel, mean = Matern(1.5), torch.zeros(N, dtype=F64)
    prior, tensors = markov(kernel, theta)
    moments = []
    for each in (prior(*tensors), DensePrior(kernel(theta, T[:, None]))):
        a, h, W = require_mode(each, mean, rows, own)
        moments.append((a, h, W, each.given(W, a + W * h).variance()))
    torch.testing.assert_close(*moments, rtol=0, atol=1e-7)
    if name == "numbers with outliers":
        assert bool((moments[0][2] < 0).any())


def test_rows_that_say_next_to_nothing_leave_the_prior() -> None:
    theta = {name: torch.tensor(1.0, dtype=F64) for name in ("variance", "lengthscale")}
    prior, tensors = markov(Matern(1.5), theta)
    rows = LikelihoodRows(Poisson(), (), torch.zeros(N, dtype=F64))
    mean = torch.full((N,), -800.0, dtype=F64)  # rates of 0 in double precision
    a, h = mode_of(prior(*tensors), mean, rows)
    assert not bool(a.any())
    assert not bool(h.any())
    given = prior(*tensors).given(torch.zeros(N, dtype=F64), a)
    torch.testing.assert_close(given.variance(), torch.ones(N, dtype=F64))
    assert float(given.half_log_det()) == 0.0
