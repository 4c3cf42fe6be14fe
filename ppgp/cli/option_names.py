"""The options that ``--set`` can change, and the nearest of them to a misspelt one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from ..errors import SettingError, UnknownName, nearest

__all__ = ["options_in", "unknown_option"]

WRAPPED = ("kernel", "children")  # fields of a kernel that a path leaves out


def options_in(record: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of the options of a model or a method.

    Names are those of ``--set``: ``kernel.lengthscale``.

    The options inside a prior are left out, as a prior is set as a whole.

    Args:
        record: A model, a method, a part of it, or a tuple of parts.
        prefix: What comes before each name.
    """
    from ..priors import Prior

    if isinstance(record, tuple):
        for i, part in enumerate(record):
            yield from options_in(part, f"{prefix}{i}.")
    if not is_dataclass(record) or isinstance(record, Prior):
        return
    for field in fields(record):
        value = getattr(record, field.name)
        if prefix and field.name in WRAPPED:
            yield from options_in(value, prefix)
            continue
        yield f"{prefix}{field.name}", value
        yield from options_in(value, f"{prefix}{field.name}.")


def unknown_option(records: Mapping[str, Any], path: str, others: Sequence[str]) -> Exception:
    """Return the error for an option that no record has.

    Args:
        records: ``{name: model or method}`` of the run.
        path: The option, as ``--set`` gives it.
        others: The names of models and methods that are not in the run.
    """
    head, dot, _ = path.partition(".")
    if dot and head in others and head not in records:
        return SettingError(
            f"the name of a model or method of this run ({', '.join(records)}) before the dot",
            repr(path),
            f"run {head} too, or leave the setting out",
        )
    owners: dict[str, str] = {}
    for name, record in records.items():
        for option, _ in options_in(record):
            owners.setdefault(option, name)
            owners.setdefault(f"{name}.{option}", name)
    near = nearest(path, owners)
    if near is None:
        top = [option for option in owners if "." not in option]
        return UnknownName(f"option of {' or '.join(records)}", path, top)
    owner = owners[near]
    level = near.rpartition(".")[0]
    known = [one for one in owners if owners[one] == owner and one.rpartition(".")[0] == level]
    return UnknownName(f"option of {owner}", path, known)
