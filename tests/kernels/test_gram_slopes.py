"""Slopes of covariances, and of the density of a GP, by formula and by autograd."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import jaxtyping
import numpy as np
import pyro
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import inference, kernels, models
from ppgp.data import Dataset
from ppgp.density import Target
from ppgp.density.graph.tracing import Looped
from ppgp.distributions.distributions import GPMarginal
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
    RationalQuadratic,
    Scale,
    Subspace,
    White,
)
from ppgp.kernels.gram_slopes import (
    KEPT_ROWS,
    RowDistances,
    distances_of,
    gram,
    has_formulas,
)
from ppgp.runtime.seeding import seeded

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
    slopes = found.slopes(W, False)
    assert torch.equal(W, before)
    assert set(slopes) == set(theta)
    by_torch = torch.autograd.grad(expected, list(free.values()), W)
    for name, own in zip(theta, by_torch, strict=True):
        torch.testing.assert_close(slopes[name], own, rtol=10 * few, atol=1e2 * few)


OF_TIMES = [
    Constant(3.0) + Matern(1.5) + Periodic() * Matern(1.5, 1.0),
    Exponential() + Linear() + Periodic(1.0, period=0.3) + White(),
    Exponential() * Cosine(1.0),
    2.0 * (Matern(2.5) + Scale(RBF(1.0) * Periodic(1.0))) + ARD(RBF()),
]


def times(n: int = 70) -> Tensor:
    """Return equally spaced times on a standardised scale, [n, 1]."""
    t = 1950.0 + torch.arange(n, dtype=F64)[:, None] / 12
    return (t - t.mean()) / t.std()


def days_of_months(n: int = 70) -> Tensor:
    """Return the days of the firsts of months, of which one is missing, [n, 1]."""
    dates = np.arange("2001-01", "2021-01", dtype="datetime64[M]").astype("datetime64[D]")
    days = torch.from_numpy(np.delete(dates.astype(np.float64), 5)[:n])
    return (days[:, None] - days.mean()) / days.std()


@pytest.mark.parametrize("kernel", OF_TIMES, ids=repr)
@pytest.mark.parametrize(
    ("places", "lags"),
    [("equal", 70), ("backwards", 70), ("in another order", 70), ("months", 300), ("any", None)],
)
def test_covariances_of_times_of_few_lags_are_those_of_any(
    kernel: Kernel, places: str, lags: int | None
) -> None:
    t = times()
    X = {
        "equal": t,
        "backwards": t.flip(0),
        "in another order": t[torch.arange(len(t)) ^ 1],
        "months": days_of_months(),
        "any": torch.randn(70, 1, generator=torch.Generator().manual_seed(0), dtype=F64),
    }[places]
    own = RowDistances(X)
    found_lags = own.lags
    assert (found_lags is None) == (lags is None)
    if found_lags is not None and lags is not None:
        assert lags / 2 < len(found_lags[0]) <= lags
    theta = hyperparameters(kernel, 1)
    W = torch.randn(len(X), len(X), generator=torch.Generator().manual_seed(2), dtype=F64)
    W = W + W.mT
    found = gram(kernel, theta, own)
    free = {name: value.clone().requires_grad_() for name, value in theta.items()}
    expected = kernel(free, X)
    # times in years since 0 have 13 digits of their span
    torch.testing.assert_close(found.K, expected.detach(), rtol=1e-11, atol=1e-11)
    by_torch = torch.autograd.grad(expected, list(free.values()), W)
    slopes = found.slopes(W, True)
    assert set(slopes) == set(theta)
    for name, exact in zip(theta, by_torch, strict=True):
        torch.testing.assert_close(slopes[name], exact, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kernel", OF_TIMES, ids=repr)
def test_the_density_at_times_of_few_lags_has_the_derivatives_of_its_program(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    t = times()
    data = Dataset(t, (3 * t[:, 0]).sin())
    model = models.GP(kernel, mean=None)
    z = Target(model, data, compile=False).start(seed=1, spread=0.5)

    def everything() -> dict[str, Any]:
        compiled, eager = Target(model, data), Target(model, data, compile=False)
        with torch.no_grad():
            value = eager.log_density(z)
        return {
            "value": value,
            "compiled": compiled.value_and_grad(z),
            "side by side": [v[1] for v in compiled.value_and_grad_batch(torch.stack([z + 1, z]))],
            "eager": eager.value_and_grad(z),
            "hessian": eager.hessian(z),
        }

    found = everything()
    monkeypatch.setattr(RowDistances, "lags", None)
    expected = everything()
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


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
    monkeypatch.setattr("ppgp.models.exact.gp.has_formulas", lambda _: False)
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
    from ppgp.models.exact.gp import gp_marginal

    kernel = kernels.RBF()
    theta = hyperparameters(kernel, 2)
    noise, loc = torch.full((1,), 0.1, dtype=F64), torch.zeros(8, dtype=F64)
    found = gp_marginal(kernel, kernel.sites(2), theta, X, loc, noise)
    assert type(found) is GPMarginal
    (slope,) = torch.autograd.grad(found.log_prob(torch.ones(8, dtype=F64)), X)
    assert float(slope.abs().max()) > 0


def slopes_of(kernel: Kernel, X: Tensor, rows_of: RowDistances) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the covariance, and its slopes for a symmetric matrix of weights."""
    theta = hyperparameters(kernel, X.shape[-1])
    found = gram(kernel, theta, rows_of)
    W = torch.randn(len(X), len(X), generator=torch.Generator().manual_seed(2), dtype=F64)
    return found.K, found.slopes(W + W.mT, False)


