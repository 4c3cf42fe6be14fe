"""Slopes of covariances, and of the density of a GP, by formula and by autograd."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from ppgp import kernels, models
from ppgp.data import Dataset
from ppgp.kernels import (
    ARD,
    RBF,
    Constant,
    Exponential,
    Kernel,
    Linear,
    Matern,
    Periodic,
    RationalQuadratic,
    Scale,
    Subspace,
    White,
)
from ppgp.kernels.gram_slopes import gram, has_formulas
from ppgp.kernels.row_distances import RowDistances
from ppgp.numerics.distributions import GPMarginal
from ppgp.target import Target

F64 = torch.float64
KERNELS = [
    RBF(),
    ARD(RBF()),
    ARD(RBF(lengthscale=1.5)),
    *(Matern(nu) for nu in (0.5, 1.5, 2.5)),
    *(ARD(Matern(nu)) for nu in (0.5, 1.5, 2.5)),
    ARD(Exponential()),
    RationalQuadratic(),
    ARD(RationalQuadratic(variance=2.0)),
    ARD(Scale(RBF(1.0))),
    Scale(ARD(Matern(1.5, 1.0))),
    2.0 * ARD(RBF()),
    RBF() + RBF() + White() + Constant(),
    Subspace(RBF(), [1]) * ARD(Matern(2.5)) + Linear(),
    Subspace(Periodic(), [0]) * RBF(),
    Constant(),
]


def rows(d: int, n: int = 30) -> Tensor:
    """Return rows of which two are equal and two nearly so."""
    X = torch.randn(n, d, generator=torch.Generator().manual_seed(d), dtype=F64)
    X[3], X[6] = X[4], X[7] + 1e-6
    return X


def hyperparameters(kernel: Kernel, d: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    sites = kernel.sites(d)
    return {
        name: (0.3 * torch.randn(s.shape, generator=generator, dtype=F64)).exp()
        for name, s in sites.items()
    }


@pytest.mark.parametrize("d", [2, 6])
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_covariance_and_slopes_are_those_of_automatic_differentiation(
    kernel: Kernel, d: int
) -> None:
    X, theta = rows(d), hyperparameters(kernel, d)
    W = torch.randn(len(X), len(X), generator=torch.Generator().manual_seed(2), dtype=F64)
    W = W + W.mT
    before = W.clone()
    found = gram(kernel, theta, RowDistances(X))
    free = {name: value.clone().requires_grad_() for name, value in theta.items()}
    expected = kernel(free, X)
    # the matrix product of the other rounds distances of nearly equal rows
    few = 1e-12 if d <= 3 else 1e-7
    torch.testing.assert_close(found.K, expected.detach(), rtol=few, atol=few)
    slopes = found.slopes(W)
    assert torch.equal(W, before)
    assert set(slopes) == set(theta)
    by_torch = torch.autograd.grad(expected, list(free.values()), W)
    for name, own in zip(theta, by_torch, strict=True):
        torch.testing.assert_close(slopes[name], own, rtol=10 * few, atol=1e2 * few)


@pytest.mark.parametrize("kernel", [Matern(0.5), ARD(Matern(0.5)), ARD(Matern(1.5))], ids=repr)
def test_nearly_equal_rows_keep_the_digits_of_their_difference(kernel: Kernel) -> None:
    """Beside differences of each pair in every column, which lose none."""
    X, theta = rows(6) + 100.0, hyperparameters(kernel, 6)
    scaled = X / theta["lengthscale"]
    differences = scaled[:, None] - scaled[None]
    r = differences.square().sum(-1).sqrt()
    s = r if "0.5" in repr(kernel) else 3**0.5 * r
    polynomial = 1.0 if "0.5" in repr(kernel) else 1 + s
    exact = theta["variance"] * polynomial * torch.exp(-s)
    K = gram(kernel, theta, RowDistances(X)).K
    torch.testing.assert_close(K[6, 7], exact[6, 7], rtol=1e-13, atol=0)
    torch.testing.assert_close(K, exact, rtol=1e-12, atol=1e-12)
    assert float(K[3, 4]) == float(theta["variance"])


@pytest.mark.parametrize("d", [2, 6])
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_the_density_of_a_gp_has_the_derivatives_of_its_program(
    kernel: Kernel, d: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = torch.randn(25, d, generator=torch.Generator().manual_seed(d), dtype=F64)
    data = Dataset(X, X[:, 0].sin() + 0.1 * X[:, 1])
    model = models.GP(kernel, mean=None)
    z = Target(model, data, compile=False).start(seed=1, spread=0.5)

    def everything() -> dict[str, Any]:
        compiled, eager = Target(model, data), Target(model, data, compile=False)
        assert not compiled.eager
        return {
            "compiled": compiled.value_and_grad(z),
            "side by side": [v[1] for v in compiled.value_and_grad_batch(torch.stack([z + 1, z]))],
            "eager": eager.value_and_grad(z),
            "hessian": eager.hessian(z),
        }

    found = everything()
    assert has_formulas(kernel)
    monkeypatch.setattr("ppgp.models.gp_marginal.has_formulas", lambda _: False)
    expected = everything()
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)


def test_a_matrix_that_is_not_positive_definite_gives_nan() -> None:
    X = torch.zeros(4, 1, dtype=F64)
    data = Dataset(X, torch.arange(4.0, dtype=F64))
    target = Target(models.GP(RBF(), noise=1e-300), data, compile=False)
    value, gradient = target.value_and_grad(torch.zeros(target.dim, dtype=F64))
    assert bool(value.isnan())
    assert bool(gradient.isnan().any())


def test_inputs_that_are_latent_keep_their_gradient() -> None:
    """A program may pass rows that depend on a site; the formulas hold X constant."""
    X = torch.randn(8, 2, dtype=F64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    from ppgp.models.gp_marginal import gp_marginal

    kernel = kernels.RBF()
    theta = hyperparameters(kernel, 2)
    noise, loc = torch.full((1,), 0.1, dtype=F64), torch.zeros(8, dtype=F64)
    found = gp_marginal(kernel, theta, X, loc, noise)
    assert type(found) is GPMarginal
    (slope,) = torch.autograd.grad(found.log_prob(torch.ones(8, dtype=F64)), X)
    assert float(slope.abs().max()) > 0
