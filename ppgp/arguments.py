"""Names of arguments and attributes: misspelt, and those of other libraries."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, TypeVar

from .display.overrides import set_attributes
from .errors import NotApplicable, UnknownArgument, an

C = TypeVar("C", bound=type)


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


def named_arguments(kind: C) -> C:
    """Let the constructors of a class and its subclasses offer the nearest name for a wrong one.

    A class attribute ``arguments_elsewhere`` is {name of what is not given to the constructor: what
    to write}. The decorator stands above ``dataclass``. The class attribute
    ``takes_named_arguments`` becomes True.
    """

    def new(cls: type, /, *positional: Any, **given: Any) -> Any:
        if given:
            check_names_of_arguments(cls, given)
        return object.__new__(cls)

    if "__init__" in vars(kind):  # help() shows the arguments of the constructor
        set_attributes(new, __signature__=inspect.signature(kind.__init__))
    set_attributes(kind, __new__=staticmethod(new), takes_named_arguments=True)
    return kind


def check_names_of_arguments(kind: type, given: Iterable[str]) -> None:
    """Check that the constructor of a class takes the arguments of these names.

    Raises:
        UnknownArgument: If it has no argument of a name.
        NotApplicable: If what it names is given elsewhere.
    """
    shown = vars(kind).get("__signature__")  # with arguments of __new__ alone
    parameters = (shown or inspect.signature(kind.__init__)).parameters
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
        return
    own = [name for name in parameters if name != "self"]
    elsewhere = getattr(kind, "arguments_elsewhere", {})
    for name in given:
        if name in elsewhere:
            got = f"{kind.__name__}({name}=...)"
            raise NotApplicable(f"{an(kind.__name__)} without {name}", got, elsewhere[name])
        if name not in own:
            raise UnknownArgument(f"argument of {kind.__name__}", name, own)
