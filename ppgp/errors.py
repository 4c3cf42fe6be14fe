"""Errors and warnings of the library, and helpers that word their messages.

Every error message states what was expected, what was given, and what the user can do about it.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from .overrides import set_attributes

C = TypeVar("C", bound=type)

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


class PpgpError(Exception):
    """The base class of all errors of this library.

    The message is "expected ..., got ...: ...".

    Attributes:
        expected: What the library expected.
        got: What it was given.
        do: What the user can do about it.
    """

    def __init__(self, expected: str, got: str, do: str) -> None:
        super().__init__(f"expected {expected}, got {got}: {do}")
        self.expected, self.got, self.do = expected, got, do

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickling, so that the error can be sent between processes."""
        return _unpickled, (type(self), self.expected, self.got, self.do)


def _unpickled(kind: type[PpgpError], expected: str, got: str, do: str) -> PpgpError:
    """Return an error of class ``kind`` from the parts of its message."""
    # the __new__ of MemoryError rejects the classes that derive from it and PpgpError
    error = BaseException.__new__(kind)
    PpgpError.__init__(error, expected, got, do)
    return error


class DataError(PpgpError, ValueError):
    """The data cannot be used: they hold NaN or text, have a wrong shape, or have no rows."""


class SettingError(PpgpError, ValueError):
    """An option has a value outside its range.

    Examples are a level of 95, a negative scale, or a mini-batch larger than the data.
    """


