"""A returned figure is an image for IPython, and pyplot does not know it."""

from __future__ import annotations

import base64
import struct
import subprocess
import sys

import pytest
from IPython.core.formatters import DisplayFormatter
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from ppgp.errors import SettingError
from ppgp.plots.common import panel, panels

PLAIN = """
import sys
from ppgp.plots.common import panels
figure, axes = panels(2, 1)
axes[0, 0].plot([0, 1])
print(figure._repr_png_()[:4] == b"\\x89PNG", "matplotlib.pyplot" in sys.modules)
"""


def test_ipython_shows_a_figure_as_png_of_its_size() -> None:
    figure, axes = panels(3.0, 2.0)
    axes[0, 0].plot([0, 1])
    data, _ = DisplayFormatter().format(figure)
    image = data["image/png"]
    png = base64.b64decode(image) if isinstance(image, str) else image
    assert png.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", png[16:24])
    # cut to what is drawn, with a margin
    assert 200 < width < 330
    assert 120 < height < 230
    assert plt.get_fignums() == []


@pytest.mark.slow
def test_a_figure_is_an_image_where_pyplot_was_never_imported() -> None:
    run = subprocess.run([sys.executable, "-c", PLAIN], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["True", "False"]


def test_a_panel_is_that_of_the_axes_given() -> None:
    figure = Figure()
    inner = figure.subfigures(1, 2)[0].subplots()
    assert panel(inner, 1, 1) == (figure, inner)
    with pytest.raises(SettingError, match="expected one Axes of matplotlib as ax, got list"):
        panel([inner], 1, 1)
