"""The summary of draws, with one row per scalar."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..numerics.effective_sizes import effective_sizes, errors_of_means, errors_of_sds, r_hats
from ..runtime.process_locks import silenced


def cut_short(stats: Mapping[str, Any]) -> bool:
    """Whether the stats record that Ctrl-C ended the search early; older files do not say."""
    return bool(stats.get("interrupted", False))


def table_of(
    draws: Mapping[str, Tensor],
    names: Mapping[str, Sequence[str]],
    left: list[str],
    title: str,
    chains: int,
    angles: Sequence[str] = (),
) -> Any:
    """Return the data frame of ``Posterior.summary``.

    Args:
        draws: ``{site: [chain, draw, *event]}``.
        names: ``{site: names of its elements}``, in row-major order.
        left: The sites that are on the standardised scale for want of an equivalent.
        title: The name of the index.
        chains: The number of chains; 0 if the draws are independent.
        angles: The sites that are angles.
    """
    import pandas as pd

    around = {name: around_circular_mean(draws[name]) for name in draws if name in angles}
    rows, index = [], []
    for name, value in {**draws, **around}.items():
        flat = value.reshape(*value.shape[:2], -1)
        mark = " (standardised)" if name in left else ""
        for j in range(flat.shape[2]):
            x = flat[..., j].flatten().double()
            q = torch.quantile(x, torch.tensor([0.05, 0.5, 0.95], dtype=x.dtype, device=x.device))
            sd = float(x.std()) if len(x) > 1 else math.nan
            rows.append([float(x.mean()), sd, *q.tolist()])
            index.append(names[name][j] + mark)
    table = pd.DataFrame(
        rows, index=pd.Index(index, name=title), columns=["mean", "sd", "5%", "50%", "95%"]
    )
    if chains and draws:
        for column, statistic in chain_statistics(draws, chains, angles).items():
            table[column] = statistic
    return table


def around_circular_mean(angle: Tensor) -> Tensor:
    """Return angles [chain, draw, *event] within pi of their circular mean."""
    middle = torch.atan2(angle.sin().mean((0, 1)), angle.cos().mean((0, 1)))
    return middle + torch.remainder(angle - middle + math.pi, 2 * math.pi) - math.pi


def chain_statistics(
    draws: Mapping[str, Tensor], chains: int, angles: Sequence[str], errors: bool = True
) -> dict[str, np.ndarray]:
    """Return Monte Carlo standard errors, effective sample sizes and R-hat of every scalar.

    Args:
        draws: ``{site: [chain, draw, *event]}``.
        chains: The number of chains; R-hat is left out if it is 1.
        angles: The sites that are angles.
        errors: Whether to compute the Monte Carlo standard errors.

    Returns:
        ``{statistic: [scalar]}``, the names of the statistics being the columns of a summary.
    """
    around = {name: around_circular_mean(draws[name]) for name in draws if name in angles}
    statistics = _statistics({**draws, **around}, chains, errors)
    for worse, kind in ((np.fmin, "ess_bulk"), (np.fmin, "ess_tail"), (np.fmax, "r_hat")):
        if kind not in statistics:
            continue
        for name in around:
            of_cosine = _statistics({name: draws[name].cos()}, chains, False)[kind][name]
            of_sine = _statistics({name: draws[name].sin()}, chains, False)[kind][name]
            statistics[kind][name] = worse(of_cosine, of_sine)
    return {
        kind: np.concatenate([np.ravel(of_sites[name]) for name in draws])
        for kind, of_sites in statistics.items()
    }


def _statistics(
    draws: Mapping[str, Tensor], chains: int, errors: bool
) -> dict[str, dict[str, np.ndarray]]:
    """Return ``{statistic: {site: [*event]}}``."""
    kinds: dict[str, Callable[[np.ndarray], np.ndarray]] = {}
    if errors:
        kinds |= {"mcse_mean": errors_of_means, "mcse_sd": errors_of_sds}
    kinds |= {f"ess_{kind}": partial(effective_sizes, method=kind) for kind in ("bulk", "tail")}
    if chains > 1:  # a single chain has no R-hat, rather than NaN
        kinds["r_hat"] = r_hats
    arrays = {k: v.double().cpu().numpy() for k, v in draws.items()}
    with silenced(RuntimeWarning):  # a constant scalar has no variance to divide by
        return {
            kind: {name: statistic(array) for name, array in arrays.items()}
            for kind, statistic in kinds.items()
        }
