"""Attributes of classes that a type checker would not accept as they are written usually."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar, cast

T = TypeVar("T")


def computed(getter: Callable[[Any], T]) -> T:
    """Return a property that stands in for a constant of the parent class.

    To a type checker ``flag = computed(_flag)`` is a value of what ``_flag`` returns. A property
    would not be accepted where the parent class has a ``ClassVar``.
    """
    return cast(T, property(getter))


def computed_once(getter: Callable[[Any], T]) -> T:
    """Return ``computed`` of a value that the object keeps."""
    return cast(T, cached_property(getter))


def set_attributes(made: type | Callable[..., Any], **values: Any) -> None:
    """Set attributes of a class or a function that has been made, as decorators do."""
    for name, value in values.items():
        setattr(made, name, value)


#: metadata of a field that says how a run is carried out, which its results do not depend on:
#: files and fingerprints leave it out
OF_THE_RUN = {"of_the_run": True}
