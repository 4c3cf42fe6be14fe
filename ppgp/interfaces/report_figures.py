"""The figures of the report, with their titles and the names of their files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from .. import plots
from ..data.dataset import Dataset
from ..diagnostics.comparison import Comparison
from ..posterior.posterior import Posterior


def slug_of(name: str) -> str:
    """Return the name as part of a file name."""
    return "".join(c if c.isalnum() else "-" for c in name)


#: name of a file, title, figure
TitledFigure = tuple[str, str, Figure]


def figures_of(
    comparison: Comparison,
    posteriors: Mapping[str, Posterior],
    names: Mapping[str, tuple[str, str]],
    test: Dataset,
) -> list[TitledFigure]:
    """Return the figures of the report, in the order in which the page shows them."""
    figures: list[TitledFigure] = []
    if not comparison.sites.empty:
        title = "Approximations against NUTS"
        figures.append(("differences", title, plots.differences(comparison)))
    for model in dict.fromkeys(model for model, _ in names.values()):
        of_model = [name for name in names if names[name][0] == model]
        by_method = {
            names[name][1]: posterior
            for name, posterior in posteriors.items()
            if names[name][0] == model
        }
        if len(by_method) > 1:
            title = f"Marginals of {model}"
            figures.append((f"marginals-{slug_of(model)}", title, plots.marginals(by_method)))
        # MCMC, if there is one, is the method to trust most, and represents the model
        shown = next((name for name in of_model if posteriors[name].mcmc), of_model[0])
        figures += _figures_of_one(comparison, shown, posteriors[shown], test)
    return figures


def _figures_of_one(
    comparison: Comparison, name: str, posterior: Posterior, test: Dataset
) -> list[TitledFigure]:
    """Return the figures of one posterior: its predictions of the test rows, and its chains."""
    figures: list[TitledFigure] = []
    slug = slug_of(name)
    prediction = comparison.predictions[name]
    if prediction.kind == "classes":
        figure = plots.reliability(prediction, test.y)
        figures.append((f"reliability-{slug}", f"Reliability of {name}", figure))
    elif name in comparison.regions:
        region = comparison.regions[name]
        own = prediction.interval(region.level)
        figure = plots.intervals(prediction, _target(test), region, own)
        title = f"Intervals of {name}, before and after calibration"
        figures.append((f"intervals-{slug}", title, figure))
    if posterior.mcmc:
        figures.append((f"trace-{slug}", f"Chains of {name}", plots.trace(posterior)))
    return figures


def _target(test: Dataset) -> Any:
    """Return y of the test rows with its name, which the figure shows."""
    import pandas as pd

    return pd.Series(test.y.cpu().numpy(), name=test.target_name)
