"""The mistakes a user can make, one class a kind; every message says what was expected, what came, what to do."""

from __future__ import annotations

import difflib
import functools
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

C = TypeVar("C", bound=type)

VOWELS = ("a", "e", "i", "o", "u")
SOUNDED = ("one", "uni", "use", "eu")  # which begin with the sound of a consonant


def an(words: str) -> str:
    """The words with their article: "an option", "a unit"."""
    start = words.lstrip("'\"").lower()
    return (
        f"an {words}"
        if start.startswith(VOWELS) and not start.startswith(SOUNDED)
        else f"a {words}"
    )


def counted(n: int, noun: str) -> str:
    """So many of them: "1 row", "2 rows"."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def counted_are(n: int, noun: str) -> str:
    """So many of them as a subject: "1 row is", "2 rows are"."""
    return f"{counted(n, noun)} {'is' if n == 1 else 'are'}"


def listed(items: Sequence[Any], noun: str, limit: int = 5) -> str:
    """Which of them: "row 3", "rows 1, 2", "rows 1, 2, 3, 4, 5, ... (7 in all)"."""
    shown = ", ".join(map(str, items[:limit])) + (
        f", ... ({len(items)} in all)" if len(items) > limit else ""
    )
    return f"{noun}{'s' if len(items) > 1 else ''} {shown}"


def nearest(name: str, known: Iterable[str], likeness: float = 0.4) -> str | None:
    """The known name that is most like this one, whatever their case; None where none is."""
    spelled: dict[str, str] = {}
    for one in known:
        spelled.setdefault(one.casefold(), one)
    near = difflib.get_close_matches(name.casefold(), spelled, n=1, cutoff=likeness)
    return spelled[near[0]] if near else None


def own_class(family: type, name: str) -> str | None:
    """What a class of this library in a family is called, whatever the case of ``name``; None where there is none."""
    below = family.__subclasses__()
    for kind in below:
        library = kind.__module__.partition(".")[0] == __name__.partition(".")[0]
        if library and kind.__name__.casefold() == name.casefold():
            return kind.__name__
    return next((found for kind in below if (found := own_class(kind, name))), None)


class PpgpError(Exception):
    """A mistake described in one sentence: what was expected, what came, what to do about it."""

    def __init__(self, expected: str, got: str, do: str) -> None:
        super().__init__(f"expected {expected}, got {got}: {do}")
        self.expected, self.got, self.do = expected, got, do

    def __reduce__(self) -> tuple[Any, ...]:
        """So that it comes out of another process as it went in."""
        return _again, (type(self), self.expected, self.got, self.do)


def _again(kind: type[PpgpError], expected: str, got: str, do: str) -> PpgpError:
    error = BaseException.__new__(
        kind
    )  # MemoryError has a __new__ of its own, which its subclasses do not take
    PpgpError.__init__(error, expected, got, do)
    return error


class DataError(PpgpError, ValueError):
    """The data cannot be used as they stand: NaN, wrong shape, strings, no rows."""


class SettingError(PpgpError, ValueError):
    """An option lies outside its range: a level of 95, a negative scale, a mini-batch larger than the data."""


class UnknownName(PpgpError, LookupError):
    """A name that is not in the list; the list, and the nearest name in it, are shown."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        known = list(known)
        near = nearest(name, known)
        hint = "known" if near is None else f"did you mean {near!r}? known"
        super().__init__(
            f"the name of {an(kind)}", repr(name), f"{hint}: {', '.join(known) or 'none'}"
        )


class NotApplicable(PpgpError, TypeError):
    """This model cannot do that; the message names the one that can."""


class NotKnown(NotApplicable, AttributeError):
    """This object does not know that figure, so that ``hasattr`` is False and ``getattr`` has its default."""


class StorageError(PpgpError, ValueError):
    """A file that this library did not write, that needs a class it may not look up, or that cannot be written."""


class NumericalError(PpgpError, ArithmeticError):
    """A computation broke down; the message names the rows or the hyperparameter that cause it."""


class ImproperPosterior(NumericalError):
    """The density does not fall off in some direction, so that there is no posterior to draw from."""


class NotEnoughMemory(PpgpError, MemoryError):
    """What was asked for needs more memory than there is; the message has both numbers and says what would fit."""


class PpgpWarning(UserWarning):
    """The parent of every warning of this library."""


class DataWarning(PpgpWarning):
    """The data can be used, but something in them deserves a look."""


class NumericalWarning(PpgpWarning):
    """A computation was helped along (jitter, an eager fallback); the message says by how much."""


class StorageWarning(PpgpWarning):
    """A file along the way could not be written, and the work goes on without it."""


class ConvergenceWarning(PpgpWarning):
    """An inference ended before its answer can be trusted."""


class Renamed:
    """The name that an attribute had in an earlier version: it works, with a FutureWarning that tells the new name."""

    def __init__(self, new: str) -> None:
        self.new = new

    def __set_name__(self, owner: type, name: str) -> None:
        self.old = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        _warn_renamed(type(instance).__name__, self.old, self.new)
        return getattr(instance, self.new)


def renamed_arguments(**names: str) -> Any:
    """A class decorator: ``old="new"`` lets the constructor take the old keyword, with a FutureWarning.

    A saved file that holds the old field opens as well.
    """

    def decorate(kind: C) -> C:
        constructor = kind.__init__

        @functools.wraps(constructor)
        def with_old_names(self: Any, *positional: Any, **given: Any) -> None:
            for old in names.keys() & given.keys():
                _warn_renamed(kind.__name__, old, names[old])
                given[names[old]] = given.pop(old)
            constructor(self, *positional, **given)

        kind.__init__ = with_old_names  # type: ignore[misc]  # a class is its own namespace
        kind.renamed_fields = names  # type: ignore[attr-defined]  # read where saved files are opened
        return kind

    return decorate


def take_renamed_method(kind: type, old: str, new: str) -> None:
    """Let a user's subclass that defines a method by its old name have it by the new one, with a FutureWarning."""
    own = vars(kind)
    if old in own and new not in own and not isinstance(own[old], Renamed):
        _warn_renamed(kind.__name__, old, new)
        setattr(kind, new, own[old])


def _warn_renamed(owner: str, old: str, new: str) -> None:
    message = f"{owner}.{old} is now {new}; the old name will be removed in the next version"
    warnings.warn(message, FutureWarning, stacklevel=3)
