"""Every figure looks like its stored image, draws in given axes, and shows in a notebook."""

from __future__ import annotations

import inspect
from pathlib import Path

import nbformat
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.testing.compare import compare_images
from nbclient import NotebookClient

from ppgp import plots
from tests.plots import gallery
from tests.plots.legible import problems_of

TOLERANCE = 3  # root mean square over the pixels, of 255; a lost curve is more
MOST_BYTES = 600_000
ROOT = Path(__file__).parents[2]
WITH_AX = [
    name for name in gallery.FIGURES if "ax" in inspect.signature(getattr(plots, name)).parameters
]


def test_the_gallery_has_one_figure_for_every_function() -> None:
    assert set(gallery.FIGURES) == set(plots.__all__) - gallery.NO_FIGURE
    images = {path.stem: path.stat().st_size for path in gallery.BASELINE.glob("*.png")}
    assert set(images) == set(gallery.FIGURES)
    assert sum(images.values()) < MOST_BYTES


@pytest.mark.slow
@pytest.mark.parametrize("name", gallery.FIGURES)
def test_a_figure_looks_like_its_stored_image(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.png"
    gallery.FIGURES[name]().savefig(path, dpi=gallery.DPI)
    stored = gallery.BASELINE / f"{name}.png"
    assert compare_images(str(stored), str(path), TOLERANCE) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_AX)
def test_a_figure_of_one_panel_draws_in_given_axes(name: str) -> None:
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert gallery.FIGURES[name](ax=left) is figure
    assert left.get_title()
    assert left.get_xlabel()
    assert _artists(left) > 0
    assert _artists(right) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", gallery.FIGURES)
def test_the_text_of_a_figure_can_be_read(name: str) -> None:
    assert problems_of(gallery.FIGURES[name]()) == []


def test_what_cannot_be_read_is_found() -> None:
    figure = Figure(figsize=(2, 2))
    axis = figure.add_axes((0.2, 0.2, 0.6, 0.6))
    axis.plot([0, 1], label="line")
    axis.set_xticks([0.0, 0.01, 1.0], ["one", "two", "three"])
    axis.set_yticks([])
    axis.set_title("a title that is longer than the figure is wide")
    axis.set_xlabel("x", fontsize=4)
    axis.legend(loc="center")
    assert problems_of(figure) == [
        "'a title that is longer than the figure is wide' is cut",
        "'x' has 4.0 points",
        "'one' and 'two' overlap",
        "a legend covers a panel",
    ]


def _artists(axes: Axes) -> int:
    """Return how many lines, patches, collections and images the axes hold."""
    return sum(map(len, (axes.lines, axes.patches, axes.collections, axes.images)))


@pytest.mark.slow
def test_every_figure_shows_in_a_notebook_without_a_magic(monkeypatch: pytest.MonkeyPatch) -> None:
    # the kernel sees the packages of the test, and no backend of matplotlib is set
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("MPLBACKEND", raising=False)
    cells = [nbformat.v4.new_code_cell("from tests.plots import gallery")]
    for name in gallery.FIGURES:
        cells.append(nbformat.v4.new_code_cell(f"gallery.FIGURES[{name!r}]()"))
    notebook = nbformat.v4.new_notebook(cells=cells)
    resources = {"metadata": {"path": str(ROOT)}}
    NotebookClient(notebook, timeout=1200, kernel_name="python3", resources=resources).execute()
    without = []
    for name, cell in zip(gallery.FIGURES, notebook.cells[1:], strict=True):
        images = [o for o in cell["outputs"] if "image/png" in o.get("data", {})]
        if len(images) != 1:
            without.append((name, len(images)))
    assert without == []
