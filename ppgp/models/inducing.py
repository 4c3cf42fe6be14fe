"""Where the inducing inputs of a sparse model begin."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..data.arrays import as_tensor
from ..errors import DataError, NumericalError, NumericalWarning, SettingError, counted
from ..kernels import Kernel
from ..numerics.inducing_points import GREEDY, different_rows, select
from ..numerics.seeding import seeded
from ..priors import Param, Prior, Site, under

DEFAULT_INDUCING = 100


def refuse_broken(kernel: Kernel, X: Tensor) -> None:
    """Raises NumericalError for a network that starts broken, every unit dead or saturated: no gradient leads away from there."""
    broken = kernel.check_fit({}, X)
    if broken:
        size = float((X.mean(0).abs() / X.std(0).clamp_min(torch.finfo(X.dtype).tiny)).max())
        far = f" (a column of X has a mean of {size:.3g} of its sds)" if size > 3 else ""
        raise NumericalError(
            "a kernel that tells these rows apart before the fit",
            f"a network that does not, its units dead or saturated at the initial weights{far}: {broken[0]}",
            "standardise X, as fit(standardise=True) does, or give the network another seed, more units, or activation='tanh'",
        )


def medians(sites: Mapping[str, Site | Param], X: Tensor, seed: int) -> dict[str, Tensor]:
    """Each site at the middle of its prior's draws: what a selection goes by before there is a fit."""
    with seeded(seed):
        found = {}
        for name, one in sites.items():
            if isinstance(one, Site) and isinstance(one.prior, Prior):
                draws = torch.stack([one.distribution(X).sample() for _ in range(101)])
                found[name] = draws.median(0).values
        return found


def take_given(model: Any) -> None:
    """Make inducing inputs that were given as a list or an array a tensor. Of a ``__post_init__``.

    Raises:
        DataError: if they are not numbers.
    """
    if model.Z is not None and not isinstance(model.Z, Tensor):
        object.__setattr__(model, "Z", as_tensor(model.Z, "Z, the inducing inputs"))


def check_given(Z: Tensor, d: int) -> None:
    """Refuse inducing inputs given by hand that do not fit.

    Raises:
        DataError: if they have other columns, or repeat themselves.
    """
    if Z.ndim != 2 or Z.shape[1] != d:
        raise DataError(
            f"inducing inputs of {counted(d, 'column')}", f"shape {list(Z.shape)}", "pass Z [m, d]"
        )
    if len(torch.unique(Z, dim=0)) < len(Z):
        raise DataError("different inducing inputs", "duplicates among them", "drop the copies")


def wanted(inducing: int | None, X: Tensor) -> int:
    """How many inducing inputs are asked for."""
    return min(DEFAULT_INDUCING, len(different_rows(X))) if inducing is None else inducing


def say_if_fewer(Z: Tensor, inducing: int | None, X: Tensor) -> None:
    """Warns with NumericalWarning where fewer than asked for were placed."""
    m = wanted(inducing, X)
    if len(Z) < m:
        warnings.warn(
            f"{len(Z)} inducing inputs were placed where {m} were asked for: at the hyperparameters that the selection goes by, the "
            "kernel cannot tell more rows apart; use selection='kmeans', or a shorter lengthscale, for more",
            NumericalWarning,
            stacklevel=3,
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
    """Z [m, d] for rows X [n, d] at hyperparameters theta; m of None is 100, or the number of different rows where that is less.

    Greedy selections place fewer where the kernel tells fewer rows apart.
    """
    m = wanted(inducing, X)
    with torch.no_grad():
        seen, hyper, (rows,) = kernel.to_feature_space(under("kernel", theta), X)
        if not any(isinstance(one, Param) for one in seen.sites(rows.shape[-1]).values()):
            # greedy selection tells few rows apart in single precision
            rows, hyper = rows.double(), {name: value.double() for name, value in hyper.items()}
        diagonal = seen.diag(hyper, rows)
    residual = None if residual is None else residual.to(rows)
    features = rows if selection in GREEDY or seen is not kernel else None
    return select(
        selection, m, X, residual, lambda a, b: seen(hyper, a, b), diagonal, noise, seed, features
    )


def all_rows(X: Tensor, inducing: int | None) -> Tensor:
    """Each different row once.

    Raises:
        SettingError: if another number was asked for.
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
    """Raises SettingError where the number of inducing inputs is no positive whole number."""
    if inducing is not None and (
        isinstance(inducing, bool) or not isinstance(inducing, int) or inducing < 1
    ):
        raise SettingError("a positive whole number as inducing", repr(inducing), "for example 100")
