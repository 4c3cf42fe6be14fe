"""A figure of residuals against predictions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import special

from ..data.columns import name_of
from ..data.entries.arrays import as_tensor
from ..errors import UnknownName
from ..posterior.prediction import Prediction
from ..runtime.levels import exact_level
from .common import COLOURS, legend, panel, percent, set_title

KINDS = ("quantile", "response")
GREYS = ("#DDDDDD", "#BBBBBB", "#999999")
LEAST = np.finfo(float).eps / 4


def residuals(
    prediction: Prediction,
    y: Any,
    kind: str = "quantile",
    levels: Sequence[float] = (0.5, 0.9),
    seed: int = 0,
    ax: Axes | None = None,
) -> Figure:
    """Plot residuals against the predictive mean, with the bands that contain them.

    - "quantile": the standard normal quantile of P(Y <= y), for counts drawn between P(Y < y) and
      P(Y <= y). Under the true distribution they are standard normal, whatever the family. Dunn &
      Smyth (1996).
    - "response": y minus the predictive mean, in the units of y. Each row has its own interval.

    Args:
        prediction: The prediction of n rows that the fit has not seen.
        y: The targets [n]; a Series gives the axis its name.
        kind: "quantile" or "response".
        levels: The probabilities of the bands.
        seed: The seed of quantile residuals of counts.
        ax: The axes to draw in; None: those of a new figure.

    Raises:
        UnknownName: If there is no such kind.
        NotApplicable: If y is a class.
        SettingError: If a level is not in (0, 1), or ``ax`` is not one Axes.
        DataError: If there is not one y per row.

    Examples:
        A quantile residual says how many standard deviations y lies from a normal prediction.

        >>> import ppgp
        >>> from ppgp import inference, models, plots
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0], [3.0]], [0.1, 0.9, 2.2, 2.8])
        >>> model = models.LinearRegression(noise=0.3)
        >>> posterior = ppgp.fit(model, data, inference.MAP(), progress=False)
        >>> prediction = posterior.predict([[0.5], [1.5]])
        >>> y = prediction.mean + 3 * prediction.std
        >>> axis = plots.residuals(prediction, y).axes[0]
        >>> [round(float(r), 3) for r in axis.lines[1].get_ydata()]
        [3.0, 3.0]
        >>> axis.lines[1].get_label()
        'outside 90%: 100%'
    """
    if kind not in KINDS:
        raise UnknownName("kind of residuals", str(kind), KINDS)
    name = name_of(y) or "y"
    truth = as_tensor(y, "y")
    mean = prediction.mean.double().cpu().numpy()
    ordered = sorted((float(exact_level(level)) for level in levels), reverse=True)
    figure, axis = panel(ax, 7.5, 3.8)
    title = f"Residuals of {len(mean)} rows"
    if kind == "quantile":
        values = _quantile_residuals(prediction, truth, seed)
        _constant_bands(axis, ordered)
        label = "quantile residual"
        title = f"Quantile residuals of {len(mean)} rows (standard normal if calibrated)"
    else:
        values = truth.double().cpu().numpy() - mean
        _row_bands(axis, prediction, mean, ordered)
        label = f"{name} - predictive mean"
    widest = ordered[0] if ordered else 0.9
    outside = ~prediction.interval(widest).covers(truth).cpu().numpy()
    text = f"inside {percent(widest)}"
    axis.plot(mean[~outside], values[~outside], "o", ms=4, color=COLOURS[0], label=text)
    text = f"outside {percent(widest)}: {outside.mean():.0%}"
    axis.plot(mean[outside], values[outside], "x", ms=5, color=COLOURS[1], label=text)
    axis.axhline(0.0, color="black", lw=0.8)
    axis.set(xlabel=f"predictive mean of {name}", ylabel=label)
    set_title(axis, title)
    legend(axis)
    return figure


def _quantile_residuals(prediction: Prediction, y: Any, seed: int) -> np.ndarray:
    """Return the standard normal quantiles of P(Y <= y), with full precision in the tails."""
    if prediction.kind == "continuous":
        below, above = (t.double().cpu().numpy() for t in prediction.log_tails(y))
        return np.where(below < above, special.ndtri_exp(below), -special.ndtri_exp(above))
    u = prediction.pit(y, seed).double().cpu().numpy()
    return special.ndtri(np.clip(u, LEAST, 1 - 2 * LEAST))


def _constant_bands(axis: Axes, levels: Sequence[float]) -> None:
    """Draw the central intervals of a standard normal distribution."""
    for k, level in enumerate(levels):
        half = float(special.ndtri(0.5 + level / 2))
        label = f"{percent(level)} band"
        axis.axhspan(-half, half, color=GREYS[k % len(GREYS)], lw=0, label=label, zorder=0)


def _row_bands(
    axis: Axes, prediction: Prediction, mean: np.ndarray, levels: Sequence[float]
) -> None:
    """Draw the central predictive interval of each row, around its mean."""
    for k, level in enumerate(levels):
        lower, upper = (t.double().cpu().numpy() - mean for t in prediction.interval(level))
        style: dict[str, Any] = {"color": GREYS[k % len(GREYS)], "lw": 3.0, "zorder": 0}
        axis.vlines(mean, lower, upper, label=f"{percent(level)} interval", **style)
