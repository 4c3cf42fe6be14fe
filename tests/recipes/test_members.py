"""What ``ppgp list`` and the documentation show is what the families consist of."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tool_modules import tool

from ppgp.recipes import parsing as recipes
from ppgp.recipes.members import FILE, members

LIST = """
import sys
from ppgp.cli import main as cli
cli.app(["list"], standalone_mode=False)
heavy = {"torch", "pyro", "pandas", "scipy", "sklearn"} & set(sys.modules)
assert not heavy, heavy
"""


def test_the_file_is_that_of_the_classes() -> None:
    same = FILE.read_text(encoding="utf-8") == tool("members").stored()
    assert same, f"run make tables: the classes are not those of {FILE.name}"


def test_docs_contents_has_the_tables_of_the_classes() -> None:
    script = tool("members")
    same = script.tables_of_docs.in_docs(script.NAME) == script.tables()
    assert same, "run make tables: docs/contents.md does not have the tables of the classes"


def test_every_member_has_a_sentence() -> None:
    for family, entries in members().items():
        assert entries, family
        for name, member in entries.items():
            assert len(member.summary) > 5, name


def test_list_prints_every_member_and_does_not_import_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIST], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    named = [*recipes.MODELS.items(), *recipes.HOWS.items(), *recipes.SCORES.items()]
    texts = [part for name, (recipe, meaning) in named for part in (name, recipe, meaning)]
    parts = ("kernels", "networks", "means", "likelihoods", "learners", "experiments")
    shown = [text for family in parts for member in members()[family].values() for text in member]
    for text in (*texts, *shown):
        assert f" {text} " in done.stdout, text


@pytest.mark.parametrize("family", ["models", "methods", "scores"])
def test_every_member_that_needs_no_argument_has_a_name(family: str) -> None:
    named = {"models": recipes.MODELS, "methods": recipes.HOWS, "scores": recipes.SCORES}[family]
    classes = {recipe.partition("(")[0] for recipe, _ in named.values()}
    assert classes == {
        kind for kind, member in members()[family].items() if member.call.endswith("()")
    }


def test_a_new_member_is_named_as_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    from ppgp.recipes import members as module

    of_two = {"New": module.Member("New()", "new"), "Needy": module.Member("Needy(f)", "needs f")}
    monkeypatch.setattr(module, "members", lambda: {"models": of_two})
    assert module.named_recipes("models", {}) == {"new": ("New()", "new")}
    own = {"short": ("New()", ""), "long": ("New(2)", "of two")}
    assert module.named_recipes("models", own) == {
        "short": ("New()", "new"),
        "long": ("New(2)", "of two"),
    }
