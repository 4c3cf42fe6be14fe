"""Recipes as strings: the records that they build, and that they cannot run other code."""

from __future__ import annotations

import pytest

from ppgp import conformal, inference, kernels, likelihoods, models, priors
from ppgp.cli.recipe_options import methods_of_models
from ppgp.errors import SettingError, UnknownName
from ppgp.inference.fitting.fit import OWN_METHODS
from ppgp.recipes import parsing as recipes


@pytest.mark.parametrize("name", recipes.MODELS)
def test_every_named_model_builds(name: str) -> None:
    assert isinstance(recipes.build_model(name), models.Model)


@pytest.mark.parametrize("name", recipes.HOWS)
def test_every_named_method_builds(name: str) -> None:
    assert isinstance(recipes.build_how(name), inference.Inference)


@pytest.mark.parametrize("name", recipes.SCORES)
def test_every_named_score_builds(name: str) -> None:
    assert isinstance(recipes.build_score(name), conformal.Score)


def test_a_recipe_reads_sums_products_and_keywords() -> None:
    built = recipes.build_model(
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
        recipes.build_model(text)


def test_an_option_is_set_through_wrappers_and_terms() -> None:
    gp = recipes.build_model("gp")
    assert recipes.changed(gp, "kernel.lengthscale", "2").kernel.kernel.lengthscale == 2
    assert recipes.changed(gp, "noise", "LogNormal(0, 1)").noise == priors.LogNormal(0, 1)
    total = models.GP(kernels.RBF() + kernels.Linear())
    assert recipes.changed(total, "kernel.0.variance", "3").kernel.children[0].variance == 3
    assert recipes.changed(inference.MAP(), "optimizer", "adam").optimizer == "adam"
    with pytest.raises(UnknownName, match="known"):
        recipes.changed(gp, "nose", "1")


def test_the_field_decides_between_classes_of_one_name() -> None:
    built = recipes.build_model(
        "SVGP(Exponential() + RBF(lengthscale=Exponential(2.0)), likelihood=StudentT(4.0))"
    )
    assert isinstance(built.likelihood, likelihoods.StudentT)
    assert isinstance(built.kernel.children[0], kernels.Exponential)
    assert built.kernel.children[1].lengthscale == priors.Exponential(2.0)
    assert recipes.build_model(
        "LinearRegression(weight=StudentT(3.0, 0.0, 1.0))"
    ).weight == priors.StudentT(3.0, 0.0, 1.0)
    assert recipes.changed(built, "likelihood", "Bernoulli()").likelihood == likelihoods.Bernoulli()


@pytest.mark.parametrize("name", OWN_METHODS)
def test_the_command_line_knows_the_own_methods_of_models_by_the_same_names(name: str) -> None:
    assert recipes.build_how(name) == OWN_METHODS[name]()


@pytest.mark.parametrize("name", recipes.MODELS)
def test_the_own_method_of_every_named_model_builds(name: str) -> None:
    how = recipes.own_how(name, recipes.build_model(name))
    assert how in {"", *recipes.HOWS}


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("ngboost", "ngb"),
        ("ngboost-classifier", "ngb"),
        ("Boosted(StudentT(5.0, Predicted()))", "ngb"),
        ("deep-ensemble", "deep-ensemble"),
        ("mc-dropout", "mc-dropout"),
        ("NeuralRegression(prior=Normal(0.0, 1.0))", ""),
        ("gp", ""),
    ],
)
def test_a_recipe_has_its_own_method(name: str, how: str) -> None:
    assert recipes.own_how(name, recipes.build_model(name)) == how
    assert methods_of_models([name], None, "map,nuts", 50) == {
        name: [how] if how else ["map", "nuts"]
    }
    assert methods_of_models([name], "svi", "map,nuts", 50) == {name: ["svi"]}
