"""Leave-one-out densities of several models of the same training rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..data.training_data import same_value
from ..errors import DataError, NotApplicable, an
from ..posterior.posterior import Posterior
from .leave_one_out import leave_one_out

__all__ = ["left_out_densities", "same_targets"]

ROUNDING = 1e-9  # of standardising and back, relative to the largest target


def left_out_densities(posteriors: Sequence[Any]) -> list[np.ndarray]:
    """Return log p(y_i given the other rows), [n], of each posterior.

    Raises:
        DataError: If some are no posteriors, are fits to other rows, or have no leave-one-out
            densities.
    """
    others = [one for one in posteriors if not isinstance(one, Posterior)]
    if others:
        do = "pass posteriors alone, or log densities alone"
        raise DataError("posteriors of K models", f"{an(type(others[0]).__name__)} among them", do)
    do = "fit all models to the same rows, or pass log densities of new rows"
    wanted = "posteriors of the same training rows"
    if not same_targets(posteriors):
        raise DataError(wanted, "other targets", do)
    try:
        found = [leave_one_out(one).pointwise for one in posteriors]
    except NotApplicable as error:
        do = "pass torch.stack([p.log_prob(y) for p in predictions]), of rows that no fit has seen"
        raise DataError(f"{error.expected}, to leave rows out", error.got, do) from None
    if len({len(each) for each in found}) > 1:
        raise DataError(wanted, "other numbers of rows", do)
    return found


def same_targets(posteriors: Sequence[Posterior]) -> bool:
    """Return whether all are fits to the same targets, up to rounding, in the same order.

    The inputs may differ, as each model may use other columns. Programs have the same targets if
    their arguments of the same names are equal.
    """
    first = posteriors[0]
    return all(_same_targets(first, other) for other in posteriors[1:])


def _same_targets(a: Posterior, b: Posterior) -> bool:
    if a.data is b.data:
        return True
    if a.data.is_table and b.data.is_table:
        y, other = (one.scaler.targets_back(one.data.y).double().cpu() for one in (a, b))
        coarser = max(torch.finfo(one.data.y.dtype).eps for one in (a, b))
        close = max(ROUNDING, 8 * coarser) * float(y.abs().max())
        return y.shape == other.shape and bool(((y - other).abs() <= close).all())
    if a.data.is_table or b.data.is_table:
        return False
    shared = a.data.keys() & b.data.keys()
    return bool(shared) and all(same_value(a.data[k], b.data[k]) for k in shared)
