"""The pages of the reference show the signatures of records and the members that users call."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ppgp
from ppgp import kernels, models

EXTENSIONS = Path(__file__).parents[2] / "docs" / "extensions"


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The extension of the documentation, as Sphinx imports it."""
    pytest.importorskip("sphinx")
    monkeypatch.syspath_prepend(str(EXTENSIONS))
    yield importlib.import_module("reference")
    for name in ("names_in_pages", "public_names", "reference"):
        sys.modules.pop(name, None)


def names() -> dict[str, Any]:
    """Return the public names of the modules of the library, without those of the modules."""
    parts = (models, kernels, ppgp.likelihoods, ppgp.learners, ppgp.networks, ppgp.priors)
    return {name: getattr(part, name) for part in parts for name in part.__all__}


def test_the_default_of_a_factory_is_the_expression_that_makes_it(reference: Any) -> None:
    made = [
        reference.default_of(field)
        for name in models.__all__
        if dataclasses.is_dataclass(kind := getattr(models, name))
        for field in dataclasses.fields(kind)
        if field.init and field.default_factory is not dataclasses.MISSING
    ]
    assert len(made) > 10
    for default in made:
        assert repr(eval(reference.brief(default), names())) == repr(default)


def test_a_signature_has_expressions_as_defaults(reference: Any) -> None:
    shown = reference.with_defaults(models.SVGP, str(inspect.signature(models.SVGP)))
    assert "<factory>" not in shown
    assert "= RBF()" in shown
    assert "= Gaussian()" in shown
    stream = ppgp.data.Stream
    assert "= ..., rows" in reference.with_defaults(stream, str(inspect.signature(stream)))


def test_a_page_shows_what_users_call(reference: Any) -> None:
    assert all(reference.shown(ppgp.Dataset, name) for name in ("split", "from_frame", "to_frame"))
    hooks = ("with_numbers", "stands_for", "like", "content", "passed", "work", "worked_on_by")
    assert not any(reference.shown(ppgp.Dataset, name) for name in hooks)
    assert all(reference.shown(ppgp.Posterior, name) for name in ("predict", "certain"))
    assert reference.shown(models.GLM, "from_formula")
    assert not reference.shown(models.GP, "gaussian")
    assert not reference.shown(models.GP, "prepare")  # the page of Model has it
    assert reference.shown(models.Model, "prepare")
    assert not reference.shown(kernels.Matern, "state_space")


def test_the_members_that_are_named_exist(reference: Any) -> None:
    for kind, members in reference.WITH_HOOKS.items():
        assert all(hasattr(kind, name) for name in members)


def test_a_page_belongs_to_its_class(reference: Any) -> None:
    assert reference.class_of_page("api/ppgp.kernels.RBF") is kernels.RBF
    assert reference.class_of_page("api/ppgp.Dataset") is ppgp.Dataset
    assert reference.class_of_page("api/ppgp.kernels") is None
    assert reference.class_of_page("guide/sparse") is None


def test_the_docstring_of_a_method_loses_self(reference: Any) -> None:
    lines = ["Args:", "    self: The posterior,", "        fitted.", "    X: Rows.", "", "Returns:"]
    assert reference.without_self(lines) == ["Args:", "    X: Rows.", "", "Returns:"]
    alone = ["Return it.", "", "Args:", "    self: The table.", "", "Returns:", "    It."]
    assert reference.without_self(alone) == ["Return it.", "", "Returns:", "    It."]


def test_the_names_in_code_are_those_after_a_dot(reference: Any) -> None:
    attributes = importlib.import_module("names_in_pages").attributes
    assert attributes("data.split(0.5)\nsplit") == {"split"}
    assert attributes("$ python -m a.b") == {"b"}
