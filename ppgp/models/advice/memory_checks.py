"""Checks that fits and predictions fit into memory, with advice on what would fit instead.

The advice ranks all models, so it is worded only for an error that is raised.
"""

from __future__ import annotations

import math

from torch import Tensor

from ...kernels import Kernel
from ...likelihoods import Likelihood
from ...runtime.memory import SMALL, Advice, must_fit, rounded_down, rows_per_call
from .advice import instead_of
from .costs import MATRICES, MATRICES_A_TERM


def check_memory_of_predictions(draws: int, rows: int, like: Tensor, joint: bool = False) -> None:
    """Refuse predictions that do not fit: a mean and a variance per row and draw.

    Args:
        draws: Number of draws.
        rows: Number of rows.
        like: A tensor with the dtype and the device of the predictions.
        joint: Whether each draw has a covariance of all rows in place of their variances.

    Raises:
        NotEnoughMemory: With the number of rows per call that does fit.
    """
    number = like.element_size() * draws
    per_row = 2.0 * number
    per_pair = 3.0 * number  # the covariance, its root, and a copy with the noise on its diagonal
    size = per_pair * rows * rows if joint else per_row * rows
    if size <= SMALL:
        return

    def advice(available: float) -> str:
        if not joint:
            return rows_per_call(per_row)(available)
        fewer = rounded_down(math.sqrt(available / per_pair))
        return f"pass at most {fewer:,} rows per call, or leave joint=True out"

    what = "the joint predictive distribution" if joint else "the predictive distribution"
    must_fit(size, f"{what} of {rows:,} rows under {draws:,} draws", advice, like.device)


def check_memory_of_conditioning(n: int, m: int, draws: int, kernel: Kernel, like: Tensor) -> None:
    """Refuse to condition on n training rows if the covariances do not fit.

    A prediction has no gradient, so that each term of the kernel holds one matrix: first of the n
    rows, while their covariance is factored, then of these with m new rows, beside the factor.

    Args:
        n: Number of training rows.
        m: Number of new rows at once.
        draws: Number of draws at once.
        kernel: The kernel of the covariance.
        like: A tensor with the dtype and the device of the computation.

    Raises:
        NotEnoughMemory: If they do not fit.
    """
    matrices = MATRICES + kernel.terms
    size = like.element_size() * draws * n * max(matrices * n, n + matrices * m)
    if size <= SMALL:
        return

    def advice(_: float) -> str:
        others = instead_of("GP", like.shape[-1], n, kernel=kernel)
        return f"pass fewer rows per call, predict on a machine with more memory, or {others}"

    must_fit(
        size,
        f"the covariance of {n:,} training rows, and theirs with {m:,} new rows at once",
        advice,
        like.device,
    )


def check_memory_of_covariance(
    n: int, d: int, kernel: Kernel, like: Tensor, likelihood: Likelihood | None = None
) -> None:
    """Refuse a fit to n rows at once whose covariance and its gradient do not fit.

    Args:
        n: Number of rows.
        d: Number of columns that the kernel reads.
        kernel: The kernel of the covariance.
        like: A tensor with the dtype and the device of the computation.
        likelihood: That of y given f; None: Gaussian noise.

    Raises:
        NotEnoughMemory: With models that do fit.
    """

    def advice(_: float) -> str:
        return instead_of("GP", d, n, kernel=kernel, likelihood=likelihood)

    matrices = MATRICES + MATRICES_A_TERM * kernel.terms
    size = matrices * like.element_size() * n * n
    if size > SMALL:
        must_fit(size, f"the covariance of {n:,} rows", advice, like.device)


def check_memory_of_rows(n: int, numbers: float, like: Tensor, name: str, do: Advice) -> None:
    """Refuse a density over n rows at once that does not fit.

    Args:
        n: Number of rows.
        numbers: How many numbers the density holds per row.
        like: A tensor with the dtype and the device of the computation.
        name: What the numbers are, for the message.
        do: The advice of the message, or a function that words it for a number of usable bytes.

    Raises:
        NotEnoughMemory: With the advice.
    """
    must_fit(numbers * like.element_size() * n, f"{name} of {n:,} rows at once", do, like.device)
