"""Capabilities: a model has one if, and only if, its class inherits it and its options allow it."""

from __future__ import annotations

import inspect

import pytest
from tool_modules import tool

import ppgp
from ppgp import capabilities, models
from ppgp.capabilities import (
    Capability,
    Components,
    LeaveOneOut,
    require,
    supports,
)
from ppgp.errors import NotApplicable
from ppgp.kernels import RBF, Linear
from ppgp.models import GP, GaussianMixture, Model

KINDS = [
    kind for kind in map(vars(capabilities).get, capabilities.__all__) if inspect.isclass(kind)
]
KINDS = [kind for kind in KINDS if issubclass(kind, Capability) and kind is not Capability]
MODELS = [kind for kind in map(vars(models).get, models.__all__) if inspect.isclass(kind)]
MODELS = [models.Multilevel, *(kind for kind in MODELS if issubclass(kind, Model))]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_method_comes_with_its_capability(kind: type[Capability]) -> None:
    """A model that defines the methods of a capability inherits it; or nothing calls them."""
    wanted = kind.__abstractmethods__
    assert wanted
    for model in MODELS:
        if all(callable(getattr(model, name, None)) for name in wanted):
            assert issubclass(model, kind), f"{model.__name__} defines {', '.join(wanted)}"
    assert any(issubclass(model, kind) for model in MODELS)


def test_options_decide() -> None:
    assert supports(GP(RBF() + Linear()), Components)
    assert not supports(GP(RBF()), Components)
    with pytest.raises(NotApplicable, match="RBF"):
        require(GP(RBF()), Components)


def test_a_field_of_the_same_name_is_no_capability() -> None:
    assert not supports(GaussianMixture(components=2), Components)
    with pytest.raises(NotApplicable, match="GaussianMixture"):
        require(GaussianMixture(components=2), Components)


def test_what_is_required_is_the_model_itself() -> None:
    model = GP()
    assert require(model, LeaveOneOut) is model


def test_a_program_has_none() -> None:
    from ppgp.models import Program

    with pytest.raises(NotApplicable, match="Pyro program"):
        require(Program(lambda: None), LeaveOneOut)
    assert not any(issubclass(Program, kind) for kind in KINDS)
    assert isinstance(Program(lambda: None), Model)
    assert ppgp.models.Model is Model


def test_docs_contents_has_the_table_of_the_classes() -> None:
    matrix = tool("matrix")
    same = matrix.tables_of_docs.in_docs(matrix.NAME) == matrix.table()
    assert same, "run make tables: docs/contents.md does not have the table of capabilities"
    named = set(matrix.CALLS.values())
    internal = ("FollowsFit", "SubsetModel", "WarmStart")
    asked_for_inside = {getattr(capabilities, name) for name in internal}
    assert named | asked_for_inside == set(KINDS)
