"""What to say of a text that is neither a known name nor a recipe."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..errors import PpgpError, UnknownName, an

__all__ = ["OtherKind", "unknown_recipe"]


class OtherKind(UnknownName):
    """A name is known, but as that of something else.

    Args:
        kind: What it should name.
        name: The name.
        other: What it names.
        known: The names of the right kind.
    """

    def __init__(self, kind: str, name: str, other: str, known: Mapping[str, object]) -> None:
        got, do = f"{name!r}, {an(other)}", f"name one of {', '.join(known)}"
        PpgpError.__init__(self, f"the name of {an(kind)}", got, do)


class NoCall(UnknownName):
    """A recipe has no parentheses."""

    def __init__(self, kind: str, text: str) -> None:
        do = "write a call with parentheses, as in GP(RBF())"
        PpgpError.__init__(self, f"the name of {an(kind)}, or its recipe", repr(text), do)


def unknown_recipe(kind: str, text: str, tables: Mapping[str, Mapping[str, object]]) -> UnknownName:
    """Return the error for a text without parentheses that is no name of its kind.

    Args:
        kind: What it should name, a key of ``tables``.
        text: The text.
        tables: The known names of each kind.
    """
    for other, names in tables.items():
        if text in names:
            return OtherKind(kind, text, other, tables[kind])
    if not re.fullmatch(r"[\w .-]*", text):
        return NoCall(kind, text)
    return UnknownName(kind, text, tables[kind])
