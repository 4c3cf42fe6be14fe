"""``ppgp.recipes``: the objects of the command line by the same names."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import ppgp
from ppgp import Dataset, conformal, inference, kernels, likelihoods, models, recipes
from ppgp.errors import NotApplicable, SettingError, UnknownName
from ppgp.recipes import parsing as of_command_line

X = torch.linspace(-1.0, 1.0, 12, dtype=torch.float64)[:, None]
DATA = Dataset(X, torch.sin(3 * X[:, 0]))


def test_names_give_the_objects_of_the_command_line() -> None:
    assert recipes.model("gp") == models.GP(kernels.ARD(kernels.RBF()))
    assert recipes.method("map") == inference.MAP()
    assert recipes.likelihood("poisson") == likelihoods.Poisson()
    assert recipes.score("normalized") == conformal.Normalized()


def test_recipes_give_the_objects_that_their_constructors_give() -> None:
    assert recipes.model("GP(Matern(1.5), noise=0.1)") == models.GP(kernels.Matern(1.5), noise=0.1)
    assert recipes.method("NUTS(draws=7)") == inference.NUTS(draws=7)


@pytest.mark.parametrize("kind", ["likelihood", "method", "model", "score"])
def test_every_name_of_a_kind_is_listed_with_its_recipe_and_builds(kind: str) -> None:
    tables = {
        "likelihood": of_command_line.LIKELIHOODS,
        "method": of_command_line.HOWS,
        "model": of_command_line.MODELS,
        "score": of_command_line.SCORES,
    }
    build = getattr(recipes, kind)
    assert recipes.names(kind).keys() == tables[kind].keys()
    assert all(build(name) == build(recipe) for name, recipe in recipes.names(kind).items())


@pytest.mark.usefixtures("types_unchecked")
def test_unknown_names_and_other_objects_are_refused() -> None:
    with pytest.raises(UnknownName, match="did you mean 'gp'"):
        recipes.model("gpp")
    with pytest.raises(UnknownName, match="kind of recipe"):
        recipes.names("kernel")
    no_text: Any = ["model"]
    with pytest.raises(UnknownName, match="kind of recipe"):
        recipes.names(no_text)
    no_name: Any = models.GP(kernels.RBF())
    with pytest.raises(SettingError, match=r"the name of a model.*got a GP"):
        recipes.model(no_name)


@pytest.mark.usefixtures("types_unchecked")
def test_fit_names_the_module_when_it_is_given_names() -> None:
    name: Any = "gp"
    with pytest.raises(NotApplicable, match=r"ppgp\.recipes\.model\('gp'\)"):
        ppgp.fit(name, DATA, progress=False)
    for name in ("map", "dvi"):
        with pytest.raises(NotApplicable, match=rf"ppgp\.recipes\.method\('{name}'\)"):
            ppgp.fit(models.LinearRegression(), DATA, name, progress=False)


def test_a_fit_by_names_is_that_of_the_objects() -> None:
    posterior = ppgp.fit(
        recipes.model("linear"), DATA, recipes.method("laplace"), seed=1, progress=False
    )
    own = ppgp.fit(models.LinearRegression(), DATA, inference.Laplace(), seed=1, progress=False)
    assert torch.equal(posterior.draws["weight"], own.draws["weight"])


def test_the_name_of_another_kind_is_named_as_such() -> None:
    with pytest.raises(UnknownName, match="the name of a method, got 'gp', a model: name one of"):
        recipes.method("gp")
    with pytest.raises(UnknownName, match="the name of a model, got 'nuts', a method"):
        recipes.model("nuts")


def test_a_recipe_without_parentheses_is_told_to_write_them() -> None:
    with pytest.raises(UnknownName, match=r"got 'GP\[RBF\]': write a call .* GP\(RBF\(\)\)"):
        recipes.model("GP[RBF]")


@pytest.mark.parametrize(
    ("recipe", "near", "listed", "others"),
    [
        ("RBFF()", None, ["GP", "LinearRegression"], ["RBF", "Poisson", "Normal"]),
        ("GP(RBFF())", "RBF", ["Matern", "Periodic"], ["GP", "Poisson", "Normal"]),
        ("GP(RBF(lengthscale=LogNorml()))", "LogNormal", ["Gamma"], ["GP", "RBF", "Poisson"]),
        ("GP(RBF(lengthscale=Weibull(1.0, 2.0)))", None, ["LogNormal", "Gamma"], ["RBF", "GP"]),
    ],
)
def test_an_unknown_class_is_answered_with_its_family(
    recipe: str, near: str | None, listed: list[str], others: list[str]
) -> None:
    with pytest.raises(UnknownName) as raised:
        recipes.model(recipe)
    known = raised.value.do.partition("known: ")[2].split(", ")
    assert set(listed) <= set(known)
    assert not set(others) & set(known)
    if near:
        assert f"did you mean {near!r}" in raised.value.do


def test_a_likelihood_in_place_of_a_prior_is_no_prior() -> None:
    with pytest.raises(UnknownName, match="the name of a prior in a recipe, got 'Weibull'"):
        recipes.model("GP(RBF(lengthscale=Weibull(1.0, 2.0)))")
    boosted = "Boosted(Weibull(shape=Predicted()))"
    assert recipes.model(boosted) == models.Boosted(
        likelihoods.Weibull(shape=likelihoods.Predicted())
    )


@pytest.mark.parametrize(
    ("recipe", "do"),
    [
        ("asymmetric-laplace(quantile=0.9)", r"write AsymmetricLaplace\(quantile=0.9\)"),
        ("other-laplace(quantile=0.9)", "see `ppgp list`"),
    ],
)
def test_a_call_of_a_name_with_hyphens_says_how_it_is_written(recipe: str, do: str) -> None:
    with pytest.raises(SettingError, match=rf"got {re.escape(recipe)}: {do}"):
        recipes.likelihood(recipe)
