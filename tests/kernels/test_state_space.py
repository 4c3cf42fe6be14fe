"""The state spaces of kernels against their covariance functions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import special
from torch import Tensor

from ppgp.errors import NotApplicable, SettingError
from ppgp.kernels import (
    ARD,
    RBF,
    Constant,
    Cosine,
    Exponential,
    Kernel,
    Linear,
    Matern,
    Periodic,
    Polynomial,
    RationalQuadratic,
    Scale,
    Subspace,
    Unscaled,
    White,
)
from ppgp.kernels.state_space import erlang, require, supports, with_batch

KERNELS = {
    "Matern12": Matern(0.5, 1.3, 0.7),
    "Matern32": Matern(1.5, 1.3, 0.7),
    "Matern52": Matern(2.5, 1.3, 0.7),
    "Exponential": Exponential(0.4, 2.0),
    "Constant": Constant(2.0),
    "Linear": Linear(0.3),
    "Cosine": Cosine(0.8, 1.7),
    "sum": Matern(1.5, 1.3, 0.7) + Linear(0.3) + Constant(2.0) + Cosine(0.8, 1.7),
    "quasi-periodic": Matern(2.5, 1.3, 0.7) * Cosine(0.8, 1.7),
    "periodic": Periodic(1.3, 1.1, 1.7, harmonics=16),
    "many-harmonics": Periodic(1.3, 0.3, 1.7, harmonics=40),
    "changing": Periodic(1.3, 1.1, 1.7, harmonics=16) * Matern(1.5, 1.0, 3.0),
    "changing-sum": (Matern(1.5, 1.3, 3.0) + Matern(0.5, 1.0, 2.0)) * Periodic(1.0, 1.1, 1.7, 16),
    "three": Matern(0.5, 1.1, 3.0) * Matern(1.5, 1.3, 0.7) * Constant(0.5),
    "multiple": 2.0 * (Matern(1.5, 1.3, 0.7) + Linear(0.3)),
    "wrapped": Scale(ARD(Scale(Matern(1.5, 1.0, 0.7), 2.0)) + Subspace(Constant(1.0), [0]), 0.6),
    "moved": Unscaled(Matern(2.5, 1.3, 0.7) + Linear(0.3), 2.0, 0.4),
}
each = pytest.mark.parametrize("k", KERNELS.values(), ids=KERNELS.keys())
T = torch.tensor([-1.3, -0.2, 0.1, 0.1, 0.9, 4.0], dtype=torch.float64)


def sandwich(F: Tensor, P: Tensor) -> Tensor:
    return torch.einsum("ij...,jk...,lk...->il...", F, P, F)


@each
def test_the_state_space_has_the_covariance_of_the_kernel(k: Kernel) -> None:
    space = require(k).state_space({}, T)
    H = torch.tensor(space.observation, dtype=T.dtype)
    K = k({}, T[:, None])
    for i in range(len(T)):
        later = T[i:]
        F, _ = space.transition(later - T[i])
        P = space.covariance(T[i])[..., None]
        across = torch.einsum("i,ijn,jkn,k->n", H, F, P.expand(*P.shape[:2], len(later)), H)
        torch.testing.assert_close(across, K[i, i:], rtol=1e-12, atol=1e-12)


@each
def test_what_a_step_adds_is_what_the_covariance_lacks(k: Kernel) -> None:
    space = require(k).state_space({}, T)
    dt = T.diff()
    F, Q = space.transition(dt)
    lacked = space.covariance(T[1:]) - sandwich(F, space.covariance(T[:-1]))
    torch.testing.assert_close(Q.expand_as(lacked), lacked, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_the_covariance_of_a_short_step_keeps_its_digits(nu: float) -> None:
    """To first order, the last state moves by noise, and the others are integrals of that."""
    space = Matern(nu, 1.0, 1.0).state_space({}, T)
    s, u = len(space.observation), 1e-6 * math.sqrt(2 * nu)
    _, Q = space.transition(torch.tensor(1e-6, dtype=torch.float64))
    density = {0.5: 2.0, 1.5: 4.0, 2.5: 16.0 / 3.0}[nu]
    for i in range(s):
        for j in range(s):
            a, b = s - 1 - i, s - 1 - j
            power = a + b + 1
            size = density / (math.factorial(a) * math.factorial(b) * power)
            assert float(Q[i, j]) == pytest.approx(size * u**power, rel=1e-4)


@pytest.mark.parametrize(
    "k",
    [
        Scale(Matern(2.5, 1.0) * Cosine(1.0) + Linear() + Constant(0.3)),
        Matern(1.5, lengthscale=1.0) * Matern(0.5, 1.0) + Exponential(lengthscale=2.0),
        ARD(Matern(2.5, lengthscale=1.0)) * Cosine(period=1.0),
    ],
    ids=["all", "variances", "product"],
)
def test_a_batch_of_hyperparameters_is_a_loop(k: Kernel) -> None:
    generator = torch.Generator().manual_seed(0)
    free = {name: site.shape for name, site in k.sites(1).items() if not site.fixed}
    theta = {
        n: torch.rand(4, *shape, generator=generator, dtype=torch.float64) + 0.5
        for n, shape in free.items()
    }
    space, dt = require(k).state_space(theta, T), T.diff()
    F, Q = space.transition(dt)
    P = space.covariance(T)
    for i in range(4):
        one = require(k).state_space({name: value[i] for name, value in theta.items()}, T)
        F1, Q1 = one.transition(dt)
        torch.testing.assert_close(with_batch(F, 2).expand_as(Q)[:, :, i], F1)
        torch.testing.assert_close(Q[:, :, i], Q1)
        torch.testing.assert_close(P[:, :, i], one.covariance(T))


def test_the_incomplete_gamma_function_keeps_its_digits_and_its_slopes() -> None:
    x = torch.tensor([0.0, 1e-9, 1e-3, 0.5, 1.999, 2.0, 7.0, 60.0], dtype=torch.float64)
    for k, value in enumerate(erlang(5, x), start=1):
        known = torch.special.gammainc(torch.tensor(float(k), dtype=x.dtype), x)
        torch.testing.assert_close(value, known, rtol=1e-12, atol=0.0)
    at = x[2:].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda v: torch.stack(erlang(5, v)), at)
    assert torch.autograd.gradgradcheck(lambda v: torch.stack(erlang(5, v)), at)
    far = torch.tensor([1e9, 1e15], requires_grad=True)  # float32, where x^5 overflows
    values = torch.stack(erlang(5, far))
    assert torch.equal(values, torch.ones_like(values))
    assert torch.equal(torch.autograd.grad(values.sum(), far)[0], torch.zeros(2))


@pytest.mark.parametrize(
    ("k", "said"),
    [
        (RBF(), r"Matern\(2.5\)"),
        (RationalQuadratic(), "Matern"),
        (Polynomial(), "Linear"),
        (Matern() + Scale(White()), "noise"),
        (Matern() * Linear(), "in a sum"),
        (Subspace(ARD(RBF()), [0]) + Matern(), r"Matern\(2.5\)"),
    ],
    ids=repr,
)
def test_a_kernel_without_a_state_space_is_refused_with_its_nearest_relative(
    k: Kernel, said: str
) -> None:
    assert not supports(k)
    with pytest.raises(NotApplicable, match=said):
        require(k)


def test_the_cosine_kernel_takes_one_column() -> None:
    K = Cosine(2.0, 3.0)({}, T[:, None])
    wave = 2.0 * torch.cos(2 * math.pi * (T[:, None] - T) / 3.0)
    torch.testing.assert_close(K, wave, rtol=1e-13, atol=1e-13)
    with pytest.raises(SettingError, match="at most 1 column"):
        Cosine().sites(2)
    with pytest.raises(SettingError, match="Subspace"):
        Cosine(1.0, 1.0)({}, torch.zeros(3, 2, dtype=torch.float64))
    assert not supports(RBF())
    assert supports(Cosine())


@pytest.mark.parametrize("lengthscale", [2.0, 1.0, 0.5, 0.2])
@pytest.mark.parametrize("harmonics", [1, 4, 8])
def test_few_harmonics_err_by_the_variance_that_they_leave_out(
    lengthscale: float, harmonics: int
) -> None:
    """The variances of all harmonics are Bessel functions: 2 I_j(a) exp(-a), a = 1 / l^2."""
    k = Periodic(1.3, lengthscale, 1.7, harmonics)
    space = k.state_space({}, T)
    a, j = lengthscale**-2, np.arange(1, harmonics + 1)
    shares = np.append(special.ive(0, a), 2 * special.ive(j, a))
    P = space.covariance(T[:1])[..., 0].diagonal()
    own = P[np.flatnonzero(space.observation)]
    np.testing.assert_allclose(own.numpy(), 1.3 * shares, rtol=1e-9, atol=1e-14)
    lags = torch.linspace(0, 1.7, 100, dtype=T.dtype)
    F, _ = space.transition(lags)
    H = torch.tensor(space.observation, dtype=T.dtype)
    found = torch.einsum("i,ijn,j,j->n", H, F, space.covariance(T[0]).diagonal(), H)
    error = (found - k({}, lags[:, None])[0]).abs().max()
    assert float(error) == pytest.approx(1.3 * (1 - shares.sum()), rel=1e-6, abs=1e-14)


@pytest.mark.parametrize("harmonics", [0, -1, True])
def test_harmonics_are_a_whole_number(harmonics: int) -> None:
    with pytest.raises(SettingError, match="whole number of harmonics"):
        Periodic(harmonics=harmonics)
