"""Functions drawn from a Gaussian-process posterior by Matheron's rule.

A function drawn from the prior is corrected so that it agrees with the data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...kernels import Kernel
from ...kernels.base import Theta
from ...kernels.fourier_features import Draw, Path
from ...numerics.cholesky import add_diagonal, cholesky

NEGLIGIBLE = 1e-10  # eigenvalues below this share of the largest are dropped


@dataclass(eq=False)
class ExactPrior:
    """Functions drawn from the prior, known at the rows evaluated so far.

    Each new row is drawn given all earlier rows, and a row that is evaluated again keeps its
    value. The cost is O(k^3) in the number of rows so far. The record grows, so it is not frozen.

    Attributes:
        covariance: ``covariance(X)`` is [n, n], ``covariance(X1, X2)`` is [n1, n2].
        draw: The number of functions, the random generator, and a tensor with the dtype and device.
        X: The rows evaluated so far [k, d].
        f: The values of the functions there [samples, k].
    """

    covariance: Callable[..., Tensor]
    draw: Draw
    X: Tensor = field(init=False)
    f: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.X, self.f = self.draw.like[:0], self.draw.normal(self.draw.samples, 0)

    def __call__(self, X: Tensor) -> Tensor:
        """Return the values of the functions at X [m, d]: [samples, m]."""
        known = {row.tobytes(): i for i, row in enumerate(self.X.cpu().numpy())}
        keys = [row.tobytes() for row in X.cpu().numpy()]
        new: dict[bytes, int] = {}
        for i, key in enumerate(keys):
            if key not in known:
                new.setdefault(key, i)
        if new:
            self._extend(X[list(new.values())])
            known |= {key: len(known) + j for j, key in enumerate(new)}
        return self.f[:, [known[key] for key in keys]]

    def _extend(self, X: Tensor) -> None:
        """Draw the functions at new rows given their values at the known rows."""
        prior = self.covariance(X)
        mean = torch.zeros(self.draw.samples, len(X), dtype=X.dtype, device=X.device)
        if len(self.X):
            # The covariance of a smooth function at many rows is rank deficient, and no noise is
            # added to it. The dropped directions hold less than sqrt(NEGLIGIBLE) of f.
            values, vectors = torch.linalg.eigh(self.covariance(self.X))
            kept = values > NEGLIGIBLE * values.max()
            whiten = vectors[:, kept] / values[kept].sqrt()
            V = whiten.mT @ self.covariance(self.X, X)
            mean = self.f @ whiten @ V
            prior = prior - V.mT @ V
        # rows close to known ones have almost no variance, and rounding makes some of it negative
        values, vectors = torch.linalg.eigh(0.5 * (prior + prior.mT))
        root = vectors * values.clamp_min(0.0).sqrt()
        new = mean + self.draw.normal(self.draw.samples, len(X)) @ root.mT
        self.X = torch.cat([self.X, X])
        self.f = torch.cat([self.f, new], -1)


def matheron(
    kernel: Kernel,
    theta: Theta,
    noise: Tensor,
    mean: Callable[[Tensor], Tensor],
    X: Tensor,
    y: Tensor,
    draw: Draw,
    exact: bool,
) -> Callable[[Tensor], Tensor]:
    """Return functions drawn from the posterior at one theta.

    Each is f(x) + k(x, X) C^-1 (y - f(X) - e) with f from the prior, e from the noise and
    C = K + noise I. There is one solve, whatever the number of evaluations. Wilson, Borovitskiy,
    Terenin, Mostowsky & Deisenroth (2020), equation 9.

    Args:
        kernel: The kernel.
        theta: Its hyperparameters, without a draw axis.
        noise: The noise variance [1], or one variance per row [n].
        mean: The mean of f, X [m, d] -> [m] or [1].
        X: Training inputs [n, d].
        y: Training targets [n].
        draw: The number of functions, of Fourier features, and the random generator.
        exact: Whether prior functions are drawn exactly, row by row, in place of Fourier features.

    Returns:
        A function X [m, d] -> [samples, m].
    """
    L = cholesky(add_diagonal(kernel(theta, X), noise), "covariance of the training rows")
    rough: Path | None = None
    if exact:

        def shared(*rows: Tensor) -> Tensor:
            if len(rows) == 1:
                return kernel.shared(theta, *rows)
            return kernel(theta, *rows)

        prior: Path = ExactPrior(shared, draw)
        nugget = kernel.nugget(theta, X)
        if nugget is not None:
            # the nugget of a training row is noise: a new row at its place has its own
            noise = noise + nugget
            rough = ExactPrior(lambda *rows: _nugget_covariance(kernel, theta, *rows), draw)
    else:
        prior = kernel.path(theta, X.shape[-1], draw)
    gap = y - mean(X) - prior(X) - noise.sqrt() * draw.normal(draw.samples, len(X))
    weights = torch.cholesky_solve(gap.mT, L)

    def path(rows: Tensor) -> Tensor:
        smooth = mean(rows) + prior(rows) + (kernel(theta, rows, X) @ weights).mT
        if rough is None:
            return smooth
        return smooth + rough(rows)

    return path


def _nugget_covariance(
    kernel: Kernel, theta: Theta, X1: Tensor, X2: Tensor | None = None
) -> Tensor:
    """Return the covariance of the nugget: diagonal for X1 alone, 0 between X1 and X2."""
    nugget = kernel.nugget(theta, X1)
    assert nugget is not None
    if X2 is None:
        return torch.diag_embed(nugget)
    return nugget.new_zeros(len(X1), len(X2))
