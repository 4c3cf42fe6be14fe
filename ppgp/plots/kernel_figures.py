"""Figures of kernels: the covariance between the training rows, and learned features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from ..errors import NotApplicable
from ..kernels import Deep, Kernel, Product, Sum
from ..kernels.wrappers import Multiple, Scale
from ..posterior.posterior import Posterior
from ..priors import under
from ..runtime.whole_numbers import check_whole_number
from .common import colour_of, described, legend_below, marker_of, panel, set_title
from .table_columns import column_names, column_numbers, inputs_and_targets, table_of, target_name

MOST_ROWS = 300
MOST_DRAWS = 20


def kernel_matrix(
    posterior: Posterior,
    sort_by: int | str = 0,
    correlation: bool = False,
    rows: int = MOST_ROWS,
    ax: Axes | None = None,
) -> Figure:
    """Plot the prior covariance of f between the training rows, sorted by one column.

    It is the mean over at most 20 draws of the hyperparameters from the posterior. Blocks and
    stripes show which rows inform each other. Rasmussen & Williams (2006), section 4.1.

    Args:
        posterior: A fit of a model with a kernel to n rows, whose matrix is [n, n].
        sort_by: The column of X [n, d] that orders the rows, by number or by name.
        correlation: Whether to divide by the standard deviations. Covariances are in squared units
            of y, and correlations have no unit.
        rows: The largest number of rows; of more rows, so many at equal steps of the order.
        ax: The axes to draw in; None: those of a new figure.

    Raises:
        NotApplicable: If the model has no kernel.
        UnknownName: If there is no such column.
        SettingError: If there is not at least one row, or ``ax`` is not one Axes.

    Examples:
        With lengthscale 1, the correlation at distance 1 is exp(-1/2) = 0.607.

        >>> import ppgp
        >>> from ppgp import inference, kernels, models, plots
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0]], [0.1, 0.9, 0.4])
        >>> model = models.GP(kernels.RBF(lengthscale=1.0))
        >>> options = {"standardise": False, "progress": False}
        >>> posterior = ppgp.fit(model, data, inference.MAP(), **options)
        >>> axis = plots.kernel_matrix(posterior, correlation=True).axes[0]
        >>> print(axis.images[0].get_array().round(3))
        [[1.    0.607 0.135]
         [0.607 1.    0.607]
         [0.135 0.607 1.   ]]
    """
    data = table_of(posterior)
    kernel = _kernel_of(posterior)
    check_whole_number("rows", rows, 1, f"the default is {MOST_ROWS}")
    (j,) = column_numbers(data, [sort_by])
    order = data.X[:, j].argsort(stable=True)
    steps = torch.linspace(0, data.n - 1, min(rows, data.n)).round().long()
    X = data.X[order[steps.to(order.device)]]
    covariances = []
    with torch.no_grad():
        for theta in _draws_of(posterior):
            covariances.append(kernel(under("kernel", theta), X).double())
    K = torch.stack(covariances).mean(0) * posterior.scaler.y_sd.double() ** 2
    unit = f"prior covariance of f, in the squared unit of {target_name(data)}"
    limits: dict[str, Any] = {}
    if correlation:
        sd = K.diagonal().sqrt()
        K, unit, limits = K / sd[:, None] / sd, "prior correlation of f", {"vmax": 1.0}
    matrix = K.cpu().numpy()
    if matrix.min() < 0:
        most = limits.get("vmax", float(np.abs(matrix).max()))
        limits = {"vmin": -most, "vmax": most, "cmap": "RdBu_r"}
    else:
        limits = {"vmin": 0.0, "cmap": "viridis", **limits}
    figure, axis = panel(ax, 5.6, 4.6)
    image = axis.imshow(matrix, interpolation="nearest", **limits)
    figure.colorbar(image, ax=axis, label=unit)
    label = f"rows, sorted by {column_names(data)[j]}"
    if len(X) < data.n:
        label += f" ({len(X)} of {data.n})"
    axis.set(xlabel=label, ylabel="rows, in the same order")
    set_title(axis, f"Kernel matrix: {described(posterior)}")
    return figure


def features(posterior: Posterior, ax: Axes | None = None) -> Figure:
    """Plot the features that the network of a deep kernel has learned for the training rows.

    One feature is shown against y, two in their plane, and of more the first two principal
    components. Rows are coloured by y. Weights with a prior are those of the first draw. Wilson,
    Hu, Salakhutdinov & Xing (2016). Features have no unit, and y has its own units.

    Args:
        posterior: A fit of a model with a kernel ``Deep`` to rows X [n, d].
        ax: The axes to draw in; None: those of a new figure.

    Raises:
        NotApplicable: If the kernel has no network, or several.
        SettingError: If ``ax`` is not one Axes.

    Examples:
        >>> import numpy as np
        >>> import ppgp
        >>> from ppgp import inference, kernels, models, networks, plots
        >>> x = np.linspace(-1, 1, 12)
        >>> network = networks.MLP(hidden=(4,), out=2, activation="tanh")
        >>> model = models.GP(kernels.Deep(network, kernels.RBF()))
        >>> data = ppgp.Dataset(x[:, None], abs(x))
        >>> posterior = ppgp.fit(model, data, inference.MAP("adam", steps=20), progress=False)
        >>> axis = plots.features(posterior).axes[0]
        >>> axis.get_xlabel(), axis.get_ylabel()
        ('feature 0', 'feature 1')
        >>> axis.collections[0].get_offsets().shape
        (12, 2)
    """
    data = table_of(posterior)
    kernel = _kernel_of(posterior)
    first = next(iter(_draws_of(posterior)))
    networks = list(_deep_parts(kernel, under("kernel", first)))
    if len(networks) != 1:
        got = f"{len(networks)} in {type(kernel).__name__}"
        raise NotApplicable("one network in the kernel", got, "fit GP(Deep(MLP(), RBF()))")
    deep, theta = networks[0]
    with torch.no_grad():
        values = deep.features(theta, data.X).double().cpu().numpy()
    figure, axis = panel(ax, 6.2, 4.6)
    _, y = inputs_and_targets(posterior)
    name = target_name(data)
    points, words = _in_a_plane(values, y, name)
    if data.classes:
        for k, label in enumerate(data.classes):
            style = {"ms": 4, "ls": "", "color": colour_of(k), "label": str(label)}
            axis.plot(*points[y == k].T, marker_of(k), **style)
        legend_below(figure, axis, ax)
    else:
        edge: dict[str, Any] = {"edgecolor": "#555555", "lw": 0.4}
        shown = axis.scatter(*points.T, c=y, s=16, cmap="viridis", **edge)
        figure.colorbar(shown, ax=axis, label=name)
    axis.set(xlabel=words[0], ylabel=words[1])
    rows = f"of {len(values)} training rows"
    set_title(axis, f"{values.shape[1]} learned features {rows}: {described(posterior)}")
    return figure


def _in_a_plane(values: np.ndarray, y: np.ndarray, name: str) -> tuple[np.ndarray, list[str]]:
    """Return two coordinates of the features [n, 2], and what they are."""
    if values.shape[1] == 1:
        return np.column_stack([values[:, 0], y]), ["feature", name]
    if values.shape[1] == 2:
        return values, ["feature 0", "feature 1"]
    centred = values - values.mean(0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    shares = sizes**2 / max(float((sizes**2).sum()), 1e-300)
    words = [f"principal component {k} ({shares[k]:.0%} of the variance)" for k in (0, 1)]
    return left[:, :2] * sizes[:2], words


def _kernel_of(posterior: Posterior) -> Kernel:
    """Return the kernel of the model on the scale of the fit.

    Raises:
        NotApplicable: If it has none.
    """
    kernel = getattr(posterior.model, "kernel", None)
    if not isinstance(kernel, Kernel):
        got = type(posterior.model).__name__
        raise NotApplicable("a model with a kernel", got, "fit a Gaussian process, such as GP")
    return kernel


def _draws_of(posterior: Posterior) -> list[dict[str, Tensor]]:
    """Return theta of at most 20 draws at equal steps, ``{site: [*event]}`` with the params."""
    drawn = {name: value.flatten(0, 1) for name, value in posterior.draws.items()}
    count = posterior.shape[0] * posterior.shape[1]
    steps = np.unique(np.linspace(0, count - 1, min(count, MOST_DRAWS)).round().astype(int))
    return [
        {**posterior.params, **{name: value[int(i)] for name, value in drawn.items()}}
        for i in steps
    ]


def _deep_parts(
    kernel: Kernel, theta: Mapping[str, Tensor]
) -> list[tuple[Deep, dict[str, Tensor]]]:
    """Return the deep kernels in a kernel, each with its own hyperparameters."""
    if isinstance(kernel, Deep):
        return [(kernel, dict(theta))]
    if isinstance(kernel, Scale | Multiple):
        return _deep_parts(kernel.kernel, theta)
    if isinstance(kernel, Sum | Product):
        parts = kernel.parts(dict(theta))
        return [found for child, own in parts for found in _deep_parts(child, own)]
    return []
