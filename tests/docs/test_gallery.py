"""The gallery: ten tasks, each in at most twelve lines besides its imports."""

from __future__ import annotations

import ast
from pathlib import Path

import forked
import pytest

GALLERY = sorted((Path(__file__).parents[2] / "notebooks" / "gallery").glob("[0-9]*.py"))
MOST_LINES = 12

each = pytest.mark.parametrize("source", GALLERY, ids=lambda path: path.stem)


def test_there_are_ten_tasks() -> None:
    assert len(GALLERY) == 10


@each
def test_a_task_takes_few_lines_and_ends_in_a_check(source: Path) -> None:
    """Blank lines, comments, imports and the docstring do not count."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    title, *rest = tree.body
    steps = [node for node in rest if not isinstance(node, ast.Import | ast.ImportFrom)]
    text = source.read_text(encoding="utf-8").splitlines()
    taken = [line for node in steps for line in text[node.lineno - 1 : node.end_lineno]]
    assert ast.get_docstring(tree)
    assert isinstance(title, ast.Expr)
    assert isinstance(steps[-1], ast.Assert)
    assert len([line for line in taken if line.strip()]) <= MOST_LINES


@pytest.mark.slow
@each
def test_a_task_runs_to_its_check(source: Path, tmp_path: Path) -> None:
    done = forked.run(source.read_text(encoding="utf-8"), cwd=tmp_path, seconds=1500)
    assert done.returncode == 0, done.stderr
