"""A kernel of a learnt linear map of the columns: its distance, units, slopes and paths."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import Dataset, inference, models, priors
from ppgp.errors import NotApplicable, SettingError
from ppgp.kernels import ARD, RBF, Anisotropy, Kernel, Linear, Matern, Metric, Scale, Sphere
from ppgp.kernels.fourier_features import Draw
from ppgp.kernels.gram_slopes import RowDistances, gram

F64 = torch.float64


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def theta_of(kernel: Kernel, d: int, seed: int = 0) -> dict[str, Tensor]:
    """Return hyperparameters, the positive ones about 1 and the others of either sign."""
    found = {}
    for i, (name, site) in enumerate(kernel.sites(d).items()):
        value = normal(100 * seed + i, *site.shape)
        found[name] = (0.4 * value).exp() if site.positive else 0.5 * value
    return {name: value for name, value in found.items() if not kernel.sites(d)[name].fixed}


@pytest.mark.parametrize(("d", "rank"), [(1, None), (2, None), (4, None), (4, 2), (5, 1)])
def test_the_distance_is_that_of_the_rows_times_a_trapezoidal_matrix(
    d: int, rank: int | None
) -> None:
    kernel = Metric(RBF(), rank)
    theta, X, Z = theta_of(kernel, d), normal(1, 6, d), normal(2, 5, d)
    r = rank or d
    P = torch.zeros(d, r, dtype=F64)
    shear = iter(theta["shear"].tolist() if d > 1 else [])
    for i in range(d):
        for j in range(r):
            if i == j:
                P[i, j] = 1 / theta["lengthscale"][j]
            elif i > j:
                P[i, j] = next(shear) / theta["lengthscale"][j]
    torch.testing.assert_close(kernel.projection(theta, X), P)
    squared = torch.cdist(X @ P, Z @ P, compute_mode="donot_use_mm_for_euclid_dist").square()
    wanted = theta["variance"] * torch.exp(-0.5 * squared)
    torch.testing.assert_close(kernel(theta, X, Z), wanted)


def test_without_shear_it_is_ard() -> None:
    X, Z = normal(1, 7, 3), normal(2, 4, 3)
    for inner in (RBF(), Scale(Matern(1.5, 1.0)), RBF(2.0, (0.5, 1.0, 3.0))):
        theta = theta_of(ARD(inner), 3)
        flat = {**theta, "shear": torch.zeros(3, dtype=F64)}
        torch.testing.assert_close(Metric(inner)(flat, X, Z), ARD(inner)(theta, X, Z))
        torch.testing.assert_close(Metric(inner, shear=0.0)(theta, X), ARD(inner)(theta, X))


def test_every_metric_has_a_triangular_form() -> None:
    """P = Q L' with Q orthogonal turns any map into a lower triangular one of the same metric."""
    A, X = normal(3, 4, 4), normal(4, 9, 4)
    L = torch.linalg.cholesky(A @ A.T)
    shear = torch.stack([L[i, j] / L[j, j] for i in range(4) for j in range(i)])
    theta = {"lengthscale": 1 / L.diagonal(), "shear": shear}
    squared = torch.cdist(X @ A, X @ A, compute_mode="donot_use_mm_for_euclid_dist").square()
    found = Metric(RBF(1.0))(theta, X)
    torch.testing.assert_close(found, torch.exp(-0.5 * squared), rtol=1e-9, atol=1e-12)


def crowded(d: int) -> Tensor:
    """Return rows of which some are equal and others nearly so."""
    X = normal(5, 40, d)
    X[5], X[6] = X[3], X[4] + 1e-6
    return X


def in_bursts(d: int) -> Tensor:
    return normal(6, 40, 1).mul(1e-5) + torch.arange(8.0, dtype=F64).repeat(5)[:, None].expand(
        40, d
    )


@pytest.mark.parametrize("rows", [crowded, in_bursts])
@pytest.mark.parametrize("d", [2, 3, 6])
@pytest.mark.parametrize(
    "kernel",
    [
        Metric(RBF()),
        Metric(Matern(1.5), rank=2),
        Metric(Scale(0.5 * Matern(2.5))),
        Metric(RBF(), shear=0.3),
        Metric(RBF(1.0, 2.0)),
        Metric(RBF()) + Metric(Matern(1.5), rank=1) * ARD(RBF(1.0)),
    ],
    ids=["RBF", "rank", "scaled", "fixed shear", "fixed scale", "sum"],
)
def test_slopes_by_formula_are_those_of_torch(kernel: Kernel, d: int, rows: Any) -> None:
    X = rows(d)
    theta = theta_of(kernel, d)
    inputs = {name: value.requires_grad_() for name, value in theta.items()}
    K = kernel(inputs, X)
    W = normal(7, 40, 40)
    W = W + W.T
    wanted = torch.autograd.grad(K, list(inputs.values()), W)
    with torch.no_grad():
        found = gram(kernel, {n: v.detach() for n, v in inputs.items()}, RowDistances(X))
        slopes = found.slopes(W.clone(), False)
    torch.testing.assert_close(found.K, K.detach(), rtol=1e-9, atol=1e-11)
    assert set(slopes) == set(inputs)
    for name, slope in zip(inputs, wanted, strict=True):
        scale = float(slope.abs().max())
        torch.testing.assert_close(slopes[name], slope, rtol=1e-7, atol=1e-7 * scale)


