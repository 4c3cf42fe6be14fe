"""Predictions and regions as data frames, and as HTML."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from ..display import tables as html
from ..errors import NotApplicable

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["of_prediction", "of_region", "prediction_as_html", "region_as_html", "to_frame"]

SHOWN = 5  # rows that a notebook shows
LEVEL = 0.9  # of the interval that it shows


def to_frame(self: Any, level: float = LEVEL) -> pd.DataFrame:
    """Return a pandas DataFrame with one row per row, with the columns of ``predict_to``.

    They are ``mean``, ``sd``, ``lower`` and ``upper``, the ends of the central predictive interval;
    of labels ``p(label)`` for each class. A figure that the distribution does not know, such as the
    mean of one that is given by quantiles, is left out.

    Args:
        self: The Prediction.
        level: The level of the interval, in (0, 1).

    Raises:
        SettingError: If the level is not in (0, 1).
    """
    return of_prediction(self, level)


def of_prediction(prediction: Any, level: float = LEVEL, region: Any = None) -> pd.DataFrame:
    """Return the data frame of ``Prediction.to_frame``.

    Args:
        prediction: The Prediction.
        level: The level of its own interval.
        region: A Region of the same rows, whose intervals or label sets take the place of this
            interval; None: there is none.
    """
    import pandas as pd

    if prediction.kind == "classes":
        probabilities = prediction.probabilities
        labels = prediction.classes or range(probabilities.shape[1])
        names = [f"p({label})" for label in labels]
        table = pd.DataFrame(_numbers(probabilities), columns=pd.Index(names))
        if region is not None and region.labels is not None:
            table["set"] = label_sets(region)
        return table
    figures: dict[str, Callable[[], Sequence[Tensor]]] = {
        "mean": lambda: [prediction.mean],
        "sd": lambda: [prediction.std],
        "lower upper": lambda: [*(prediction.interval(level) if region is None else region)],
    }
    columns: dict[str, np.ndarray] = {}
    for names, figure in figures.items():
        try:
            found = figure()
        except NotApplicable:
            continue
        columns |= dict(zip(names.split(), map(_numbers, found), strict=True))
    return pd.DataFrame(columns, index=pd.RangeIndex(len(prediction)))


def of_region(region: Any, most: int | None = None) -> pd.DataFrame:
    """Return the data frame of ``Region.to_frame``, or of its first sets.

    Args:
        region: The Region.
        most: The most sets; None: all.
    """
    import pandas as pd

    if region.labels is None:
        lower, upper = region
        table = pd.DataFrame({"lower": _numbers(lower[:most]), "upper": _numbers(upper[:most])})
        if region.pieces is not None:
            table["pieces"] = list(region.pieces[:most])
    else:
        table = pd.DataFrame({"set": label_sets(region, most)})
    table.attrs = {"level": region.level, "guarantee": region.guarantee}
    return table


def label_sets(region: Any, most: int | None = None) -> list[tuple[Any, ...]]:
    """Return the labels in each set (of the first ``most``); codes where they have no names."""
    names = region.classes or range(region.labels.shape[1])
    rows = region.labels[:most].tolist()
    return [tuple(name for name, kept in zip(names, row, strict=True) if kept) for row in rows]


def _numbers(values: Tensor) -> np.ndarray:
    return values.detach().cpu().numpy()


def prediction_as_html(prediction: Any) -> str:
    """Return what notebooks show of a Prediction: its kind and its first rows."""
    about = f"{len(prediction):,} rows, {prediction.kind}, {prediction.draws:,} draws"
    if prediction.joint:
        about += ", joint over the rows"
    first = of_prediction(prediction.by_row[: min(SHOWN, len(prediction))])
    notes = ""
    if "lower" in first:
        notes = html.sentence(f"lower and upper: the central {LEVEL:.0%} interval")
    left = html.more(len(prediction) - len(first), "row")
    return html.page("Prediction", about, html.frame(first, SHOWN), left, notes)


def region_as_html(region: Any) -> str:
    """Return what notebooks show of a Region: its guarantee and its first rows."""
    kind, whole = "intervals", "infinite"
    if region.labels is not None:
        kind, whole = "label sets", "hold all labels"
    facts = {
        "level": region.level,
        "guarantee": region.guarantee,
        "calibration rows": region.n_calibration,
        whole: f"{float(region.infinite.double().mean()):.1%}",
        "empty": f"{float(region.empty.double().mean()):.1%}",
    }
    if not len(region):
        facts = {name: value for name, value in facts.items() if name not in (whole, "empty")}
    table = of_region(region, SHOWN)
    if region.labels is not None:
        table["set"] = [", ".join(map(str, labels)) for labels in table["set"]]
    parts = [html.facts(facts), html.frame(table, SHOWN)]
    left = html.more(len(region) - len(table), "row")
    return html.page("Region", f"{len(region):,} {kind}", *parts, left)
