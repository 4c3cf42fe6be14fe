"""Functions drawn from a Gaussian-process posterior by Matheron's rule: a prior function, corrected to agree with the data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..kernels import Kernel
from ..kernels.base import Theta
from ..kernels.fourier_features import Draw, Path
from ..numerics.cholesky import add_diagonal, cholesky

NEGLIGIBLE = 1e-10  # share of the largest eigenvalue


@dataclass(eq=False)
class ExactPrior:
    """Functions of the prior known where they were asked for: each new row is drawn given all rows so far.

    O(k^3) in the rows so far; a row asked for again has the value that it had. It grows, so it is the one record here that
    is not frozen.
    """

    covariance: Callable[..., Tensor]  # (X), (X1, X2) -> [n1, n2]
    draw: Draw
    X: Tensor = field(init=False)
    f: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.X, self.f = self.draw.like[:0], self.draw.normal(self.draw.samples, 0)

    def __call__(self, X: Tensor) -> Tensor:
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
        prior = self.covariance(X)
        mean = torch.zeros(self.draw.samples, len(X), dtype=X.dtype, device=X.device)
        if len(self.X):
            # smooth functions at many rows have a covariance without full rank, and no noise to mend it: what lies in its
            # last directions is less than sqrt(NEGLIGIBLE) of f
            values, vectors = torch.linalg.eigh(self.covariance(self.X))
            kept = values > NEGLIGIBLE * values.max()
            whiten = vectors[:, kept] / values[kept].sqrt()
            V = whiten.mT @ self.covariance(self.X, X)
            mean = self.f @ whiten @ V
            prior = prior - V.mT @ V
        # rows close to known ones leave next to no variance: rounding makes some of it negative
        values, vectors = torch.linalg.eigh(0.5 * (prior + prior.mT))
        root = vectors * values.clamp_min(0.0).sqrt()
        self.X = torch.cat([self.X, X])
        self.f = torch.cat(
            [self.f, mean + self.draw.normal(self.draw.samples, len(X)) @ root.mT], -1
        )


def matheron(
    kernel: Kernel,
    theta: Theta,
    noise: Tensor,
    mean: Tensor,
    X: Tensor,
    y: Tensor,
    draw: Draw,
    exact: bool,
) -> Callable[[Tensor], Tensor]:
    """f(x) + k(x, X) C^-1 (y - f(X) - e), f from the prior, e from the noise, C = K + noise I; at one theta.

    ``noise`` is [1], or [n] where rows have their own. One solve for all the x there will ever be. Wilson, Borovitskiy, Terenin,
    Mostowsky & Deisenroth (2020), equation 9.
    """
    L = cholesky(add_diagonal(kernel(theta, X), noise), "covariance of the training rows")
    own = kernel.nugget(theta, X)
    rough: Path | None = None
    if exact:
        prior: Path = ExactPrior(
            lambda *rows: kernel.shared(theta, *rows) if len(rows) == 1 else kernel(theta, *rows),
            draw,
        )
        if (
            own is not None
        ):  # that of a training row is noise: another row at its place has one of its own
            noise, rough = noise + own, ExactPrior(lambda *rows: _alone(kernel, theta, *rows), draw)
    else:
        prior = kernel.path(theta, X.shape[-1], draw)
    gap = y - mean - prior(X) - noise.sqrt() * draw.normal(draw.samples, len(X))
    weights = torch.cholesky_solve(gap.mT, L)

    def path(rows: Tensor) -> Tensor:
        smooth = mean + prior(rows) + (kernel(theta, rows, X) @ weights).mT
        return smooth if rough is None else smooth + rough(rows)

    return path


def _alone(kernel: Kernel, theta: Theta, X1: Tensor, X2: Tensor | None = None) -> Tensor:
    """The covariance of the nugget, between different rows."""
    own = kernel.nugget(theta, X1)
    assert own is not None
    return torch.diag_embed(own) if X2 is None else own.new_zeros(len(X1), len(X2))
