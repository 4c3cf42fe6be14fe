"""The initial inducing inputs of a sparse model: how many, where they are placed, and checks.

They are m of the n rows, chosen at random or greedily by the kernel, or cluster centres of the
rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...data.dataset import Scaler
from ...data.entries.arrays import as_tensor
from ...display.user_warnings import warn
from ...errors import DataError, NumericalWarning, SettingError, UnknownName, counted
from ...kernels import Kernel
from ...priors import Param, under
from ...runtime.libraries import settings_unchanged
from ...runtime.process_locks import silenced
from ...runtime.seeding import permutation

DEFAULT_INDUCING = 100
KMEANS_ROWS = 20_000  # k-means runs on a random sample of this many rows at most
CANDIDATES = 64  # rows evaluated for each step of the greedy selection by the bound
TINY = 1e-10  # relative to the mean variance: below it a row depends on the rows chosen before

Covariance = Callable[[Tensor, Tensor], Tensor]


def matrix_of(Z: Any) -> Tensor | None:
    """Return inducing inputs that the user passed as ``Z``, a list or an array, as a tensor.

    Raises:
        DataError: If ``Z`` does not hold numbers, or is not a matrix.
    """
    if Z is None:
        return None
    matrix = Z if isinstance(Z, Tensor) else as_tensor(Z, "Z, the inducing inputs")
    if matrix.ndim != 2:
        do = "pass Z [m, d], one row per inducing input, or their number as inducing="
        raise DataError("inducing inputs as a matrix", f"shape {list(matrix.shape)}", do)
    return matrix


def check_given(Z: Tensor, d: int) -> None:
    """Check inducing inputs that the user passed as ``Z``.

    Raises:
        DataError: If they do not have d columns, or if some are equal.
    """
    if Z.ndim != 2 or Z.shape[1] != d:
        raise DataError(
            f"inducing inputs of {counted(d, 'column')}", f"shape {list(Z.shape)}", "pass Z [m, d]"
        )
    if len(torch.unique(Z, dim=0)) < len(Z):
        raise DataError("different inducing inputs", "duplicates among them", "drop the copies")


def number_before_data(inducing: int | None) -> int:
    """Return m, the number of inducing inputs, as far as it is known without the rows."""
    if inducing is None:
        return DEFAULT_INDUCING
    return inducing


def in_units_of_model(Z: Tensor | None, scaler: Scaler) -> Tensor | None:
    """Return inducing inputs given in the units of X on the scale of the model."""
    if Z is None:
        return None
    return scaler.inputs(Z.to(scaler.x_mean))


def wanted(inducing: int | None, X: Tensor) -> int:
    """Return how many inducing inputs the recipe asks for."""
    if inducing is None:
        return min(DEFAULT_INDUCING, len(different_rows(X)))
    return inducing


def say_if_fewer(Z: Tensor, inducing: int | None, X: Tensor) -> None:
    """Warn with NumericalWarning if fewer inducing inputs were placed than asked for.

    Only a greedy selection does that.
    """
    m = wanted(inducing, X)
    if len(Z) < m:
        warn(
            f"{len(Z)} inducing inputs were placed where {m} were asked for: at the "
            "hyperparameters of the selection, the kernel cannot tell more rows apart; use "
            "selection='kmeans', or a shorter lengthscale, for more",
            NumericalWarning,
        )


def place(
    selection: str,
    inducing: int | None,
    kernel: Kernel,
    theta: Mapping[str, Tensor],
    X: Tensor,
    residual: Tensor | None,
    noise: float,
    seed: int,
) -> Tensor:
    """Place inducing inputs among or between the rows of X.

    Args:
        selection: The method: "kmeans", "random", "conditional_variance" or "bound".
        inducing: How many; None: 100, or the number of different rows if that is smaller.
        kernel: The kernel.
        theta: The hyperparameters, those of the kernel under "kernel".
        X: Rows [n, d].
        residual: The difference of y and the mean [n], for selections that use it.
        noise: The noise variance.
        seed: Of the selection.

    Returns:
        Z [m, d]. A greedy selection places fewer if the kernel distinguishes fewer rows.
    """
    m = wanted(inducing, X)
    with torch.no_grad():
        smooth, hyper, (rows,) = kernel.to_feature_space(under("kernel", theta), X)
        if not any(isinstance(one, Param) for one in smooth.sites(rows.shape[-1]).values()):
            # in single precision a greedy selection distinguishes few rows
            rows, hyper = rows.double(), {name: value.double() for name, value in hyper.items()}
        diagonal = smooth.diag(hyper, rows)
    if residual is not None:
        residual = residual.to(rows)
    features = None
    if selection in GREEDY or smooth is not kernel:
        features = rows
    return select(
        selection, m, X, residual, lambda a, b: smooth(hyper, a, b), diagonal, noise, seed, features
    )


def all_rows(X: Tensor, inducing: int | None) -> Tensor:
    """Return each different row of X once.

    Raises:
        SettingError: If ``inducing`` is another number.
    """
    Z = different_rows(X)
    if inducing is not None and inducing != len(Z):
        raise SettingError(
            f"inducing=None, or {len(Z)} (the different rows), with selection='all'",
            str(inducing),
            "leave it out",
        )
    return Z


def check_number(inducing: int | None) -> None:
    """Check the number of inducing inputs.

    Raises:
        SettingError: If it is neither None nor a positive whole number.
    """
    if inducing is not None and (
        isinstance(inducing, bool) or not isinstance(inducing, int) or inducing < 1
    ):
        raise SettingError("a positive whole number as inducing", repr(inducing), "for example 100")


def select(
    how: str,
    m: int,
    X: Tensor,
    y: Tensor | None,
    kernel: Covariance,
    diagonal: Tensor,
    noise: float,
    seed: int = 0,
    features: Tensor | None = None,
) -> Tensor:
    """Select inducing inputs for the rows X.

    Args:
        how: A name in ``SELECTIONS``.
        m: The number of inducing inputs.
        X: [n, d], the rows.
        y: [n], residuals, for "bound" alone.
        kernel: Maps (X1, X2) to the covariance [n1, n2] at the hyperparameters to select by. It is
            applied to ``features`` where these are given.
        diagonal: [n], the diagonal of the covariance at X.
        noise: The noise variance, for "bound" alone.
        seed: The seed of random choices.
        features: [n, q], the rows as the kernel sees them: the output of a network, or X in another
            precision. "kmeans" then computes centres of the features, and takes the nearest row to
            each, since a mean of features need not correspond to any input.

    Returns:
        Z [m, d]. A greedy selection returns fewer rows where the kernel cannot distinguish m rows.

    Raises:
        SettingError: If m is not in 1 .. n.
        DataError: If there are fewer different rows than m.
        UnknownName: If there is no such selection.
    """
    if how not in SELECTIONS:
        raise UnknownName("selection", how, SELECTIONS)
    if not 1 <= m <= len(X):
        raise SettingError(f"between 1 and n = {len(X)} inducing inputs", str(m), "lower inducing")
    if m == len(X):
        return X.clone()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        rows = X if features is None else features
        if how in GREEDY:
            return X[GREEDY[how](m, rows, y, kernel, diagonal, noise, generator)]
        if how == "random":
            return random_subset(m, different_rows(X), generator)
        centres = _kmeans(m, rows, generator)
        if features is None:
            return centres
        return X[_nearest_rows(features, centres)]


def _kmeans(m: int, X: Tensor, generator: torch.Generator) -> Tensor:
    """Return the centres of k-means started by k-means++ (Arthur & Vassilvitskii 2007)."""
    with settings_unchanged():
        from sklearn.cluster import KMeans

    different = different_rows(X)
    different = random_subset(min(KMEANS_ROWS, len(different)), different, generator)
    require_different(m, different)
    # scikit-learn runs k-means++ once
    state = int(torch.randint(2**31 - 1, (1,), generator=generator, device="cpu"))
    with silenced():  # centres that have not fully converged serve as well
        clusters = KMeans(m, max_iter=30, random_state=state)
        clusters.fit(different.double().cpu().numpy())
    return torch.from_numpy(clusters.cluster_centers_).to(X)


def _nearest_rows(features: Tensor, centres: Tensor) -> Tensor:
    """Return for each centre the nearest row that no earlier centre has taken, [m]."""
    # in single precision, distances between points far from 0 would be lost
    distances = torch.cdist(centres.double(), features.double())
    nearest = []
    for row in distances:
        nearest.append(int(row.argmin()))
        distances[:, nearest[-1]] = torch.inf
    return torch.tensor(nearest, device=features.device)


def _conditional_variance(
    m: int,
    X: Tensor,
    y: object,
    kernel: Covariance,
    diagonal: Tensor,
    noise: float,
    generator: torch.Generator,
) -> list[int]:
    """Choose repeatedly the row of largest variance given the rows chosen: pivoted Cholesky.

    Burt, Rasmussen & van der Wilk (2020).
    """
    chosen: list[int] = []
    left = diagonal.clone()
    A = torch.zeros(m, len(X)).to(X)
    for j in range(m):
        i = int(left.argmax())
        if not float(left[i]) > TINY * float(diagonal.mean()):
            break  # the rows chosen determine all others
        chosen.append(i)
        A[j] = (kernel(X[i : i + 1], X)[0] - A[:j, i] @ A[:j]) / left[i].sqrt()
        left = (left - A[j].square()).clamp_min(0.0)
        left[i] = 0.0
    return chosen


def _bound(
    m: int,
    X: Tensor,
    y: Tensor | None,
    kernel: Covariance,
    diagonal: Tensor,
    noise: float,
    generator: torch.Generator,
) -> list[int]:
    """Choose repeatedly the row that raises the collapsed bound most. Titsias (2009), section 3.1.

    At each step, ``CANDIDATES`` rows are drawn at random. With A the whitened columns of the rows
    chosen and C = A'A + noise I, the change of the bound has a closed form in v'C^-1 v and v'C^-1 y
    for the whitened column v of a candidate. By Woodbury's identity both come from the Cholesky
    factor of B = I + AA' / noise, which grows by one row at each step.
    """
    if y is None:
        raise SettingError(
            "y to select by the bound",
            "none",
            "prepare the model with data, or use 'conditional_variance'",
        )
    chosen: list[int] = []
    left = diagonal.clone()
    A = torch.zeros(m, len(X)).to(X)
    factor = torch.zeros(m, m).to(X)  # of B
    fit = torch.zeros(m).to(X)  # factor^-1 A y
    for j in range(m):
        open_rows = torch.nonzero(left > TINY * diagonal.mean()).flatten()
        if not len(open_rows):
            break
        some = open_rows[permutation(generator, len(open_rows))[:CANDIDATES].to(X.device)]
        known = A[:j]
        residual = kernel(X[some], X) - known[:, some].mT @ known  # [candidates, n]
        V = residual / left[some].sqrt()[:, None]
        half = torch.linalg.solve_triangular(factor[:j, :j], known @ V.mT, upper=False)
        squares = V.square().sum(1)
        growth = 1 + ((squares - half.square().sum(0) / noise) / noise).clamp_min(0.0)
        along = (V @ y - fit[:j] @ half / noise) / noise
        # twice the change of the bound
        gain = -growth.log() + along.square() / growth + squares / noise
        best = int(gain.argmax())
        chosen.append(int(some[best]))
        A[j] = V[best]
        factor[j, :j] = half[:, best] / noise
        factor[j, j] = growth[best].sqrt()
        fit[j] = noise * along[best] / factor[j, j]
        left = (left - A[j].square()).clamp_min(0.0)
        left[chosen[-1]] = 0.0
    return chosen


#: selections by the kernel, which return indices of rows
GREEDY: dict[str, Callable[..., list[int]]] = {
    "conditional_variance": _conditional_variance,
    "bound": _bound,
}
SELECTIONS = ("kmeans", "random", *GREEDY)


def different_rows(X: Tensor) -> Tensor:
    """Return the different rows of X [n, d] in lexicographic order.

    The result is that of ``torch.unique(X, dim=0)``, which makes a tensor per row and needs several
    times the memory of X.
    """
    table = X.detach().cpu().numpy()
    order = np.argsort(table[:, 0], kind="stable")
    # marks the first row of each run of rows that are equal in the columns compared so far
    first = np.ones(len(table), dtype=bool)
    first[1:] = np.diff(table[order, 0]) != 0
    for column in table.T[1:]:
        run = np.cumsum(first)
        tied = np.nonzero(np.bincount(run)[run] > 1)[0]
        if not len(tied):
            break
        order[tied] = order[tied][np.lexsort((column[order[tied]], run[tied]))]
        first[tied[1:]] |= np.diff(column[order[tied]]) != 0
    return torch.from_numpy(table[order[first]]).to(X)


def random_subset(m: int, different: Tensor, generator: torch.Generator) -> Tensor:
    """Return m of the different rows at random."""
    require_different(m, different)
    return different[permutation(generator, len(different))[:m].to(different.device)]


def require_different(m: int, different: Tensor) -> None:
    """Raise DataError if there are fewer than m different rows."""
    if len(different) < m:
        raise DataError(
            f"at least {m} different rows to take inducing inputs from",
            str(len(different)),
            "lower inducing",
        )
