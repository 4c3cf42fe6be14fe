"""The initial inducing inputs of a sparse model: how many, where they are placed, and checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ...data.dataset import Scaler
from ...data.entries.arrays import as_tensor
from ...display.user_warnings import warn
from ...errors import DataError, NumericalWarning, SettingError, counted
from ...kernels import Kernel
from ...numerics.different_rows import different_rows
from ...priors import Param, under
from .greedy_selection import GREEDY
from .inducing_points import select

DEFAULT_INDUCING = 100


def take_given(model: Any) -> None:
    """Convert the ``Z`` of a model, if it is a list or an array, to a tensor.

    A ``__post_init__`` calls this.

    Raises:
        DataError: If ``Z`` does not hold numbers, or is not a matrix.
    """
    if model.Z is None:
        return
    if not isinstance(model.Z, Tensor):
        object.__setattr__(model, "Z", as_tensor(model.Z, "Z, the inducing inputs"))
    if model.Z.ndim != 2:
        do = "pass Z [m, d], one row per inducing input, or their number as inducing="
        raise DataError("inducing inputs as a matrix", f"shape {list(model.Z.shape)}", do)


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
