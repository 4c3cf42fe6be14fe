"""Block kriging: the average of the surface over an area, in place of its value at a point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..data.arrays import as_tensor, check_inputs
from ..errors import DataError, SettingError
from ..posterior.posterior import Posterior
from ..posterior.prediction import Prediction
from ..target.capabilities import BlockMeans, require

__all__ = ["block_kriging", "discretised"]


def discretised(
    centres: Any, size: Sequence[float], points: Sequence[int] = (4, 4)
) -> Float[Tensor, "m k d"]:
    """Each block as a regular grid of points, those of GSLIB's nxdis and nydis. Deutsch & Journel (1998), section IV.1.

    Args:
        centres: [m, d], of blocks with sides along the axes.
        size: [d], the lengths of the sides, in the units of the coordinates.
        points: [d], how many points a side; they stand at the middles of equal parts.

    Raises:
        SettingError: if sizes or counts are not positive, or not one a column.
    """
    centres = check_inputs(centres)
    d = centres.shape[1]
    if (
        len(size) != d
        or len(points) != d
        or min(size) <= 0
        or any(type(c) is not int or c < 1 for c in points)
    ):
        got = f"size={tuple(size)}, points={tuple(points)}"
        raise SettingError(
            f"{d} positive lengths and {d} whole counts, one a column",
            got,
            "pass one of each a coordinate",
        )
    sides = [
        (((torch.arange(count) + 0.5) / count - 0.5) * length).to(centres)
        if count > 1
        else centres.new_zeros(1)
        for length, count in zip(size, points, strict=True)
    ]
    offsets = torch.stack([axis.flatten() for axis in torch.meshgrid(*sides, indexing="ij")], -1)
    return centres[:, None] + offsets


def block_kriging(posterior: Posterior, blocks: Any) -> Prediction:
    """The law of the mean of the surface (without the nugget) over each block, a mixture over the draws.

    Args:
        blocks: [m, k, d], the k points that stand for each block (``discretised`` makes them; an external drift needs its
            columns too).

    Raises:
        NotApplicable: if the model is not one of kriging.
        DataError: if blocks have another shape, NaN, or another number of columns than the training rows.
    """
    model = require(posterior.model, BlockMeans)
    points = as_tensor(blocks, "blocks").to(posterior.data.X)
    if points.ndim != 3 or points.shape[1] == 0 or points.shape[2] != posterior.data.d:
        shape, wanted = list(points.shape), f"blocks [m, k, {posterior.data.d}]"
        raise DataError(
            wanted, f"shape {shape}", "make them with discretised(centres, size, points)"
        )
    check_inputs(points.flatten(0, 1))
    with torch.no_grad():
        return Prediction(model.block(posterior.theta, points, posterior.data))
