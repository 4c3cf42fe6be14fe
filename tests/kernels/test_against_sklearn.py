"""Each closed form against scikit-learn's own implementation of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.gaussian_process import kernels as sk

from ppgp.kernels import (
    ARD,
    RBF,
    Constant,
    Exponential,
    Kernel,
    Linear,
    Matern,
    Periodic,
    Polynomial,
    RationalQuadratic,
    White,
)

X = np.random.default_rng(0).normal(size=(7, 2))
Z = np.random.default_rng(1).normal(size=(4, 2))
WIDE = np.random.default_rng(2).normal(size=(9, 6))

PAIRS: dict[str, tuple[Kernel, object]] = {
    "RBF": (RBF(variance=2.0, lengthscale=0.7), 2.0 * sk.RBF(0.7)),
    "Matern 1/2": (Matern(0.5, variance=2.0, lengthscale=0.7), 2.0 * sk.Matern(0.7, nu=0.5)),
    "Matern 3/2": (Matern(1.5, variance=2.0, lengthscale=0.7), 2.0 * sk.Matern(0.7, nu=1.5)),
    "Matern 5/2": (Matern(2.5, variance=2.0, lengthscale=0.7), 2.0 * sk.Matern(0.7, nu=2.5)),
    "Exponential": (Exponential(variance=2.0, lengthscale=0.7), 2.0 * sk.Matern(0.7, nu=0.5)),
    "RationalQuadratic": (
        RationalQuadratic(variance=2.0, lengthscale=0.7, alpha=1.3),
        2.0 * sk.RationalQuadratic(length_scale=0.7, alpha=1.3),
    ),
    "Constant": (Constant(variance=2.0), sk.ConstantKernel(2.0)),
    "Linear + Constant": (
        Linear(variance=1.0) + Constant(variance=0.49),
        sk.DotProduct(sigma_0=0.7),
    ),
    "Polynomial": (Polynomial(3, variance=2.0, offset=0.49), 2.0 * sk.DotProduct(sigma_0=0.7) ** 3),
    "White": (White(variance=2.0), sk.WhiteKernel(2.0)),
    "sum of products": (
        RBF(variance=1.0, lengthscale=0.7) * Matern(1.5, variance=1.5, lengthscale=2.0)
        + White(variance=0.1),
        sk.RBF(0.7) * 1.5 * sk.Matern(2.0, nu=1.5) + sk.WhiteKernel(0.1),
    ),
}


@pytest.mark.parametrize(("ours", "theirs"), PAIRS.values(), ids=PAIRS.keys())
def test_equals_scikit_learn(ours: Kernel, theirs: sk.Kernel) -> None:
    for rows in (X, WIDE):
        np.testing.assert_allclose(
            ours({}, torch.as_tensor(rows)).numpy(), theirs(rows), rtol=1e-10, atol=1e-12
        )
        np.testing.assert_allclose(
            ours.diag({}, torch.as_tensor(rows)).numpy(), theirs.diag(rows), rtol=1e-12
        )
    cross = ours({}, torch.as_tensor(X), torch.as_tensor(Z)).numpy()
    np.testing.assert_allclose(cross, theirs(X, Z), rtol=1e-10, atol=1e-12)


def test_periodic_equals_scikit_learn_on_one_column_and_multiplies_over_columns() -> None:
    ours, theirs = (
        Periodic(variance=1.0, lengthscale=0.7, period=1.4),
        sk.ExpSineSquared(length_scale=0.7, periodicity=1.4),
    )
    columns = [theirs(X[:, [k]], Z[:, [k]]) for k in range(2)]
    one = ours({}, torch.as_tensor(X[:, [0]]), torch.as_tensor(Z[:, [0]]))
    np.testing.assert_allclose(one.numpy(), columns[0], rtol=1e-12)
    both = ours({}, torch.as_tensor(X), torch.as_tensor(Z))
    np.testing.assert_allclose(both.numpy(), columns[0] * columns[1], rtol=1e-12)


@pytest.mark.parametrize("d", [2, 6])
def test_ard_equals_scikit_learn_with_one_lengthscale_per_column(d: int) -> None:
    lengthscale = np.linspace(0.5, 2.0, d)
    rows = WIDE[:, :d]
    ours = ARD(Matern(2.5, variance=1.0))(
        {"lengthscale": torch.as_tensor(lengthscale)}, torch.as_tensor(rows)
    )
    np.testing.assert_allclose(
        ours.numpy(), sk.Matern(lengthscale, nu=2.5)(rows), rtol=1e-10, atol=1e-12
    )


def test_periodic_repeats_after_its_period() -> None:
    k = Periodic(variance=1.0, lengthscale=0.7, period=1.4)
    x = torch.linspace(0, 1, 5, dtype=torch.float64)[:, None]
    torch.testing.assert_close(k({}, x, x + 2.8), k({}, x, x.clone()), rtol=1e-12, atol=0)


def test_rational_quadratic_tends_to_rbf_for_large_alpha() -> None:
    x = torch.as_tensor(X)
    rbf = RBF(variance=1.0, lengthscale=0.7)({}, x)
    torch.testing.assert_close(
        RationalQuadratic(1.0, 0.7, alpha=1e9)({}, x), rbf, rtol=0, atol=1e-7
    )