class UnknownName(PpgpError, LookupError):
    """A name is not in the list of known names.

    The message shows the list and the most similar name in it.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        known = list(known)
        near = nearest(str(name), known)  # a user may pass a number in place of a name
        hint = "known"
        if near is not None:
            hint = f"did you mean {near!r}? known"
        super().__init__(
            f"the name of {an(kind)}", repr(name), f"{hint}: {', '.join(known) or 'none'}"
        )


class UnknownArgument(UnknownName, TypeError):
    """A constructor has no argument of this name; the message offers the most similar one."""


class NotApplicable(PpgpError, TypeError):
    """The operation is impossible for this model; the message names one that supports it."""


class NotKnown(NotApplicable, AttributeError):
    """The object does not have the requested quantity.

    It is an AttributeError too, so that ``hasattr`` returns False and ``getattr`` its default.
    """


class StorageError(PpgpError, ValueError):
    """A file cannot be read or written.

    It was not written by this library, needs a class that the library may not load, or the
    operating system refuses to write it.
    """


class NumericalError(PpgpError, ArithmeticError):
    """A computation failed; the message names the rows or hyperparameters at fault."""


class ImproperPosterior(NumericalError):
    """The posterior density does not integrate to a finite number, so it cannot be sampled."""


class NotEnoughMemory(PpgpError, MemoryError):
    """The computation needs more memory than is available.

    The message gives both amounts and says what would fit.
    """


class LostRank(PpgpError, ConnectionError):
    """A process of a team has ended, or does not answer in time; the message names its rank.

    Args:
        ranks: The numbers of the lost processes; empty if they are not known.
        size: The number of processes of the team.
        step: How many steps of the fit were complete; None if it is not known.
        checkpoint: The file from which the same call continues; None if there is none.
    """

    def __init__(
        self,
        ranks: Sequence[int],
        size: int,
        step: int | None = None,
        checkpoint: str | None = None,
    ) -> None:
        self.ranks, self.size, self.step, self.checkpoint = list(ranks), size, step, checkpoint
        who = listed(self.ranks, "rank") if ranks else "a rank"
        when = "" if step is None else f" after step {step}"
        do = "call fit, predict and save on every rank; if a process was killed, start all again"
        if checkpoint is not None:
            do = f"start all processes again: they continue from {checkpoint}"
        super().__init__(f"an answer from all {size} ranks", f"none from {who}{when}", do)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.ranks, self.size, self.step, self.checkpoint)

    def at(self, step: int | None = None, checkpoint: str | None = None) -> LostRank:
        """Return the error with the step and the checkpoint of the fit, as far as known."""
        step = self.step if step is None else step
        checkpoint = self.checkpoint if checkpoint is None else checkpoint
        return LostRank(self.ranks, self.size, step, checkpoint)


class PpgpWarning(UserWarning):
    """The base class of all warnings of this library."""


class DataWarning(PpgpWarning):
    """The data can be used, but something in them should be checked."""


class NumericalWarning(PpgpWarning):
    """A computation needed a remedy, such as jitter or eager evaluation.

    The message states the remedy and its size.
    """


class StorageWarning(PpgpWarning):
    """An intermediate file could not be written; the computation continues without it."""


class ConvergenceWarning(PpgpWarning):
    """An inference method stopped before its result can be trusted."""


class Renamed:
    """A descriptor for the former name of an attribute.

    Access works, with a FutureWarning that states the new name.

    Args:
        new: The current name of the attribute.
    """

    def __init__(self, new: str) -> None:
        self.new = new

    def __set_name__(self, owner: type, name: str) -> None:
        self.old = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        _warn_renamed(type(instance).__name__, self.old, self.new)
        return getattr(instance, self.new)


class Elsewhere:
    """An attribute that other libraries have: AttributeError tells what to write here.

    Args:
        instead: What to write.
    """

    def __init__(self, instead: str) -> None:
        self.instead = instead

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        kind = owner.__name__ if owner is not None else type(instance).__name__
        raise AttributeError(f"{kind!r} has no attribute {self.name!r}: write {self.instead}")


class NamedArguments:
    """The base of records whose constructors offer the nearest name for one that they lack."""

    if not TYPE_CHECKING:  # a type checker reads the arguments of the subclass

        def __new__(cls, /, *positional: Any, **given: Any) -> Any:
            """Return an object, after a check of the names of the arguments.

            Raises:
                UnknownArgument: If the constructor has no argument of a name.
            """
            if given:
                check_names_of_arguments(cls, given)
            return super().__new__(cls)


def check_names_of_arguments(kind: type, given: Iterable[str]) -> None:
    """Check that the constructor of a class takes the arguments of these names.

    Raises:
        UnknownArgument: If it has no argument of a name.
    """
    shown = vars(kind).get("__signature__")  # with arguments of __new__ alone
    parameters = (shown or inspect.signature(kind.__init__)).parameters
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
        return
    own = [name for name in parameters if name != "self"]
    former = {*getattr(kind, "renamed_fields", ()), *getattr(kind, "removed_fields", ())}
    for name in given:
        if name not in own and name not in former:
            raise UnknownArgument(f"argument of {kind.__name__}", name, own)


def renamed_arguments(**names: str) -> Any:
    """Return a class decorator that accepts former names of constructor arguments.

    ``old="new"`` lets the constructor take the keyword ``old``, with a FutureWarning. A saved file
    that holds the old field can be opened too.
    """

    def decorate(kind: C) -> C:
        constructor = kind.__init__

        @functools.wraps(constructor)
        def with_old_names(self: Any, *positional: Any, **given: Any) -> None:
            for old in names.keys() & given.keys():
                _warn_renamed(kind.__name__, old, names[old])
                given[names[old]] = given.pop(old)
            constructor(self, *positional, **given)

        set_attributes(kind, __init__=with_old_names, renamed_fields=names)
        return kind

    return decorate


def removed_arguments(**advice: str) -> Callable[[C], C]:
    """Return a class decorator that refuses former arguments of a constructor.

    ``old="what to do"`` makes the constructor raise NotApplicable with that advice for the keyword
    ``old``. A saved file that holds the old field is opened without it.
    """

    def decorate(kind: C) -> C:
        constructor = kind.__init__

        @functools.wraps(constructor)
        def without_old_names(self: Any, *positional: Any, **given: Any) -> None:
            for old in advice.keys() & given.keys():
                name = kind.__name__
                raise NotApplicable(f"{an(name)} without {old}", f"{name}({old}=...)", advice[old])
            constructor(self, *positional, **given)

        set_attributes(kind, __init__=without_old_names, removed_fields=frozenset(advice))
        return kind

    return decorate


def take_renamed_method(kind: type, old: str, new: str) -> None:
    """Let a user's subclass define a method by its former name, with a FutureWarning.

    Args:
        kind: The subclass, which gets the method by its new name as well.
        old: The former name of the method.
        new: The current name of the method.
    """
    own = vars(kind)
    if old in own and new not in own and not isinstance(own[old], Renamed):
        _warn_renamed(kind.__name__, old, new)
        setattr(kind, new, own[old])


def _warn_renamed(owner: str, old: str, new: str) -> None:
    message = f"{owner}.{old} is now {new}; the old name will be removed in the next version"
    warnings.warn(message, FutureWarning, stacklevel=3)
