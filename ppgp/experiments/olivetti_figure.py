"""The figure of the Olivetti experiment: prediction errors with their bands."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..plots.common import COLOURS, panels
from ..posterior.region import Region
from .olivetti_data import PROTOCOLS

LEVEL = 0.95

#: predictive mean, the model's own interval, and the calibrated one
Bands = tuple[Tensor, Region, Region]


def figure_of(bands: dict[str, Bands], y: Tensor, protocol: str) -> Any:
    """Draw the prediction error with its 95 % bands, one panel per model."""
    columns = 3
    lines = -(-len(bands) // columns)
    figure, axes = panels(12, 3.4 * lines, lines, columns)
    for axis, (name, band) in zip(axes.flat, bands.items(), strict=False):
        _draw_errors(axis, name, band, y)
    for axis in list(axes.flat)[len(bands) :]:
        axis.set_visible(False)
    figure.suptitle(f"{protocol}: {PROTOCOLS[protocol]}", fontsize=11)
    return figure


def _draw_errors(axis: Any, name: str, band: Bands, y: Tensor) -> None:
    """Draw errors and both bands of one model; a band covers a row if it contains 0."""
    mean, own, calibrated = band
    for region, colour, label, width in (
        (calibrated, COLOURS[5], "calibrated", 2.2),
        (own, "#777777", "model's own", 0.9),
    ):
        lower, upper = region
        share = float(region.covers(y).double().mean())
        label = f"{label}: covers {share:.1%}"
        axis.vlines(y, lower - y, upper - y, color=colour, lw=width, label=label, zorder=1)
    axis.plot(y, mean - y, ".", ms=2.5, color="black", zorder=3)
    axis.axhline(0, color=COLOURS[1], lw=0.8, zorder=2)
    rmse = float((mean - y).square().mean().sqrt())
    axis.set(
        title=f"{name}: RMSE {rmse:.2f} degrees",
        xlabel="angle (degrees)",
        ylabel="error, with 95 % bands",
    )
    axis.title.set_fontsize(10)
    axis.legend(frameon=False, fontsize=8, loc="upper left")
