"""Draws in the units of the data, and their summary: one row a scalar."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.dataset import Scaler
from ..errors import UnknownName
from ..numerics.process_locks import silenced
from . import arviz as arviz_bridge

UNITS = ("model", "data")


def draws_in(
    units: str, draws: Mapping[str, Tensor], model: Any, scaler: Scaler | None
) -> tuple[dict[str, Tensor], list[str]]:
    """Draws on the scale of the model or in the units of the data, and the sites that stay on the former as they have no equivalent.

    Raises:
        UnknownName: if ``units`` is neither "model" nor "data".
    """
    if units not in UNITS:
        raise UnknownName("system of units", units, UNITS)
    if units == "model" or scaler is None or not draws:
        return dict(draws), []
    found = model.data_units(draws, scaler)
    moved = {name: found.get(name) for name in draws}
    left = [name for name, value in moved.items() if value is None]
    return {name: draws[name] if value is None else value for name, value in moved.items()}, left


def cut_short(stats: Mapping[str, Any]) -> bool:
    """Whether Ctrl-C ended the search for a posterior of these stats before its time; files of earlier versions do not say."""
    return bool(stats.get("interrupted", False))


def scale_of(units: str, scaler: Scaler | None) -> str:
    """What the draws are on, in words."""
    return "units of the data" if units == "data" or scaler is None else "standardised scale"


def table_of(
    draws: Mapping[str, Tensor],
    left: list[str],
    title: str,
    chains: int,
    angles: Sequence[str] = (),
) -> Any:
    """The figures of ``Posterior.summary``; ``chains`` is 0 where draws are independent."""
    import pandas as pd

    plane = {name: (value.cos(), value.sin()) for name, value in draws.items() if name in angles}
    draws = {
        name: about_its_mean(value) if name in plane else value for name, value in draws.items()
    }
    rows, index = [], []
    for name, value in draws.items():
        flat = value.reshape(*value.shape[:2], -1)
        mark = " (standardised)" if name in left else ""
        for j in range(flat.shape[2]):
            x = flat[..., j].flatten().double()
            q = torch.quantile(x, torch.tensor([0.05, 0.5, 0.95], dtype=x.dtype, device=x.device))
            spread = float(x.std()) if len(x) > 1 else float("nan")
            rows.append([float(x.mean()), spread, *q.tolist()])
            event = torch.unravel_index(torch.tensor(j), value.shape[2:]) if value.ndim > 2 else ()
            at = f"[{', '.join(str(int(i)) for i in event)}]" if value.ndim > 2 else ""
            index.append(name + at + mark)
    table = pd.DataFrame(
        rows, index=pd.Index(index, name=title), columns=["mean", "sd", "5%", "50%", "95%"]
    )
    if chains and draws:
        for column, found in _of_chains(draws, chains, plane).items():
            table[column] = np.concatenate([np.ravel(found[name]) for name in draws])
    return table


def about_its_mean(angle: Tensor) -> Tensor:
    """Angles [chain, draw, *event] on the turn around their circular mean, where they have no seam."""
    middle = torch.atan2(angle.sin().mean((0, 1)), angle.cos().mean((0, 1)))
    return middle + torch.remainder(angle - middle + math.pi, 2 * math.pi) - math.pi


def _of_chains(
    draws: Mapping[str, Tensor], chains: int, plane: Mapping[str, tuple[Tensor, Tensor]]
) -> dict[str, dict[str, np.ndarray]]:
    """``{figure: {site: [*event]}}``; ``plane``: cosine and sine of the angles."""
    found = _figures(draws, chains)
    for worse, kind in ((np.fmin, "ess_bulk"), (np.fmin, "ess_tail"), (np.fmax, "r_hat")):
        for name, parts in plane.items() if kind in found else ():
            found[kind][name] = worse(
                *(_figures({name: part}, chains)[kind][name] for part in parts)
            )
    return found


def _figures(draws: Mapping[str, Tensor], chains: int) -> dict[str, dict[str, np.ndarray]]:
    az = arviz_bridge.arviz()
    arrays = {k: v.double().cpu().numpy() for k, v in draws.items()}
    with silenced(RuntimeWarning):  # a scalar that never moves has no variance to divide by
        warnings.filterwarnings(
            "ignore", "More chains", UserWarning
        )  # ArviZ takes few draws for axes in disorder
        data = az.convert_to_dataset(arrays)
        figures = {
            "mcse_mean": az.mcse(data, method="mean"),
            "mcse_sd": az.mcse(data, method="sd"),
            "ess_bulk": az.ess(data, method="bulk"),
            "ess_tail": az.ess(data, method="tail"),
        }
        if chains > 1:  # R-hat compares chains: a single one has none, rather than NaN
            figures["r_hat"] = az.rhat(data)
    return {
        kind: {name: figure[name].to_numpy() for name in draws} for kind, figure in figures.items()
    }
