"""Recipes as strings: the records that they build, and that they cannot run other code."""

from __future__ import annotations

import pytest

from ppgp import conformal, inference, kernels, likelihoods, models, priors
from ppgp.errors import SettingError, UnknownName
from ppgp.interfaces import recipes as zoo


@pytest.mark.parametrize("name", zoo.MODELS)
def test_every_named_model_builds(name: str) -> None:
    assert isinstance(zoo.build_model(name), models.Model)


@pytest.mark.parametrize("name", zoo.HOWS)
def test_every_named_method_builds(name: str) -> None:
    assert isinstance(zoo.build_how(name), inference.Inference)


@pytest.mark.parametrize("name", zoo.SCORES)
def test_every_named_score_builds(name: str) -> None:
    assert isinstance(zoo.build_score(name), conformal.Score)


def test_a_recipe_reads_sums_products_and_keywords() -> None:
    built = zoo.build_model(
        "GP(Matern(1.5) + Linear() * Subspace(Periodic(period=1.0), [0]), noise=Gamma(2, 1))"
    )
    kernel = kernels.Matern(1.5) + kernels.Linear() * kernels.Subspace(
        kernels.Periodic(period=1.0), [0]
    )
    assert built == models.GP(kernel, noise=priors.Gamma(2, 1))


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "GP((lambda: 1)())",
        "GP(open('x'))",
        "GP([x for x in (1,)])",
        "GP(1 - 2)",
    ],
)
def test_only_calls_of_known_classes_are_read(text: str) -> None:
    with pytest.raises((SettingError, UnknownName)):
        zoo.build_model(text)


def test_an_option_is_set_through_wrappers_and_terms() -> None:
    gp = zoo.build_model("gp")
    assert zoo.changed(gp, "kernel.lengthscale", "2").kernel.kernel.lengthscale == 2
    assert zoo.changed(gp, "noise", "LogNormal(0, 1)").noise == priors.LogNormal(0, 1)
    total = models.GP(kernels.RBF() + kernels.Linear())
    assert zoo.changed(total, "kernel.0.variance", "3").kernel.children[0].variance == 3
    assert zoo.changed(inference.MAP(), "optimizer", "adam").optimizer == "adam"
    with pytest.raises(UnknownName, match="known"):
        zoo.changed(gp, "nose", "1")


def test_the_field_decides_between_classes_of_one_name() -> None:
    built = zoo.build_model(
        "SVGP(Exponential() + RBF(lengthscale=Exponential(2.0)), likelihood=StudentT(4.0))"
    )
    assert isinstance(built.likelihood, likelihoods.StudentT)
    assert isinstance(built.kernel.children[0], kernels.Exponential)
    assert built.kernel.children[1].lengthscale == priors.Exponential(2.0)
    assert zoo.build_model(
        "LinearRegression(weight=StudentT(3.0, 0.0, 1.0))"
    ).weight == priors.StudentT(3.0, 0.0, 1.0)
    assert zoo.changed(built, "likelihood", "Bernoulli()").likelihood == likelihoods.Bernoulli()