def test_clusters_of_nearly_equal_rows() -> None:
    """Where most pairs are near, all are computed by differences, column by column."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(3, 6, generator=generator, dtype=F64)
    X = centres.repeat(20, 1) + 1e-6 * torch.randn(60, 6, generator=generator, dtype=F64)
    many, few = RowDistances(X), RowDistances(X)
    few.few = True  # every difference is exact
    assert many.near is None
    kernel = ARD(Matern(0.5))
    (K, slopes), (exact, expected) = slopes_of(kernel, X, many), slopes_of(kernel, X, few)
    torch.testing.assert_close(K, exact, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(slopes, expected, rtol=1e-11, atol=1e-11)


def test_a_gross_outlier_leaves_the_other_pairs_to_the_matrix_product() -> None:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(200, 8, generator=generator, dtype=F64)
    X[0], X[5] = 1e6, X[6] + 1e-7
    own = RowDistances(X)
    assert own.near is not None
    assert sorted(own.near[0].tolist()) == [5, 6]
    exact = (X[:, None] - X[None]).square().sum(-1)
    found = own.squared(torch.ones(8, dtype=F64))
    # the rows other than the outlier have a norm near 3
    torch.testing.assert_close(found[1:, 1:], exact[1:, 1:], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "kernel",
    [RBF(lengthscale=(1e-6, 1.0, 1.0, 1.0)), Matern(1.5, lengthscale=(1e-4, 30.0, 30.0, 30.0))],
    ids=repr,
)
def test_a_column_of_many_fixed_lengthscales_takes_no_digits_of_the_others(kernel: Kernel) -> None:
    """Rows that are equal in the first column differ by less than a lengthscale in the others."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(30, 4, generator=generator, dtype=F64)
    X[:, 0] = torch.arange(30) % 5
    wide, few = RowDistances(X), RowDistances(X)
    few.few = True
    theta = {"variance": torch.ones((), dtype=F64)}
    K, exact = (gram(ARD(kernel), theta, own).K for own in (wide, few))
    torch.testing.assert_close(K, exact, rtol=1e-12, atol=1e-13)


