"""A number times a kernel: a factor without units."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import ppgp
from ppgp import Dataset, inference, kernels, priors, recipes
from ppgp.errors import SettingError
from ppgp.kernels import ARD, RBF, Constant, Linear, Matern, Multiple, Periodic, Scale, White
from ppgp.models import GP, StateSpaceGP
from ppgp.priors import Flat

F64 = torch.float64
X = torch.linspace(-1.0, 3.0, 15, dtype=F64)[:, None]
DATA = Dataset(10.0 + 4 * X, 30.0 + 7 * torch.sin(2 * X[:, 0]))


def test_a_number_on_either_side_adds_the_kernel_to_itself() -> None:
    kernel = RBF(0.7, 1.3) + Linear(0.2) * Periodic(1.0, 2.0, 0.5)
    expected = kernel({}, X) + kernel({}, X)
    for twice in (2.0 * kernel, kernel * 2, np.float64(2.0) * kernel, kernel * torch.tensor(2.0)):
        torch.testing.assert_close(twice({}, X), expected)
        torch.testing.assert_close(twice.diag({}, X), expected.diagonal())


def test_factors_of_factors_are_multiplied_and_names_are_those_of_the_kernel() -> None:
    kernel = 2.0 * (ARD(RBF()) * 3.0)
    assert kernel == Multiple(ARD(RBF()), 6.0)
    assert kernel.sites(2).keys() == ARD(RBF()).sites(2).keys()
    assert eval(repr(kernel), {**vars(kernels), **vars(priors)}) == kernel
    assert recipes.model("GP(2.0 * RBF() + 0.5 * White())") == GP(2.0 * RBF() + 0.5 * White())


@pytest.mark.parametrize("standardise", [True, False])
def test_a_factor_has_no_unit_and_a_number_as_variance_has(standardise: bool) -> None:
    """2 * k with variance 10 is k with variance 20, however the data are scaled."""

    def mean(kernel: Any) -> torch.Tensor:
        model = GP(kernel, noise=0.5, mean=30.0)
        posterior = ppgp.fit(model, DATA, inference.MAP(), standardise=standardise, progress=False)
        return posterior.predict(DATA.X).mean

    expected = mean(RBF(variance=20.0, lengthscale=2.0))
    torch.testing.assert_close(mean(2.0 * RBF(variance=10.0, lengthscale=2.0)), expected)
    torch.testing.assert_close(mean(Scale(RBF(1.0, lengthscale=2.0), 20.0)), expected)
    assert not torch.allclose(mean(RBF(variance=10.0, lengthscale=2.0)), expected)


def test_a_factor_of_one_term_divides_its_inferred_variance() -> None:
    """Under flat priors a factor is a change of the parameter alone."""

    def fitted(kernel: Any) -> ppgp.Posterior:
        return ppgp.fit(GP(kernel, noise=0.01), DATA, inference.MAP(), progress=False)

    plain = fitted(RBF(variance=Flat(), lengthscale=Flat()))
    scaled = fitted(4.0 * RBF(variance=Flat(), lengthscale=Flat()))
    ratio = plain.draws["kernel.variance"] / scaled.draws["kernel.variance"]
    assert float(ratio) == pytest.approx(4.0, rel=1e-3)


def test_a_multiple_has_a_state_space() -> None:
    kernel = 3.0 * (Matern(1.5, 0.4, 0.8) + 0.5 * Constant(0.7))
    by_states = StateSpaceGP(kernel, noise=0.1, mean=30.0)
    dense = GP(kernel, noise=0.1, mean=30.0)
    one, other = (
        ppgp.fit(model, DATA, inference.MAP(), progress=False).predict(DATA.X + 0.3)
        for model in (by_states, dense)
    )
    torch.testing.assert_close(one.mean, other.mean, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(one.std, other.std, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("factor", [0.0, -1.0, float("inf"), float("nan")])
def test_factors_that_give_no_covariance_are_refused(factor: float) -> None:
    with pytest.raises(SettingError, match="a positive number as factor"):
        factor * RBF()


def test_other_operands_are_refused() -> None:
    for other in (True, "RBF", None):
        with pytest.raises(SettingError, match="a member of"):
            other * RBF()


def test_an_array_times_a_kernel_is_no_array_of_kernels() -> None:
    for factors in (np.array([1.0, 2.0]), np.ones((1, 1))):
        with pytest.raises(SettingError, match="ndarray"):
            factors * RBF()
        with pytest.raises(SettingError, match="ndarray"):
            factors + RBF()


def test_a_sum_of_a_list_is_referred_to_plus() -> None:
    with pytest.raises(SettingError, match=r"got 0: write k1 \+ k2 or Sum\(\(k1, k2\)\)"):
        sum([RBF(), Linear()])
