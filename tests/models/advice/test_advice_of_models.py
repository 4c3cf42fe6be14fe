"""advise: which Gaussian process suits, and the errors that name one."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import pytest
import torch
from tool_modules import tool
from waves import F64

import ppgp
from ppgp import Dataset, kernels, likelihoods, models, networks
from ppgp.cli.recipe_options import advised_models
from ppgp.data.roles import ROLES
from ppgp.errors import DataWarning, NotApplicable, SettingError
from ppgp.kernels import RBF, Matern
from ppgp.models.advice import costs
from ppgp.models.advice.advice import LATENT, about, advise, instead_of, smoothness_of
from ppgp.models.advice.suitability import EVERY, TAKE
from ppgp.recipes.parsing import build_model


def table(n: int = 60, d: int = 2, **columns: Any) -> Dataset:
    """Return random rows."""
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(n, d, generator=generator, dtype=F64)
    return Dataset(X, X.sum(1), **columns)


def first(**given: Any) -> str:
    return advise(**given).suited[0].model


@pytest.mark.parametrize(
    ("given", "model"),
    [
        ({"n": 1_000, "d": 5}, "GP"),
        ({"n": 3_000, "d": 1}, "StateSpaceGP"),
        ({"n": 3_000, "d": 1, "kernel": RBF()}, "GP"),
        ({"n": 100_000, "d": 1, "kernel": RBF()}, "SKI"),
        ({"n": 100_000, "d": 2, "kernel": Matern(1.5)}, "Vecchia"),
        ({"n": 100_000, "d": 2, "kernel": kernels.ARD(RBF())}, "SKI"),
        ({"n": 100_000, "d": 6, "kernel": RBF()}, "SGPR"),
        ({"n": 100_000, "d": 20, "smoothness": 0.5}, "SVGP"),
        ({"n": 10_000_000, "d": 20}, "SVGP"),
        ({"n": 1_000, "d": 2, "likelihood": likelihoods.Poisson()}, "GP"),
        ({"n": 10_000, "d": 2, "likelihood": likelihoods.Poisson()}, "Vecchia"),
        ({"n": 10_000, "d": 12, "likelihood": likelihoods.Poisson()}, "SVGP"),
        ({"n": 1_000_000, "d": 2, "likelihood": likelihoods.Poisson()}, "SVGP"),
        ({"n": 100_000, "d": 1, "likelihood": likelihoods.Poisson()}, "StateSpaceGP"),
        ({"n": 10_000, "d": 1, "likelihood": likelihoods.StudentT(), "kernel": RBF()}, "SVGP"),
        ({"n": 100, "d": 1, "likelihood": likelihoods.Categorical()}, "SVGP"),
        ({"n": 100, "d": 2, "likelihood": likelihoods.Categorical()}, "SVGP"),
        ({"n": 100, "d": 2, "likelihood": likelihoods.Gaussian(likelihoods.Predicted())}, "SVGP"),
    ],
)
def test_the_first_model_is_the_one_for_these_data(given: dict[str, Any], model: str) -> None:
    assert first(**given) == model


def test_a_table_tells_its_grid_labels_and_known_noise() -> None:
    axis = torch.arange(40, dtype=F64)
    X = torch.cartesian_prod(axis, axis)[torch.randperm(1600)]
    assert first(data=Dataset(X, X[:, 0])) == "GridGP"
    assert first(data=Dataset(X[:-1], X[:-1, 0])) == "GP"
    known = {o.model for o in advise(table(noise_sd=0.1)).suited}
    assert known == {"GP", "Vecchia"}
    assert [o.model for o in advise(table(weights=torch.ones(60))).suited] == ["SVGP"]
    assert advise(table(noise_sd=0.1), likelihood=likelihoods.Poisson()).suited == ()
    for classes, model in ((2, "GP"), (3, "SVGP")):
        labels = [f"class {i % classes}" for i in range(60)]
        assert first(data=Dataset(table().X, labels)) == model


def test_smoothness_is_that_of_the_roughest_term() -> None:
    assert smoothness_of(RBF() + kernels.White()) == math.inf
    assert smoothness_of(kernels.Scale(Matern(1.5) * kernels.Periodic()) + RBF()) == 1.5
    assert smoothness_of(kernels.ARD(kernels.Exponential())) == 0.5
    deep = kernels.Deep(networks.MLP((4,), 2), RBF())
    assert "SKI" in {o.model for o in advise(n=50_000, d=20, kernel=deep).suited}


def test_rules_are_those_of_the_models() -> None:
    for name in EVERY:
        model = getattr(models, name)
        for role in (*ROLES, "ids"):
            assert model().takes_role(role) == (name in TAKE.get(role, ()))
        options = advise(n=100, d=1 + (name == "GridGP"), likelihood=likelihoods.Poisson()).options
        suits = next(option.suits for option in options if option.model == name)
        assert suits == any(field.name == "likelihood" for field in fields(model))
    assert {*costs.TERMS} == {*EVERY, *LATENT.values()}
    with pytest.raises(NotApplicable):
        models.SKI().sites(5)
    assert "SKI" not in {o.model for o in advise(n=10_000, d=5, kernel=RBF()).suited}


def test_costs_grow_with_rows_and_print_as_a_table() -> None:
    for name in costs.TERMS:
        for cost in (costs.seconds, costs.memory):
            assert cost(name, 10_000, 2) > cost(name, 5_000, 2) > 0
    advice = advise(n=10_000, d=2)
    lines = str(advice).splitlines()
    assert lines[0].split() == ["model", "suits", "seconds", "memory", "reason"]
    assert len(lines) == 2 + len(EVERY) == 2 + len(advice.to_frame())
    words = [about(x) for x in (math.nan, 0.21, 3.6, 40.0, 187.0, 3 * 3600.0, 30 * 86400.0)]
    assert words == ["-", "0.2 s", "4 s", "40 s", "3 min", "3 h", "30 days"]


def test_sentences_name_what_suits() -> None:
    assert instead_of("SKI", 6) == "fit GP(kernel), or Vecchia(kernel) to more than 5,000 rows"
    counts = instead_of("GP", 3, 20_000, likelihood=likelihoods.Poisson())
    svgp = "SVGP(kernel, likelihood=...) by SVI(batch_size=1000)"
    assert counts == f"fit Vecchia(kernel, likelihood=...), or {svgp}"
    with pytest.raises(SettingError, match=r"one column of X.*got 2 columns.*GP\(kernel\)"):
        ppgp.fit(models.StateSpaceGP(), table(), progress=False)
    of_counts = models.StateSpaceGP(likelihood=likelihoods.Poisson())
    with pytest.raises(SettingError, match=r"2 columns.*GP\(kernel, likelihood=\.\.\.\)"):
        of_counts.sites(2)
    many = table(5_001)
    with pytest.warns(DataWarning, match=r"Kriging of 5,001 rows.*fit Vecchia\(kernel\)"):
        models.Kriging().prepare(many)


@pytest.mark.parametrize(
    "given", [{}, {"n": 5}, {"n": 0, "d": 2}, {"n": 9, "d": 2, "smoothness": 0}]
)
def test_what_is_no_size_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=r"advise|at least one|smoothness"):
        advise(**given)
    with pytest.raises(SettingError, match="or the numbers"):
        advise(table(), n=5, d=2)


def test_the_command_line_fits_the_models_that_suit() -> None:
    usual = "map,nuts"
    plan = advised_models(table(), None, None, usual)
    assert [*plan] == ["gp", "vecchia", "ski"]
    assert plan["gp"] == ["map", "nuts"]
    assert advised_models(table(), None, "svi", usual)["gp"] == ["svi"]
    labels = [f"class {i % 3}" for i in range(60)]
    assert advised_models(Dataset(table().X, labels), None, None, usual) == {
        "SVGP(ARD(RBF()), likelihood=Categorical())": ["svi"]
    }
    labels = [f"class {i % 2}" for i in range(60)]
    states = "StateSpaceGP(likelihood=Bernoulli())"
    assert next(iter(advised_models(Dataset(table(d=1).X, labels), None, None, usual))) == states
    assert build_model(states) == models.StateSpaceGP(likelihood=likelihoods.Bernoulli())
    with pytest.raises(NotApplicable, match="--models linear"):
        advised_models(table(offset=torch.ones(60)), None, None, usual)
    assert [*advised_models(table(), "poisson", None, usual)] == ["gp", "vecchia", "svgp"]


def test_docs_contents_has_the_table_of_the_function() -> None:
    advice = tool("advice")
    same = advice.tables_of_docs.in_docs(advice.NAME) == advice.table()
    assert same, "run make tables: docs/contents.md does not have the table of the advice"


def test_slow_methods_are_left_out_where_they_would_take_long() -> None:
    times = torch.linspace(0, 1, 1600, dtype=torch.float64)[:, None]
    series = Dataset(times, times[:, 0])
    assert advised_models(series, None, None, "map,nuts")["state-space"] == ["map"]
    assert advised_models(series, None, "nuts", "map,nuts")["state-space"] == ["nuts"]
    few = advised_models(series.rows(torch.arange(0, 1600, 16)), None, None, "map,nuts")
    assert few["state-space"] == ["map", "nuts"]


def test_whole_numbers_are_said_to_look_like_counts() -> None:
    data = table()
    counts = Dataset(data.X, torch.arange(60) % 7)
    assert "likelihoods.Poisson()" in str(advise(counts))
    assert not advise(counts, likelihood=likelihoods.Poisson()).note
    assert not advise(data).note
    assert not advise(Dataset(data.X, torch.arange(60) % 2)).note
