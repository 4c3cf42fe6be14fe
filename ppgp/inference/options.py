"""The options of a record: what each may be is written in its annotation, and one function holds every record to it."""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from ..errors import SettingError, UnknownName

LARGEST = 2**31 - 1  # what every backend counts to
_REFUSED = object()


@dataclass(frozen=True)
class Between:
    """Numbers between two others, these left out."""

    low: float
    high: float
    advice: str = "change it"

    def __contains__(self, value: float) -> bool:
        return self.low < value < self.high

    def __str__(self) -> str:
        if math.isinf(self.high):
            return f"a finite number above {self.low:g}"
        return f"a number between {self.low:g} and {self.high:g}"


@dataclass(frozen=True)
class Whole:
    """Whole numbers from ``low`` to ``high``."""

    low: int = 1
    high: int = LARGEST
    advice: str = "change it"

    def __contains__(self, value: int) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        if self.high == LARGEST:
            return f"a whole number of at least {self.low}"
        return f"a whole number from {self.low} to {self.high}"


@dataclass(frozen=True)
class OneOf:
    """Words of a list."""

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
    """Hold every field of a record to its annotation; NumPy's numbers become Python's.

    Raises:
        SettingError: for a value of another type, or outside its range.
        UnknownName: for a word that is not in its list.
    """
    for name, hint in _hints(type(record)):
        value = getattr(record, name)
        fitting = _fitting(value, hint)
        if fitting is _REFUSED:
            _refuse(type(record).__name__, name, value, hint)
        if fitting is not value:
            object.__setattr__(record, name, fitting)


@cache
def _hints(kind: type) -> tuple[tuple[str, Any], ...]:
    """Name and annotation of every field; those of a user's record that cannot be looked up are not checked."""
    if not is_dataclass(kind):
        return ()
    try:
        hints = get_type_hints(kind, include_extras=True)
    except (NameError, TypeError):
        return ()
    return tuple((f.name, hints[f.name]) for f in fields(kind))


def _fitting(value: Any, hint: Any) -> Any:
    """The value as the annotation has it, or _REFUSED."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        found = (_fitting(value, option) for option in arguments)
        return next((each for each in found if each is not _REFUSED), _REFUSED)
    if origin is Annotated:
        inner = _fitting(value, arguments[0])
        return inner if inner is not _REFUSED and inner in arguments[1] else _REFUSED
    if hint is Any:
        return value
    if hint is None or hint is types.NoneType:
        return None if value is None else _REFUSED
    if hint is bool:
        return bool(value) if isinstance(value, bool | np.bool_) else _REFUSED
    if hint in (int, float):
        return _number(value, hint)
    if origin in (Mapping, dict):
        return _mapping(value, arguments)
    if origin is Callable or hint is Callable:
        return value if callable(value) else _REFUSED
    kind = origin or hint
    return value if not isinstance(kind, type) or isinstance(value, kind) else _REFUSED


def _number(value: Any, hint: type) -> Any:
    if isinstance(value, np.integer | np.floating):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _REFUSED
    if hint is int:
        return value if isinstance(value, int) else _REFUSED
    try:
        return value if math.isfinite(value) else _REFUSED
    except OverflowError:  # a whole number that no float holds
        return _REFUSED


def _mapping(value: Any, arguments: tuple[Any, ...]) -> Any:
    if not isinstance(value, Mapping) or not value:
        return _REFUSED
    key, entry = arguments
    found = {_fitting(k, key): _fitting(v, entry) for k, v in value.items()}
    if any(v is _REFUSED for pair in found.items() for v in pair):
        return _REFUSED
    return value if all(found[k] is v for k, v in value.items()) else found


def _refuse(record: str, name: str, value: Any, hint: Any) -> None:
    ranges = [each for each in _leaves(hint) if isinstance(each, OneOf)]
    if ranges and isinstance(value, str):
        raise UnknownName(f"{name} of {record}", value, ranges[0].words)
    advice = [each.advice for each in _leaves(hint) if isinstance(each, Between | Whole)]
    raise SettingError(
        f"{_said(hint)} as {name} of {record}", repr(value)[:60], (advice or ["change it"])[0]
    )


def _leaves(hint: Any) -> list[Any]:
    """Every annotation and range inside an annotation."""
    inner = get_args(hint)
    return [hint, *(leaf for each in inner for leaf in _leaves(each))] if inner else [hint]


def _said(hint: Any) -> str:
    """An annotation in words."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_said(option) for option in arguments)
    if origin is Annotated:
        return str(arguments[1])
    if origin in (Mapping, dict):
        return f"a mapping of {_said(arguments[0])} to {_said(arguments[1])}"
    if origin is Callable or hint is Callable:
        return "a function"
    words = {
        int: "a whole number",
        float: "a finite number",
        str: "a word",
        bool: "True or False",
        types.NoneType: "None",
    }
    return words.get(hint) or f"{getattr(hint, '__name__', hint)}"
