"""Where a search for the mode of a generalised linear model starts."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...data.dataset import Dataset
from ...errors import DataError
from ...likelihoods import Ordinal
from ...likelihoods.joint_slopes import free_sites, has_joint_slopes, starting_constants
from ...priors import Prior

ROWS = 10_000  # that show where to start
LARGEST = 1e3  # of a standardised weight that is sought for eta > 0


def start_of(model: Any, data: Dataset) -> dict[str, Tensor]:
    """Return {site: value} where eta is constant, at the value of least score.

    Raises:
        DataError: If eta must be positive, and no weights make it so in every row.
    """
    likelihood: Any = model.likelihood
    if isinstance(likelihood, Ordinal):
        return _of_cutpoints(likelihood, data)
    if not has_joint_slopes(likelihood):
        return {}
    y, trials, offset = _some(data)
    functions, values = starting_constants(likelihood, y, trials)
    if not bool(torch.isfinite(functions).all()):
        return {}
    if offset is not None:
        functions[0] -= offset.mean()
    start = {n: v for n, v in values.items() if bool(torch.isfinite(v)) and float(v) > 0}
    if isinstance(model.intercept, Prior):
        start["bias"] = functions if likelihood.latents > 1 else functions[0]
    return _positive(model, data, start) if likelihood.positive_f else start


def _some(data: Dataset) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return targets, trials and offset of some rows that count."""
    rows = torch.arange(data.n, device=data.X.device)
    if data.weights is not None:
        rows = rows[data.weights > 0]
    rows = rows[:: max(1, len(rows) // ROWS)]
    others = (None if c is None else c[rows] for c in (data.trials, data.offset))
    return (data.y[rows], *others)  # type: ignore[return-value]


def _of_cutpoints(likelihood: Ordinal, data: Dataset) -> dict[str, Tensor]:
    if not free_sites(likelihood):
        return {}
    numbers: Any = likelihood.at_shares(data).cutpoints
    return {"cutpoints": torch.tensor(numbers, dtype=data.X.dtype, device=data.X.device)}


def _positive(model: Any, data: Dataset, start: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return a start with eta > 0 in every row."""
    zero = {"weight": data.X.new_zeros(data.d)} if isinstance(model.weight, Prior) else {}
    several = model.likelihood.latents > 1
    if several and zero:
        zero["weight"] = data.X.new_zeros(model.likelihood.latents, data.d)
    here = {**zero, **start}
    if bool((_first(model, here, data) > 0).all()):
        return here
    moved = _sought(model, here, data)
    if moved is None:
        raise DataError(
            "some weights for which eta is positive in every row, as the inverse link needs",
            "none",
            "use link='log', or give the model an intercept",
        )
    return moved


def _first(model: Any, theta: dict[str, Tensor], data: Dataset) -> Tensor:
    """Return the first function of every row, [n]."""
    f = model.functions(theta, data.X, data.offset)
    return f[0] if f.ndim == 2 else f


def _sought(model: Any, start: dict[str, Tensor], data: Dataset) -> dict[str, Tensor] | None:
    """Return the start with weights and intercept for which the least eta is largest.

    A linear programme finds them. None: no weights make eta positive.
    """
    from scipy.optimize import linprog

    several = model.likelihood.latents > 1
    columns, names = [], [n for n in ("weight", "bias") if n in start]
    if not names:
        return None
    if "weight" in names:
        columns.append(data.X)
    if "bias" in names:
        columns.append(torch.ones_like(data.X[:, :1]))
    A = torch.cat(columns, 1).double().cpu().numpy()
    bare = {n: (torch.zeros_like(v) if n in names else v) for n, v in start.items()}
    fixed = _first(model, bare, data).double().cpu().numpy()
    level = float(1 / data.y.mean())
    gain = np.append(np.zeros(A.shape[1]), -1.0)
    limits = [(-LARGEST * level, LARGEST * level)] * A.shape[1] + [(None, level)]
    found = linprog(
        gain, A_ub=np.hstack([-A, np.ones((len(A), 1))]), b_ub=fixed, bounds=limits, method="highs"
    )
    if found.status != 0 or not found.x[-1] > 0:
        return None
    values = torch.as_tensor(found.x[:-1]).to(data.X)
    moved = dict(start)
    if "weight" in names:
        moved["weight"] = _in_first(start["weight"], values[: data.d], several)
        values = values[data.d :]
    if "bias" in names:
        moved["bias"] = _in_first(start["bias"], values[0], several)
    return moved


def _in_first(before: Tensor, value: Tensor, several: bool) -> Tensor:
    """Return the value of the first function, with those of the others as before."""
    if not several:
        return value
    after = before.clone()
    after[0] = value
    return after
