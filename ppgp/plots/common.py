"""Common parts of the figures: colours, markers, panels, titles and legends."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Mapping
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..errors import SettingError, an
from ..posterior.posterior import Posterior

#: colours that colour-blind readers can tell apart; Okabe & Ito (2008)
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
#: markers of series, in the order of the colours
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
#: line styles of series, in the order of the colours
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), (0, (1, 1)))
#: the most scalars that a figure shows or names by default
MOST_SITES = 12
#: the most characters of a title per inch of the figure
CHARACTERS_PER_INCH = 13
#: in a figure narrower than this, in inches, the legend lies below the panel
NARROW = 5.5
#: the most names of scalars that are not shown which a figure states
MOST_NAMES = 3
#: intervals between the ticks of a small panel, at most
FEW_TICKS = 4


class NotebookFigure(Figure):
    """A matplotlib Figure that IPython shows as a PNG, also where pyplot was never imported.

    pyplot does not know the figure, so that it neither keeps it alive nor draws it a second time.
    Where ``%matplotlib inline`` is active, its own format of figures applies instead.
    """

    def _repr_png_(self) -> bytes:
        """Return the figure as a PNG at its own resolution, for IPython's display."""
        image = BytesIO()
        self.savefig(image, format="png", bbox_inches="tight")
        return image.getvalue()


def panels(
    width: float, height: float, rows: int = 1, columns: int = 1, **options: Any
) -> tuple[Figure, np.ndarray]:
    """Return a figure of this size in inches and its axes [rows, columns], without frames.

    Args:
        width: In inches.
        height: In inches.
        rows: The number of rows of panels.
        columns: The number of columns of panels.
        **options: Options of ``Figure.subplots``.
    """
    figure = NotebookFigure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def panel(ax: Any, width: float, height: float) -> tuple[Figure, Axes]:
    """Return the figure and the axes to draw in: those of ``ax``, or of a new figure.

    Args:
        ax: The axes that the user gave, or None.
        width: Of a new figure, in inches.
        height: Of a new figure, in inches.

    Raises:
        SettingError: If ``ax`` is not one Axes of matplotlib.
    """
    if ax is None:
        figure, axes = panels(width, height)
        return figure, axes[0, 0]
    if not isinstance(ax, Axes):
        do = "pass one, for example ax=figure.subplots()"
        raise SettingError("one Axes of matplotlib as ax", type(ax).__name__, do)
    return ax.figure.figure, ax  # the figure of a subfigure is the whole one


def check_named(values: Any, what: str) -> None:
    """Raise SettingError unless values are given by name.

    Args:
        values: What the user gave.
        what: What one of them is called.
    """
    do = f"pass {{name: {what}}}"
    if not isinstance(values, Mapping):
        raise SettingError(f"{what}s by name", an(type(values).__name__), do)


def colour_of(k: int) -> str:
    """Return the colour of series k."""
    return COLOURS[k % len(COLOURS)]


def marker_of(k: int) -> str:
    """Return the marker of series k."""
    return MARKERS[k % len(MARKERS)]


def line_of(k: int) -> dict[str, Any]:
    """Return the colour and the line style of series k."""
    return {"color": colour_of(k), "ls": DASHES[k % len(DASHES)]}


def described(posterior: Posterior) -> str:
    """Return the model and the method in words: ``GP by NUTS``."""
    program = getattr(posterior.model, "function", None)
    name = getattr(program, "__name__", type(posterior.model).__name__)
    return f"{name} by {type(posterior.how).__name__}"


def set_title(axis: Axes, text: str) -> None:
    """Set the title of a panel, in several lines if it is long."""
    width = axis.figure.figure.get_figwidth() * axis.get_position().width
    axis.set_title(textwrap.fill(text, max(24, int(CHARACTERS_PER_INCH * width))), fontsize=10)


def legend(axis: Axes, **options: Any) -> None:
    """Put the legend where it covers no data.

    It lies to the right of the panel, or below it in a narrow figure of its own.
    """
    handles, _ = axis.get_legend_handles_labels()
    figure = axis.figure.figure
    if isinstance(figure, NotebookFigure) and figure.get_figwidth() < NARROW:
        legend_below(figure, axis, None, columns=2)
    elif handles:
        where = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0}
        axis.legend(**{"frameon": False, "fontsize": 8, **where, **options})


def legend_below(figure: Figure, axis: Axes, ax: Axes | None, columns: int = 4) -> None:
    """Put the legend below the figure, for panels with a colour bar on their right.

    In the user's own axes it lies below these.

    Args:
        figure: The figure.
        axis: The panel with the labelled series.
        ax: The axes that the user gave, or None.
        columns: The most entries beside one another.
    """
    handles, labels = axis.get_legend_handles_labels()
    if not handles:
        return
    style: dict[str, Any] = {"frameon": False, "fontsize": 8, "ncols": min(columns, len(labels))}
    if ax is None:
        figure.legend(handles, labels, loc="outside lower center", **style)
    else:
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), **style)


def percent(level: float) -> str:
    """Return a probability in percent: ``90%``, ``97.5%``."""
    return f"{100 * level:g}%"


def note_hidden(
    figure: Figure, shown: Collection[str], every: Collection[str], what: str = "scalars"
) -> None:
    """State below the title of a figure which scalars it does not show; many are counted.

    Args:
        figure: The figure.
        shown: The names of the scalars that it shows.
        every: The names of all scalars that it could show.
        what: The plural of what they are.
    """
    hidden = [name for name in every if name not in shown]
    if hidden:
        names = ", ".join(hidden) if len(hidden) <= MOST_NAMES else f"{len(hidden)} others"
        text = f"{len(shown)} of {len(every)} {what} shown; not shown: {names}"
        figure.suptitle(f"{figure.get_suptitle()}\n{text}", fontsize=10)


def density_axes(axis: Axes) -> None:
    """Start the axis of a density at 0, without numbers, and give the other axis few ticks."""
    axis.set_ylim(bottom=0.0)
    axis.set_yticks([])
    few_ticks(axis.xaxis)


def few_ticks(axis: Axis) -> None:
    """Give an axis of a small panel few ticks, so that their labels do not touch."""
    axis.set_major_locator(MaxNLocator(FEW_TICKS, steps=[1, 2, 5, 10]))