def rows_in_bursts(d: int) -> Tensor:
    """Return rows that are close in the first column alone, [60, d]."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(60, d, generator=generator, dtype=F64)
    X[:, 0] = 10 * torch.randn(6, generator=generator, dtype=F64).repeat(10)
    X[:, 0] += 5e-4 * torch.randn(60, generator=generator, dtype=F64)
    return X


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("nu", [0.5, 2.5])
def test_a_compiled_density_of_rows_in_bursts(
    nu: float, compile: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = rows_in_bursts(6)
    model = models.GP(ARD(Matern(nu)), noise=1e-3, mean=None)
    found, exact = (Target(model, Dataset(X, X[:, 1].sin()), compile=c) for c in (compile, False))
    z = found.unconstrain(
        {
            "kernel.variance": torch.ones(1, dtype=F64),
            "kernel.lengthscale": torch.tensor([[1e-3] + [1e3] * 5], dtype=F64),
        }
    )[0]
    value, slope = found.value_and_grad(z)
    monkeypatch.setattr("ppgp.kernels.gram_slopes.FEW_COLUMNS", 6)
    value_of_differences, slope_of_differences = exact.value_and_grad(z)
    torch.testing.assert_close(value, value_of_differences, rtol=1e-9, atol=0.0)
    torch.testing.assert_close(slope, slope_of_differences, rtol=1e-6, atol=1e-6)


def test_columns_in_which_rows_come_in_bursts() -> None:
    assert RowDistances(rows_in_bursts(6))._in_bursts == {0}
    X = torch.randn(60, 5, generator=torch.Generator().manual_seed(0), dtype=F64)
    X[:, 1] = X[:, 1].round()  # equal rows are no burst
    assert RowDistances(X)._in_bursts == set()


@pytest.mark.parametrize("d", [4, 6])
def test_a_column_of_many_lengthscales_in_bursts(d: int) -> None:
    """Rows are close in one column, which reaches over 10,000 lengthscales, and in no other."""
    generator = torch.Generator().manual_seed(1)
    X = rows_in_bursts(d)
    kernel = ARD(Matern(0.5))
    theta = hyperparameters(kernel, d)
    theta["lengthscale"] = torch.tensor([1e-3] + [30.0] * (d - 1), dtype=F64)
    own, few = RowDistances(X), RowDistances(X)
    few.few = True  # every difference is exact
    assert own.near is not None
    W = torch.randn(60, 60, generator=generator, dtype=F64)
    W = W + W.mT
    (K, slopes), (exact, expected) = (
        (found.K, found.slopes(W, False)) for found in (gram(kernel, theta, o) for o in (own, few))
    )
    torch.testing.assert_close(K, exact, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(slopes, expected, rtol=1e-9, atol=1e-9)


def test_slopes_of_a_product_of_matrices_that_rounding_leaves_asymmetric(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Division by small distances enlarges the difference between an entry and its mirror image."""
    monkeypatch.setattr("ppgp.kernels.gram_slopes.REACH", torch.inf)
    monkeypatch.setattr("ppgp.kernels.gram_slopes.BURSTS", torch.inf)
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(200, 4, generator=generator, dtype=F64)
    level = torch.rand(10, generator=generator, dtype=F64).repeat(20)
    X[:, 0] = 0.45 * (2 * level - 1) + 5e-6 * torch.randn(200, generator=generator, dtype=F64)
    theta = {
        "variance": torch.ones((), dtype=F64),
        "lengthscale": torch.tensor([0.005, 1e6, 1e6, 1e6], dtype=F64),
    }
    W = torch.randn(200, 200, generator=generator, dtype=F64)
    own, few = RowDistances(X), RowDistances(X)
    few.few = True  # every difference is exact
    found, exact = (
        gram(ARD(Matern(0.5)), theta, each).slopes(W + W.mT, False)["lengthscale"][0]
        for each in (own, few)
    )
    torch.testing.assert_close(found, exact, rtol=1e-5, atol=0.0)


class Squared(RBF):
    """A user's kernel with another covariance than its base class."""

    def gram(self, h: Any, X1: Tensor, X2: Tensor | None) -> Tensor:
        return super().gram(h, X1, X2).square()


@pytest.mark.parametrize("kernel", [Squared(), Scale(Squared(1.0)), Squared() + RBF()], ids=repr)
def test_a_class_derived_from_a_kernel_has_its_own_covariance(kernel: Kernel) -> None:
    X = torch.randn(15, 2, generator=torch.Generator().manual_seed(0), dtype=F64)
    target = Target(models.GP(kernel, mean=None), Dataset(X, X[:, 0].sin()), compile=False)
    z = target.start(seed=1, spread=0.5)
    with_slopes = target.value_and_grad(z)[0]
    torch.testing.assert_close(with_slopes, target.log_density(z).detach())
    theta = hyperparameters(kernel, 2)
    torch.testing.assert_close(gram(kernel, theta, RowDistances(X)).K, kernel(theta, X))


