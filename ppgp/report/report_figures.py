"""The figures of the report, with their titles, captions and the names of their files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from matplotlib.figure import Figure

from .. import plots
from ..data.dataset import Dataset
from ..diagnostics.comparison import Comparison
from ..errors import counted
from ..plots.common import panels
from ..posterior.averaging import Average
from ..posterior.posterior import Posterior
from ..posterior.prediction import Prediction

__all__ = ["ReportFigure", "figures_of", "slug_of"]

WIDTH = 5.0  # inches, of a figure; text is then readable on a narrow screen
CHECK = (3.4, 2.8)  # inches, of a figure of residuals or PIT
BINS = 10  # of a histogram of PIT values
ROWS_PER_BIN = 5  # at least


@dataclass(frozen=True, eq=False)
class ReportFigure:
    """A figure of the report.

    Attributes:
        slug: The name of its file, without the suffix.
        title: What it shows, in a few words.
        figure: The figure.
        caption: How to read it.
        section: The heading of the section that it belongs to.
        small: Whether several such figures stand side by side.
    """

    slug: str
    title: str
    figure: Figure
    caption: str = ""
    section: str = "Figures"
    small: bool = False


def slug_of(name: str) -> str:
    """Return the name as part of a file name."""
    return "".join(c if c.isalnum() else "-" for c in name)


def figures_of(
    comparison: Comparison,
    posteriors: Mapping[str, Posterior | Average],
    names: Mapping[str, tuple[str, str]],
    test: Dataset,
    problems: list[str],
) -> list[ReportFigure]:
    """Return the figures of the report, in the order in which the page shows them.

    Args:
        comparison: The comparison of the posteriors.
        posteriors: The posteriors by name.
        names: The pair ``(model, method)`` of each posterior.
        test: The test rows.
        problems: Takes one sentence per group of figures that cannot be drawn.
    """
    figures: list[ReportFigure] = []

    def draw(what: str, group: Iterator[ReportFigure]) -> None:
        try:
            figures.extend(group)  # a generator: each figure is drawn here, not at the call
        except Exception as error:  # the fits took minutes, and the other figures show them
            problems.append(f"{what}: {type(error).__name__}: {error}")

    draw("figure of the differences", _of_differences(comparison))
    by_model: dict[str, list[str]] = {}
    for name, (model, _) in names.items():
        by_model.setdefault(model, []).append(name)
    for model, of_model in by_model.items():
        # the reference first, in the colour and line that are easiest to see
        ordered = sorted(of_model, key=lambda name: not _has_chains(posteriors[name]))
        by_method = {names[name][1]: posteriors[name] for name in ordered}
        draw(f"marginals of {model}", _of_marginals(model, by_method))
    # MCMC, if there is one, is the method to trust most, and represents the model
    shown = [
        next((name for name in of_model if _has_chains(posteriors[name])), of_model[0])
        for of_model in by_model.values()
    ]
    for name in shown:
        others = len(by_model[names[name][0]]) - 1
        draw(f"intervals of {name}", _of_sets(comparison, name, test, others))
    for name, prediction in comparison.predictions.items():
        draw(f"residuals of {name}", _of_residuals(name, prediction, _target(test)))
    for name in shown:
        draw(f"chains of {name}", _of_chains(name, posteriors[name]))
    order = list(dict.fromkeys(one.section for one in figures))
    return sorted(figures, key=lambda one: order.index(one.section))


def _of_differences(comparison: Comparison) -> Iterator[ReportFigure]:
    """Yield the figure of the differences from the reference, where there is one."""
    if comparison.sites.empty:
        return
    caption = (
        "One point per uncertain number of the model, with bars of three Monte Carlo standard "
        "errors. First panel: the difference of the means in sds of the reference, 0 where they "
        "agree. Second panel: the ratio of the sds, 1 where they agree and 0 for a point."
    )
    title = "Approximations against the reference"
    figure = plots.differences(comparison, columns=1)
    yield ReportFigure("differences", title, figure, caption, "Differences from the reference")


def _of_marginals(
    model: str, by_method: Mapping[str, Posterior | Average]
) -> Iterator[ReportFigure]:
    """Yield the figure of the marginals of a model that several methods have fitted."""
    single = {name: one for name, one in by_method.items() if not isinstance(one, Average)}
    if len(single) < 2 or not all(posterior.draws for posterior in single.values()):
        return
    caption = (
        "The density of each uncertain number of the model, by method. A vertical line is a method "
        "that gives one value alone, such as MAP. Curves on top of one another agree."
    )
    figure = plots.marginals(single, columns=2)
    title = f"Marginals of {model}"
    yield ReportFigure(f"marginals-{slug_of(model)}", title, figure, caption, "Marginals")


def _of_sets(
    comparison: Comparison, name: str, test: Dataset, others: int
) -> Iterator[ReportFigure]:
    """Yield the figure of the intervals of the test rows, or of the reliability of classes.

    Args:
        comparison: The comparison.
        name: The posterior.
        test: The test rows.
        others: How many other posteriors of the same model have no such figure.
    """
    prediction = comparison.predictions[name]
    not_shown = ""
    if others:
        number = counted(others, "other posterior")
        not_shown = f" Not shown: those of {number} of this model."
    if prediction.kind == "classes":
        caption = (
            "How often the most probable label is right, against its predicted probability: on "
            f"the line where the probabilities are right.{not_shown}"
        )
        figure = plots.reliability(prediction, test.y)
        title = f"Reliability of {name}"
        yield ReportFigure(f"reliability-{slug_of(name)}", title, figure, caption, "Reliability")
    elif name in comparison.regions:
        region = comparison.regions[name]
        own = prediction.interval(region.level)
        figure, axes = panels(WIDTH, 4.0)
        y = _target(test)
        plots.intervals(prediction, y, region, own, title=name, ax=axes[0, 0])
        title = f"Intervals of {name}, before and after calibration"
        caption = (
            f"The {region.level:.0%} intervals of the test rows, sorted by their predictive mean: "
            f"those of the model (grey), and the conformal ones in front of them.{not_shown}"
        )
        slug = f"intervals-{slug_of(name)}"
        yield ReportFigure(slug, title, figure, caption, "Intervals of the test rows")


def _of_residuals(name: str, prediction: Prediction, y: Any) -> Iterator[ReportFigure]:
    """Yield the residuals and the PIT of the test rows; classes have neither."""
    if prediction.kind == "classes":
        return
    caption = (
        "Quantile residuals against the predicted mean: standard normal without a trend if the "
        "model is right; the bands then hold half and nine tenths of them."
    )
    of_residuals, axes = panels(*CHECK)
    plots.residuals(prediction, y, ax=axes[0, 0])
    of_pit, axes = panels(*CHECK)
    plots.pit(prediction, y, ax=axes[0, 0])
    yield ReportFigure(
        f"residuals-{slug_of(name)}",
        name,
        of_residuals,
        caption,
        "Residuals of the test rows",
        small=True,
    )
    caption = (
        "The predictive probability of a value up to y. If the model is right, all bars lie in "
        "the band together with probability 95 %. A hill in the middle means intervals that are "
        "too wide, a valley ones that are too narrow."
    )
    yield ReportFigure(
        f"pit-{slug_of(name)}",
        name,
        of_pit,
        caption,
        "Probability integral transform (PIT) of the test rows",
        small=True,
    )


def _has_chains(posterior: Posterior | Average) -> TypeGuard[Posterior]:
    """Return whether it is one posterior of Markov chains."""
    return not isinstance(posterior, Average) and posterior.mcmc


def _of_chains(name: str, posterior: Posterior | Average) -> Iterator[ReportFigure]:
    """Yield the figure of the chains of a posterior that has some."""
    if not _has_chains(posterior):
        return
    caption = (
        "The draws of each chain in order, and their densities. Converged chains look like noise "
        "around one level, and their densities agree."
    )
    figure = plots.trace(posterior)
    figure.set_size_inches(WIDTH, figure.get_size_inches()[1])
    yield ReportFigure(f"trace-{slug_of(name)}", f"Chains of {name}", figure, caption, "Chains")


def _target(test: Dataset) -> Any:
    """Return y of the test rows with its name, which the figure shows."""
    import pandas as pd

    return pd.Series(test.y.cpu().numpy(), name=test.target_name)
