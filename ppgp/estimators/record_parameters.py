"""Options inside models and methods as parameters of an estimator: ``model__kernel__lengthscale``.

A model is a frozen record of priors, numbers and other records; a change of one field makes a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from ..errors import PpgpError, UnknownName
from ..recipes import parsing as recipes

__all__ = ["RecordParameters"]

SEPARATOR = "__"
WRAPPED = ("kernel", "children")  # fields through which a wrapper is transparent


def options_in(record: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path, value) of the fields of a record and of the records and tuples inside it.

    What a wrapper holds has two paths: ``kernel__kernel__lengthscale`` and ``kernel__lengthscale``.
    """
    if isinstance(record, tuple):
        named = [(str(k), value) for k, value in enumerate(record) if is_dataclass(value)]
    elif is_dataclass(record) and not isinstance(record, type):
        named = [
            (field.name, getattr(record, field.name)) for field in fields(record) if field.init
        ]
    else:
        return
    for name, value in named:
        yield path + name, value
        yield from options_in(value, path + name + SEPARATOR)
        if path and name in WRAPPED:
            yield from options_in(value, path)


def changed(record: Any, path: Sequence[str], value: Any) -> Any:
    """Return a copy of a record with one option changed.

    Args:
        record: A record, or a tuple of records.
        path: The names of the fields, from the outermost in. Wrappers are transparent: the
            lengthscale of ``ARD(RBF())`` is that of the RBF.
        value: The new value; text is read as in ``--set`` of the command line.

    Raises:
        UnknownName: If there is no such option.
    """
    if isinstance(value, str):
        return recipes.changed(record, ".".join(path), value)
    head, rest = path[0], path[1:]
    copy: Any = replace
    if isinstance(record, tuple):
        if not head.isdigit() or int(head) >= len(record):
            raise UnknownName("term", head, map(str, range(len(record))))
        terms = list(record)
        terms[int(head)] = changed(terms[int(head)], rest, value) if rest else value
        return tuple(terms)
    known = [field.name for field in fields(record)] if is_dataclass(record) else []
    if head in known:
        new = changed(getattr(record, head), rest, value) if rest else value
        return copy(record, **{head: new})
    for inner in WRAPPED:
        if inner in known:
            return copy(record, **{inner: changed(getattr(record, inner), path, value)})
    raise UnknownName(f"option of {type(record).__name__}", head, known)


class RecordParameters:
    """A mixin of estimators whose parameters are names, recipes or records.

    ``get_params`` and ``set_params`` reach into them; a name or a recipe that gets an option
    becomes the record that it stands for.
    """

    def _records(self) -> Mapping[str, Callable[[], Any]]:
        """Return ``{parameter: () -> record}`` of the parameters that are records."""
        raise NotImplementedError

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name.

        Args:
            deep: Whether to add the options inside models and methods.
        """
        own: Any = super()
        found = own.get_params(deep=deep)
        if not deep:
            return found
        for name, record in self._records().items():
            try:
                built = record()
            except PpgpError:  # a recipe that cannot be read is for ``fit`` to refuse
                continue
            found |= {name + SEPARATOR + path: value for path, value in options_in(built)}
        return found

    def set_params(self, **params: Any) -> Any:
        """Set parameters, such as ``model__kernel__lengthscale=0.5``, and return the estimator.

        Raises:
            UnknownName: If a model or method has no such option.
        """
        own: Any = super()
        records = self._records()
        inside = {name: value for name, value in params.items() if SEPARATOR in name}
        own.set_params(**{name: value for name, value in params.items() if name not in inside})
        for name, value in inside.items():
            head, *path = name.split(SEPARATOR)
            if head not in records:
                raise UnknownName("parameter with options", head, records)
            setattr(self, head, changed(records[head](), path, value))
        return self
