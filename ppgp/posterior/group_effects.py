"""Coefficients that vary between groups of rows, as draws and as a table."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..capabilities import GroupEffects, require, supports
from ..errors import SettingError
from .arviz_axes import Coords, Dims
from .fitted import Fitted, evaluated_at

AT_A_MODE = 1000  # draws of the coefficients given one draw of the sites
QUANTILES = (0.05, 0.5, 0.95)


def effects(self: Fitted, seed: int = 0) -> dict[str, Tensor]:
    """Return draws of the coefficients of the groups, in the units of the data.

    They are what a group adds to the coefficients that all rows share. The levels are those of
    ``data.group_levels``; the coefficients are in the order of the terms of ``Varying``. A fit by
    MAP has one draw of them; ``effects_table`` has their means and sds given the mode.

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
    found = drawn_effects(self, seed, 1)
    return {name: u.reshape(*self.shape, *u.shape[1:]) for name, u in found.items()}


def drawn_effects(fit: Fitted, seed: int, each: int | None = None) -> dict[str, Tensor]:
    """Return draws of the coefficients of the groups, ``{grouping: [draw, K, q]}``.

    Args:
        fit: The posterior.
        seed: As in ``effects``.
        each: How many draws of coefficients that the model integrates out to take per draw of the
            sites; None: one, or ``AT_A_MODE`` if there is one draw of the sites.
    """
    model = require(fit.model, GroupEffects)
    if isinstance(seed, str):
        do = f"write effects()[{seed!r}]"
        raise SettingError("a whole number as seed", repr(seed), do)
    generator = torch.Generator().manual_seed(seed)
    if each is None:
        each = AT_A_MODE if fit.shape == (1, 1) else 1
    with evaluated_at(fit):
        return model.group_effects(fit.theta, fit.data, generator, each)


def effects_table(self: Fitted, seed: int = 0) -> Any:
    """Return a pandas DataFrame of the coefficients of the groups, one row per level and term.

    Its columns are mean, sd and the 5 %, 50 % and 95 % quantiles, in the units of the data. Of a
    mode of the other sites, such as by MAP, they are those given the mode.

    Args:
        self: The posterior.
        seed: As in ``effects``.

    Raises:
        NotApplicable: If no coefficients of the model vary between groups.
    """
    import pandas as pd

    rows, index = [], []
    names = require(self.model, GroupEffects).effect_names()
    for grouping, draws in drawn_effects(self, seed).items():
        flat = draws.double()
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
