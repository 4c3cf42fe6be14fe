"""A Target that another process can be sent."""

from __future__ import annotations

from typing import Any

from .target import Target

__all__ = ["Sendable"]


class Sendable:
    """A Target, or what it is made from.

    Pickling leaves out its graphs, which hold code of this process. Reading the pickle makes no
    Target: that takes locks, and a scheduler reads pickles beside the thread that holds them.

    Args:
        target: The Target.
    """

    def __init__(self, target: Target) -> None:
        self._target: Target | None = target
        self._made_from = type(target), target.arguments
        self.received = False

    def __getstate__(self) -> dict[str, Any]:
        return {"_target": None, "_made_from": self._made_from, "received": True}

    @property
    def target(self) -> Target:
        """The Target, made at the first call where it was received."""
        if self._target is None:
            self._target = self.again()
        return self._target

    def again(self) -> Target:
        """Return a new Target of the same density, without graphs."""
        kind, arguments = self._made_from
        return kind(*arguments)
