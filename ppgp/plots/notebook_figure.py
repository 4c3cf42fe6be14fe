"""A figure that a notebook shows as an image."""

from __future__ import annotations

from io import BytesIO

from matplotlib.figure import Figure


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
