"""Figures of predictions over two coordinates: maps of mean and sd, and the surface."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d.axes3d import Axes3D

from ..capabilities import LatentFunction, supports
from ..posterior.posterior import Posterior
from .common import NotebookFigure, described, legend_below, panels
from .table_columns import column_names, columns_of_plane, inputs_and_targets, target_name

Columns = tuple[int | str, int | str]


def map_of(posterior: Posterior, columns: Columns = (0, 1), points: int = 60) -> Figure:
    """Plot the mean and the standard deviation over two coordinates, with the training rows.

    They are those of the latent function (without noise) if the model has one, else of y. The rows
    are coloured by y on the scale of the mean. Inputs that are not shown are held at their training
    mean. Mean and standard deviation are in the units of y. Cressie (1993), section 3.2.

    Args:
        posterior: A fit of a regression to a table X [n, d] with at least two columns.
        columns: The columns of X that span the map, by number or by name.
        points: The number of grid points per side.

    Raises:
        NotApplicable: If X has one column, or y is a class.
        UnknownName: If there is no such column.
        SettingError: If there are not two columns, or fewer than two grid points.

    Examples:
        >>> import pandas as pd
        >>> import ppgp
        >>> from ppgp import inference, models, plots
        >>> X = pd.DataFrame({"east": [0.0, 1.0, 0.0, 1.0], "north": [0.0, 0.0, 1.0, 1.0]})
        >>> data = ppgp.Dataset(X, pd.Series([0.0, 1.0, 2.0, 3.5], name="zinc"))
        >>> model = models.LinearRegression(noise=0.1)
        >>> posterior = ppgp.fit(model, data, inference.Exact(), progress=False)
        >>> figure = plots.map_of(posterior, points=10)
        >>> [axis.get_title() for axis in figure.axes[:2]]
        ['mean, and zinc of the training rows (circles)',
         'standard deviation, and the training rows (dots)']
        >>> [bar.get_ylabel() for bar in figure.axes[2:]]
        ['mean of zinc', 'sd of zinc']
    """
    at = _on_grid(posterior, columns, points)
    i, j, X, y, mean = at.i, at.j, at.X, at.y, at.mean
    figure, axes = panels(10, 4.4, 1, 2, sharex=True, sharey=True)
    names, name = column_names(posterior.data), target_name(posterior.data)
    norm = Normalize(min(mean.min(), y.min()), max(mean.max(), y.max()))
    style: dict[str, Any] = {"shading": "auto", "rasterized": True}
    left, right = axes[0]
    mesh = left.pcolormesh(at.xs, at.ys, mean, cmap="viridis", norm=norm, **style)
    dots = {"s": 16, "edgecolor": "black", "linewidth": 0.6}
    left.scatter(X[:, i], X[:, j], c=y, cmap="viridis", norm=norm, **dots)
    figure.colorbar(mesh, ax=left, label=f"mean of {name}")
    mesh = right.pcolormesh(at.xs, at.ys, at.sd, cmap="magma", vmin=0.0, **style)
    right.scatter(X[:, i], X[:, j], s=9, color="white", edgecolor="black", linewidth=0.5)
    figure.colorbar(mesh, ax=right, label=f"sd of {name}")
    left.set(xlabel=names[i], ylabel=names[j])
    right.set(xlabel=names[i], ylabel=names[j])
    left.set_title(f"mean, and {name} of the training rows (circles)", fontsize=10)
    right.set_title("standard deviation, and the training rows (dots)", fontsize=10)
    if _one_space(posterior, i, j):
        for axis in (left, right):
            axis.set_aspect("equal")
    figure.suptitle(f"{at.what} {name}: {described(posterior)}", fontsize=10)
    return figure


def surface(posterior: Posterior, columns: Columns = (0, 1), points: int = 40) -> Figure:
    """Plot the mean over two coordinates as a surface, coloured by its sd, with the training rows.

    Mean and standard deviation are those of ``map_of``, in the units of y. Cressie (1993), section
    3.2.

    Args:
        posterior: A fit of a regression to a table X [n, d] with at least two columns.
        columns: The columns of X that span the plane, by number or by name.
        points: The number of grid points per side.

    Raises:
        NotApplicable: If X has one column, or y is a class.
        UnknownName: If there is no such column.
        SettingError: If there are not two columns, or fewer than two grid points.

    Examples:
        >>> import pandas as pd
        >>> import ppgp
        >>> from ppgp import inference, kernels, models, plots
        >>> X = pd.DataFrame({"east": [0.0, 1.0, 0.0, 1.0], "north": [0.0, 0.0, 1.0, 1.0]})
        >>> data = ppgp.Dataset(X, pd.Series([0.0, 1.0, 2.0, 3.5], name="zinc"))
        >>> model = models.GP(kernels.RBF(1.0, 1.0), noise=0.01)
        >>> posterior = ppgp.fit(model, data, inference.MAP(), progress=False)
        >>> axis = plots.surface(posterior, points=10).axes[0]
        >>> axis.get_xlabel(), axis.get_ylabel(), axis.get_zlabel()
        ('east', 'north', 'zinc')
    """
    at = _on_grid(posterior, columns, points)
    i, j = at.i, at.j
    figure = NotebookFigure(figsize=(6.5, 5.2), layout="constrained")
    axis = figure.add_subplot(projection="3d")
    assert isinstance(axis, Axes3D)
    norm = Normalize(0.0, at.sd.max())
    shown = axis.plot_surface(
        *np.meshgrid(at.xs, at.ys),
        at.mean,
        facecolors=_colours(norm(at.sd)),
        rstride=1,
        cstride=1,
        shade=False,
        alpha=0.8,
        lw=0,
    )
    rows: Any = (at.X[:, i], at.X[:, j], at.y)
    axis.scatter(*rows, s=8, color="black", depthshade=False, label="training rows")
    names, name = column_names(posterior.data), target_name(posterior.data)
    axis.set_xlabel(names[i], labelpad=8)
    axis.set_ylabel(names[j], labelpad=8)
    axis.set_zlabel(name, labelpad=6)
    axis.tick_params(labelsize=8)
    shown.set(cmap="magma", norm=norm)
    figure.colorbar(shown, ax=axis, label=f"sd of {name}", shrink=0.6, pad=0.12)
    axis.set_title(f"Mean of {at.what.lower()} {name}: {described(posterior)}", fontsize=10)
    legend_below(figure, axis, None)
    return figure


def _colours(share: Any) -> np.ndarray:
    """Return the colours of numbers in [0, 1]."""
    from matplotlib import colormaps

    return colormaps["magma"](share)


class _Grid(NamedTuple):
    """The predictions on a grid over two columns, and the training rows.

    Attributes:
        i, j: The numbers of the columns.
        xs, ys: The grid lines [points] of the columns.
        mean, sd: Of the predictions, [points, points].
        X, y: The training rows [n, d] and [n].
        what: What the predictions are of, to be followed by the name of y.
    """

    i: int
    j: int
    xs: np.ndarray
    ys: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    X: np.ndarray
    y: np.ndarray
    what: str


def _on_grid(posterior: Posterior, columns: Columns, points: int) -> _Grid:
    """Return the predictions on a grid over two columns."""
    do = "use plots.function or plots.forecast"
    i, j = columns_of_plane(posterior, columns, points, "a map", do)
    X, y = inputs_and_targets(posterior)
    low, high = X.min(0), X.max(0)
    margin = 0.05 * (high - low)
    xs, ys = (np.linspace(low[k] - margin[k], high[k] + margin[k], points) for k in (i, j))
    plane = np.tile(X.mean(0), (points * points, 1))
    plane[:, i], plane[:, j] = (g.ravel() for g in np.meshgrid(xs, ys))
    of_f = supports(posterior.model, LatentFunction)
    prediction = posterior.latent(plane) if of_f else posterior.predict(plane)
    mean, sd = (t.cpu().numpy().reshape(points, points) for t in (prediction.mean, prediction.std))
    what = "The function behind" if of_f else "New values of"
    return _Grid(i, j, xs, ys, mean, sd, X, y, what)


def _one_space(posterior: Posterior, i: int, j: int) -> bool:
    """Return whether the two columns are places that share a unit."""
    return posterior.model.inputs_are_places or {i, j} <= set(posterior.data.together)
