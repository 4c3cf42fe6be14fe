"""Adversarial training: rows moved to where they are least probable count as well."""

from __future__ import annotations

import torch
from torch import Tensor

from ...density.target import Target
from ...errors import NotApplicable, an
from ...runtime.seeding import standard_normal


def reach_of(target: Target, share: float) -> Tensor:
    """Return the length of an adversarial step in each column of X, [d]: a share of its range.

    Raises:
        NotApplicable: If the rows are not independent given the sites, or their distribution does
            not change smoothly with X.
    """
    if not target.data.is_table:
        raise _refused("a program with its own arguments")
    X = target.data.X
    ends = target.team.rows_of_all(torch.stack([X.min(0).values, X.max(0).values]))
    reach = share * (ends.max(0).values - ends.min(0).values)
    generator = torch.Generator().manual_seed(0)
    step = standard_normal(generator, target.dim)
    z = target.origin() + 0.1 * step.to(X)
    rows = torch.arange(min(2, target.data.n - 1))
    try:
        plain = target.log_density(z, rows)
    except NotApplicable:
        raise _refused(an(type(target.model).__name__)) from None
    both, _ = target.value_and_grad_of_rows(z, rows, reach=reach, compile=False)
    if bool(reach.any()) and float(both) == 2 * float(plain):
        raise _refused(an(type(target.model).__name__))
    return reach


def _refused(got: str) -> NotApplicable:
    return NotApplicable(
        "a model with independent rows whose distribution is smooth in X, for adversarial=",
        got,
        "leave adversarial out",
    )
