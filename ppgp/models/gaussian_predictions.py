"""The distribution of y at new rows, given that of f."""

from __future__ import annotations

import pyro.distributions as dist
from torch import Tensor
from torch.distributions import Distribution

from ..numerics.cholesky import add_diagonal, cholesky

__all__ = ["with_noise"]


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
    return dist.Normal(mean, spread.add_(noise).sqrt_())
