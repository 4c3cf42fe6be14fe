"""The names of attributes in the pages, notebooks and examples that users read."""

from __future__ import annotations

import ast
import doctest
import functools
import importlib
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path

from public_names import public_names

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```.*?\n(.*?)^```", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`([^`\n]+)`")


@functools.cache
def used_names() -> frozenset[str]:
    """Return every name that stands after a dot in code of these texts."""
    return frozenset(name for code in _pieces() for name in attributes(code))


def attributes(code: str) -> set[str]:
    """Return the names after a dot: of Python where it can be parsed, else of any text."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError):
        return set(re.findall(r"\.([a-zA-Z_]\w*)", code))
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def _pieces() -> Iterator[str]:
    """Yield pieces of code."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        yield from _of_page(path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            text = "".join(cell["source"])
            yield from [text] if cell["cell_type"] == "code" else _of_page(text)
    for path in sorted((ROOT / "notebooks" / "gallery").glob("*.py")):
        yield path.read_text(encoding="utf-8")
    for name in public_names():
        module, _, last = name.rpartition(".")
        text = inspect.getdoc(getattr(importlib.import_module(module), last)) or ""
        yield from (one.source for one in doctest.DocTestParser().get_examples(text))


def _of_page(text: str) -> list[str]:
    """Return the blocks and the inline code of a page in Markdown."""
    return [*BLOCK.findall(text), *CODE.findall(BLOCK.sub("", text))]
