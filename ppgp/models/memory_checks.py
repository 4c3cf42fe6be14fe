"""What fits and predictions hold at once, in bytes, and what would fit instead."""

from __future__ import annotations

import math

from torch import Tensor

from ..kernels import Kernel
from ..numerics.memory import must_fit, rounded_down, rows_per_call

MATRICES = (
    5.0  # n by n that a density of all rows and its gradient hold at once, whatever the kernel
)
MATRICES_A_TERM = 4.0  # and for each term of the kernel
MOST_INDUCING = 1000  # more cost more time than an advice should


def check_memory_of_predictions(draws: int, rows: int, like: Tensor, joint: bool = False) -> None:
    """Refuse predictions, a mean and a spread for each row and draw, that do not fit.

    Raises:
        NotEnoughMemory: with the rows per call that do.
    """
    number = like.element_size() * draws
    if not joint:
        a_row = 2.0 * number
        must_fit(
            a_row * rows,
            f"the law of {rows:,} rows under {draws:,} draws",
            rows_per_call(a_row),
            like.device,
        )
        return
    a_pair = 3.0 * number  # the covariance, the root of it, and what is added on its diagonal

    def advice(room: float) -> str:
        fewer = rounded_down(math.sqrt(room / a_pair))
        return f"pass at most {fewer:,} rows per call, or leave joint=True out"

    must_fit(
        a_pair * rows * rows,
        f"the joint law of {rows:,} rows under {draws:,} draws",
        advice,
        like.device,
    )


def check_memory_of_covariance(n: int, kernel: Kernel, like: Tensor) -> None:
    """Refuse a fit to so many rows at once whose covariance, and what its gradient needs, does not fit.

    Raises:
        NotEnoughMemory: with the sparse model that does.
    """
    number = like.element_size()

    def advice(room: float) -> str:
        # m^2 ten times over, and what goes over the rows in chunks
        inducing = min(MOST_INDUCING, n, rounded_down(math.sqrt(room / (10 * number))))
        return (
            f"use SGPR(kernel, inducing={inducing}), or SVGP with as many and SVI(batch_size=1000)"
        )

    matrices = MATRICES + MATRICES_A_TERM * kernel.terms
    must_fit(matrices * number * n * n, f"the covariance of {n:,} rows", advice, like.device)


def check_memory_of_rows(n: int, numbers: float, like: Tensor, name: str, do: str) -> None:
    """Refuse a density over n rows at once that holds so ``numbers`` for each of them.

    Raises:
        NotEnoughMemory: with ``do``.
    """
    must_fit(numbers * like.element_size() * n, f"{name} of {n:,} rows at once", do, like.device)
