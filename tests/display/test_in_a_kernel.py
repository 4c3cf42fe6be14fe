"""A kernel of Jupyter: what it shows of each object, completes and writes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nouns import KINDS

START = """
import sys
sys.path.insert(0, {folder!r})
from nouns import nouns, posterior
things = nouns()
"""
PROGRESS = """
from ppgp.runtime.progress import bar
with bar("NUTS", 1000, True) as update:
    for step in range(37):
        update(step + 1, loss=0.5)
"""
COMPLETED = """
from IPython.core.completer import provisionalcompleter
model = things["GP"]
with provisionalcompleter():
    found = get_ipython().Completer.completions("model.", 6)
    print(sorted(each.text for each in found if not each.text.startswith("_")))
"""


@pytest.fixture(scope="module")
def cells() -> dict[str, list[Any]]:
    """Run one notebook, and return the outputs of its cells by name."""
    here = Path(__file__).parent
    root = str(here.parents[1])
    sources = {"start": START.format(folder=str(here))}
    sources |= {kind: f"things[{kind!r}]" for kind in KINDS}
    sources["coefficients"] = "posterior().coefficients()"
    sources |= {"progress": PROGRESS, "completed": COMPLETED}
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(source) for source in sources.values()]
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    client = NotebookClient(notebook, timeout=900, kernel_name="python3")
    client.execute(env={**os.environ, "PYTHONPATH": path})
    return {name: cell.outputs for name, cell in zip(sources, notebook.cells, strict=True)}


def shown(outputs: list[Any]) -> Any:
    return next(each.data for each in outputs if each.output_type == "execute_result")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_each_object_has_html_and_text(kind: str, cells: dict[str, list[Any]]) -> None:
    data = shown(cells[kind])
    assert "<table>" in data["text/html"]
    assert kind in data["text/html"]
    assert data["text/plain"]
    assert "<table" not in data["text/plain"]


@pytest.mark.slow
def test_coefficients_are_a_table(cells: dict[str, list[Any]]) -> None:
    assert "<th>bmi</th>" in shown(cells["coefficients"])["text/html"]


@pytest.mark.slow
def test_progress_ends_at_its_last_value(cells: dict[str, list[Any]]) -> None:
    written = [each.text for each in cells["progress"] if each.get("name") == "stderr"]
    widgets = [each for each in cells["progress"] if each.output_type == "display_data"]
    assert written or widgets  # a widget where ipywidgets is installed
    if written:
        assert "37/1000" in "".join(written).split("\r")[-1]
    assert not [each for each in cells["progress"] if each.get("name") == "stdout"]


@pytest.mark.slow
def test_completion_offers_no_hooks(cells: dict[str, list[Any]]) -> None:
    text = "".join(each.text for each in cells["completed"] if each.get("name") == "stdout")
    assert "'kernel'" in text
    assert "'log_evidence'" in text
    assert "prepare" not in text
    assert "sites_at" not in text
