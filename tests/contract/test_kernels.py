"""Properties of every covariance function in ``ppgp.kernels.__all__``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ppgp import Dataset, fit, kernels, models, networks, priors
from ppgp.kernels import (
    ARD,
    RBF,
    Anisotropy,
    Deep,
    Kernel,
    Linear,
    Matern,
    Metric,
    Periodic,
    Polynomial,
    Scale,
    Sphere,
    Subspace,
    Unscaled,
    White,
)

small = networks.MLP(hidden=(3,), out=2, activation="tanh")
BUILD: dict[str, Callable[[], Kernel]] = {
    "Anisotropy": lambda: Anisotropy(RBF()),
    "ARD": lambda: ARD(RBF()),
    "Deep": lambda: Deep(small, RBF()),
    "Metric": lambda: Metric(RBF()),
    "Multiple": lambda: 2.0 * RBF(),
    "Scale": lambda: Scale(RBF()),
    "Sphere": lambda: Sphere(RBF(), 2.0),
    "Subspace": lambda: Subspace(RBF(), [0]),
    "Unscaled": lambda: Unscaled(Linear(), 1.7, 0.4),
    "Sum": lambda: RBF() + Linear(),
    "Product": lambda: RBF() * Periodic(),
}
MEMBERS: dict[str, Kernel] = {
    n: BUILD.get(n, getattr(kernels, n))()
    for n in kernels.__all__
    if n not in ("Kernel", "Coregionalisation")  # the latter takes codes: test_coregionalisation.py
}
COMPOUNDS: dict[str, Kernel] = {
    "Matern12": Matern(0.5),
    "Matern32": Matern(1.5),
    "ARD-Scale": ARD(Scale(Matern(1.5, variance=1.0))),
    "Scale-ARD": Scale(ARD(Matern(0.5))),
    "Metric of two directions": Metric(Scale(0.5 * Matern(0.5)), rank=2),
    "three": Scale(ARD(RBF()) * Subspace(Periodic(), [0]) + Linear()) + White(),
    "deep": Scale(Deep(small, ARD(RBF()) + Linear())) + Subspace(Deep(small, Matern(1.5)), [0]),
    "Bayesian deep": Deep(small, RBF(), prior=priors.Normal(0.0, 1.0)),
    "multiples": ARD(0.5 * Matern(1.5)) * 3.0 + 2 * (RBF() + White()),
    "cubic": Polynomial(3) * RBF(),
    "white product": Subspace(White(), [0]) * (Linear() + White()) * Scale(RBF()),
}
each = pytest.mark.parametrize(
    "k", (MEMBERS | COMPOUNDS).values(), ids=(MEMBERS | COMPOUNDS).keys()
)
member = pytest.mark.parametrize("k", MEMBERS.values(), ids=MEMBERS.keys())
sizes = given(n=st.integers(1, 7), d=st.integers(1, 5), seed=st.integers(0, 10**6))


def inputs(n: int, d: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(
        dtype
    )


def draws(k: Kernel, d: int, seed: int = 0, batch: tuple[int, ...] = ()) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = {name: batch + site.shape for name, site in k.sites(d).items()}
    return {
        name: torch.exp(0.4 * torch.randn(s, generator=generator, dtype=torch.float64))
        for name, s in shapes.items()
    }


def wide(k: Kernel, d: int) -> int:
    """Return d, or the nearest number of columns for which the kernel is a covariance."""
    low, high = k.widths
    return int(min(max(d, low), high))


def has_white(k: Kernel) -> bool:
    return "White" in repr(k)


@each
@sizes
def test_symmetric(k: Kernel, n: int, d: int, seed: int) -> None:
    d = wide(k, d)
    K = k(draws(k, d, seed), inputs(n, d, seed))
    assert K.shape == (n, n)
    torch.testing.assert_close(K, K.mT, rtol=1e-12, atol=1e-12)


@each
@sizes
def test_positive_semidefinite(k: Kernel, n: int, d: int, seed: int) -> None:
    d = wide(k, d)
    K = k(draws(k, d, seed), inputs(n, d, seed))
    jitter = 1e-8 * K.diagonal().mean() * torch.eye(n, dtype=K.dtype)
    assert int(torch.linalg.cholesky_ex(K + jitter).info) == 0


@each
@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_positive_semidefinite_on_a_lattice_from_dense_to_sparse(k: Kernel, d: int) -> None:
    """A lattice shows functions that are no covariance in d dimensions; few random rows do not."""
    if wide(k, d) != d:
        return
    side = {1: 30, 2: 7, 3: 4, 4: 3}[d]
    lattice = torch.cartesian_prod(*[torch.arange(side, dtype=torch.float64)] * d).reshape(-1, d)
    for spacing in (0.1, 0.2, 0.3, 0.4, 0.55, 0.75, 0.9):
        K = k(draws(k, d), spacing * lattice)
        assert float(torch.linalg.eigvalsh(K)[0]) > -1e-8 * float(K.diagonal().sum())


@each
def test_a_kernel_that_rescales_depends_on_inputs_over_lengthscale_only(k: Kernel) -> None:
    """ARD relies on it."""
    if not k.rescales:
        return
    d = wide(k, 3)
    theta, X, Z = draws(k, d), inputs(5, d, 11), inputs(3, d, 12)
    unit = {**theta, "lengthscale": torch.ones_like(theta["lengthscale"])}
    for scale in (0.4, 2.5):
        scaled = {**theta, "lengthscale": scale * unit["lengthscale"]}
        torch.testing.assert_close(
            k(scaled, scale * X, scale * Z), k(unit, X, Z), rtol=1e-9, atol=1e-12
        )


@each
@sizes
def test_diag_is_the_diagonal(k: Kernel, n: int, d: int, seed: int) -> None:
    d = wide(k, d)
    theta, X = draws(k, d, seed), inputs(n, d, seed)
    torch.testing.assert_close(k.diag(theta, X), k(theta, X).diagonal(), rtol=1e-12, atol=1e-12)


@each
@sizes
def test_the_nugget_is_the_variance_that_rows_at_one_place_do_not_share(
    k: Kernel, n: int, d: int, seed: int
) -> None:
    d = wide(k, d)
    theta, X = draws(k, d, seed), inputs(n, d, seed)
    own, shared = k.nugget(theta, X), k(theta, X, X.clone()).diagonal()
    assert (own is not None) == has_white(k)
    torch.testing.assert_close(
        k.diag(theta, X), shared if own is None else shared + own, rtol=1e-6, atol=1e-6
    )


@each
@sizes
def test_permuting_rows_permutes_the_matrix(k: Kernel, n: int, d: int, seed: int) -> None:
    d = wide(k, d)
    theta, X = draws(k, d, seed), inputs(n, d, seed)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(
        k(theta, X[order]), k(theta, X)[order][:, order], rtol=1e-12, atol=1e-12
    )


@each
@sizes
def test_cross_covariance_is_a_block_of_the_whole(k: Kernel, n: int, d: int, seed: int) -> None:
    d = wide(k, d)
    theta, X = draws(k, d, seed), inputs(n + 2, d, seed)
    block = k(theta, X[:n], X[n:])
    assert block.shape == (n, 2)
    torch.testing.assert_close(block, k(theta, X)[:n, n:], rtol=1e-9, atol=1e-9)


@each
def test_without_white_noise_X2_none_means_X1(k: Kernel) -> None:
    d = wide(k, 4)
    theta, X = draws(k, d), inputs(6, d, 1)
    same = torch.allclose(k(theta, X), k(theta, X, X.clone()), rtol=0, atol=1e-6)
    assert same != has_white(k)


@each
@pytest.mark.parametrize("other", [Matern(1.5), Linear()], ids=["Matern", "Linear"])
def test_sums_and_products_are_those_of_gram_matrices(k: Kernel, other: Kernel) -> None:
    d = wide(k, 3)
    X, Z = inputs(6, d, 2), inputs(4, d, 3)
    for combined, combine in ((k + other, torch.add), (k * other, torch.mul)):
        theta = draws(combined, d)
        children = combined.children
        parts = [priors.under(str(i), theta) for i in range(len(children))]
        assert len(children) >= 2
        for call in (lambda c, t: c(t, X), lambda c, t: c(t, X, Z), lambda c, t: c.diag(t, X)):
            expected = call(children[0], parts[0])
            for child, part in zip(children[1:], parts[1:], strict=True):
                expected = combine(expected, call(child, part))
            torch.testing.assert_close(call(combined, theta), expected, rtol=1e-13, atol=0)


@each
@pytest.mark.parametrize("d", [1, 5])
def test_float32_agrees_with_float64(k: Kernel, d: int) -> None:
    d = wide(k, d)
    theta, X = draws(k, d), inputs(8, d, 4)
    K = k(theta, X)
    single = k({name: v.float() for name, v in theta.items()}, X.float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), K, rtol=1e-4, atol=1e-4 * float(K.abs().max()))


@each
@pytest.mark.parametrize("d", [2, 5])
def test_gradients_are_finite_at_duplicate_rows(k: Kernel, d: int) -> None:
    d = wide(k, d)
    theta = {name: v.requires_grad_() for name, v in draws(k, d).items()}
    X = torch.cat([inputs(4, d, 5), inputs(2, d, 5)[:1]]).requires_grad_()
    Z = X.detach()[[0, 0, 2]].clone().requires_grad_()
    total = k(theta, X).square().sum() + k(theta, X, Z).square().sum() + k.diag(theta, X).sum()
    gradients = torch.autograd.grad(total, [*theta.values(), X, Z], allow_unused=True)
    assert all(g is not None for g in gradients[: len(theta)])
    assert all(bool(torch.isfinite(g).all()) for g in gradients if g is not None)


@each
def test_gradient_of_hyperparameters_is_that_of_finite_differences(k: Kernel) -> None:
    d = wide(k, 2)
    theta, X = draws(k, d), inputs(4, d, 6)
    names = list(theta)

    def matrix(*values: Tensor) -> Tensor:
        return k(dict(zip(names, values, strict=True)), X)

    assert torch.autograd.gradcheck(matrix, [theta[name].requires_grad_() for name in names])


@each
@pytest.mark.parametrize("batch", [(3,), (2, 2)], ids=str)
def test_a_batch_of_thetas_is_a_loop(k: Kernel, batch: tuple[int, ...]) -> None:
    d = wide(k, 4)
    theta, X, Z = draws(k, d, batch=batch), inputs(6, d, 7), inputs(3, d, 8)
    square, cross, diagonal = k(theta, X), k(theta, X, Z), k.diag(theta, X)
    assert square.shape == (*batch, 6, 6)
    assert cross.shape == (*batch, 6, 3)
    assert diagonal.shape == (*batch, 6)
    for index in (
        torch.cartesian_prod(*(torch.arange(b) for b in batch)).reshape(-1, len(batch)).tolist()
    ):
        one = {name: v[tuple(index)] for name, v in theta.items()}
        torch.testing.assert_close(square[tuple(index)], k(one, X), rtol=1e-11, atol=1e-11)
        torch.testing.assert_close(cross[tuple(index)], k(one, X, Z), rtol=1e-11, atol=1e-11)
        torch.testing.assert_close(diagonal[tuple(index)], k.diag(one, X), rtol=1e-11, atol=1e-11)


@each
def test_every_site_is_positive_and_can_be_drawn(k: Kernel) -> None:
    d = wide(k, 3)
    like = inputs(2, d, 9)
    for name, site in k.sites(d).items():
        if "network." in name or name == "shear":  # which may be of either sign
            continue
        assert site.positive
        if site.fixed:
            continue
        distribution = site.distribution(like)
        assert distribution.event_shape == site.shape, name
        assert bool((distribution.sample((20,)) > 0).all())


def at_numbers(k: Kernel) -> Any:
    """Return the kernel with a number in place of each prior, in the kernels inside it too."""
    assert is_dataclass(k)
    changed: dict[str, Any] = {}
    for f in fields(k):
        value = getattr(k, f.name)
        if isinstance(value, priors.Prior):
            changed[f.name] = 0.7
        elif isinstance(value, Kernel):
            changed[f.name] = at_numbers(value)
        elif f.name == "children":
            changed[f.name] = tuple(at_numbers(child) for child in value)
    return replace(k, **changed)


@member
def test_numbers_are_in_the_units_of_the_data(k: Kernel) -> None:
    """A prediction of fixed numbers is the same if a fit standardises: ``dimensions`` is complete.

    X and y have standard deviations other than 1. A difference comes from the rounding of a system
    of condition 1e3 or so.
    """
    if isinstance(k, Deep | Unscaled):  # their weights and columns are those of standardised X
        return
    d = wide(k, 2)
    X = inputs(8, d, 13) * torch.tensor([3.0, 0.4, 1.0], dtype=torch.float64)[:d] + 0.3
    y = 5.0 * X[:, 0].sin() + 2.0 + inputs(8, 1, 14)[:, 0]
    model = models.GP(at_numbers(k), noise=0.3, mean=1.5)
    found, exact = (
        fit(model, Dataset(X, y), standardise=scaled, progress=False).predict(X[:3] + 0.1)
        for scaled in (True, False)
    )
    torch.testing.assert_close(found.mean, exact.mean, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.variance, exact.variance, rtol=1e-9, atol=1e-9)


def test_dimensions_of_a_kernel_are_added_to_those_it_inherits() -> None:
    class Stretched(RBF):
        dimensions = {"width": (0, 1)}

    class Raised(Stretched):
        dimensions = {"variance": (3, 0)}

    assert Stretched.dimensions == {**Kernel.dimensions, "width": (0, 1)}
    assert Raised.dimensions == {**Stretched.dimensions, "variance": (3, 0)}
    assert "width" not in Kernel.dimensions


@each
def test_repr_evaluates_back(k: Kernel) -> None:
    names = {n: getattr(m, n) for m in (priors, kernels, networks) for n in m.__all__}
    assert eval(repr(k), names) == k
    assert hash(k) == hash(eval(repr(k), names))


@member
def test_the_docstring_describes_the_kernel_and_cites_a_source(k: Kernel) -> None:
    doc = type(k).__doc__ or ""
    cites = re.search(r"(19|20)\d\d|equation|section", doc)
    assert cites or len(doc.split()) >= 8, doc


@member
def test_a_fixed_number_is_respected(k: Kernel) -> None:
    """A number in the record acts like the same value in theta, and is not drawn."""
    d = wide(k, 3)
    X = inputs(5, d, 10)
    assert is_dataclass(k)
    priced = [f.name for f in fields(k) if isinstance(getattr(k, f.name), priors.Prior)]
    for name in priced:
        fixed: Any = replace(k, **{name: 0.7})
        theta = draws(k, d)
        theta[name] = torch.full_like(theta[name], 0.7)
        rest = {key: v for key, v in theta.items() if key != name}
        assert fixed.sites(d)[name].fixed
        torch.testing.assert_close(fixed(rest, X), k(theta, X), rtol=1e-13, atol=0)
        torch.testing.assert_close(fixed.diag(rest, X), k.diag(theta, X), rtol=1e-13, atol=0)
