"""Columns with roles: what a table holds per row besides its inputs and its target.

``ROLES`` is the one list of them. What a table does with its rows (taking some, scaling, moving,
comparing, passing to a program), it does with every role in this list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import NotApplicable
from .censoring import check_flags
from .columns import name_of
from .entries.tensors import laid_out
from .input_checks import check_noise
from .role_checks import check_group_codes, check_ids, check_offset, check_trials, check_weights

__all__ = [
    "ROLES",
    "Role",
    "at_rows",
    "column_laid_out",
    "columns_given",
    "moved",
    "refuse_role",
    "role_names_of",
    "same_column",
]


@dataclass(frozen=True)
class Role:
    """What a column is to a table and to a model.

    Attributes:
        name: The argument and the attribute of ``Dataset``, and the argument of ``predict``.
        column: What messages call the column.
        model: What messages call a model that takes it.
        models: What to use in its place with data that have the column.
        check: (what is given, n, X) -> the column, or DataError.
        words: The column -> its part of the repr of a table.
        unit_of_y: Whether it is a distance in y, which a Scaler divides by the sd of y.
        of_target: Whether it describes an observed target; targets that are drawn have none.
        passed: Whether the program of a model takes it, by its name.
        predicts: Whether ``predict`` of a model takes that of the new rows, by its name.
        needed: Whether new rows need it where the training rows have it, and must not have it
            where they do not.
        compared: Whether tables with another such column hold other rows.
    """

    name: str
    column: str
    model: str
    models: str
    check: Callable[[Any, int, Tensor], Any]
    words: Callable[[Any], str]
    unit_of_y: bool = False
    of_target: bool = False
    passed: bool = True
    predicts: bool = False
    needed: bool = False
    compared: bool = True


def _named_groups(groups: Mapping[str, Tensor]) -> str:
    return f"groups {', '.join(groups)}"


_EACH = (
    Role(
        "noise_sd",
        "noise column",
        "a model that takes known noise",
        "GP, Kriging, StateSpaceGP or Vecchia",
        check_noise,
        lambda _: "noise known",
        unit_of_y=True,
        predicts=True,
        compared=False,
    ),
    Role(
        "right_censored",
        "column of flags",
        "a model and a likelihood that take right-censored targets",
        "Boosted with LogNormal, Weibull, Exponential or Gaussian",
        check_flags,
        lambda flags: f"{int(flags.sum())} right-censored",
        of_target=True,
    ),
    Role(
        "offset",
        "offset column",
        "a model with a linear predictor, for an offset",
        "GLM",
        check_offset,
        lambda _: "offset",
        predicts=True,
        needed=True,
    ),
    Role(
        "trials",
        "column of trials",
        "a model of successes among trials",
        "GLM(Binomial())",
        check_trials,
        lambda _: "trials",
        predicts=True,
        needed=True,
    ),
    Role(
        "weights",
        "column of weights",
        "a model of independent rows that takes weights",
        "GLM, LinearRegression, LogisticRegression, SoftmaxRegression, NeuralRegression or SVGP",
        check_weights,
        lambda weights: f"weights of sum {float(weights.sum()):g}",
        of_target=True,
    ),
    Role(
        "groups",
        "column of groups",
        "a model with coefficients that vary between groups",
        "GLM(groups={name: Varying()}), or columns of 0 and 1 (one_hot=True)",
        check_group_codes,
        _named_groups,
        predicts=True,
        needed=True,
    ),
    Role(
        "ids",
        "column of row names",
        "a model on a table",
        "any model",
        check_ids,
        lambda _: "ids",
        passed=False,
        compared=False,
    ),
)
ROLES: Mapping[str, Role] = {role.name: role for role in _EACH}


def columns_given(table: Any, roles: Iterable[Role] = _EACH) -> dict[str, Any]:
    """Return ``{role: column}`` of the roles that a table has.

    Args:
        table: A Dataset.
        roles: The roles asked for.
    """
    columns = {role.name: getattr(table, role.name) for role in roles}
    return {name: column for name, column in columns.items() if column is not None}


def at_rows(column: Any, index: Any) -> Any:
    """Return some rows of a column.

    Args:
        column: A tensor [n], a mapping of tensors, a tuple of names, or None.
        index: Indices, a slice or a mask.
    """
    if column is None or isinstance(column, Tensor):
        return None if column is None else column[index]
    if isinstance(column, Mapping):
        return {name: part[index] for name, part in column.items()}
    if isinstance(index, Tensor):
        index = index.cpu()
    return tuple(column[i] for i in torch.arange(len(column))[index].reshape(-1).tolist())


def column_laid_out(column: Any) -> Any:
    """Return a column as of ``at_rows`` whose tensors are laid out as by ``laid_out``."""
    if isinstance(column, Tensor):
        return laid_out(column)
    if isinstance(column, Mapping):
        return {name: laid_out(part) for name, part in column.items()}
    return column


def moved(column: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """Return a column on another device or in another dtype; codes, flags and names keep theirs.

    Args:
        column: A column as of ``at_rows``.
        device: The device of the other columns.
        dtype: The dtype of the other columns.
    """
    if isinstance(column, Mapping):
        return {name: moved(part, device, dtype) for name, part in column.items()}
    if not isinstance(column, Tensor):
        return column
    return column.to(device, dtype) if column.is_floating_point() else column.to(device)


def same_column(one: Any, other: Any, eps: float) -> bool:
    """Return whether two columns hold the same numbers, up to eps relative to the largest.

    Args:
        one: A column, or None: the table has none.
        other: That of another table.
        eps: How far numbers may differ.
    """
    if one is None or other is None:
        return one is other
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(
            same_column(part, other[name], eps) for name, part in one.items()
        )
    if one.shape != other.shape:
        return False
    if not one.is_floating_point():
        return torch.equal(one, other)
    return bool(((one - other).abs() <= eps * one.abs().max()).all())


def role_names_of(given: Mapping[str, Any], names: Mapping[str, str | None]) -> dict[str, str]:
    """Return ``{role: the name of its column}`` of the columns that are given and have a name.

    Args:
        given: ``{role: column}``; None: not given.
        names: ``{role: name}``; None: the name that a Series has.
    """
    found = {}
    for role, column in given.items():
        if column is None or role == "groups":  # groupings have names of their own
            continue
        name = names.get(role)
        if name is None:
            name = name_of(column)
        if name is not None:
            found[role] = str(name)
    return found


def refuse_role(model: Any, name: str, instead: str) -> None:
    """Raise NotApplicable if a model does not use a column.

    Args:
        model: A model of ``ppgp.models``.
        name: The name of the role.
        instead: What to do, besides another model.
    """
    if not model.takes_role(name):
        role = ROLES[name]
        got = type(model).__name__
        if name == "weights" and model.joint_rows:
            got += ", whose rows have one joint distribution"
        raise NotApplicable(role.model, got, f"use {role.models}, or {instead}")
