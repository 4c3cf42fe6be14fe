"""Names of arguments and attributes: misspelt, former, removed, and those of other libraries."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from .display.overrides import set_attributes
from .display.user_warnings import warn
from .display.wording import an
from .errors import NotApplicable, UnknownArgument

C = TypeVar("C", bound=type)


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
    warn(message, FutureWarning)
