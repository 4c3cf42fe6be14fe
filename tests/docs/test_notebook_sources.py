"""The notebooks hide no warning without naming it, and their lines fit a page."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import jupytext
import pytest

WIDEST = 100  # characters
SOURCES = sorted((Path(__file__).parents[2] / "notebooks").glob("[0-9]*.py"))


def blanket_filters(source: str) -> list[str]:
    """Return the calls that ignore warnings whatever they say."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = ast.unparse(node.func).rpartition(".")[2]
        if name not in ("filterwarnings", "simplefilter"):
            continue
        ignores = ast.unparse(node.args[0]) in ("'ignore'", '"ignore"')
        messages = [k for k in node.keywords if k.arg == "message"]
        if ignores and not messages:
            found.append(ast.unparse(node))
    return found


def lines_of(built: Any) -> list[str]:
    """Return all lines of the cells of a notebook and of the text that they print."""
    texts = []
    for cell in built.cells:
        texts.append(cell.source)
        for output in cell.get("outputs", []):
            texts.append(output.get("text", ""))
            texts.append(output.get("data", {}).get("text/plain", ""))
    return [line for text in texts for line in text.splitlines()]


@pytest.mark.parametrize(
    "call",
    [
        'warnings.filterwarnings("ignore")',
        'warnings.filterwarnings("ignore", category=UserWarning)',
        "warnings.simplefilter('ignore')",
        'simplefilter("ignore", UserWarning)',
    ],
)
def test_a_blanket_filter_is_found(call: str) -> None:
    assert len(blanket_filters(f"import warnings\n{call}\n")) == 1


def test_a_filter_of_one_sentence_is_none() -> None:
    assert blanket_filters('warnings.filterwarnings("ignore", message="labels switched")') == []


@pytest.mark.parametrize("source", SOURCES, ids=lambda p: p.stem)
def test_a_notebook_hides_no_warning_that_it_does_not_name(source: Path) -> None:
    assert blanket_filters(source.read_text()) == []


@pytest.mark.parametrize("source", SOURCES, ids=lambda p: p.stem)
def test_the_lines_of_a_notebook_fit_a_page(source: Path) -> None:
    lines = lines_of(jupytext.read(source.with_suffix(".ipynb")))
    assert [line for line in lines if len(line) > WIDEST] == []
