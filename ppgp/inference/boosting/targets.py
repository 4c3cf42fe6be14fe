"""Targets whose equal values leave the width of a distribution without a best value."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ...errors import DataError

#: the share of equal targets above which the CRPS of a Gaussian is least at a width of 0
LARGEST_SHARE_OF_TIES = 2**-0.5


def check_spread(likelihood: Any, y: Tensor, right_censored: Tensor | None) -> None:
    """Check that the width of a continuous distribution has a best value.

    Raises:
        DataError: If all targets are equal.
    """
    if not _is_continuous(likelihood) or right_censored is not None:
        return
    if bool((y == y[0]).all()):
        raise DataError(
            "targets that differ, as the likelihood predicts their spread",
            f"{float(y[0]):g} in every row",
            "give its parameters as numbers, or leave the constant target out",
        )


def notes_of_ties(likelihood: Any, kind: str, y: Tensor) -> list[str]:
    """Return a note if so many targets are equal that the CRPS is least at a width of 0."""
    if kind != "crps" or not _is_continuous(likelihood):
        return []
    values, counts = y.unique(return_counts=True)
    share = float(counts.max()) / len(y)
    if share <= LARGEST_SHARE_OF_TIES:
        return []
    return [
        f"{share:.0%} of the targets are {float(values[counts.argmax()]):g}: the CRPS is least for "
        "distributions that are almost that one value; use score='nll', or model those rows apart"
    ]


def _is_continuous(likelihood: Any) -> bool:
    """Return whether it has a density of y, and predicts a parameter of its width."""
    return bool(likelihood.predicted) and not getattr(likelihood, "counts", False)
