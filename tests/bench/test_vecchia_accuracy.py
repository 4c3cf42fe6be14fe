"""Vecchia's approximation on 100,000 rows of a field, against kriging from many nearest rows."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from matern_fields import matern_field
from scipy.spatial import KDTree
from scipy.special import ndtri
from threadpoolctl import threadpool_limits

import ppgp
from ppgp import Dataset, inference, models
from ppgp.kernels import Matern

N, PLACES = 100_000, 10_000
LENGTHSCALE, NOISE = 0.05, 0.1
NEAREST = 200
LIMIT = 1.08  # of the RMSE of kriging from the nearest rows
SECONDS = 180.0  # CPU seconds of one thread for a fit and the predictions
LEVEL, LOWEST, HIGHEST = 0.9, 0.88, 0.92


def matern(distance: np.ndarray) -> np.ndarray:
    s = np.sqrt(3.0) * distance / LENGTHSCALE
    return (1 + s) * np.exp(-s)


def kriging(X: np.ndarray, y: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return the mean of the field at places given their nearest rows, at the true covariance."""
    near = KDTree(X).query(places, NEAREST)[1]
    means = []
    for rows, there in zip(np.array_split(near, 50), np.array_split(places, 50), strict=True):
        between = np.linalg.norm(X[rows][:, :, None] - X[rows][:, None], axis=-1)
        K = matern(between) + NOISE * np.eye(NEAREST)
        k = matern(np.linalg.norm(X[rows] - there[:, None], axis=-1))
        means.append((k * np.linalg.solve(K, y[rows][..., None])[..., 0]).sum(1))
    return np.concatenate(means)


def test_a_hundred_thousand_rows(benchmark: Any) -> None:
    X, f = matern_field(N + PLACES, LENGTHSCALE)
    generator = torch.Generator().manual_seed(1)
    y = f + NOISE**0.5 * torch.randn(len(f), generator=generator, dtype=f.dtype)
    data, new = Dataset(X[:N], y[:N]), X[N:]
    with threadpool_limits(1):
        torch.set_num_threads(1)
        started = time.process_time()
        posterior = ppgp.fit(
            models.Vecchia(Matern(1.5)), data, inference.MAP(), standardise=False, progress=False
        )
        fitted = time.process_time() - started
        latent = posterior.latent(new)
        seconds = time.process_time() - started
    theta = {name: round(float(value), 4) for name, value in posterior.theta.items()}
    truth = f[N:]
    own = float((latent.mean - truth).square().mean().sqrt())
    best = float(
        np.sqrt(np.mean((kriging(X[:N].numpy(), y[:N].numpy(), new.numpy()) - truth.numpy()) ** 2))
    )
    region = posterior.predict(new).interval(LEVEL)
    covered = float(region.covers(y[N:]).double().mean())
    half = ndtri(0.5 + LEVEL / 2) * latent.std
    covered_f = float(((latent.mean - truth).abs() <= half).double().mean())
    print(
        f"\nVecchia, {N:,} rows: fit {fitted:.0f} CPU s, with {PLACES:,} predictions {seconds:.0f} "
        f"CPU s of one thread; {theta}\n"
        f"  RMSE to the field {own:.4f}, kriging from {NEAREST} rows {best:.4f}, ratio "
        f"{own / best:.3f}\n"
        f"  {LEVEL:.0%} intervals cover {covered:.3%} of y and {covered_f:.3%} of the field"
    )
    benchmark.extra_info["ratio"] = own / best
    benchmark.pedantic(lambda: None, rounds=1, iterations=1)
    assert own <= LIMIT * best
    assert LOWEST <= covered <= HIGHEST
    assert LOWEST <= covered_f <= HIGHEST
    assert seconds < SECONDS
