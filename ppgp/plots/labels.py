"""Classes: reliability, and the plane with its boundary."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ..data.arrays import as_tensor
from ..posterior.posterior import Posterior
from ..posterior.prediction import Prediction
from .common import COLOURS, panels


def reliability(prediction: Prediction, y: Any, bins: int = 10) -> Figure:
    """How often the most probable label was right against how probable it was said to be, in bins of equal size."""
    p = prediction.probabilities.cpu()
    confidence, label = (t.numpy() for t in p.max(-1))
    right = label == as_tensor(y, "y").cpu().numpy()
    groups = np.array_split(np.argsort(confidence), min(bins, len(confidence)))
    said, came, sizes = zip(
        *[(confidence[g].mean(), right[g].mean(), len(g)) for g in groups], strict=True
    )
    error = [np.sqrt(max(c * (1 - c), 1 / n) / n) for c, n in zip(came, sizes, strict=True)]
    figure, axes = panels(3.8, 3.6)
    axis = axes[0, 0]
    start = min(*said, *came) - 0.05
    axis.plot([start, 1], [start, 1], color="black", lw=0.8)
    axis.errorbar(said, came, yerr=error, fmt="o-", color=COLOURS[0], ms=4, lw=1)
    axis.set(
        xlabel="probability said", ylabel="share right", title="reliability", ylim=(start, 1.03)
    )
    return figure


def decision(
    posterior: Posterior, features: tuple[int, int] = (0, 1), title: str = "", points: int = 120
) -> Figure:
    """The probability of each row of a plane, and where it crosses one half; training rows on top.

    Two classes: p(second class). More: the largest probability, one colour a class. Inputs that are not drawn are held at
    their training mean.
    """
    data, scaler = posterior.data, posterior.scaler
    X = data.X if scaler is None else data.X * scaler.x_sd + scaler.x_mean
    X = X.double().cpu().numpy()
    i, j = features
    low, high = X.min(0), X.max(0)
    margin = 0.08 * (high - low)
    xs, ys = (np.linspace(low[k] - margin[k], high[k] + margin[k], points) for k in (i, j))
    plane = np.tile(X.mean(0), (points * points, 1))
    plane[:, i], plane[:, j] = (g.ravel() for g in np.meshgrid(xs, ys))
    p = posterior.predict(plane).probabilities.cpu().numpy().reshape(points, points, -1)
    figure, axes = panels(5.4, 4.4)
    axis = axes[0, 0]
    classes = p.shape[-1]
    if classes == 2:
        shown = axis.pcolormesh(
            xs, ys, p[..., 1], cmap="RdBu_r", vmin=0, vmax=1, shading="auto", rasterized=True
        )
        axis.contour(
            xs, ys, p[..., 1], levels=[0.1, 0.5, 0.9], colors="black", linewidths=[0.7, 1.6, 0.7]
        )
        figure.colorbar(shown, label=f"p({(data.classes or (0, 1))[1]})")
    else:
        winner = p.argmax(-1)
        for k in range(classes):
            sure = np.where(winner == k, p[..., k], np.nan)
            axis.contourf(
                xs, ys, sure, levels=np.linspace(1 / classes, 1, 8), colors=[COLOURS[k]], alpha=0.25
            )
        axis.contour(
            xs, ys, winner, levels=np.arange(classes - 1) + 0.5, colors="black", linewidths=1.4
        )
    names = data.feature_names or [f"x{k}" for k in range(data.d)]
    for k in range(classes):
        rows = data.y.cpu().numpy() == k
        colour = ("#2166AC", "#B2182B")[k] if classes == 2 else COLOURS[k]
        label = str((data.classes or range(classes))[k])
        axis.scatter(
            X[rows, i],
            X[rows, j],
            s=18,
            color=colour,
            edgecolor="white",
            linewidth=0.5,
            label=label,
        )
    axis.legend(frameon=False, fontsize=8)
    axis.set(
        xlabel=names[i],
        ylabel=names[j],
        title=title or f"{type(posterior.model).__name__} by {type(posterior.how).__name__}",
    )
    return figure
