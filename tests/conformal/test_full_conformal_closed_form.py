"""Full conformal prediction of a GP against other computations.

They are brute force, refits without each row, the dense form of Woodbury, and universal kriging.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import betabinom
from torch import Tensor

from ppgp.conformal import (
    full_interval,
    full_system,
    leave_one_out_parts,
    leave_one_out_parts_low_rank,
)
from ppgp.conformal.full_conformal_closed_form import LeaveOneOutParts
from ppgp.numerics.cholesky import cholesky_and_jitter
from ppgp.runtime.levels import exact_level

EXACT = "donot_use_mm_for_euclid_dist"


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def problem(seed: int, n: int = 24, m: int = 3) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the covariance of n + m rows with noise, y, and the other arguments of the parts."""
    X = normal(n + m, 2, seed=seed)
    noise = 0.05 + 0.5 * torch.rand(
        1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    full = torch.exp(
        -0.5 * torch.cdist(X, X).square() / (0.3 + 0.1 * (seed % 10))
    ) + noise * torch.eye(n + m)
    y = torch.linalg.cholesky(full) @ normal(n + m, seed=seed + 1) * (1 + seed % 3)
    return full, y[:n], full[:n, :n], full[:n, n:], full.diagonal()[n:]


def kept(full: Tensor, y: Tensor, t: float, row: int, level: float) -> bool:
    """Return whether t is kept by definition: add (x*, t), studentise all residuals, rank."""
    n = len(y)
    index = [*range(n), n + row]
    inverse = torch.linalg.inv(full[index][:, index])
    score = (
        inverse @ torch.cat([y, torch.tensor([t], dtype=y.dtype)])
    ).abs() / inverse.diagonal().sqrt()
    at_least = 1 + int((score[:-1] >= score[-1]).sum())
    return at_least > (1 - exact_level(level)) * (n + 1)


@pytest.mark.parametrize("seed", range(100))
def test_the_closed_form_equals_brute_force_to_1e_8(seed: int) -> None:
    full, y, C, K, variance = problem(seed)
    level = (0.8, 0.9, 0.95)[seed % 3]
    lower, upper = full_interval(leave_one_out_parts(C, y, K, variance), level)
    for row in range(len(variance)):
        for end, inwards in ((float(lower[row]), 1.0), (float(upper[row]), -1.0)):
            gap = 1e-8 * max(1.0, abs(end))
            assert kept(full, y, end + inwards * gap, row, level)
            assert not kept(full, y, end - inwards * gap, row, level)


def without_each(
    full: Tensor, y: Tensor, n: int, drift: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return mean and variance at each new row from the data without row i, by n solves."""
    m = len(full) - n
    means, variances = torch.empty(n, m, dtype=y.dtype), torch.empty(n, m, dtype=y.dtype)
    for i in range(n):
        kept_rows = [j for j in range(n) if j != i]
        C = full[kept_rows][:, kept_rows]
        for k in range(m):
            c = full[kept_rows, n + k]
            if drift is None:
                w = torch.linalg.solve(C, c)
            else:
                F, f = drift[kept_rows], drift[n + k]
                p = F.shape[1]
                system = torch.cat(
                    [torch.cat([C, F], 1), torch.cat([F.mT, torch.zeros(p, p, dtype=y.dtype)], 1)]
                )
                w = torch.linalg.solve(system, torch.cat([c, f]))[:-p]
            means[i, k] = w @ y[kept_rows]
            variances[i, k] = full[n + k, n + k] - 2 * w @ c + w @ C @ w
    return means, variances


def leave_one_out(parts: LeaveOneOutParts) -> tuple[Tensor, Tensor]:
    mean, sd, _ = parts.at(slice(None))
    return mean, sd.square()


def test_predictions_without_each_row_equal_n_refits() -> None:
    full, y, C, K, variance = problem(7, n=12)
    for found, wanted in zip(
        leave_one_out(leave_one_out_parts(C, y, K, variance)),
        without_each(full, y, 12),
        strict=True,
    ):
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)


def test_with_a_drift_they_equal_n_universal_krigings() -> None:
    full, y, C, K, variance = problem(8, n=12)
    drift = torch.cat([torch.ones(15, 1), normal(15, 1, seed=3)], 1)
    parts = leave_one_out_parts(C, y, K, variance, drift=(drift[:12], drift[12:]))
    for found, wanted in zip(leave_one_out(parts), without_each(full, y, 12, drift), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)


def test_the_low_rank_form_equals_the_dense_form() -> None:
    features, new = normal(30, 5, seed=0), normal(4, 5, seed=1)
    root = normal(5, 5, seed=2)
    prior = root @ root.mT + torch.eye(5)
    noise = 0.1 + torch.rand(30, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    y, new_noise = normal(30, seed=4), torch.full((4,), 0.2, dtype=torch.float64)
    dense = leave_one_out_parts(
        features @ prior @ features.mT + torch.diag(noise),
        y,
        features @ prior @ new.mT,
        ((new @ prior) * new).sum(1) + new_noise,
    )
    low = leave_one_out_parts_low_rank(features, prior, noise, y, new, new_noise)
    for name in ("a", "d", "b", "mean", "variance"):
        torch.testing.assert_close(getattr(low, name), getattr(dense, name), rtol=1e-9, atol=1e-10)


def test_coverage_is_exact_where_the_hyperparameters_are_given() -> None:
    """y is not from the GP: only exchangeability is needed.

    There are 3,000 repetitions at n = 19 and level 0.8.
    """
    generator = np.random.default_rng(0)
    n, level, repetitions = 19, 0.8, 3000
    covered = 0
    for _ in range(repetitions):
        X = torch.as_tensor(generator.normal(size=(n + 1, 1)))
        y = torch.as_tensor(np.exp(generator.normal(size=n + 1)))
        full = torch.exp(-0.5 * torch.cdist(X, X).square()) + 0.1 * torch.eye(n + 1)
        lower, upper = full_interval(
            leave_one_out_parts(full[:n, :n], y[:n], full[:n, n:], full.diagonal()[n:]), level
        )
        covered += int(lower[0] <= y[n] <= upper[0])
    error = 3 * np.sqrt(level * (1 - level) / repetitions)
    assert level - error <= covered / repetitions <= level + 1 / (n + 1) + error


def test_too_few_ranked_rows_give_the_whole_line() -> None:
    _, y, C, K, variance = problem(0)
    parts = leave_one_out_parts(C, y, K, variance)
    assert bool(torch.isinf(full_interval(parts, 0.9, torch.arange(8))[1]).all())
    assert bool(torch.isfinite(full_interval(parts, 0.9, torch.arange(9))[1]).all())


def test_the_steps_of_the_system_are_the_shifted_leave_one_out_means() -> None:
    _, y, C, K, variance = problem(3)
    parts = leave_one_out_parts(C, y, K, variance)
    steps = full_system(parts)
    mean, sd, u = parts.at(slice(None))
    torch.testing.assert_close(steps, (mean + sd * u).mT.sort(-1).values)
    assert steps.shape == (3, 24)


@pytest.mark.parametrize("unit", [1.0, 1e-6])
def test_a_row_of_the_data_without_noise_is_known(unit: float) -> None:
    """There the variance is 0 but for rounding, and the set is its y."""
    X = normal(12, 1, seed=0)
    C = unit**2 * torch.exp(-0.5 * torch.cdist(X, X).square())
    y = unit * torch.sin(3 * X[:, 0])
    for drift in (
        None,
        (torch.ones(12, 1, dtype=torch.float64), torch.ones(12, 1, dtype=torch.float64)),
    ):
        parts = leave_one_out_parts(C, y, C, C.diagonal(), drift=drift)
        lower, upper = full_interval(parts, 0.8)
        torch.testing.assert_close(lower, y, rtol=1e-12, atol=0)
        torch.testing.assert_close(upper, y, rtol=1e-12, atol=0)
        assert not bool(torch.isnan(full_system(parts)).any())


@pytest.mark.filterwarnings("ignore::ppgp.errors.NumericalWarning")
def test_a_covariance_that_needs_jitter_keeps_the_coverage() -> None:
    """Noise-free rows of a smooth function: coverage was .06 at a level of .8.

    In all there are 60 sets of n = 49 rows each, whose coverage of 20 new rows is beta-binomial.
    """
    n, m, repetitions = 49, 20, 60
    generator = torch.Generator().manual_seed(0)
    covered = 0
    for _ in range(repetitions):
        X = torch.rand(n + m, 1, generator=generator, dtype=torch.float64)
        y = torch.sin(6 * X[:, 0]) + X[:, 0].square()
        full = torch.exp(-0.5 * torch.cdist(X, X, compute_mode=EXACT).square() / 0.09)
        parts = leave_one_out_parts(full[:n, :n], y[:n], full[:n, n:], full.diagonal()[n:])
        lower, upper = full_interval(parts, 0.8)
        covered += int(((lower <= y[n:]) & (y[n:] <= upper)).sum())
    share = covered / (m * repetitions)
    error = 4 * betabinom(m, 40, 10).std() / m / np.sqrt(repetitions)
    assert 0.8 - error <= share <= 0.8 + error


@pytest.mark.filterwarnings("ignore::ppgp.errors.NumericalWarning")
def test_jitter_counts_as_noise_of_all_rows_and_of_the_drift() -> None:
    X = torch.linspace(0, 1, 21, dtype=torch.float64)[:, None]
    full = torch.exp(-0.5 * torch.cdist(X, X, compute_mode=EXACT).square())
    y, twice = normal(20, seed=0), torch.ones(21, 2, dtype=torch.float64)
    C, K, variance = full[:20, :20], full[:20, 20:], full.diagonal()[20:]
    _, jitter = cholesky_and_jitter(C)
    assert float(jitter) > 0
    noisy = leave_one_out_parts(C + jitter * torch.eye(20), y, K, variance + jitter)
    found = leave_one_out_parts(C, y, K, variance)
    for name in ("a", "d", "b", "mean", "variance"):
        torch.testing.assert_close(getattr(found, name), getattr(noisy, name), rtol=1e-4, atol=0)
    # a drift with the same function twice is a prior of the jitter's precision on both
    C = C + 0.1 * torch.eye(20)
    W = torch.linalg.solve(C, twice[:20])
    _, precision = cholesky_and_jitter(twice[:20].mT @ W)
    assert float(precision) > 0
    drift = leave_one_out_parts(C, y, K, variance + 0.1, drift=(twice[:20], twice[20:]))
    once = leave_one_out_parts(C, y, K, variance + 0.1, drift=(twice[:20, :1], twice[20:, :1]))
    torch.testing.assert_close(drift.variance, once.variance, rtol=1e-6, atol=0)
