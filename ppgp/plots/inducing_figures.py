"""A figure of the inducing inputs among the training rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..errors import NotApplicable
from ..posterior.posterior import Posterior
from .common import COLOURS, described, legend, panel, set_title
from .table_columns import column_names, column_numbers, inputs_and_targets, table_of, target_name


def inducing(
    posterior: Posterior, columns: tuple[int | str, ...] | None = None, ax: Axes | None = None
) -> Figure:
    """Plot the inducing inputs of a sparse Gaussian process among the training rows.

    With one column they are ticks below y against x. With two they are crosses in the plane.
    Inducing inputs that were inferred are those of the first draw. The axes are in the units of the
    columns and of y. Titsias (2009); Hensman, Fusi & Lawrence (2013).

    Args:
        posterior: A fit of ``SGPR`` or ``SVGP``, with m inducing inputs [m, d].
        columns: The column or the two columns of X [n, d] to show, by number or by name; None: the
            first two, or the only one.
        ax: The axes to draw in; None: those of a new figure.

    Raises:
        NotApplicable: If the model has no inducing inputs, or more than two columns are asked for.
        UnknownName: If there is no such column.
        SettingError: If ``ax`` is not one Axes.

    Examples:
        >>> import numpy as np
        >>> import ppgp
        >>> from ppgp import inference, kernels, models, plots
        >>> x = np.linspace(0, 6, 30)
        >>> data = ppgp.Dataset(x[:, None], np.sin(x))
        >>> model = models.SGPR(kernels.RBF(), inducing=5)
        >>> posterior = ppgp.fit(model, data, inference.MAP(), progress=False)
        >>> axis = plots.inducing(posterior).axes[0]
        >>> axis.get_legend_handles_labels()[1]
        ['30 training rows', '5 inducing inputs']
        >>> len(axis.lines[1].get_xdata())
        5
    """
    data = table_of(posterior)
    Z = inducing_inputs(posterior)
    numbers = column_numbers(data, columns or range(min(data.d, 2)))
    if len(numbers) not in (1, 2):
        do = "pass one or two, for example columns=(0, 1)"
        raise NotApplicable("one or two columns to show", f"{len(numbers)}", do)
    X, y = inputs_and_targets(posterior)
    names = column_names(data)
    figure, axis = panel(ax, 7.5, 3.6 if len(numbers) == 1 else 4.4)
    i = numbers[0]
    heights, label = y, target_name(data)
    if len(numbers) == 2:
        heights, label = X[:, numbers[1]], names[numbers[1]]
    text = f"{len(X)} training rows"
    axis.plot(X[:, i], heights, "o", ms=3, color=COLOURS[0], mec="none", alpha=0.5, label=text)
    marks: dict[str, Any] = {"ls": "", "color": COLOURS[1], "label": f"{len(Z)} inducing inputs"}
    if len(numbers) == 2:
        axis.plot(Z[:, i], Z[:, numbers[1]], marker="x", ms=7, mew=1.6, **marks)
    else:
        below = float(y.min()) - 0.08 * float(np.ptp(y))
        axis.plot(Z[:, i], np.full(len(Z), below), marker="|", ms=12, mew=1.6, **marks)
    axis.set(xlabel=names[i], ylabel=label)
    set_title(axis, f"Inducing inputs: {described(posterior)}")
    legend(axis)
    return figure


def inducing_inputs(posterior: Posterior) -> np.ndarray:
    """Return the inducing inputs [m, d] in the units of the data.

    Raises:
        NotApplicable: If the model has none.
    """
    Z = posterior.params.get("inducing")
    if "inducing" in posterior.draws:
        Z = posterior.draws["inducing"][0, 0]
    if Z is None:
        Z = getattr(posterior.model, "Z", None)
    if not isinstance(Z, torch.Tensor):
        got = type(posterior.model).__name__
        raise NotApplicable("a model with inducing inputs", got, "fit SGPR or SVGP")
    Z = Z.detach().to(posterior.data.X)
    return posterior.scaler.inputs_back(Z).double().cpu().numpy()
