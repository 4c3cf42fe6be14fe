"""What the figures share: colours, and a bare figure on matplotlib's object interface."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ..errors import NotApplicable
from ..numerics.process_locks import silenced
from ..posterior.arviz import arviz

COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
)  # Okabe & Ito (2008)
MOST_SITES = 12


def panels(
    width: float, height: float, rows: int = 1, columns: int = 1
) -> tuple[Figure, np.ndarray]:
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def classic(name: str, *arguments: Any, **options: Any) -> Any:
    """Calls ArviZ's function ``name`` as 0.x has it, without its notices about newer libraries.

    Raises:
        NotApplicable: on ArviZ 1.x, whose figures are another library.
    """
    library = arviz()
    if int(str(library.__version__).split(".")[0]) >= 1:
        raise NotApplicable(
            "ArviZ 0.x for this figure",
            library.__version__,
            "pass posterior.to_arviz() to arviz_plots",
        )
    with silenced():
        return getattr(library, name)(*arguments, **options)
