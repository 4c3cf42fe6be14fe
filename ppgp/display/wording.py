"""Words of messages: articles, plurals, lists, and the known name nearest to a misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

VOWELS = ("a", "e", "i", "o", "u")
FEWEST_LETTERS = 3  # of a name that may be the beginning of another
CONSONANT_SOUNDS = ("one", "uni", "use", "eu")  # begin with a vowel letter, not a vowel sound


def an(words: str) -> str:
    """Return the words with their indefinite article: "an option", "a unit"."""
    start = words.lstrip("'\"").lower()
    if start.startswith(VOWELS) and not start.startswith(CONSONANT_SOUNDS):
        return f"an {words}"
    return f"a {words}"


def counted(n: int, noun: str) -> str:
    """Return a number with its noun, in the plural where needed: "1 row", "2 rows"."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def counted_are(n: int, noun: str) -> str:
    """Return a number, its noun and the verb "to be": "1 row is", "2 rows are"."""
    verb = "is" if n == 1 else "are"
    return f"{counted(n, noun)} {verb}"


def listed(items: Sequence[Any], noun: str, limit: int = 5) -> str:
    """Return a noun with the first items: "row 3", "rows 1, 2, 3, 4, 5, ... (7 in all)".

    Args:
        items: The items to name.
        noun: What one item is called, in the singular.
        limit: The largest number of items to name.
    """
    shown = ", ".join(map(str, items[:limit]))
    if len(items) > limit:
        shown += f", ... ({len(items)} in all)"
    if len(items) > 1:
        noun += "s"
    return f"{noun} {shown}"


def nearest(name: str, known: Iterable[str], likeness: float = 0.4) -> str | None:
    """Return the known name that is most similar to ``name``, ignoring case.

    The shortest name that begins with ``name`` comes first: "abs" is "absolute" cut short.

    Args:
        name: The name to look for.
        known: The names to compare it with.
        likeness: The smallest similarity ratio of ``difflib`` that counts as a match, in [0, 1].

    Returns:
        The most similar name, or None if no name is similar enough.
    """
    by_folded_name: dict[str, str] = {}
    for one in known:
        by_folded_name.setdefault(one.casefold(), one)
    folded = name.casefold()
    longer = [one for one in by_folded_name if one.startswith(folded)]
    if len(folded) >= FEWEST_LETTERS and longer:
        return by_folded_name[min(longer, key=len)]
    near = difflib.get_close_matches(folded, by_folded_name, n=1, cutoff=likeness)
    if not near:
        return None
    return by_folded_name[near[0]]


def own_class(family: type, name: str) -> str | None:
    """Return the name of this library's subclass of ``family`` that matches ``name``.

    Case is ignored, and subclasses are searched at every depth.

    Returns:
        The name of the class as it is spelled, or None if there is no such class.
    """
    subclasses = family.__subclasses__()
    for kind in subclasses:
        from_library = kind.__module__.partition(".")[0] == __name__.partition(".")[0]
        if from_library and kind.__name__.casefold() == name.casefold():
            return kind.__name__
    for kind in subclasses:
        match = own_class(kind, name)
        if match:
            return match
    return None
