"""Noise that is known row by row, on top of what a model estimates."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import DataError, counted, listed


def with_known(noise: Tensor, noise_sd: Tensor | None) -> Tensor:
    """The variance of each row's error, from the noise [*draw, 1] of all rows and the known sd of each, [n]."""
    return noise if noise_sd is None else noise + noise_sd.square()


def known_at(X: Tensor, noise_sd: Tensor | None) -> Tensor | None:
    """The known noise of a prepared recipe, for the program at X.

    Raises:
        DataError: if X does not have the rows that the recipe was prepared for.
    """
    if noise_sd is None or len(noise_sd) == len(X):
        return noise_sd
    raise DataError(
        f"the {counted(len(noise_sd), 'row')} whose noise this recipe knows",
        f"{len(X)}",
        "prepare the recipe for these rows, or use predict",
    )


def refuse_twins(
    X: Tensor, noise_sd: Tensor | None, own: Tensor | None, where: str, parameter: str
) -> None:
    """Refuse duplicate rows that no noise tells apart, neither a known one nor the kernel's nugget ``own`` [n]: their covariance has
    no inverse.

    Raises:
        DataError: naming them.
    """
    told = sum(
        (v > 0 for v in (noise_sd, own) if v is not None),
        torch.zeros(len(X), dtype=torch.bool, device=X.device),
    )
    exact = torch.nonzero(~told).flatten()
    _, inverse, counts = torch.unique(X[exact], dim=0, return_inverse=True, return_counts=True)
    twins = exact[counts[inverse] > 1].tolist()
    if twins:
        raise DataError(
            f"{where} where the {parameter} is fixed to 0",
            f"duplicates in {listed(twins, 'row', 6)}",
            f"give the {parameter} a prior, or merge those rows",
        )
