"""The docstring of every public name: shapes, units, errors, source and an example that runs."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

ROOT = Path(__file__).parents[2]
REFERENCE: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "extensions" / "public_names.py"))
#: lines ``name: part part``, the parts that do not apply to a name
WITHOUT = Path(__file__).with_name("parts_that_do_not_apply.txt")
PARTS = {
    "shapes": re.compile(r"\[[\w*, +./-]+\]"),
    "units": re.compile(
        r"\bunits?\b|\bnats\b|\bprobabilit|\bseconds\b|\bstandard deviations\b|\bdimensionless\b"
    ),
    "errors": re.compile(r"^\s*Raises:", re.MULTILINE),
    "source": re.compile(r"\b(1[789]|20)\d\d\b"),
    "example": re.compile(r"^\s*>>> .*\n(?:\s*(?:>>>|\.\.\.) .*\n)*\s*[^\s>.]", re.MULTILINE),
}
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def names() -> list[str]:
    """Return every public name once, without modules and aliases."""
    aliases = REFERENCE["aliases"]()
    return [
        name
        for name in REFERENCE["public_names"]()
        if name not in aliases and callable(found(name)) and not inspect.ismodule(found(name))
    ]


def found(name: str) -> Any:
    """Return the object of a name, such as ``ppgp.kernels.RBF``."""
    return getattr(importlib.import_module(name.rpartition(".")[0]), name.rpartition(".")[2])


def not_applicable() -> dict[str, set[str]]:
    """Return {name: the parts that do not apply to it}."""
    lines = [line for line in WITHOUT.read_text().splitlines() if line and line[0] != "#"]
    return {name: set(parts.split()) for name, parts in (line.split(":") for line in lines)}


def example_of(name: str) -> doctest.DocTest:
    text = inspect.getdoc(found(name)) or ""
    return doctest.DocTestParser().get_doctest(text, {}, name, None, 0)


def failures(example: doctest.DocTest) -> list[str]:
    """Return what an example prints where it differs from its docstring."""
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)
    runner.run(example, out=said.append)
    return said


@pytest.fixture(autouse=True)
def folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run examples in an empty folder, without a window."""
    monkeypatch.chdir(tmp_path)
    before = mpl.get_backend()
    mpl.use("Agg")
    yield
    importlib.import_module("matplotlib.pyplot").close("all")
    mpl.use(before)


@pytest.mark.parametrize("name", names())
def test_a_docstring_has_every_part_that_applies(name: str) -> None:
    text = (inspect.getdoc(found(name)) or "") + "\n"
    words = text.partition("Examples:\n")[0]  # a list in an example is no shape
    where = dict.fromkeys(PARTS, words) | {"example": text}
    missing = {part for part, pattern in PARTS.items() if not pattern.search(where[part])}
    assert missing == not_applicable().get(name, set())


def test_the_table_of_parts_that_do_not_apply_names_public_names() -> None:
    assert not set(not_applicable()) - set(names())
    assert not any("example" in parts for parts in not_applicable().values())


@pytest.mark.parametrize("name", names())
def test_an_example_prints_what_its_docstring_says(name: str) -> None:
    example = example_of(name)
    assert example.examples
    said = failures(example)
    assert not said, "".join(said)


@pytest.mark.parametrize("name", [n for n in names() if inspect.isfunction(found(n))])
def test_the_example_of_a_function_that_returns_none_fails(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    function, example = found(name), example_of(name)  # the function that takes its place has none
    places = {name.rpartition(".")[0], *_places_of(function)}
    for place in places:
        monkeypatch.setattr(f"{place}.{function.__name__}", lambda *_, **__: None)
    assert failures(example)


def _places_of(function: Any) -> list[str]:
    """Return the public modules that hold a function: itself may have an alias in ``ppgp``."""
    modules = ["ppgp", *(f"ppgp.{module}" for module in REFERENCE["modules"]())]
    name = function.__name__
    return [m for m in modules if vars(importlib.import_module(m)).get(name) is function]
