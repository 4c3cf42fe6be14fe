"""Coefficients that vary between groups of rows, as draws and as a table."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import SettingError
from ..target.capabilities import GroupEffects, require, supports
from .arviz_axes import Coords, Dims
from .fitted import Fitted, evaluated_at

QUANTILES = (0.05, 0.5, 0.95)


def effects(self: Fitted, seed: int = 0) -> dict[str, Tensor]:
    """Return draws of the coefficients of the groups, in the units of the data.

    They are what a group adds to the coefficients that all rows share. The levels are those of
    ``data.group_levels``; the coefficients are in the order of the terms of ``Varying``.

    Args:
        self: The posterior.
        seed: The seed of coefficients that the model integrates out: one draw of them per draw of
            the sites.

    Returns:
        ``{grouping: [chain, draw, K, q]}``.

    Raises:
        NotApplicable: If no coefficients of the model vary between groups.
        SettingError: If the seed is the name of a grouping.
    """
    model = require(self.model, GroupEffects)
    if isinstance(seed, str):
        do = f"write effects()[{seed!r}]"
        raise SettingError("a whole number as seed", repr(seed), do)
    generator = torch.Generator().manual_seed(seed)
    with evaluated_at(self):
        found = model.group_effects(self.theta, self.data, generator)
    return {name: u.reshape(*self.shape, *u.shape[1:]) for name, u in found.items()}


def effects_table(self: Fitted, seed: int = 0) -> Any:
    """Return a pandas DataFrame of the coefficients of the groups, one row per level and term.

    Its columns are mean, sd and the 5 %, 50 % and 95 % quantiles, in the units of the data.

    Args:
        self: The posterior.
        seed: As in ``effects``.

    Raises:
        NotApplicable: If no coefficients of the model vary between groups.
    """
    import pandas as pd

    rows, index = [], []
    names = require(self.model, GroupEffects).effect_names()
    for grouping, draws in effects(self, seed).items():
        flat = draws.flatten(0, 1).double()
        spread = flat.std(0) if len(flat) > 1 else torch.full_like(flat[0], torch.nan)
        at = torch.quantile(flat, torch.tensor(QUANTILES, dtype=flat.dtype), dim=0)
        columns = torch.stack([flat.mean(0), spread, *at], -1)
        for k, level in enumerate(self.data.group_levels[grouping]):
            for j, term in enumerate(names[grouping]):
                rows.append(columns[k, j].tolist())
                index.append((grouping, level, term))
    axes = pd.MultiIndex.from_tuples(index, names=["grouping", "level", "term"])
    return pd.DataFrame(rows, index=axes, columns=["mean", "sd", "5%", "50%", "95%"])


def effect_draws(fit: Fitted, seed: int) -> dict[str, Tensor]:
    """Return ``{grouping.effect: [chain, draw, K, q]}``, {} without groups."""
    if not supports(fit.model, GroupEffects):
        return {}
    return {f"{name}.effect": u for name, u in effects(fit, seed).items()}


def effect_axes(fit: Fitted) -> tuple[Dims, Coords]:
    """Return the axes of the coefficients of groups and of their sds, and the coordinates."""
    dims: Dims = {}
    coords: Coords = {}
    if not supports(fit.model, GroupEffects):
        return dims, coords
    for name, terms in require(fit.model, GroupEffects).effect_names().items():
        axis = f"{name}.term"
        dims[f"{name}.effect"], dims[f"{name}.sd"] = [name, axis], [axis]
        coords[name], coords[axis] = list(fit.data.group_levels[name]), list(terms)
    return dims, coords