def test_buffers_of_a_network_are_held() -> None:
    """The running statistics of batch normalisation are no inputs of the gradient."""
    network = torch.nn.Sequential(
        torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3), torch.nn.Tanh()
    ).double()
    X = torch.randn(12, 2, generator=torch.Generator().manual_seed(0), dtype=F64)
    model = models.GP(kernels.Deep(network, RBF()) + RBF(), mean=None)
    posterior = ppgp.fit(
        model, Dataset(X, X[:, 0].sin()), inference.MAP("adam", steps=3), progress=False
    )
    assert bool(torch.isfinite(torch.as_tensor(posterior.stats["log_density"])))


def test_points_run_abreast_where_the_kernel_is_fixed() -> None:
    X = torch.randn(12, 2, generator=torch.Generator().manual_seed(0), dtype=F64)
    model = models.GP(RBF(1.0, 1.0), mean=None)
    target = Target(model, Dataset(X, X[:, 0].sin()))
    z = torch.linspace(-1, 1, 5, dtype=F64)[:, None]
    values, gradients = target.value_and_grad_batch(z)
    assert type(target.compiled(k=5)) is not Looped
    for point, value, gradient in zip(z, values, gradients, strict=True):
        expected = Target(model, Dataset(X, X[:, 0].sin()), compile=False).value_and_grad(point)
        torch.testing.assert_close((value, gradient), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kernel", [Constant(), Subspace(Constant(), [0]), Constant() * Constant()])
def test_one_row_under_a_constant_kernel(kernel: Kernel) -> None:
    data = Dataset(torch.ones(1, 2, dtype=F64), torch.ones(1, dtype=F64))
    target = Target(models.GP(kernel, noise=0.5, mean=None), data)
    z = torch.full((target.dim,), 0.3, dtype=F64)
    value, _ = target.value_and_grad(z)
    level = torch.tensor(0.3, dtype=F64).exp() ** target.dim
    own = torch.distributions.Normal(0.0, (level + 0.5).sqrt()).log_prob(torch.tensor(1.0))
    prior = target.log_density(z).detach() - target.log_likelihood(z)[0]
    torch.testing.assert_close(value - prior, own.to(F64))


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_torch_jit_compiles_the_program_of_a_gp(monkeypatch: pytest.MonkeyPatch) -> None:
    """``NUTS(program, jit_compile=True)`` of Pyro does."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # sizes are tensors in a trace
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(8, 2, dtype=F64, generator=generator)
    y = X[:, 0].sin()
    program = models.GP(ARD(RBF())).model
    values = {
        "kernel.variance": torch.tensor(0.8, dtype=F64),
        "kernel.lengthscale": torch.tensor([1.2, 0.7], dtype=F64),
        "noise": torch.tensor(0.1, dtype=F64),
    }

    def density(*known: Tensor) -> Tensor:
        given = pyro.condition(program, dict(zip(values, known, strict=True)))
        return pyro.poutine.trace(given).get_trace(X, y).log_prob_sum()

    with seeded(0), pyro.get_param_store().scope():
        at = tuple(value.requires_grad_() for value in values.values())
        compiled: Any = torch.jit.trace(density, at, check_trace=False)
        found = torch.autograd.grad(compiled(*at), at)
        wanted = torch.autograd.grad(density(*at), at)
    for one, two in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-9)


def test_distances_are_kept_as_long_as_their_rows() -> None:
    X = torch.randn(5, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kept = distances_of(X)
    assert distances_of(X) is kept
    assert torch.equal(kept.given(), X)
    assert distances_of(X.clone()) is not kept
    X.numpy()[0] *= 2.0
    changed = distances_of(X)
    assert changed is not kept
    assert torch.equal(changed.squares, RowDistances(X).squares)
    alive = weakref.ref(changed)
    del kept, changed, X
    gc.collect()
    assert alive() is None


def test_distances_of_many_rows_and_of_rows_that_vary_are_not_kept() -> None:
    many = torch.zeros(KEPT_ROWS + 1, 1, dtype=torch.float64)
    assert distances_of(many) is not distances_of(many)
    vary = torch.zeros(3, 1, dtype=torch.float64, requires_grad=True)
    assert distances_of(vary) is not distances_of(vary)
    with torch.inference_mode():
        assert distances_of(many[:3]) is not distances_of(many[:3])
        X = torch.zeros(3, 1, dtype=torch.float64)
    assert distances_of(X) is not distances_of(X)
