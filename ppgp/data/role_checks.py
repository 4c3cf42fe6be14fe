"""Checks of the columns with roles: offset, trials, weights, groups and names of the rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import DataError, NotApplicable, counted, listed
from .entries.arrays import array_of, as_tensor
from .entries.entries import is_missing
from .entries.row_numbers import WrongRows
from .entries.tensors import cast, laid_out

UNKNOWN = -1  # the code of a level that the training rows do not have


def check_offset(offset: Any, n: int, like: Tensor) -> Tensor:
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


def check_trials(trials: Any, n: int, like: Tensor) -> Tensor:
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


def check_weights(weights: Any, n: int, like: Tensor) -> Tensor:
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


def check_group_codes(groups: Any, n: int, like: Tensor) -> dict[str, Tensor]:
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


def check_ids(ids: Any, n: int, like: Tensor) -> tuple[str, ...]:
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


def label_text(label: Any) -> str:
    """Return a label as text; whole floats as integers, so that 3.0 and 3 are one label."""
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    return str(label)


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


def refuse_weights(data: Any, what: str) -> None:
    """Raise NotApplicable if rows have weights.

    Args:
        data: A Dataset or other training data.
        what: What counts every row once.
    """
    if getattr(data, "weights", None) is not None:
        raise NotApplicable(f"rows without weights, for {what}", "weights", "repeat rows instead")
