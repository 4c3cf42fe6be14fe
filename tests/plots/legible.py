"""What a reader of a figure cannot read: text that is cut, small or covered, legends over data."""

from __future__ import annotations

from itertools import combinations

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from mpl_toolkits.mplot3d.axes3d import Axes3D

SMALLEST = 7.0  # points
SLACK = 1.0  # pixels


def problems_of(figure: Figure) -> list[str]:
    """Return a sentence for each text that cannot be read; [] where all can be."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    canvas.draw()  # the layout of panels with a fixed aspect needs the first one
    panels = [axes for axes in figure.axes if axes.get_visible()]
    found = []
    for text in _texts(figure, panels):
        words = repr(text.get_text())
        box = text.get_window_extent()
        if not _within(box, figure.bbox):
            found.append(f"{words} is cut")
        if text.get_fontsize() < SMALLEST:
            found.append(f"{words} has {text.get_fontsize()} points")
    for axes in panels:
        if not isinstance(axes, Axes3D):
            for axis in (axes.xaxis, axes.yaxis):
                found += _overlaps(_tick_labels(axis))
    for legend in _legends(figure, panels):
        box = legend.get_window_extent()
        if any(_overlap(box, axes.bbox) for axes in panels):
            found.append("a legend covers a panel")
    found += _overlaps(_headings(figure, panels))
    return found


def _within(inner: Bbox, outer: Bbox) -> bool:
    return (
        inner.x0 >= outer.x0 - SLACK
        and inner.y0 >= outer.y0 - SLACK
        and inner.x1 <= outer.x1 + SLACK
        and inner.y1 <= outer.y1 + SLACK
    )


def _overlap(one: Bbox, other: Bbox) -> bool:
    width = min(one.x1, other.x1) - max(one.x0, other.x0)
    height = min(one.y1, other.y1) - max(one.y0, other.y0)
    return width > SLACK and height > SLACK


def _overlaps(texts: list[Text]) -> list[str]:
    return [
        f"{a.get_text()!r} and {b.get_text()!r} overlap"
        for a, b in combinations(texts, 2)
        if _overlap(a.get_window_extent(), b.get_window_extent())
    ]


def _tick_labels(axis: Axis) -> list[Text]:
    """Return the labels of the ticks that are in view."""
    low, high = sorted(axis.get_view_interval())
    margin = 1e-9 * (high - low)
    return [
        tick.label1
        for tick in axis.get_major_ticks()
        if low - margin <= tick.get_loc() <= high + margin
        and tick.label1.get_visible()
        and tick.label1.get_text()
    ]


def _headings(figure: Figure, panels: list[Axes]) -> list[Text]:
    """Return the titles, and the labels of the axes."""
    texts = [axes.title for axes in panels]
    texts += [axes.xaxis.label for axes in panels] + [axes.yaxis.label for axes in panels]
    texts += figure.texts
    return [text for text in texts if text.get_visible() and text.get_text()]


def _legends(figure: Figure, panels: list[Axes]) -> list[Legend]:
    """Return the legends of the figure and of its panels."""
    of_panels = [axes.get_legend() for axes in panels]
    return [*figure.legends, *(legend for legend in of_panels if legend is not None)]


def _texts(figure: Figure, panels: list[Axes]) -> list[Text]:
    """Return every text that is drawn."""
    texts = _headings(figure, panels)
    for legend in _legends(figure, panels):
        texts += legend.get_texts()
    for axes in panels:
        texts += axes.texts
        if not isinstance(axes, Axes3D):
            texts += _tick_labels(axes.xaxis) + _tick_labels(axes.yaxis)
    return texts