def test_draws_of_a_fit_are_given_in_the_units_of_the_data() -> None:
    X = normal(8, 30, 3) * torch.tensor([1.0, 20.0, 0.1], dtype=F64) + 5.0
    y = torch.sin(X[:, 0] + 0.05 * X[:, 1]) + 3 * X[:, 2]
    for rank in (None, 2):
        model = models.GP(Metric(Matern(2.5), rank), noise=0.1)
        fit = ppgp.fit(model, Dataset(X, y), inference.MAP(), progress=False)
        own = fit.draws_in("data")
        theta = {n.removeprefix("kernel."): v[0, 0] for n, v in own.items() if "kernel" in n}
        here = Metric(Matern(2.5), rank)(theta, X)
        drawn = {n.removeprefix("kernel."): v[0, 0] for n, v in fit.draws.items() if "kernel" in n}
        scaled = (X - fit.scaler.x_mean) / fit.scaler.x_sd
        there = fit.scaler.y_sd**2 * Metric(Matern(2.5), rank)(drawn, scaled)
        torch.testing.assert_close(here, there, rtol=1e-9, atol=1e-9)


def test_a_function_of_one_direction_is_found() -> None:
    """With a direction across both columns, ARD needs both, and a metric one of them."""
    X = normal(9, 80, 2)
    y = torch.sin(3 * (X[:, 0] + X[:, 1])) + 0.05 * normal(10, 80)
    densities = {}
    for name, kernel in {"ard": ARD(RBF()), "metric": Metric(RBF())}.items():
        fit = ppgp.fit(models.GP(kernel), Dataset(X, y), inference.MAP(), progress=False)
        densities[name] = float(fit.log_evidence)
    assert densities["metric"] > densities["ard"] + 20
    P = Metric(RBF()).projection(
        {n.removeprefix("kernel."): v[0, 0] for n, v in fit.draws.items() if "kernel" in n}, X
    )
    strong = torch.linalg.eigh(P @ P.T)[1][:, -1]
    torch.testing.assert_close((strong[0] / strong[1]).abs(), P.new_ones(()), rtol=0.1, atol=0)


def test_paths_have_the_covariance_of_the_kernel() -> None:
    kernel = Metric(RBF(), rank=2)
    theta, X = theta_of(kernel, 3), normal(11, 4, 3)
    samples = 40_000
    draw = Draw(samples, 40, torch.Generator().manual_seed(0), X)
    paths = kernel.path(theta, 3, draw)(X)
    K = kernel(theta, X)
    found = paths.T @ paths / samples
    # the error of a product of two normal values, (K_ii K_jj + K_ij^2) / samples
    error = ((K.diagonal()[:, None] * K.diagonal() + K.square()) / samples).sqrt()
    assert bool(((found - K).abs() < 5 * error).all())


def test_it_serves_other_models_of_distances() -> None:
    X = normal(12, 60, 3)
    y = torch.sin(2 * (X @ normal(13, 3))) + 0.1 * normal(14, 60)
    data, new = Dataset(X, y), normal(15, 5, 3)
    kernel = Metric(RBF(1.0, (1.0, 2.0, 1.5)), shear=(0.4, -0.2, 0.6))
    exact = ppgp.fit(models.GP(kernel, 0.05, 0.0), data, inference.MAP(), progress=False)
    for model in (
        models.SGPR(kernel, noise=0.05, mean=0.0, Z=X, learn=False),
        models.Vecchia(kernel, 0.05, 59, drift="none", mean=0.0),
    ):
        other = ppgp.fit(model, data, inference.MAP(), progress=False)
        found, wanted = other.predict(new), exact.predict(new)
        torch.testing.assert_close(found.mean, wanted.mean, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(found.std, wanted.std, rtol=1e-3, atol=1e-3)


def test_mistakes() -> None:
    for inner in (ARD(RBF()), Anisotropy(RBF()), Sphere(RBF()), Linear()):
        with pytest.raises(NotApplicable, match="inside Metric"):
            Metric(inner)
    with pytest.raises(SettingError, match="whole number of at least 1 as rank"):
        Metric(RBF(), rank=0)
    with pytest.raises(SettingError, match="a rank of at most 2"):
        Metric(RBF(), rank=3).sites(2)
    with pytest.raises(SettingError, match="one per direction"):
        Metric(RBF(1.0, (1.0, 2.0)), shear=0.0)({}, normal(0, 4, 3))
    with pytest.raises(SettingError, match="3 numbers of shear for 3 columns"):
        Metric(RBF(1.0, 1.0), shear=(1.0, 2.0))({}, normal(0, 4, 3))
    assert "shear" not in Metric(RBF(), shear=priors.Normal(0.0, 1.0)).sites(1)
