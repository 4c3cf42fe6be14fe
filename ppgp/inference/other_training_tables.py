"""Tables other than its data that a fit depends on, through ``init`` or through its recipe."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, cast

from torch import nn

from ..data.dataset import Dataset
from ..data.training_data import TrainingData, same_value
from ..models import Model
from ..networks.networks import instances_in
from ..posterior.posterior import Posterior
from ..provenance.found_on import Found, origin_of


def found_on(recipe: Any) -> list[Dataset]:
    """Return the tables from which parts of a recipe were estimated.

    Such parts are numbers from ``fit_variogram`` and modules from ``pretrained``.
    """
    things = [*instances_in(recipe, Found), *instances_in(recipe, nn.Module)]
    tables = (table for thing in things for table in origin_of(thing).tables)
    return list({id(table): table for table in tables}.values())


def also_seen(model: Any, data: Any, init: Any) -> tuple[TrainingData, ...]:
    """Return the tables other than ``data``, in its units, that a fit of ``model`` depends on."""
    recipe = (model.given or model) if isinstance(model, Model) else model
    tables: list[TrainingData] = [*found_on(recipe)]
    if isinstance(model, Model) and model.made_for is not None and depends_on_rows(model):
        rows, scaler = model.made_for
        tables.append(scaler.back(rows))
    if isinstance(init, Posterior):
        tables += [*init.also_seen, init.scaler.back(init.data)]
    every = {id(table): table for table in tables}  # some are found more than once
    return tuple(table for table in every.values() if not table.same_rows(data))


def depends_on_rows(model: Model) -> bool:
    """Whether a prior, a mean or inducing inputs come from the rows that it was prepared for."""
    given = model.given or model
    names = {f.name for f in fields(cast(Any, model))} - {"standardised"}
    return not all(same_value(getattr(model, name), getattr(given, name)) for name in names)
