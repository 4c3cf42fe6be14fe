"""The rows of one process of a team, and what the processes know of one another's rows."""

from __future__ import annotations

from copy import copy
from typing import Any

import torch
from torch import Tensor

from ..errors import DataError, NotApplicable
from ..runtime.seeding import permutation
from ..runtime.team import Team
from .roles import ROLES, columns_given

__all__ = [
    "check_alike",
    "in_team",
    "joined",
    "of_all_ranks",
    "scaled_in_team",
    "standardised_mean",
]

Dataset = Scaler = Any  # their modules import this one
GRID_COLUMNS = 4  # the most columns of a grid
SAMPLE = 20_000  # rows of all processes that each of them holds, for pilots and inducing inputs
LABELS = (str, int, float, bool)
OF_TEAM = ("team", "total_of_team", "counts_of_team")  # attributes of the rows of a rank


def in_team(table: Dataset, team: Team) -> Dataset:
    """Return the table as this rank's part of the rows of a team.

    Raises:
        DataError: If the ranks have other columns or other kinds of targets, or groups whose
            levels differ.
        NotApplicable: If a class is not a text or a number, so that ranks cannot compare it.
    """
    with team.all_or_none():
        _check_labels(table)
    about = team.gathered(_about(table))
    with team.all_or_none():
        check_alike(about)
    table = _with_classes_of_all(table, about)
    return with_sample(table, team, sum(each["n"] for each in about))


def with_sample(table: Dataset, team: Team, total: int) -> Dataset:
    """Return the table with its team, the number of rows of all ranks, and a sample of them.

    The rows of the extreme targets are part of the sample, for the checks of a model, and those
    of the extremes of up to four columns, around which a grid is laid.
    """
    part = copy(table)
    counts = team.gathered(table.n)
    own = torch.arange(table.n)
    if total > SAMPLE:
        generator = torch.Generator().manual_seed(team.rank)
        take = max(1, table.n * SAMPLE // total)
        own = permutation(generator, table.n)[:take]
        y = table.y.cpu()
        extremes = torch.stack([y.argmin(), y.argmax(), (y - y.round()).abs().argmax()])
        X = table.X[:, :GRID_COLUMNS].cpu() if table.d <= GRID_COLUMNS else table.X[:, :0].cpu()
        own = torch.cat([extremes, X.argmin(0), X.argmax(0), own]).unique()
    sample = table.rows(own.to(table.X.device))
    whole = joined(sample, team)
    vars(whole)["target_mean"] = _mean_of_targets(table, team)
    vars(part).update(team=team, total_of_team=total, counts_of_team=counts)
    vars(part).update(sample_of_team=whole)
    return part


def scaled_in_team(scaled: Dataset, table: Dataset, scaler: Scaler) -> Dataset:
    """Return the standardised rows of a rank, with the standardised sample of all ranks.

    Args:
        scaled: The rows on the scale of the scaler.
        table: The same rows on their own scale, in their team.
        scaler: What standardised them.
    """
    sample = scaler(table.shared)
    vars(sample)["target_mean"] = standardised_mean(table.shared.target_mean, scaler)
    about = {name: vars(table)[name] for name in OF_TEAM}
    vars(scaled).update(about, sample_of_team=sample)
    return scaled


def standardised_mean(mean: float, scaler: Scaler) -> float:
    """Return a mean of targets on the scale of a Scaler, with the digits of float64."""
    offset, scale = scaler.location_and_scale
    return (mean - float(offset)) / float(scale)


def of_all_ranks(table: Dataset) -> Dataset:
    """Return the rows of all ranks of the table's team, in the order of the ranks."""
    return table if table.team.alone else joined(table, table.team)


def joined(table: Dataset, team: Team) -> Dataset:
    """Return the rows that all ranks pass, one after the other."""
    columns = {name: _of_all(team, column) for name, column in columns_given(table).items()}
    columns = {**dict.fromkeys(ROLES), **columns}
    return table.with_numbers(team.rows_of_all(table.X), team.rows_of_all(table.y), columns)


def _of_all(team: Team, column: Any) -> Any:
    """Return a column of the rows of all ranks."""
    if isinstance(column, Tensor):
        return team.rows_of_all(column)
    if isinstance(column, dict):
        return {name: team.rows_of_all(part) for name, part in column.items()}
    return tuple(one for part in team.gathered(list(column)) for one in part)


def _mean_of_targets(table: Dataset, team: Team) -> float:
    """Return the mean of the targets of all ranks, each row counted by its weight."""
    weights = torch.ones_like(table.y) if table.weights is None else table.weights
    weights = weights.double()
    pair = torch.stack([(weights * table.y.double()).sum(), weights.sum()])
    total, count = team.sum(pair)
    return float(total / count)


def _about(table: Dataset) -> dict[str, Any]:
    """Return what ranks compare of their tables."""
    groups = {name: list(map(str, levels)) for name, levels in (table.group_levels or {}).items()}
    return {
        "n": table.n,
        "columns": list(table.feature_names or ()) or table.d,
        "target": table.target_name,
        "roles": sorted(table.columns_with_roles),
        "dtype": str(table.X.dtype),
        "coordinates": list(map(str, table.coordinates or ())),
        "categories": [list(map(str, levels)) for levels in table.levels or ()],
        "groups": groups,
        "kind of target": "labels" if table.classes else "numbers",
        "classes": list(table.classes or ()),
    }


def _check_labels(table: Dataset) -> None:
    """Raise NotApplicable for classes that cannot be compared between processes."""
    odd = [one for one in table.classes or () if not isinstance(one, LABELS)]
    if odd:
        raise NotApplicable(
            "classes that are texts or numbers, for a team",
            f"{odd[0]!r} of type {type(odd[0]).__name__}",
            "name the classes by texts",
        )


def check_alike(about: list[dict[str, Any]]) -> None:
    """Raise DataError where tables of ranks cannot be parts of one."""
    for name in about[0]:
        if name in ("n", "classes"):
            continue
        others = [rank for rank, each in enumerate(about) if each[name] != about[0][name]]
        if others:
            rank = others[0]
            raise DataError(
                f"the same {name} on all ranks ({about[0][name]} on rank 0)",
                f"{about[rank][name]} on rank {rank}",
                "read the same columns on every rank, with the same codes",
            )


def _with_classes_of_all(table: Dataset, about: list[dict[str, Any]]) -> Dataset:
    """Return the table with codes of the classes of all ranks."""
    if table.classes is None or all(each["classes"] == about[0]["classes"] for each in about):
        return table
    found = {one for each in about for one in each["classes"]}
    classes = tuple(sorted(found, key=lambda one: (isinstance(one, str), one)))
    place = torch.tensor([classes.index(one) for one in table.classes]).to(table.y)
    recoded = copy(table)
    vars(recoded).update(y=place[table.y.long()], classes=classes)
    return recoded
