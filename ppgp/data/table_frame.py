"""A checked table as a data frame, and as HTML."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..display import tables as html

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["as_html", "to_frame"]

MOST = 30  # columns that a notebook shows
MOST_LABELS = 10  # and labels of one column


def to_frame(self: Any) -> pd.DataFrame:
    """Return the table as a pandas DataFrame, which ``Dataset.from_frame`` reads again.

    Args:
        self: The Dataset.

    Returns:
        One row per row. The columns are the inputs, with their names or ``x0``, ``x1``, ...; the
        target, with its name or ``y``; and those with roles, with their names or that of the role.
        Labels, categories and groups stand in place of codes.
    """
    import pandas as pd

    columns: dict[str, Any] = {}
    levels = dict(zip(self.coded, self.levels or (), strict=False))
    for number, name in enumerate(_inputs(self)):
        values = self.X[:, number]
        columns[name] = _numbers(values)
        if number in levels:
            columns[name] = _labels(values, levels[number])
    target = _free(self.target_name or "y", columns)
    columns[target] = _numbers(self.y) if self.classes is None else _labels(self.y, self.classes)
    for role, column in self.columns_with_roles.items():
        name = _free(self.names_of_roles.get(role, role), columns)
        if role == "groups":
            levels_of = self.group_levels
            for group, codes in column.items():
                columns[_free(group, columns)] = _labels(codes, levels_of[group])
        else:
            columns[name] = _numbers(column) if isinstance(column, Tensor) else list(column)
    return pd.DataFrame(columns)


def _inputs(data: Any) -> list[str]:
    return list(data.feature_names or [f"x{j}" for j in range(data.d)])


def _free(name: str, taken: dict[str, Any]) -> str:
    """Return the name, with underscores behind it until no other column has it."""
    while name in taken:
        name = f"{name}_"
    return name


def _numbers(column: Tensor) -> Any:
    return column.detach().cpu().numpy()


def _labels(codes: Tensor, labels: Any) -> list[Any]:
    """Return the labels of codes [n]; None for NaN and for codes without a label."""
    known = torch.nan_to_num(codes, nan=-1.0).long().tolist()
    return [labels[code] if 0 <= code < len(labels) else None for code in known]


def as_html(data: Any) -> str:
    """Return what notebooks show of a Dataset: its size, and a line for each column."""
    about = f"n = {data.n:,}, d = {data.d:,}"
    if not data.team.alone:
        about += f" on this rank of {data.team.size}"
    columns = list(_columns(data))
    shown = columns[:MOST]
    if len(columns) > MOST:  # the target follows the inputs
        shown = [*columns[: MOST - 1], columns[data.d]]
    lines = html.table(("column", "role", "mean", "sd", "values"), shown)
    return html.page("Dataset", about, lines, html.more(len(columns) - len(shown), "column"))


def _columns(data: Any) -> Iterator[tuple[Any, ...]]:
    """Yield (name, role, mean, sd, labels) of each column."""
    levels = dict(zip(data.coded, data.levels or (), strict=False))
    for number, name in enumerate(_inputs(data)):
        values = data.X[:, number]
        role = "coordinate" if number in data.together else "input"
        if number in data.coded:
            yield name, "categories", "", "", _counts(values, levels.get(number))
        else:
            yield name, role, *_moments(values)
    target = data.target_name or "y"
    if data.classes is None:
        yield target, "target", *_moments(data.y)
    else:
        yield target, "target", "", "", _counts(data.y, data.classes)
    for role, column in data.columns_with_roles.items():
        name = data.names_of_roles.get(role, "")
        words = role.replace("_", " ")
        if role == "groups":
            for group, codes in column.items():
                yield group, words, "", "", _counts(codes, data.group_levels[group])
        elif isinstance(column, Tensor):
            yield name, words, *_moments(column)
        else:
            yield name, words, "", "", ", ".join(map(str, column[:3])) + ", …"


def _moments(column: Tensor) -> tuple[Any, Any, str]:
    """Return mean and sd of the values that are known, and how many are missing."""
    values = column.detach().double()
    known = values[~values.isnan()]
    missing = len(values) - len(known)
    words = f"{missing:,} missing" if missing else ""
    if not len(known):
        return "", "", words
    return float(known.mean()), float(known.std()) if len(known) > 1 else "", words


def _counts(codes: Tensor, labels: Any) -> str:
    """Return how often each label occurs, such as "no: 3, yes: 7"."""
    known = codes[~codes.isnan()] if codes.is_floating_point() else codes
    values, counts = torch.unique(known.long(), return_counts=True)
    words = []
    for code, count in zip(values.tolist()[:MOST_LABELS], counts.tolist(), strict=False):
        label = labels[code] if labels is not None and 0 <= code < len(labels) else code
        words.append(f"{label}: {count:,}")
    if len(values) > MOST_LABELS:
        words.append(f"and {len(values) - MOST_LABELS:,} more")
    return ", ".join(words)
