"""Names of sites of composed kernels, and compositions that are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import config

import ppgp
from ppgp.errors import NotApplicable, SettingError
from ppgp.inference import MAP
from ppgp.kernels import (
    ARD,
    RBF,
    Constant,
    Kernel,
    Linear,
    Matern,
    Periodic,
    Polynomial,
    Product,
    Scale,
    Subspace,
    Sum,
    White,
)
from ppgp.kernels.base import check_kernel
from ppgp.models import GP
from ppgp.priors import Exponential, Flat, HalfNormal, Normal, StudentT, Uniform

X = torch.randn(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_a_leaf_names_its_sites_by_field() -> None:
    assert list(RBF().sites(3)) == ["variance", "lengthscale"]


def test_sums_and_products_number_their_children() -> None:
    names = set((RBF() + Linear() * Periodic()).sites(3))
    leaf = {"0.variance", "0.lengthscale"}
    assert names == leaf | {"1.0.variance", "1.1.variance", "1.1.lengthscale", "1.1.period"}


def test_a_sum_in_a_sum_is_flattened_however_it_is_bracketed() -> None:
    a, b, c = RBF(), Linear(), White()
    assert (a + b) + c == a + (b + c) == Sum((a, b, c))
    assert (a * b) * c == a * (b * c) == Product((a, b, c))
    assert len(((a + b) * c).children) == 2


def test_wrappers_are_transparent() -> None:
    wrapped = Scale(ARD(Subspace(RBF(), [0, 2]).kernel))
    assert list(wrapped.sites(3)) == ["outputscale", "variance", "lengthscale"]
    assert list(Subspace(RBF(), [0, 2]).sites(3)) == ["variance", "lengthscale"]
    assert ARD(RBF()).sites(3)["lengthscale"].shape == (3,)
    assert Subspace(ARD(RBF()), [0, 2]).sites(3)["lengthscale"].shape == (2,)


def test_scale_multiplies_by_the_outputscale() -> None:
    inner = RBF(variance=1.0, lengthscale=0.7) + Linear(variance=0.3)
    torch.testing.assert_close(Scale(inner, 2.5)({}, X), 2.5 * inner({}, X))


def test_subspace_uses_its_columns_only() -> None:
    k = RBF(variance=1.0, lengthscale=0.7)
    torch.testing.assert_close(Subspace(k, [2, 0])({}, X), k({}, X[:, [2, 0]]))


def test_ard_with_equal_lengthscales_is_the_isotropic_kernel() -> None:
    theta = {"variance": torch.tensor(1.3).double(), "lengthscale": torch.tensor(0.6).double()}
    torch.testing.assert_close(
        ARD(RBF())(theta | {"lengthscale": theta["lengthscale"].expand(3)}, X), RBF()(theta, X)
    )
    torch.testing.assert_close(ARD(RBF(1.3, 0.6))({}, X), RBF(1.3, 0.6)({}, X))


@pytest.mark.parametrize(
    "k", [Periodic(), Linear(), Constant(), White(), Polynomial(), Scale(Periodic())], ids=repr
)
def test_ard_refuses_a_kernel_without_a_lengthscale_that_rescales(k: Kernel) -> None:
    with pytest.raises(NotApplicable, match="put ARD around RBF"):
        ARD(k)


def test_ard_refuses_a_sum_as_its_terms_have_their_own() -> None:
    with pytest.raises(NotApplicable, match="put ARD around"):
        ARD(RBF() + Matern())


def test_ard_refuses_other_columns_than_it_has_lengthscales() -> None:
    theta = {"variance": torch.ones(()), "lengthscale": torch.ones(2)}
    with pytest.raises(SettingError, match="2 columns of X, one per lengthscale, got 3"):
        ARD(RBF())(theta, X.float())


def test_subspace_refuses_columns_that_X_lacks() -> None:
    k = Subspace(RBF(1.0, 1.0), [0, 3])

    def fit() -> object:
        return ppgp.fit(GP(k), ppgp.Dataset(X, X[:, 0]), MAP(), progress=False)

    for use in (lambda: k.sites(3), lambda: k({}, X), lambda: k.diag({}, X), fit):
        with pytest.raises(SettingError, match="at least 4 columns"):
            use()


@pytest.mark.parametrize("columns", [[], [0, 0], [-1]], ids=str)
def test_subspace_refuses_columns_that_are_not_distinct_numbers(columns: list[int]) -> None:
    with pytest.raises(SettingError, match="different column numbers"):
        Subspace(RBF(), columns)


@pytest.mark.parametrize("columns", [["a"], "a", [0.5], [True], [-1], []], ids=str)
def test_subspace_advises_numbers_in_place_of_other_columns(
    columns: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "jaxtyping_disable", True)  # users have no such checks
    with pytest.raises(SettingError, match=r"give numbers such as columns=\[0, 2\]"):
        Subspace(RBF(), columns)


def test_a_scale_in_a_scale_is_refused() -> None:
    with pytest.raises(SettingError, match="keep the outer one"):
        Scale(Scale(RBF())).sites(1)


@pytest.mark.parametrize("prior", [Normal(), StudentT(), Uniform(-1.0, 1.0)], ids=repr)
def test_a_prior_with_negative_values_is_refused_for_a_lengthscale(prior: Normal) -> None:
    with pytest.raises(SettingError, match=r"positive numbers for RBF\.lengthscale"):
        RBF(lengthscale=prior).sites(1)


@pytest.mark.parametrize(
    "prior", [HalfNormal(), Exponential(), Uniform(0.0, 1.0), Flat(), 0.5, 1], ids=repr
)
def test_positive_priors_and_numbers_are_accepted_for_a_lengthscale(prior: HalfNormal) -> None:
    assert RBF(lengthscale=prior).sites(1)["lengthscale"].prior == prior


@pytest.mark.parametrize("number", [0.0, -1.0, float("nan"), float("inf")])
def test_a_lengthscale_that_is_not_a_positive_number_is_refused(number: float) -> None:
    with pytest.raises(SettingError, match=r"RBF\.lengthscale"):
        RBF(lengthscale=number).sites(1)


@pytest.mark.parametrize("nu", [2, 2.0, 0.0, 3.5])
def test_matern_refuses_another_nu(nu: float) -> None:
    with pytest.raises(SettingError, match=r"nu = 0\.5, 1\.5 or 2\.5"):
        Matern(nu)


@pytest.mark.parametrize("degree", [0, -1, True])
def test_polynomial_refuses_a_degree_below_one(degree: int) -> None:
    with pytest.raises(SettingError, match="whole degree"):
        Polynomial(degree)


def test_a_missing_hyperparameter_is_named() -> None:
    with pytest.raises(SettingError, match="a value for lengthscale in theta"):
        RBF()({"variance": torch.ones(())}, X)


def test_white_noise_distinguishes_equal_rows() -> None:
    twins = X[[0, 0]]
    assert torch.equal(White(variance=2.0)({}, twins), 2 * torch.eye(2, dtype=X.dtype))
    assert torch.equal(
        White(variance=2.0)({}, twins, twins.clone()), torch.zeros(2, 2, dtype=X.dtype)
    )


@pytest.mark.parametrize(
    "act",
    [
        lambda: 1.0 + RBF(),
        lambda: check_kernel(2.0),
        lambda: check_kernel(RBF),
    ],
    ids=["plus", "number", "class"],
)
def test_objects_that_are_not_kernels_are_refused(act: Callable[[], object]) -> None:
    with pytest.raises(SettingError, match=r"call it: RBF\(\)|for a number write Constant"):
        act()


def test_an_array_of_numbers_is_no_factor_of_a_kernel() -> None:
    with pytest.raises(SettingError, match=r"a kernel, a member of ppgp\.kernels, got a ndarray"):
        np.array([1, 2]) * RBF()
    assert np.float64(2.0) * RBF() == 2.0 * RBF()
