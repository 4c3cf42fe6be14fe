"""Tables other than its data that a fit depends on, through ``init`` or through its recipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, cast

from torch import nn

from ..data.dataset import Dataset
from ..data.found_on import Found, origin_of, same_table
from ..kernels.networks import instances_in
from ..models import Model
from ..models.base import as_given
from ..models.program import same_value
from ..posterior.posterior import Posterior

Table = Dataset | Mapping[str, Any]


def found_on(recipe: Any) -> list[Dataset]:
    """Return the tables from which parts of a recipe were estimated.

    Such parts are numbers from ``fit_variogram`` and modules from ``pretrained``.
    """
    things = [*instances_in(recipe, Found), *instances_in(recipe, nn.Module)]
    tables = (table for thing in things for table in origin_of(thing).tables)
    return list({id(table): table for table in tables}.values())


def also_seen(model: Any, data: Table, init: Any) -> tuple[Table, ...]:
    """Return the tables other than ``data``, in its units, that a fit of ``model`` depends on."""
    every = {id(table): table for table in _all(model, init)}
    return tuple(table for table in every.values() if not _same(table, data))


def _all(model: Any, init: Any) -> Iterator[Table]:
    """Yield all tables that a fit depends on, some of them more than once."""
    yield from found_on(as_given(model) if isinstance(model, Model) else model)
    if isinstance(model, Model) and model.made_for is not None and _depends_on_rows(model):
        rows, scaler = model.made_for
        yield scaler.back(rows)
    if isinstance(init, Posterior):
        yield from init.also_seen
        yield init.scaler.back(init.data)


def _depends_on_rows(model: Model) -> bool:
    """Whether a prior, a mean or inducing inputs come from the rows that it was prepared for."""
    given = as_given(model)
    names = {f.name for f in fields(cast(Any, model))} - {"noise_sd", "standardised"}
    return not all(same_value(getattr(model, name), getattr(given, name)) for name in names)


def _same(a: Table, b: Table) -> bool:
    """Whether two tables hold the same rows."""
    if isinstance(a, Dataset) and isinstance(b, Dataset):
        return same_table(a, b)
    if isinstance(a, Dataset) or isinstance(b, Dataset):
        return False
    return a.keys() == b.keys() and all(same_value(a[name], b[name]) for name in a)
