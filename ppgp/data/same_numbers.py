"""Whether two tables hold the same rows."""

from __future__ import annotations

from typing import Any

import torch

from .roles import ROLES, same_column

ROUNDING = 16  # machine epsilons by which equal numbers may differ


def same_numbers(one: Any, other: Any) -> bool:
    """Return whether two Datasets have the same numbers in the same order.

    Numbers may differ by the rounding of a standardisation and its inverse.
    """
    if one.X.shape != other.X.shape or one.X.device != other.X.device:
        return False
    eps = ROUNDING * max(torch.finfo(table.X.dtype).eps for table in (one, other))
    compared = [name for name, role in ROLES.items() if role.compared]
    if not all(same_column(getattr(one, r), getattr(other, r), eps) for r in compared):
        return False
    if not torch.equal(one.X.isnan(), other.X.isnan()):
        return False
    pairs = ((one.y, other.y), (one.X.nan_to_num(), other.X.nan_to_num()))
    return all(bool(((a - b).abs() <= eps * a.abs().amax(0)).all()) for a, b in pairs)
