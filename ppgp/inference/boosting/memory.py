"""A check that the learners of a boosted fit fit into memory."""

from __future__ import annotations

from typing import Any

from ...runtime.memory import must_fit

BYTES_PER_NUMBER = 8
PER_ROW = 10  # numbers per row and function: f, scores, gradients, metric, and what a stage adds
COPIES = 2  # the stages as they are grown, and as they are joined


def check_memory(learner: Any, n: int, d: int, functions: int, steps: int, members: int) -> None:
    """Refuse a fit whose stages or functions do not fit.

    Args:
        learner: The learner.
        n: The number of rows.
        d: The number of columns of X.
        functions: K, the number of functions of x.
        steps: The largest number of stages.
        members: The number of members.

    Raises:
        NotEnoughMemory: With what would fit.
    """
    at_rows = float(PER_ROW * BYTES_PER_NUMBER) * n * functions
    must_fit(
        at_rows,
        f"{functions:,} functions of {n:,} rows",
        "use fewer rows, or fewer classes",
    )
    per_stage = float(COPIES * functions * members) * learner.bytes_per_stage(n, d)

    def advice(available: float) -> str:
        fewer = int(max(available - at_rows, 0.0) / per_stage)
        return f"use at most {fewer:,} steps, fewer folds or smaller learners"

    must_fit(
        at_rows + per_stage * steps,
        f"{steps:,} steps of {functions:,} functions in {members:,} members",
        advice,
    )
