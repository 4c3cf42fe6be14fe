"""The noise of y: what a model estimates, and the known standard deviation of each row."""

from __future__ import annotations

import math

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from ..errors import DataError, listed
from ..numerics.cholesky import add_diagonal, cholesky

#: for ``arguments_elsewhere`` of the recipes that add known noise
NOT_OF_THE_RECIPE = {
    "noise_sd": "write Dataset(X, y, noise_sd=sd), as known noise is part of the data"
}


def with_known(noise: Tensor, noise_sd: Tensor | None) -> Tensor:
    """Return the error variance of each row.

    Args:
        noise: The estimated noise variance [*draw, 1], the same for all rows.
        noise_sd: The known sd of each row [n]; None: there is none.

    Returns:
        [*draw, n], or ``noise`` itself if there is no known noise.
    """
    if noise_sd is None:
        return noise
    return noise + noise_sd.square()


def with_noise(mean: Tensor, spread: Tensor, noise: Tensor, joint: bool) -> Distribution:
    """Return the distribution of y = f + noise.

    Args:
        mean: The mean of f, [draw, m].
        spread: The variance of f, [draw, m], which is overwritten, as it is as large as the
            predictions; if ``joint``, the covariance of f, [draw, m, m].
        noise: The noise variance, [draw, 1] or [draw, m].
        joint: Whether the rows are predicted jointly.

    Returns:
        A Normal of batch [draw, m]; if ``joint``, a MultivariateNormal of batch [draw] and event
        [m].

    Raises:
        NumericalError: If the joint covariance is not positive definite.
    """
    if joint:
        root = cholesky(add_diagonal(spread, noise), "predictive covariance")
        return dist.MultivariateNormal(mean, scale_tril=root)
    sd = spread.add_(noise).sqrt_()
    if not dist.Normal._validate_args or not sd.numel():
        return dist.Normal(mean, sd)
    if not math.isfinite((mean / sd).sum().item()):
        return dist.Normal(mean, sd)
    # what torch would check is checked faster above; it checks the arguments of the methods
    checked = dist.Normal(mean, sd, validate_args=False)
    del checked._validate_args
    return checked


def check_aligned(noise_sd: Tensor, X: Tensor) -> None:
    """Check that the known noise that a program is given has one number per row of X.

    Raises:
        DataError: If it has not.
    """
    if noise_sd.shape != X.shape[:1]:
        raise DataError(
            f"noise_sd with shape [{len(X)}], one per row",
            f"shape {list(noise_sd.shape)}",
            "align it with X",
        )


def refuse_duplicate_rows(
    X: Tensor, noise_sd: Tensor | None, nugget: Tensor | None, where: str, parameter: str
) -> None:
    """Refuse duplicate rows without noise: their covariance has no inverse.

    Args:
        X: Inputs [n, d].
        noise_sd: The known noise of each row [n], if any.
        nugget: The nugget of the kernel at each row [n], if it has one.
        where: What the message expected.
        parameter: The name of the noise variance that is fixed to 0, for the message.

    Raises:
        DataError: Naming the duplicate rows.
    """
    noisy = torch.zeros(len(X), dtype=torch.bool, device=X.device)
    for variance in (noise_sd, nugget):
        if variance is not None:
            noisy = noisy | (variance > 0)
    exact = torch.nonzero(~noisy).flatten()
    _, inverse, counts = torch.unique(X[exact], dim=0, return_inverse=True, return_counts=True)
    twins = exact[counts[inverse] > 1].tolist()
    if twins:
        raise DataError(
            f"{where} where the {parameter} is fixed to 0",
            f"duplicates in {listed(twins, 'row', 6)}",
            f"give the {parameter} a prior, or merge those rows",
        )
