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

from ..errors import DataError, NotApplicable, counted, listed
from ..tables.entries import is_missing, label_text
from ..tables.wrong_rows import WrongRows
from .columns import name_of
from .entries.arrays import array_of, as_tensor, cast, laid_out
from .training_data import TrainingData

__all__ = [
    "ROLES",
    "Role",
    "at_rows",
    "check_flags",
    "check_noise",
    "column_laid_out",
    "columns_given",
    "moved",
    "refuse_censored",
    "refuse_role",
    "refuse_weights",
    "role_names_of",
    "same_column",
]


@dataclass(frozen=True)
class Role:
    """What a column is to a table and to a model.

    Attributes:
        name: The argument and the attribute of ``Dataset``, and the argument of ``predict``.
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


def check_noise(noise_sd: Any, n: int, like: Tensor) -> Tensor:
    """Return known standard deviations as a tensor [n].

    Args:
        noise_sd: One number for all rows, or one per row [n], in the units of y.
        n: The number of rows.
        like: A tensor whose dtype and device the result has.

    Raises:
        DataError: If they are not finite, negative, or neither one nor n.

    Examples:
        >>> import torch
        >>> from ppgp import data
        >>> data.check_noise(0.5, 3, like=torch.zeros(3))
        tensor([0.5000, 0.5000, 0.5000])
    """
    sd = cast(as_tensor(noise_sd, "noise_sd"), like, "noise_sd")
    if sd.ndim == 2 and sd.shape[1] == 1:
        sd = sd[:, 0]
    if sd.ndim > 1 or (sd.ndim == 1 and len(sd) != n):
        raise DataError(
            f"noise_sd with shape [{n}], one per row", f"shape {list(sd.shape)}", "align it with X"
        )
    sd = laid_out(sd.expand(n))
    bad = torch.nonzero(~(torch.isfinite(sd) & (sd >= 0))).flatten().tolist()
    if bad:
        do = "pass standard deviations, 0 where a row has no noise of its own"
        raise WrongRows(
            "finite noise_sd >= 0", lambda rows: f"others in {listed(rows, 'row')}", bad, do
        )
    return sd


def check_flags(right_censored: Any, n: int, like: Tensor) -> Tensor:
    """Return the flags of right-censored targets as a bool tensor [n].

    Args:
        right_censored: One flag per row: booleans, or numbers 0 and 1.
        n: The number of rows.
        like: A tensor whose device the result has.

    Raises:
        DataError: If their number is not n, or a flag is neither 0 nor 1.
    """
    do = "pass 1 where the target is only known to be exceeded, and 0 elsewhere"
    try:
        flags = as_tensor(right_censored, "right_censored")
    except WrongRows as error:
        raise WrongRows("flags 0 or 1 as right_censored", error.words[0], error.rows, do) from None
    except DataError as error:
        raise DataError("flags 0 or 1 as right_censored", error.got, do) from None
    if flags.ndim == 2 and flags.shape[1] == 1:
        flags = flags[:, 0]
    if tuple(flags.shape) != (n,):
        raise DataError(
            f"right_censored with shape [{n}], one per row",
            f"shape {list(flags.shape)}",
            "align it with X",
        )
    wrong = torch.nonzero((flags != 0) & (flags != 1)).flatten().tolist()
    if wrong:
        raise WrongRows(
            "flags 0 or 1 as right_censored",
            lambda rows: f"others in {listed(rows, 'row')}",
            wrong,
            do,
        )
    return flags.to(like.device).bool()


def _check_offset(offset: Any, n: int, like: Tensor) -> Tensor:
    """Return the offset of the linear predictor as a tensor [n].

    Args:
        offset: One number per row, or one for all rows.
        n: The number of rows.
        like: A tensor whose dtype and device the result has.

    Raises:
        DataError: If they are not finite, or neither one nor n.
    """
    numbers = _per_row(offset, "offset", n, like, True)
    do = "for log exposures, drop the rows without exposure"
    _refuse(~torch.isfinite(numbers), "a finite offset in every row", do)
    return numbers


def _check_trials(trials: Any, n: int, like: Tensor) -> Tensor:
    """Return numbers of trials as a tensor [n].

    Args:
        trials: One number per row, or one for all rows.
        n: The number of rows.
        like: A tensor whose dtype and device the result has.

    Raises:
        DataError: If they are not whole and positive, or neither one nor n.
    """
    numbers = _per_row(trials, "trials", n, like, True)
    whole = torch.isfinite(numbers) & (numbers == numbers.round()) & (numbers >= 1)
    _refuse(~whole, "whole numbers >= 1 as trials", "drop rows without trials")
    return numbers


def _check_weights(weights: Any, n: int, like: Tensor) -> Tensor:
    """Return frequency weights as a tensor [n].

    Args:
        weights: One number per row.
        n: The number of rows.
        like: A tensor whose dtype and device the result has.

    Raises:
        DataError: If they are not n finite numbers >= 0, or all of them are 0.
    """
    numbers = _per_row(weights, "weights", n, like, False)
    valid = torch.isfinite(numbers) & (numbers >= 0)
    do = "a weight counts how often the row occurs; 0 leaves it out"
    _refuse(~valid, "finite weights >= 0", do)
    if not bool((numbers > 0).any()):
        raise DataError("a weight above 0", f"0 in all {counted(n, 'row')}", do)
    return numbers


def _check_group_codes(groups: Any, n: int, like: Tensor) -> dict[str, Tensor]:
    """Return the codes of groups as int64 tensors [n].

    Args:
        groups: ``{name: codes}``; -1 is a level without a code.
        n: The number of rows.
        like: A tensor whose device the result has.

    Raises:
        DataError: If a grouping has another number of rows.
    """
    checked = {}
    for name, codes in groups.items():
        if tuple(codes.shape) != (n,):
            raise _wrong_shape(f"the groups {name}", n, codes)
        checked[name] = codes.to(like.device)
    return checked


def _check_ids(ids: Any, n: int, like: Tensor) -> tuple[str, ...]:
    """Return the names of the rows as text.

    Args:
        ids: One name per row.
        n: The number of rows.
        like: Not used.

    Raises:
        DataError: If there are not n of them, or one is missing.
    """
    entries = array_of(ids, "ids")
    if entries.shape != (n,):
        raise _wrong_shape("ids", n, entries)
    entries = entries.tolist()
    missing = [row for row, entry in enumerate(entries) if is_missing(entry)]
    if missing:
        raise DataError("a name of every row as ids", f"none in {listed(missing, 'row')}", "add it")
    return tuple(map(label_text, entries))


def _per_row(values: Any, name: str, n: int, like: Tensor, one: bool) -> Tensor:
    """Return numbers as a tensor [n]; ``one``: one number may stand for all rows."""
    numbers = cast(as_tensor(values, name), like, name)
    if numbers.ndim == 2 and numbers.shape[1] == 1:
        numbers = numbers[:, 0]
    if tuple(numbers.shape) != (n,) and not (one and numbers.ndim == 0):
        raise _wrong_shape(name, n, numbers)
    return laid_out(numbers.expand(n))


def _wrong_shape(name: str, n: int, got: Any) -> DataError:
    wanted = f"{name} with shape [{n}], one per row"
    return DataError(wanted, f"shape {list(got.shape)}", "align it with X")


def _refuse(wrong: Tensor, wanted: str, do: str) -> None:
    """Raise DataError if a row is wrong."""
    rows = torch.nonzero(wrong).flatten().tolist()
    if rows:
        raise WrongRows(wanted, lambda rows: f"others in {listed(rows, 'row')}", rows, do)


_EACH = (
    Role(
        "noise_sd",
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
        "a model and a likelihood that take right-censored targets",
        "Boosted with LogNormal, Weibull, Exponential or Gaussian",
        check_flags,
        lambda flags: f"{int(flags.sum())} right-censored",
        of_target=True,
    ),
    Role(
        "offset",
        "a model with a linear predictor, for an offset",
        "GLM",
        _check_offset,
        lambda _: "offset",
        predicts=True,
        needed=True,
    ),
    Role(
        "trials",
        "a model of successes among trials",
        "GLM(Binomial())",
        _check_trials,
        lambda _: "trials",
        predicts=True,
        needed=True,
    ),
    Role(
        "weights",
        "a model of independent rows that takes weights",
        "GLM, LinearRegression, LogisticRegression, SoftmaxRegression, NeuralRegression or SVGP",
        _check_weights,
        lambda weights: f"weights of sum {float(weights.sum()):g}",
        of_target=True,
    ),
    Role(
        "groups",
        "a model with coefficients that vary between groups",
        "GLM(groups={name: Varying()}), or columns of 0 and 1 (one_hot=True)",
        _check_group_codes,
        lambda groups: f"groups {', '.join(groups)}",
        predicts=True,
        needed=True,
    ),
    Role(
        "ids",
        "a model on a table",
        "any model",
        _check_ids,
        lambda _: "ids",
        passed=False,
        compared=False,
    ),
)
ROLES: Mapping[str, Role] = {role.name: role for role in _EACH}


def columns_given(table: TrainingData, roles: Iterable[Role] = _EACH) -> dict[str, Any]:
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
        given: ``{role: column}``.
        names: ``{role: name}``; None: the name that a Series has.
    """
    found = {}
    for role, column in given.items():
        if role == "groups":  # groupings have names of their own
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


def refuse_censored(data: TrainingData | None, what: str) -> None:
    """Raise NotApplicable if targets are censored.

    Args:
        data: A Dataset or other training data.
        what: What needs targets that are known.
    """
    flags = getattr(data, "right_censored", None)
    if flags is not None and bool(flags.any()):
        raise NotApplicable(
            f"targets that are known, for {what}",
            f"{int(flags.sum())} right-censored ones",
            "pass rows without censored targets",
        )


def refuse_weights(data: TrainingData, what: str) -> None:
    """Raise NotApplicable if rows have weights.

    Args:
        data: A Dataset or other training data.
        what: What counts every row once.
    """
    if getattr(data, "weights", None) is not None:
        raise NotApplicable(f"rows without weights, for {what}", "weights", "repeat rows instead")
