"""Print the templates of all sentences in ppgp: texts of messages, with {} for what they fill in.

    python tests/tools/messages.py            # of this checkout
    python tests/tools/messages.py FOLDER     # of another one, such as an earlier commit

A template is a string of two or more words that is no docstring. ``diff`` compares two lists.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


def docstrings(tree: ast.Module) -> set[int]:
    """Return the ids of the nodes of strings that stand alone, as docstrings do."""
    return {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def template(node: ast.expr) -> str | None:
    """Return the text of a string with {} for each expression in it; None for other nodes."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if not isinstance(node, ast.JoinedStr):
        return None
    parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return "".join(map(str, parts))


def templates(text: str) -> Iterator[str]:
    """Yield the templates of a module, in no order."""
    tree = ast.parse(text)
    left_out = docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            left_out |= {id(part) for part in node.values}
    for node in ast.walk(tree):
        if not isinstance(node, ast.expr) or id(node) in left_out:
            continue
        found = template(node)
        if found is not None and len(found.split()) > 1:
            yield " ".join(found.split())


def of_package(root: Path) -> set[str]:
    """Return the templates of all modules of a checkout."""
    files = (root / "ppgp").rglob("*.py")
    return {found for file in files for found in templates(file.read_text())}


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    print("\n".join(sorted(of_package(folder))))
