"""Exact simulation of a Matern 3/2 field at many places of the unit square."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

GRID = 1024  # nodes along each side


def matern_field(n: int, lengthscale: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return n different nodes of a fine grid in random order [n, 2], and the field there [n].

    The field of variance 1 is simulated on the whole grid by circulant embedding, which is exact:
    the covariances on a torus of twice the size have nonnegative eigenvalues. Dietrich & Newsam
    (1997).
    """
    rng = np.random.default_rng(seed)
    side = np.minimum(np.arange(2 * GRID), 2 * GRID - np.arange(2 * GRID)) / GRID
    s = np.sqrt(3.0) * np.hypot(side[:, None], side[None]) / lengthscale
    eigenvalues = np.fft.fft2((1 + s) * np.exp(-s)).real
    if eigenvalues.min() < -1e-9 * eigenvalues.max():
        raise ValueError(f"the torus is too small for a lengthscale of {lengthscale}")
    root = np.sqrt(eigenvalues.clip(0.0))
    white = rng.standard_normal(s.shape) + 1j * rng.standard_normal(s.shape)
    field = np.fft.fft2(root * white).real[:GRID, :GRID] / (2 * GRID)
    nodes = rng.choice(GRID**2, n, replace=False)
    X = np.stack(np.unravel_index(nodes, (GRID, GRID)), 1) / GRID
    return torch.from_numpy(X), torch.from_numpy(field.ravel()[nodes])
