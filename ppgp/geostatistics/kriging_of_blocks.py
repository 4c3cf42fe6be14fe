"""Block kriging: the average of the surface over an area, in place of its value at a point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..capabilities import BlockMeans, require
from ..data.entries.arrays import as_tensor, check_inputs
from ..errors import DataError, SettingError
from ..posterior.posterior import Posterior
from ..posterior.prediction import Prediction

__all__ = ["block_kriging", "discretised"]


def discretised(
    centres: Any, size: Sequence[float], points: Sequence[int] = (4, 4)
) -> Float[Tensor, "m k d"]:
    """Return each block as a regular grid of points, like GSLIB's nxdis and nydis.

    Deutsch & Journel (1998), section IV.1.

    Args:
        centres: The centres of the blocks [m, d]; their sides are parallel to the axes.
        size: The lengths of the sides [d], in the units of the coordinates.
        points: The number of points per side [d]. They are at the middles of equal parts.

    Returns:
        The points [m, k, d] of the m blocks, in the units of the coordinates.

    Raises:
        SettingError: If sizes or counts are not positive, or not one per column.
        DataError: If centres have another shape, or NaN.

    Examples:
        >>> import ppgp
        >>> blocks = ppgp.discretised([[10.0, 20.0]], size=(4.0, 2.0), points=(2, 2))
        >>> blocks.shape
        torch.Size([1, 4, 2])
        >>> blocks[0].tolist()
        [[9.0, 19.5], [9.0, 20.5], [11.0, 19.5], [11.0, 20.5]]
    """
    centres = check_inputs(centres)
    d = centres.shape[1]
    if (
        len(size) != d
        or len(points) != d
        or min(size) <= 0
        or any(type(c) is not int or c < 1 for c in points)
    ):
        raise SettingError(
            f"{d} positive lengths and {d} whole counts, one per column",
            f"size={tuple(size)}, points={tuple(points)}",
            "pass one of each per coordinate",
        )
    sides = []
    for length, count in zip(size, points, strict=True):
        side = centres.new_zeros(1)
        if count > 1:
            side = (((torch.arange(count) + 0.5) / count - 0.5) * length).to(centres)
        sides.append(side)
    offsets = torch.stack([axis.flatten() for axis in torch.meshgrid(*sides, indexing="ij")], -1)
    return centres[:, None] + offsets


def block_kriging(posterior: Posterior, blocks: Any) -> Prediction:
    """Predict the mean of the surface, without the nugget, over each block.

    Isaaks & Srivastava (1989), chapter 13. A block has less uncertainty than a point at its centre.

    Args:
        posterior: A fit of a kriging model.
        blocks: The k points that represent each block [m, k, d]. ``discretised`` makes them; an
            external drift also needs its columns.

    Returns:
        The prediction for the m blocks, a mixture over the draws, in the units of y.

    Raises:
        NotApplicable: If the model is not a kriging model.
        DataError: If blocks have another shape, NaN, or another number of columns than the
            training rows.

    Examples:
        Over a square with a row at each corner, the mean of the surface is that of the rows:

        >>> import ppgp
        >>> from ppgp import inference, kernels, models
        >>> corners = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
        >>> data = ppgp.Dataset(corners, [1.0, 2.0, 3.0, 6.0])
        >>> recipe = models.Kriging(kernels.Exponential(variance=1.0, lengthscale=1.0), nugget=0.1)
        >>> posterior = ppgp.fit(recipe, data, inference.MAP(), progress=False)
        >>> square = ppgp.discretised([[0.5, 0.5]], size=(1.0, 1.0), points=(4, 4))
        >>> block = ppgp.block_kriging(posterior, square)
        >>> round(block.mean.item(), 6)
        3.0
        >>> centre = posterior.latent([[0.5, 0.5]])
        >>> round(block.std.item(), 2), round(centre.std.item(), 2)
        (0.41, 0.73)
    """
    model = require(posterior.model, BlockMeans)
    points = as_tensor(blocks, "blocks").to(posterior.data.X)
    if points.ndim != 3 or points.shape[1] == 0 or points.shape[2] != posterior.data.d:
        raise DataError(
            f"blocks [m, k, {posterior.data.d}]",
            f"shape {list(points.shape)}",
            "make them with discretised(centres, size, points)",
        )
    check_inputs(points.flatten(0, 1))
    with torch.no_grad():
        return Prediction(model.block(posterior.theta, points, posterior.data))
