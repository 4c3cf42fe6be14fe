"""Figures of predictions over two coordinates: maps of mean and sd, and the surface."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d.axes3d import Axes3D

from ..errors import NotApplicable, SettingError
from ..models import Kriging
from ..posterior.posterior import Posterior
from ..posterior.prediction import Prediction
from ..target.capabilities import LatentFunction, supports
from .common import panels
from .notebook_figure import NotebookFigure
from .scalar_names import (
    column_names,
    column_numbers,
    described,
    inputs_and_targets,
    table_of,
    target_name,
)

Columns = tuple[int | str, int | str]


def map_of(posterior: Posterior, columns: Columns = (0, 1), points: int = 60) -> Figure:
    """Plot the mean and the standard deviation over two coordinates, with the training rows.

    They are those of the latent function (without noise) if the model has one, else of y. The rows
    are coloured by y on the scale of the mean. Inputs that are not shown are held at their training
    mean.

    Args:
        posterior: A fit of a regression to a table with at least two columns.
        columns: The columns of X that span the map, by number or by name.
        points: The number of grid points per side.

    Raises:
        NotApplicable: If X has one column, or y is a class.
        UnknownName: If there is no such column.
        SettingError: If there are not two columns, or fewer than two grid points.
    """
    i, j = _two_columns(posterior, columns, points)
    X, y = inputs_and_targets(posterior)
    xs, ys, prediction = _on_grid(posterior, X, i, j, points)
    mean, sd = (t.cpu().numpy().reshape(points, points) for t in (prediction.mean, prediction.std))
    figure, axes = panels(10, 4.4, 1, 2, sharex=True, sharey=True)
    names, name = column_names(posterior.data), target_name(posterior.data)
    norm = Normalize(min(mean.min(), y.min()), max(mean.max(), y.max()))
    style: dict[str, Any] = {"shading": "auto", "rasterized": True}
    left, right = axes[0]
    mesh = left.pcolormesh(xs, ys, mean, cmap="viridis", norm=norm, **style)
    dots = {"s": 16, "edgecolor": "black", "linewidth": 0.6}
    left.scatter(X[:, i], X[:, j], c=y, cmap="viridis", norm=norm, **dots)
    figure.colorbar(mesh, ax=left, label=name)
    mesh = right.pcolormesh(xs, ys, sd, cmap="magma", vmin=0.0, **style)
    right.scatter(X[:, i], X[:, j], s=9, color="white", edgecolor="black", linewidth=0.5)
    figure.colorbar(mesh, ax=right, label=f"sd of {name}")
    left.set(xlabel=names[i], ylabel=names[j])
    right.set(xlabel=names[i])
    left.set_title("mean, with the rows", fontsize=10)
    right.set_title("standard deviation", fontsize=10)
    if _one_space(posterior, i, j):
        for axis in (left, right):
            axis.set_aspect("equal")
    figure.suptitle(f"{name}: {described(posterior)}", fontsize=10)
    return figure


def surface(posterior: Posterior, columns: Columns = (0, 1), points: int = 40) -> Figure:
    """Plot the mean over two coordinates as a surface, coloured by its sd, with the training rows.

    Args:
        posterior: A fit of a regression to a table with at least two columns.
        columns: The columns of X that span the plane, by number or by name.
        points: The number of grid points per side.

    Raises:
        NotApplicable: If X has one column, or y is a class.
        UnknownName: If there is no such column.
        SettingError: If there are not two columns, or fewer than two grid points.
    """
    i, j = _two_columns(posterior, columns, points)
    X, y = inputs_and_targets(posterior)
    xs, ys, prediction = _on_grid(posterior, X, i, j, points)
    mean, sd = (t.cpu().numpy().reshape(points, points) for t in (prediction.mean, prediction.std))
    figure = NotebookFigure(figsize=(6.5, 5.2), layout="constrained")
    axis = figure.add_subplot(projection="3d")
    assert isinstance(axis, Axes3D)
    norm = Normalize(0.0, sd.max())
    shown = axis.plot_surface(
        *np.meshgrid(xs, ys),
        mean,
        facecolors=_colours(norm(sd)),
        rstride=1,
        cstride=1,
        shade=False,
        alpha=0.8,
        lw=0,
    )
    rows: Any = (X[:, i], X[:, j], y)
    axis.scatter(*rows, s=8, color="black", depthshade=False)
    names, name = column_names(posterior.data), target_name(posterior.data)
    axis.set_xlabel(names[i], labelpad=8)
    axis.set_ylabel(names[j], labelpad=8)
    axis.set_zlabel(name, labelpad=6)
    axis.tick_params(labelsize=8)
    shown.set(cmap="magma", norm=norm)
    figure.colorbar(shown, ax=axis, label=f"sd of {name}", shrink=0.6, pad=0.12)
    axis.set_title(f"Mean of {name}: {described(posterior)}", fontsize=10)
    return figure


def _colours(share: Any) -> np.ndarray:
    """Return the colours of numbers in [0, 1]."""
    from matplotlib import colormaps

    return colormaps["magma"](share)


def _two_columns(posterior: Posterior, columns: Columns, points: int) -> tuple[int, int]:
    """Return the numbers of the two columns, which must differ."""
    data = table_of(posterior)
    if data.d < 2:
        do = "use plots.function or plots.forecast"
        raise NotApplicable("at least two columns of X for a map", "one", do)
    numbers = column_numbers(data, columns)
    if len(numbers) != 2 or numbers[0] == numbers[1]:
        raise SettingError("two different columns of X", repr(columns), "for example (0, 1)")
    if points < 2:
        raise SettingError("at least two grid points per side", repr(points), "for example 60")
    return numbers[0], numbers[1]


def _on_grid(
    posterior: Posterior, X: np.ndarray, i: int, j: int, points: int
) -> tuple[np.ndarray, np.ndarray, Prediction]:
    """Return the grid lines of two columns, and the prediction at the points of the grid."""
    low, high = X.min(0), X.max(0)
    margin = 0.05 * (high - low)
    xs, ys = (np.linspace(low[k] - margin[k], high[k] + margin[k], points) for k in (i, j))
    plane = np.tile(X.mean(0), (points * points, 1))
    plane[:, i], plane[:, j] = (g.ravel() for g in np.meshgrid(xs, ys))
    if supports(posterior.model, LatentFunction):
        return xs, ys, posterior.latent(plane)
    return xs, ys, posterior.predict(plane)


def _one_space(posterior: Posterior, i: int, j: int) -> bool:
    """Return whether the two columns are places that share a unit."""
    return isinstance(posterior.model, Kriging) or {i, j} <= set(posterior.data.together)
