"""Figures of kernels: their matrices, learned features, and the directions of a metric."""

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
from ..kernels.wrappers import Multiple, Scale, maps_of_metrics
from ..posterior.posterior import Posterior
from ..priors import under
from ..runtime.whole_numbers import check_whole_number
from .common import colour_of, described, legend_below, marker_of, panel, set_title
from .shown_scalars import scale_in_words
from .table_columns import column_names, column_numbers, inputs_and_targets, table_of, target_name

MOST_ROWS = 300
MOST_DRAWS = 20
MOST_DIRECTIONS = 10


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


def metric(
    posterior: Posterior, directions: int = MOST_DIRECTIONS, ax: Axes | None = None
) -> Figure:
    """Plot the directions in which a kernel with a full metric changes, the fastest first.

    They are the eigenvectors of the mean of P P' over at most 20 draws, in standard deviations of
    the columns if the fit standardised them. A cell holds the step in one column, in its own units,
    of the step along its direction that is one lengthscale, and its colour the entry of the
    eigenvector. Signs of a whole row are arbitrary. Vivarelli & Williams (1999), section 4.

    Args:
        posterior: A fit of a model with one kernel ``Metric`` to rows X [n, d].
        directions: The largest number of directions to show.
        ax: The axes to draw in; None: those of a new figure.

    Raises:
        NotApplicable: If the kernel has no metric, or several.
        SettingError: If there is not at least one direction, or ``ax`` is not one Axes.

    Examples:
        The function depends on the sum of two columns: the fastest direction has equal entries.

        >>> import numpy as np
        >>> import ppgp
        >>> from ppgp import inference, kernels, models, plots
        >>> X = np.random.default_rng(0).normal(size=(40, 2))
        >>> model = models.GP(kernels.Metric(kernels.RBF()), noise=0.01)
        >>> data = ppgp.Dataset(X, np.sin(X.sum(1)))
        >>> posterior = ppgp.fit(model, data, inference.MAP(), progress=False)
        >>> axis = plots.metric(posterior).axes[0]
        >>> axis.images[0].get_array()[0].round(1).tolist()
        [0.7, 0.7]
    """
    data = table_of(posterior)
    kernel = _kernel_of(posterior)
    check_whole_number("directions", directions, 1, f"the default is {MOST_DIRECTIONS}")
    products, rank = [], directions
    with torch.no_grad():
        for theta in _draws_of(posterior):
            maps = maps_of_metrics(kernel, under("kernel", theta), data.X[:1])
            if len(maps) != 1:
                got = f"{len(maps)} in {type(kernel).__name__}"
                do = "fit a kernel such as Metric(RBF())"
                raise NotApplicable("one full metric in the kernel", got, do)
            products.append((maps[0] @ maps[0].mT).double())
            rank = min(rank, maps[0].shape[-1])
    values, vectors = torch.linalg.eigh(torch.stack(products).mean(0))
    lengths = values.flip(0)[:rank].rsqrt()
    vectors = vectors.flip(1)[:, :rank].mT
    largest = vectors.gather(1, vectors.abs().argmax(1, keepdim=True))
    vectors = vectors * largest.sign()
    steps = vectors * lengths[:, None] * posterior.scaler.x_sd.double()
    names = column_names(data)
    figure, axis = panel(ax, 2.6 + 0.75 * len(names), 1.6 + 0.34 * rank)
    shown = vectors.cpu().numpy()
    image = axis.imshow(shown, vmin=-1.0, vmax=1.0, cmap="RdBu_r", aspect="auto")
    for (i, j), step in np.ndenumerate(steps.cpu().numpy()):
        dark = abs(shown[i, j]) > 0.6
        style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7}
        axis.text(j, i, f"{step:.2g}", color="white" if dark else "black", **style)
    axis.set_xticks(range(len(names)), names, rotation=45, ha="right", fontsize=8)
    axis.set_yticks(range(rank), [f"{length:.2g}" for length in lengths.tolist()], fontsize=8)
    figure.colorbar(image, ax=axis, label="entry of the eigenvector")
    label = f"lengthscale ({scale_in_words(posterior)})"
    axis.set(xlabel="columns, in their units", ylabel=label)
    what = "Directions of the metric: a step of one lengthscale along each"
    set_title(axis, f"{what}: {described(posterior)}")
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
