"""The names of a model that tab completion offers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any

__all__ = ["names_for_users"]

#: methods and properties that a user calls; all others are hooks, which this library calls
FOR_USERS = (
    "covariance",
    "distribution",
    "from_formula",
    "log_evidence",
    "log_likelihood",
    "loo",
    "model",
    "predict",
    "responsibilities",
    "sites",
    "trend",
)
PACKAGE = __name__.partition(".")[0]


def names_for_users(model: Any, names: Iterable[str]) -> list[str]:
    """Return the names of a model without the hooks that this library calls.

    They are its fields, the methods in ``FOR_USERS``, what a user's own class adds, and names that
    begin with an underscore. The hooks can be called as before.

    Args:
        model: The model.
        names: All of its names.
    """
    own = [kind for kind in type(model).__mro__ if kind.__module__.partition(".")[0] == PACKAGE]
    hooks = {name for kind in own for name in vars(kind)} - set(FOR_USERS)
    shown: set[str] = set()
    if is_dataclass(model):
        every = fields(model)
        shown = {f.name for f in every if f.repr}
        hooks |= {f.name for f in every}
    return [name for name in names if name.startswith("_") or name in shown or name not in hooks]
