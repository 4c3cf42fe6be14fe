"""The error of a density that is finite nowhere near its start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..data.argument_mistakes import not_finite
from ..errors import NumericalError
from .layout import Slice


def finite_nowhere(
    value: Tensor,
    gradient: Tensor,
    slices: Mapping[str, Slice],
    data: Any,
    invalid: str | None,
    tried: int,
    without_noise: str | None = None,
) -> NumericalError:
    """Return the error for a search without a point of finite density.

    Args:
        value: The log density at the last point.
        gradient: Its gradient there, [p].
        slices: ``{site: Slice}``, to name the sites where something is wrong.
        data: Of the program, to name arguments that hold NaN or infinity.
        invalid: What Pyro's validation reports.
        tried: The number of points.
        without_noise: The name of the variance of the noise of a Gaussian process where it is a
            number 0; None otherwise.
    """
    if bool(torch.isfinite(value)):
        finite = torch.isfinite(gradient)
        where = [name for name, s in slices.items() if not bool(finite[s.start : s.stop].all())]
        return NumericalError(
            "a finite gradient somewhere near the start",
            f"a finite density with a gradient of NaN or infinity in {', '.join(where)}",
            "look for a sqrt, log or norm of 0 in the program; torch.where does not help there",
        )
    holes = not_finite(data)
    if holes:
        return NumericalError(
            "numbers in the arguments of the program",
            f"{holes}, and no finite log density",
            "drop those rows, or mask them by poutine.mask with another number in their place",
        )
    if without_noise is not None:
        return NumericalError(
            "a covariance of the rows that has an inverse",
            f"a singular one at all of {tried} places, with {without_noise}=0",
            f"give {without_noise} a prior, or a small number such as 1e-6; a kernel of fewer "
            "functions than rows (Linear, Polynomial, Constant, Periodic over whole periods) "
            "needs it",
        )
    reported = "" if invalid is None else f" (Pyro's validation: {invalid})"
    do = "check the likelihood against the data (values outside its support?), and the priors"
    return NumericalError(
        "a finite log density somewhere near the start",
        f"NaN or infinity at all of {tried} places{reported}",
        do,
    )
