"""Print the templates of all sentences in ppgp: texts of messages, with {} for what they fill in.

    python tests/tools/messages.py                     # of this checkout
    python tests/tools/messages.py FOLDER              # of another one, such as an earlier commit
    python tests/tools/messages.py --not-in EXECUTED   # those of lines that no test executes

A template is a string of two or more words that is no docstring. ``diff`` compares two lists.
EXECUTED is what the suites write, with Python 3.12:

    export PPGP_EXECUTED=/tmp/executed.txt PYTHONPATH=tests/tools/executed
    python -m pytest -m "not slow"; python -m pytest -m slow

tests/unraised_messages.txt holds the last list of those that no test executes.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

Lines = dict[str, set[int]]


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


def templates(text: str) -> Iterator[tuple[str, range]]:
    """Yield the templates of a module with the lines of their statements, in no order."""
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
            assert node.end_lineno is not None
            yield " ".join(found.split()), range(node.lineno, node.end_lineno + 1)


def of_package(root: Path) -> set[str]:
    """Return the templates of all modules of a checkout."""
    files = (root / "ppgp").rglob("*.py")
    return {found for file in files for found, _ in templates(file.read_text(encoding="utf-8"))}


def executed_lines(file: Path) -> Lines:
    """Return {path of a module below ppgp/: its lines that were executed}."""
    lines: Lines = {}
    for entry in file.read_text(encoding="utf-8").splitlines():
        path, _, line = entry.rpartition(":")
        lines.setdefault(path, set()).add(int(line))
    return lines


def not_executed(root: Path, executed: Lines) -> set[str]:
    """Return the templates of which no line was executed, where the template stands only once."""
    package = root / "ppgp"
    missed, reached = set(), set()
    for file in package.rglob("*.py"):
        lines = executed.get(str(file.relative_to(package)), set())
        for found, place in templates(file.read_text(encoding="utf-8")):
            (missed if lines.isdisjoint(place) else reached).add(found)
    return missed - reached


def main(arguments: list[str]) -> None:
    """Print the templates that the arguments ask for."""
    if arguments[:1] == ["--not-in"]:
        found = not_executed(ROOT, executed_lines(Path(arguments[1])))
    else:
        found = of_package(Path(arguments[0]) if arguments else ROOT)
    print("\n".join(sorted(found)))


if __name__ == "__main__":
    main(sys.argv[1:])
