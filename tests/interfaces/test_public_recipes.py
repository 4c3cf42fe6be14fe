"""``ppgp.recipes``: the objects of the command line by the same names."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from jaxtyping import config

import ppgp
from ppgp import Dataset, conformal, inference, kernels, likelihoods, models, recipes
from ppgp.errors import NotApplicable, SettingError, UnknownName
from ppgp.interfaces import recipes as of_command_line

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


@pytest.fixture
def types_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switch off the run-time type checks of the test suite, which users do not have."""
    monkeypatch.setattr(config, "jaxtyping_disable", True)


@pytest.mark.usefixtures("types_unchecked")
def test_unknown_names_and_other_objects_are_refused() -> None:
    with pytest.raises(UnknownName, match="did you mean 'gp'"):
        recipes.model("gpp")
    with pytest.raises(UnknownName, match="kind of recipe"):
        recipes.names("kernel")
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
