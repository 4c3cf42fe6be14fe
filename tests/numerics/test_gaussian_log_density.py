"""The Gaussian log density and its gradient, compared with SciPy and plain autograd."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from ppgp.distributions.distributions import GPMarginal
from ppgp.numerics.gaussian_log_density import gaussian_log_density

N = 5
A = torch.randn(N, N, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
R = torch.randn(N, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
X = torch.linspace(0, 1, N, dtype=torch.float64)[:, None]
Z = torch.tensor([0.1, -0.4, -1.0], dtype=torch.float64)


def positive(A: Tensor) -> Tensor:
    return A @ A.mT + 0.5 * torch.eye(A.shape[-1], dtype=A.dtype)


def plain(C: Tensor, r: Tensor) -> Tensor:
    L = torch.linalg.cholesky(C)
    z = torch.linalg.solve_triangular(L, r.unsqueeze(-1), upper=False).squeeze(-1)
    return (
        -0.5 * z.square().sum(-1)
        - L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        - 0.5 * len(r) * math.log(2 * math.pi)
    )


def covariance(z: Tensor) -> Tensor:
    variance, lengthscale, noise = z.exp()
    return variance * torch.exp(-0.5 * ((X - X.mT) / lengthscale).square()) + noise * torch.eye(
        N, dtype=X.dtype
    )


def test_equals_scipy() -> None:
    expected = stats.multivariate_normal(np.zeros(N), positive(A).numpy()).logpdf(R.numpy())
    assert float(gaussian_log_density(positive(A), R)) == pytest.approx(expected, rel=1e-12)


def of(z: Tensor) -> Tensor:
    return gaussian_log_density(covariance(z), R)


def plain_of(z: Tensor) -> Tensor:
    return plain(covariance(z), R)


def test_gradient_equals_that_of_plain_cholesky() -> None:
    torch.testing.assert_close(
        torch.func.grad(of)(Z), torch.func.grad(plain_of)(Z), rtol=1e-10, atol=1e-10
    )
    C = positive(A)
    ours = torch.func.grad(gaussian_log_density, 1)(C, R)
    torch.testing.assert_close(ours, torch.func.grad(plain, 1)(C, R), rtol=1e-10, atol=1e-10)


def test_hessian_equals_that_of_plain_cholesky() -> None:
    ours, theirs = (torch.func.jacrev(torch.func.grad(f))(Z) for f in (of, plain_of))
    torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)


def test_classic_hessian_equals_that_of_plain_cholesky() -> None:
    ours = torch.autograd.functional.hessian(of, Z)
    theirs = torch.autograd.functional.hessian(plain_of, Z)
    torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)


def test_gradcheck_and_gradgradcheck() -> None:
    leaves = (A.clone().requires_grad_(), R.clone().requires_grad_())

    def value(A: Tensor, r: Tensor) -> Tensor:
        return gaussian_log_density(positive(A), r)

    assert torch.autograd.gradcheck(value, leaves)
    assert torch.autograd.gradgradcheck(value, leaves)


def test_a_batch_equals_a_loop_in_value_and_gradient() -> None:
    C = torch.stack([positive(A), 2 * positive(A), positive(A.mT)]).requires_grad_()
    r = torch.stack([R, R + 1, -R]).requires_grad_()
    value = gaussian_log_density(C, r)
    gradient = torch.autograd.grad(value.sum(), (C, r))
    for i in range(3):
        c, s = C[i].detach().requires_grad_(), r[i].detach().requires_grad_()
        one = gaussian_log_density(c, s)
        torch.testing.assert_close(value[i], one)
        for whole, part in zip(gradient, torch.autograd.grad(one, (c, s)), strict=True):
            torch.testing.assert_close(whole[i], part)


def test_one_residual_serves_a_batch_of_matrices_in_value_and_gradient() -> None:
    C = torch.stack([positive(A), 2 * positive(A)])
    r = R.clone().requires_grad_()
    value = gaussian_log_density(C, r.expand(2, N))
    (gradient,) = torch.autograd.grad(value.sum(), r)
    expected = -sum(torch.linalg.solve(c, R) for c in C)
    torch.testing.assert_close(gradient, expected)


def test_vmap_equals_the_batch_with_gradient_and_hessian() -> None:
    z = torch.stack([Z, Z + 0.3, Z - 0.2])
    for transform in (
        lambda f: f,
        torch.func.grad,
        lambda f: torch.func.jacrev(torch.func.grad(f)),
    ):
        each = torch.stack([transform(of)(row) for row in z])
        torch.testing.assert_close(torch.func.vmap(transform(of))(z), each, rtol=1e-9, atol=1e-9)


BAD = {
    "negative": -torch.eye(N).double(),
    "singular": torch.diag(torch.tensor([1.0, 1, 0, 1, 1]).double()),
    "nan": torch.full((N, N), torch.nan).double(),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_a_matrix_that_is_not_positive_definite_gives_nan_never_an_exception(bad: Tensor) -> None:
    """Value, gradient and Hessian are NaN whichever pivot fails: a sampler sees a divergence."""
    C = bad.clone().requires_grad_()
    value = gaussian_log_density(C, R)
    assert bool(value.isnan())
    assert bool(torch.autograd.grad(value, C)[0].isnan().any())
    hessian = torch.autograd.functional.hessian(
        lambda s: gaussian_log_density(s * bad, R), torch.ones(()).double()
    )
    assert bool(hessian.isnan())


def test_in_a_batch_only_the_bad_matrix_is_nan() -> None:
    C = torch.stack([positive(A), -torch.eye(N).double()]).requires_grad_()
    value = gaussian_log_density(C, R.expand(2, N))
    assert value.isnan().tolist() == [False, True]
    gradient = torch.autograd.grad(value.sum(), C)[0]
    assert bool(gradient[0].isfinite().all())


def test_marginal_distribution_is_the_multivariate_normal() -> None:
    loc = torch.arange(N, dtype=torch.float64)
    ours = GPMarginal(loc, positive(A)).expand([2])
    theirs = torch.distributions.MultivariateNormal(loc, positive(A)).expand([2])
    assert ours.batch_shape == theirs.batch_shape
    torch.testing.assert_close(ours.log_prob(R), theirs.log_prob(R))
    torch.testing.assert_close(ours.mean, theirs.mean)
    torch.testing.assert_close(ours.variance, theirs.variance)


def test_marginal_distribution_samples_its_own_mean_and_covariance() -> None:
    k, C = 40_000, positive(A)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        draws = GPMarginal(R, C).rsample(torch.Size([k]))
    se_mean = (C.diagonal() / k).sqrt()
    assert bool(((draws.mean(0) - R).abs() < 5 * se_mean).all())
    se_covariance = ((C.square() + C.diagonal()[:, None] * C.diagonal()) / k).sqrt()
    assert bool(((torch.cov(draws.mT) - C).abs() < 5 * se_covariance).all())
