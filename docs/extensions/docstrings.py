r"""Docstrings hold formulas as plain text, such as ``|x - x'|``; Sphinx reads marks of RST in them.

The marks ``|``, ``*`` and a final ``_`` are escaped outside literal text, before napoleon sees the
docstring.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

#: literal text or a role, which stay as they are, or a mark to escape
MARK = re.compile(r"(``.+?``|:[\w:]+:`[^`]+`|`[^`]+`)|([|*]|(?<=\w)_(?!\w))")


def escaped(text: str) -> str:
    """Return the text with its marks escaped, literal text apart."""
    return MARK.sub(lambda found: found[1] or "\\" + found[2], text)


def escape_paragraphs(lines: list[str]) -> list[str]:
    """Return the lines of a docstring with marks escaped outside literal text.

    Literal text may run over several lines of a paragraph. Blocks after ``::`` and examples, which
    start with ``>>>``, are left alone.
    """
    result: list[str] = []
    paragraph: list[str] = []
    literal_indent: int | None = None
    for line in [*lines, ""]:
        indent = len(line) - len(line.lstrip())
        if literal_indent is not None and line.strip() and indent <= literal_indent:
            literal_indent = None
        if literal_indent is not None:
            result.append(line)
        elif line.strip():
            paragraph.append(line)
        else:
            if paragraph and paragraph[-1].rstrip().endswith("::"):
                literal_indent = len(paragraph[-1]) - len(paragraph[-1].lstrip())
            result += _written(paragraph)
            result.append(line)
            paragraph = []
    return result


def _written(paragraph: list[str]) -> list[str]:
    """Return the lines of one paragraph, with their marks escaped unless it is an example."""
    if not paragraph or any(line.lstrip().startswith(">>>") for line in paragraph):
        return paragraph
    return escaped("\n".join(paragraph)).split("\n")


def process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Escape the marks of one docstring in place."""
    lines[:] = escape_paragraphs(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    """Come before napoleon, whose priority is 500."""
    app.connect("autodoc-process-docstring", process, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
