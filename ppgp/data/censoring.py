"""Flags of targets that are only known to be exceeded."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import DataError, NotApplicable, listed
from .entries.arrays import as_tensor
from .entries.row_numbers import WrongRows

__all__ = ["check_flags", "refuse_censored"]


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


def refuse_censored(data: Any, what: str) -> None:
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
