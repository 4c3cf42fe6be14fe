"""Recipes (models, kernels, ...) as HTML tables of their parts, priors and numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from .tables import page, table

__all__ = ["record_page"]

Line = tuple[str, str]
DEEPEST = 6  # parts inside parts


def record_page(record: Any, part: type, leaf: type) -> str:
    """Return the HTML of a recipe: one line per part, prior and number.

    Lines have the names of the sites where they describe one. A kernel that wraps another, such as
    ``ARD(RBF())``, is one part, as the names of its sites are.

    Args:
        record: A frozen record.
        part: The class of the records inside that are shown by their fields.
        leaf: The class of the records inside that are shown by their repr: priors.
    """
    name, _ = _unwrapped(record, part, leaf)
    return page(name, "", table(("", "value"), _lines(record, "", part, leaf, 0)))


def _lines(record: Any, path: str, part: type, leaf: type, depth: int) -> Iterator[Line]:
    """Yield a line per field of a record and of the records inside it."""
    for name, value in _unwrapped(record, part, leaf)[1]:
        place = f"{path}.{name}" if path else name
        if name == "children":
            named = [(f"{path}.{i}" if path else str(i), each) for i, each in enumerate(value)]
        else:
            named = [(place, value)]
        for where, each in named:
            if depth < DEEPEST and _is_part(each, part, leaf):
                yield where, _unwrapped(each, part, leaf)[0]
                yield from _lines(each, where, part, leaf, depth + 1)
            else:
                yield where, _text(each)


def _is_part(value: Any, part: type, leaf: type) -> bool:
    return isinstance(value, part) and is_dataclass(value) and not isinstance(value, leaf)


def _unwrapped(record: Any, part: type, leaf: type) -> tuple[str, list[tuple[str, Any]]]:
    """Return what a record is, and its fields; those of a kernel inside a kernel among them."""
    name = type(record).__name__
    own: list[tuple[str, Any]] = []
    if is_dataclass(record):
        own = [(f.name, getattr(record, f.name)) for f in fields(record) if f.repr]
    own = [(field, value) for field, value in own if (field, value) != ("standardised", False)]
    inner = dict(own).get("kernel")
    wraps = hasattr(record, "gram") and inner is not None and _is_part(inner, part, leaf)
    if not wraps:
        return name, own
    inside, others = _unwrapped(inner, part, leaf)
    return f"{name} of {inside}", [pair for pair in own if pair[0] != "kernel"] + others


def _text(value: Any) -> str:
    """Return a value in words: the shape of an array, the name of a function, or its repr."""
    if hasattr(value, "shape") and hasattr(value, "dtype") and getattr(value, "ndim", 0):
        return f"{type(value).__name__} [{', '.join(map(str, value.shape))}]"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_text(each)}" for key, each in value.items())
    if callable(value) and hasattr(value, "__name__"):
        return str(value.__name__)
    return repr(value)
