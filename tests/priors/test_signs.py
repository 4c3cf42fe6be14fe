"""A number of the wrong sign is refused where it is written, as it is written."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ppgp import kernels, likelihoods, models
from ppgp.cli.recipe_options import build_models_and_methods
from ppgp.errors import SettingError
from ppgp.recipes import model


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: kernels.RBF(lengthscale=-1.5), r"for RBF\.lengthscale, got -1\.5"),
        (lambda: kernels.RBF(lengthscale=(1.0, -2.0)), r"got \(1\.0, -2\.0\)"),
        (lambda: kernels.Periodic(period=-365), r"for Periodic\.period, got -365"),
        (lambda: kernels.Scale(kernels.RBF(), outputscale=-3), "for outputscale, got -3"),
        (lambda: kernels.Coregionalisation(variance=-1.0), "variance, got -1.0"),
        (lambda: models.GP(noise=-0.5), r"for noise, got -0\.5"),
        (lambda: models.LinearRegression(noise=-0.5), r"for noise, got -0\.5"),
        (lambda: models.Kriging(kernels.RBF(), nugget=-0.5), r"for nugget, got -0\.5"),
        (lambda: likelihoods.StudentT(scale=-2.0), r"for scale, got -2\.0"),
        (lambda: model("GP(RBF(lengthscale=-1))"), "got -1: fix it above 0"),
        (
            lambda: build_models_and_methods(["gp"], [], ["kernel.lengthscale=-1"]),
            "got -1: fix it above 0",
        ),
    ],
)
def test_a_negative_number_is_refused_at_construction(
    make: Callable[[], object], words: str
) -> None:
    with pytest.raises(SettingError, match=f"(a positive number|a number of at least 0) .*{words}"):
        make()


def test_numbers_that_may_be_negative_or_zero_are_taken() -> None:
    kernels.Coregionalisation(weight=-1.0)
    models.GP(noise=0.0)
    models.LinearRegression(weight=-1.0, bias=-2.0)


@pytest.mark.usefixtures("types_unchecked")
def test_a_word_in_place_of_a_number_is_told_what_to_write() -> None:
    with pytest.raises(SettingError, match=r"got 'abc': write a number such as 2\.0") as raised:
        build_models_and_methods(["gp"], [], ["kernel.lengthscale=abc"])
    assert "or a prior such as LogNormal(0, 1)" in str(raised.value)
    assert "float(" not in str(raised.value)
