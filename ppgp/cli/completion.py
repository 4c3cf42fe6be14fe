"""What the shell offers after a part of a name, without torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..recipes import parsing as recipes

__all__ = ["likelihoods", "methods", "models", "scores"]


def _names(known: Mapping[str, Any]) -> Callable[[str], list[str]]:
    """Return a function that completes the last name of a comma-separated list."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in known if name.startswith(last)]

    return complete


models = _names(recipes.MODELS)
methods = _names(recipes.HOWS)
likelihoods = _names(recipes.LIKELIHOODS)
scores = _names(recipes.SCORES)
