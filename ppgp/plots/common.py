"""Common parts of the figures: colours, empty panels and ArviZ's plots."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ..errors import NotApplicable
from ..numerics.process_locks import silenced
from ..posterior.arviz import arviz

#: colours that colour-blind readers can tell apart; Okabe & Ito (2008)
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
#: the most scalars that a figure shows or names by default
MOST_SITES = 12


def panels(
    width: float, height: float, rows: int = 1, columns: int = 1
) -> tuple[Figure, np.ndarray]:
    """Return a figure of this size in inches and its axes [rows, columns], without frames."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def classic(name: str, *arguments: Any, **options: Any) -> Any:
    """Call a function of ArviZ 0.x by its name, without its notices about newer libraries.

    Args:
        name: The name of the function.
        *arguments: Its positional arguments.
        **options: Its keyword arguments.

    Raises:
        NotApplicable: With ArviZ 1.x, whose figures are in another library.
    """
    library = arviz()
    if int(str(library.__version__).split(".")[0]) >= 1:
        do = "pass posterior.to_arviz() to arviz_plots"
        raise NotApplicable("ArviZ 0.x for this figure", library.__version__, do)
    with silenced():
        return getattr(library, name)(*arguments, **options)
