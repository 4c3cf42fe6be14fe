"""What models of classes share: checks of their labels and data, and the curvature of their likelihoods in chunks of rows."""

from __future__ import annotations

import math

import numpy as np
import torch

from ..data.dataset import Dataset
from ..errors import DataError, counted
from ..priors import Flat, Prior, PriorLike, bare

SEPARATION_UP_TO = 4_000_000  # entries of the linear programme
NEARLY_FLAT = 100.0  # sd of the log-odds that a coefficient may contribute, above which its prior holds nothing


def check_two_classes(data: Dataset) -> None:
    """Refuse targets of one class only.

    Raises:
        DataError: naming the class.
    """
    values = torch.unique(data.y)
    if len(values) < 2:
        code = int(values[0])
        label = (
            data.classes[code] if data.classes is not None and code < len(data.classes) else code
        )
        raise DataError(
            "rows of at least two classes",
            f"only {label!r}",
            "check the filter or the split that made the table",
        )


def check_determined(data: Dataset, weight: PriorLike, bias: PriorLike) -> None:
    """Refuse inputs that leave a direction of flat coefficients free: more columns than rows, or collinear ones.

    Raises:
        DataError: naming the columns.
    """
    weight, bias = bare(weight), bare(bias)
    if not isinstance(weight, Flat):
        return
    X = data.X - data.X.mean(0) if isinstance(bias, Flat) else data.X
    free = data.d + isinstance(bias, Flat)
    advice = "drop columns, or give the weights a prior such as Normal(0, 1)"
    if free > data.n:
        raise DataError(
            "at most as many flat coefficients as rows",
            f"{counted(free, 'coefficient')} and {counted(data.n, 'row')}",
            advice,
        )
    size = X.square().sum(0).sqrt()
    values, vectors = torch.linalg.eigh((X / size).mT @ (X / size))
    if not bool((size > 0).all()) or float(values[0]) <= 1e-12 * float(values[-1]):
        heavy = (
            size == 0
            if bool((size == 0).any())
            else vectors[:, 0].abs() > 0.1 * vectors[:, 0].abs().max()
        )
        names = data.feature_names or tuple(map(str, range(data.d)))
        columns = [names[j] for j in torch.nonzero(heavy).flatten().tolist()]
        raise DataError(
            "columns that are not combinations of one another (or constant), as the prior is flat",
            ", ".join(columns[:6]),
            advice,
        )


def separation(data: Dataset, classes: int, weight: PriorLike, bias: PriorLike) -> list[str]:
    """A sentence where coefficients under flat or nearly flat priors can separate the classes, so that the likelihood has no maximum
    along them; else nothing.

    By linear programming over those coefficients alone, complete and quasi-complete separation alike: Albert & Anderson (1984),
    Konis (2007). A prior counts as nearly flat where its sd allows log-odds above ``NEARLY_FLAT``.
    """
    n, d = data.n, data.d
    ends = data.X.abs().amax(0).clamp_min(1e-300)
    spread = torch.cat(
        [_spread(weight, classes, d, data.X) * ends, _spread(bias, classes, 1, data.X)], 1
    )
    free = (spread > NEARLY_FLAT).flatten()
    p = int(free.sum())
    if p == 0 or n * (classes - 1) * p > SEPARATION_UP_TO:
        return []
    X = torch.cat([data.X / ends, torch.ones_like(data.X[:, :1])], 1)
    y = data.y.long()
    rows = []
    for c in range(classes):
        margin = torch.zeros(n, classes, d + 1, dtype=X.dtype, device=X.device)
        margin[torch.arange(n), y] += X
        margin[:, c] -= X
        rows.append(margin[y != c].reshape(-1, classes * (d + 1))[:, free])
    A = torch.cat(rows).double().cpu().numpy()
    if not _reachable(A, together=False):
        return []
    how_much = "perfectly" if _reachable(A, together=True) else "in part (quasi-separation)"
    held = float(spread.flatten()[free].min())
    so = "under flat priors the likelihood has no maximum and some weights grow without end"
    if math.isfinite(held):
        so = f"the likelihood has no maximum, and priors that allow log-odds of {held:.3g} leave some weights to grow until they hold"
    return [
        f"the inputs separate the classes {how_much}: {so}, so they and their spread mean nothing; give them a prior such as "
        "Normal(0, 1)"
    ]


def _spread(prior: PriorLike, classes: int, d: int, like: torch.Tensor) -> torch.Tensor:
    """The sd of each coefficient under its prior, [classes, d]: infinite under a flat one, 0 where it is fixed. Class 0 is the
    reference of flat coefficients, and of two classes."""
    if not isinstance(prior, Prior):
        return torch.zeros(classes, d, dtype=like.dtype, device=like.device)
    if isinstance(prior, Flat):
        sd = torch.full((classes, d), math.inf, dtype=like.dtype, device=like.device)
    else:
        law = prior.distribution(like)
        sd = torch.nan_to_num(law.variance, nan=math.inf).sqrt()
        scale = getattr(law, "scale", sd)  # heavy tails have no variance, and are no wider for that
        sd = torch.where(torch.isfinite(sd), sd, scale).expand(classes, d).clone()
    if isinstance(prior, Flat) or classes == 2:
        sd[0] = 0.0
    return sd


def _reachable(A: np.ndarray, together: bool) -> bool:
    """Whether some b has A b >= 0 with a positive sum; or, ``together``, A b > 0 in every row."""
    from scipy.optimize import linprog

    m, p = A.shape
    if together:  # the largest t with A b >= t
        gain, A = np.append(np.zeros(p), 1.0), np.hstack([A, -np.ones((m, 1))])
    else:
        gain = A.mean(0)
    found = linprog(-gain, A_ub=-A, b_ub=np.zeros(m), bounds=(-1, 1), method="highs")
    return bool(found.status == 0 and -found.fun > 1e-6)
