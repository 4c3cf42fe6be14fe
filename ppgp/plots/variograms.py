"""A figure of the empirical variogram, with the models that were fitted to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from ..geostatistics import EmpiricalVariogram, VariogramFit
from .common import COLOURS, legend, line_of, panel, set_title
from .table_columns import target_name

Fits = Mapping[str, VariogramFit] | VariogramFit


def variogram(
    empirical: EmpiricalVariogram, fits: Fits | None = None, ax: Axes | None = None
) -> Figure:
    """Plot the semivariance by distance, with the number of pairs of each lag and fitted models.

    A curve begins at the nugget. Cressie (1993), section 2.6. Distances are in the units of the
    coordinates, and semivariances in squared units of y.

    Args:
        empirical: The result of ``ppgp.empirical_variogram``, with k lags [k].
        fits: A result of ``ppgp.fit_variogram``, or several, ``{name: fit}``.
        ax: The axes to draw in; None: those of a new figure.

    Raises:
        SettingError: If ``ax`` is not one Axes.

    Examples:
        Where y rises by 1 per unit of distance h, the semivariance is h^2 / 2.

        >>> import numpy as np
        >>> import ppgp
        >>> from ppgp import plots
        >>> x = np.arange(10.0)
        >>> empirical = ppgp.empirical_variogram(ppgp.Dataset(x[:, None], x), lags=3, cutoff=3.0)
        >>> axis = plots.variogram(empirical).axes[0]
        >>> print(axis.lines[0].get_xydata())
        [[1.  0.5]
         [2.  2. ]
         [3.  4.5]]
        >>> [text.get_text() for text in axis.texts]  # the number of pairs
        ['9', '8', '7']
    """
    figure, axis = panel(ax, 6.8, 3.8)
    distance, semivariance = (
        t.double().cpu().numpy() for t in (empirical.distance, empirical.semivariance)
    )
    axis.plot(distance, semivariance, "o", color=COLOURS[0], ms=5, label="empirical")
    models: Mapping[str, VariogramFit] = {}
    if isinstance(fits, VariogramFit):
        models = {"fitted": fits}
    elif fits is not None:
        models = fits
    reach = float(empirical.edges[-1])
    grid = torch.linspace(1e-6 * reach, reach, 200, dtype=torch.float64)
    for k, (name, fit) in enumerate(models.items()):
        curve = _curve(fit, grid, empirical.direction)
        axis.plot(grid.numpy(), curve, lw=1.4, label=name, **line_of(k + 1))
    axis.set_xlim(0.0, 1.03 * reach)
    axis.set_ylim(0.0, 1.25 * float(semivariance.max()))
    numbers: dict[str, Any] = {"ha": "center", "va": "top", "fontsize": 7, "color": "#555555"}
    numbers["transform"] = axis.get_xaxis_transform()
    for x, pairs in zip(distance, empirical.pairs.tolist(), strict=True):
        axis.text(x, 0.98, f"{pairs}", **numbers)
    name = "y" if empirical.rows is None else target_name(empirical.rows)
    title = "Variogram (numbers: pairs of rows)"
    if empirical.direction is not None:
        title = f"Variogram along {empirical.direction:g} degrees (numbers: pairs of rows)"
    axis.set(
        xlabel="distance, in the unit of the coordinates",
        ylabel=f"semivariance, in the squared unit of {name}",
    )
    set_title(axis, title)
    legend(axis)
    return figure


def _curve(
    fit: Callable[[Tensor, float | None], Tensor], grid: Tensor, direction: float | None
) -> np.ndarray:
    """Return the semivariance of a fitted model on the grid."""
    return fit(grid, direction).detach().double().cpu().numpy()
