"""What models of classes share: checks of their labels and data, and the curvature of their likelihoods in chunks of rows."""

from __future__ import annotations

import numpy as np
import torch

from ..data.dataset import Dataset
from ..errors import DataError
from ..priors import Flat, PriorLike

SEPARATION_UP_TO = 4_000_000  # entries of the linear programme


def check_two_classes(data: Dataset) -> None:
    """Refuse targets of one class only.

    Raises:
        DataError: naming the class.
    """
    values = torch.unique(data.y)
    if len(values) < 2:
        code = int(values[0])
        label = data.classes[code] if data.classes is not None and code < len(data.classes) else code
        raise DataError("rows of at least two classes", f"only {label!r}", "check the filter or the split that made the table")


def check_determined(data: Dataset, weight: PriorLike, bias: PriorLike) -> None:
    """Refuse inputs that leave a direction of flat coefficients free: more columns than rows, or collinear ones.

    Raises:
        DataError: naming the columns.
    """
    if not isinstance(weight, Flat):
        return
    X = data.X - data.X.mean(0) if isinstance(bias, Flat) else data.X
    free = data.d + isinstance(bias, Flat)
    advice = "drop columns, or give the weights a prior such as Normal(0, 1)"
    if free > data.n:
        raise DataError("at most as many flat coefficients as rows", f"{free} coefficients and {data.n} rows", advice)
    size = X.square().sum(0).sqrt()
    values, vectors = torch.linalg.eigh((X / size).mT @ (X / size))
    if not bool((size > 0).all()) or float(values[0]) <= 1e-12 * float(values[-1]):
        heavy = size == 0 if bool((size == 0).any()) else vectors[:, 0].abs() > 0.1 * vectors[:, 0].abs().max()
        names = data.feature_names or tuple(map(str, range(data.d)))
        columns = [names[j] for j in torch.nonzero(heavy).flatten().tolist()]
        raise DataError(
            "columns that are not combinations of one another (or constant), as the prior is flat",
            ", ".join(columns[:6]),
            advice,
        )


def separation(data: Dataset, classes: int, weight: PriorLike, bias: PriorLike) -> list[str]:
    """A sentence where flat weights can separate the classes, so that the likelihood has no maximum; else nothing.

    By linear programming, complete and quasi-complete separation alike: Albert & Anderson (1984), Konis (2007).
    """
    if not (isinstance(weight, Flat) and isinstance(bias, Flat)):
        return []
    n, p = data.n, data.d + 1
    if n * (classes - 1) * p * classes > SEPARATION_UP_TO:
        return []
    X = torch.cat([data.X / data.X.abs().amax(0).clamp_min(1e-300), torch.ones_like(data.X[:, :1])], 1)
    y = data.y.long()
    rows = []
    for c in range(classes):
        margin = torch.zeros(n, classes, p, dtype=X.dtype)
        margin[torch.arange(n), y] += X
        margin[:, c] -= X
        rows.append(margin[y != c].reshape(-1, classes * p))
    A = torch.cat(rows)[:, p:].double().cpu().numpy()  # class 0 is the reference
    if not _reachable(A, together=False):
        return []
    how_much = "perfectly" if _reachable(A, together=True) else "in part (quasi-separation)"
    return [
        f"the inputs separate the classes {how_much}: under flat priors the likelihood has no maximum and some weights "
        "grow without end, so they and their spread mean nothing; give them a prior such as Normal(0, 1)"
    ]


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
