"""The statistics of a fit, of which some are computed when they are first read."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping, ValuesView
from typing import Any

from ..runtime.process_locks import one_at_a_time


class Later:
    """A value that ``compute()`` returns when it is first read; ``compute`` is then let go."""

    def __init__(self, compute: Callable[[], Any]) -> None:
        self._compute: Callable[[], Any] | None = compute
        self._value: Any = None

    def read(self) -> Any:
        """Return the value, which is computed once."""
        with one_at_a_time():
            if self._compute is not None:
                self._value, self._compute = self._compute(), None
        return self._value


class Stats(dict[str, Any]):
    """A dictionary of statistics. An entry given as ``Later`` is computed when it is first read.

    ``stats | others`` keeps such entries as they are; every other way to a value computes it.
    A pickled or copied one is a plain dictionary.

    Examples:
        >>> stats = Stats({"steps": 3, "lp": Later(lambda: -2.5)})
        >>> "lp" in stats, stats["lp"], dict(stats)
        (True, -2.5, {'steps': 3, 'lp': -2.5})
    """

    __hash__ = None  # type: ignore[assignment] # as of any dictionary

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        return value.read() if isinstance(value, Later) else value

    def get(self, name: str, default: Any = None) -> Any:
        value = super().get(name, default)
        return value.read() if isinstance(value, Later) else value

    def pop(self, name: str, *default: Any) -> Any:
        value = super().pop(name, *default)
        return value.read() if isinstance(value, Later) else value

    def setdefault(self, name: str, default: Any = None) -> Any:
        super().setdefault(name, default)
        return self[name]

    def popitem(self) -> tuple[str, Any]:
        name, value = super().popitem()
        return name, value.read() if isinstance(value, Later) else value

    def __iter__(self) -> Iterator[str]:
        # a subclass with its own iterator is read by keys and [] in dict(stats) and {**stats},
        # which would otherwise copy the entries as they are stored
        return super().__iter__()

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        return dict(self).values()

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        return dict(self).items()

    def __or__(self, others: Mapping[str, Any]) -> Stats:  # type: ignore[override]
        joined = Stats(dict.items(self))
        # the views of dict itself have the entries as they are stored
        joined.update(dict.items(others) if isinstance(others, dict) else others.items())
        return joined

    def __eq__(self, other: object) -> bool:
        return dict(self) == (dict(other) if isinstance(other, Stats) else other)

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)
