"""Checks of the options of a record.

The annotation of each option states which values it may have, and one function checks them all.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from ..errors import SettingError, UnknownName, an

LARGEST = 2**31 - 1  # the largest number that every backend counts to
PACKAGE = __name__.partition(".")[0]
_REFUSED = object()
CHANGE = "change it"  # the advice where there is none of its own


@dataclass(frozen=True)
class Between:
    """Numbers strictly between ``low`` and ``high``; ``advice`` ends the error message."""

    low: float
    high: float
    advice: str = CHANGE

    def __contains__(self, value: float) -> bool:
        return self.low < value < self.high

    def __str__(self) -> str:
        if math.isinf(self.high):
            return f"a finite number above {self.low:g}"
        return f"a number between {self.low:g} and {self.high:g}"


@dataclass(frozen=True)
class Whole:
    """Whole numbers from ``low`` to ``high``; ``advice`` ends the error message."""

    low: int = 1
    high: int = LARGEST
    advice: str = CHANGE

    def __contains__(self, value: int) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        if self.high == LARGEST:
            return f"a whole number of at least {self.low}"
        return f"a whole number from {self.low} to {self.high}"


@dataclass(frozen=True)
class OneOf:
    """One of the ``words``."""

    words: tuple[str, ...]

    def __contains__(self, value: str) -> bool:
        return value in self.words

    def __str__(self) -> str:
        return "one of " + ", ".join(repr(word) for word in self.words)


Count = Annotated[int, Whole()]
Positive = Annotated[float, Between(0.0, math.inf)]
Share = Annotated[float, Between(0.0, 1.0)]
Acceptance = Annotated[float, Between(0.0, 1.0, "use 0.8, or 0.95 against divergences")]


def check_options(record: Any) -> None:
    """Check every field of a record against its annotation; convert NumPy's numbers to Python's.

    Raises:
        SettingError: For a value of another type, or outside its range.
        UnknownName: For a word that is not in its list.
    """
    for name, hint, default in _hints(type(record)):
        value = getattr(record, name)
        converted = _converted(value, hint)
        if converted is _REFUSED:
            _refuse(type(record).__name__, name, value, hint, default)
        if converted is not value:
            object.__setattr__(record, name, converted)


@cache
def _hints(kind: type) -> tuple[tuple[str, Any, Any], ...]:
    """Return name, annotation and default of every field.

    The fields of a user's record are not checked if its annotations cannot be resolved.
    """
    if not is_dataclass(kind):
        return ()
    try:
        hints = get_type_hints(kind, include_extras=True)
    except (NameError, TypeError):
        return ()
    return tuple((f.name, hints[f.name], f.default) for f in fields(kind))


def _converted(value: Any, hint: Any) -> Any:
    """Return the value with the type of the annotation, or _REFUSED."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None and types.NoneType in arguments:
            return None
        converted = (_converted(value, option) for option in arguments)
        return next((each for each in converted if each is not _REFUSED), _REFUSED)
    if origin is Annotated:
        inner = _converted(value, arguments[0])
        if inner is _REFUSED or inner not in arguments[1]:
            return _REFUSED
        return inner
    if origin in (Mapping, dict):
        return _mapping(value, arguments)
    if hint is bool:
        return bool(value) if isinstance(value, bool | np.bool_) else _REFUSED
    if hint in (int, float):
        return _number(value, hint)
    kind = origin or hint  # a type that needs no conversion
    if hint is None:
        fits = value is None
    elif kind is Callable:
        fits = callable(value)
    else:
        fits = hint is Any or not isinstance(kind, type) or isinstance(value, kind)
    return value if fits else _REFUSED


def _number(value: Any, hint: type) -> Any:
    """Return a finite number of Python, or _REFUSED."""
    if isinstance(value, np.integer | np.floating):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _REFUSED
    try:
        fits = isinstance(value, int) if hint is int else math.isfinite(value)
    except OverflowError:  # a whole number that no float holds
        fits = False
    return value if fits else _REFUSED


def _mapping(value: Any, arguments: tuple[Any, ...]) -> Any:
    """Return a mapping with converted keys and values, or _REFUSED; an empty one is refused."""
    if not isinstance(value, Mapping) or not value:
        return _REFUSED
    key, entry = arguments
    converted = {_converted(k, key): _converted(v, entry) for k, v in value.items()}
    if any(v is _REFUSED for pair in converted.items() for v in pair):
        return _REFUSED
    unchanged = all(converted[k] is v for k, v in value.items())
    return value if unchanged else converted


def _refuse(record: str, name: str, value: Any, hint: Any, default: Any) -> None:
    """Raise UnknownName for a word that is not in a list, SettingError for any other value."""
    lists = [each for each in _leaves(hint) if isinstance(each, OneOf)]
    if lists and isinstance(value, str):
        raise UnknownName(f"{name} of {record}", value, lists[0].words)
    ranges = (each for each in _leaves(hint) if isinstance(each, Between | Whole))
    advice = next((each.advice for each in ranges), CHANGE)
    if advice == CHANGE and default is None:
        advice = "leave it out, and the method chooses it"
    elif advice == CHANGE and default is not MISSING:
        advice = f"the default is {default!r}"
    if _is_own(value):
        advice = f"call it: {value.__name__}()"
    elif get_origin(hint) is tuple and isinstance(value, int | float | list) and value != []:
        entries = tuple(value) if isinstance(value, list) else (value,)
        advice = f"write {repr(entries)[:60]}"
    elif advice == CHANGE and _is_own(hint):
        advice = f"pass a member of {'.'.join(hint.__module__.split('.')[:2])}"
    wanted = _in_words(hint)
    if isinstance(value, int) and value > LARGEST:
        wanted += f", at most {LARGEST},"
    raise SettingError(f"{wanted} as {name} of {record}", repr(value)[:60], advice)


def _is_own(value: Any) -> bool:
    """Return whether a value or an annotation is a class of this library."""
    return isinstance(value, type) and value.__module__.startswith(f"{PACKAGE}.")


def _leaves(hint: Any) -> list[Any]:
    """Return every annotation and range inside an annotation."""
    inner = get_args(hint)
    return [hint, *(leaf for each in inner for leaf in _leaves(each))]


def _in_words(hint: Any) -> str:
    """Return an annotation in words."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        *others, last = (_in_words(option) for option in arguments)
        return f"{', '.join(others)} or {last}"
    if origin is Annotated:
        return str(arguments[1])
    if origin in (Mapping, dict):
        return f"a dict from {_in_words(arguments[0])} to {_in_words(arguments[1])}"
    if origin is tuple:
        return "a tuple"
    if origin is Callable or hint is Callable:
        return "a function"
    words = {
        int: "a whole number",
        float: "a finite number",
        str: "a word",
        bool: "True or False",
        types.NoneType: "None",
    }
    if _is_own(hint):
        return an(hint.__name__)
    return words.get(hint) or f"{getattr(hint, '__name__', hint)}"
