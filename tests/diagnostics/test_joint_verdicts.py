"""Verdicts by correlations, shapes and the log density, which no single scalar shows.

One test counts how often a right answer is rejected.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binom

import ppgp
from ppgp import inference, models
from ppgp.diagnostics import verdicts
from ppgp.posterior import Posterior

AGREES, SPREAD = "agrees", "means agree, spread does not"


def program() -> None:
    """A program for posteriors of given draws."""


def posterior(z: np.ndarray, lp: np.ndarray | None = None) -> Posterior:
    """Return a posterior of draws z [chain, draw, p]: of NUTS with several chains, else Laplace."""
    how = inference.NUTS() if len(z) > 1 else inference.Laplace()
    stats: dict[str, Any] = {}
    if lp is not None:
        stats["lp"] = torch.as_tensor(lp)
    return Posterior(
        models.Program(program), {}, {"z": torch.as_tensor(z)}, how, seconds=1.0, stats=stats
    )


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def test_mean_field_of_many_equally_correlated_parameters_does_not_agree() -> None:
    """Every marginal is within tolerance, with sds of .966 of the true ones.

    The sd of the sum is 7.5, and 18.5 is right.
    """
    p = 60
    C = 0.92 * np.eye(p) + 0.08
    reference = posterior(normal(4, 1000, p) @ np.linalg.cholesky(C).T)
    best = np.diag(np.linalg.inv(C)) ** -0.5
    field = posterior(best * normal(1, 1000, p, seed=1))
    found = ppgp.compare({"svi": field}, reference=reference)
    assert set(found.sites["verdict"]) == {AGREES}
    assert found.verdicts["svi"] == SPREAD
    assert found.joint is not None
    assert found.joint["ratio"].min() == pytest.approx(7.5 / 18.5, abs=0.06)
    assert "overconfident" in found.reasons["svi"]
    full = posterior(normal(1, 1000, p, seed=2) @ np.linalg.cholesky(C).T)
    assert ppgp.compare({"svi": full}, reference=reference).verdicts["svi"] == AGREES


@pytest.mark.parametrize("a", [0.9, 0.93, 0.95])
@pytest.mark.parametrize("swapped", [False, True])
def test_a_normal_and_a_bimodal_distribution_do_not_agree(a: float, swapped: bool) -> None:
    """Means, sds and tails are near each other; the middles are not."""
    spread = math.sqrt(1 - a * a)

    def bumps(*shape: int) -> np.ndarray:
        return a * np.sign(normal(*shape, seed=3)) + spread * normal(*shape, seed=4)

    pair = (bumps, normal) if swapped else (normal, bumps)
    found = ppgp.compare({"q": posterior(pair[1](1, 1000))}, reference=posterior(pair[0](4, 1000)))
    assert found.verdicts["q"] == SPREAD


def test_the_log_density_separates_a_banana_from_a_normal_of_its_moments() -> None:
    """The reference has x ~ N(0, 1) and y given x ~ N(x^2, 0.5^2), in ten pairs.

    The approximation is normal with the same means and sds; both are uncorrelated.
    """
    x, e = normal(4, 1000, 10), normal(4, 1000, 10, seed=1)

    def density(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return (-0.5 * x**2 - 0.5 * ((y - x**2) / 0.5) ** 2).sum(-1)

    y = x**2 + 0.5 * e
    reference = posterior(np.concatenate([x, y], -1), density(x, y))
    u, v = normal(1, 1000, 10, seed=2), 1 + 1.5 * normal(1, 1000, 10, seed=3)
    found = ppgp.compare(
        {"q": posterior(np.concatenate([u, v], -1), density(u, v))}, reference=reference
    )
    assert found.joint is not None
    row = found.joint[found.joint["what"].str.contains("log density")].iloc[0]
    assert row["verdict"] == SPREAD
    assert row["difference"] == pytest.approx(-10 * ((2.25 + 2) / 0.25 - 1) / 2, rel=0.2)
    assert found.verdicts["q"] != AGREES


@pytest.mark.slow
@pytest.mark.parametrize("transform", [lambda x: x, np.exp], ids=["normal", "lognormal"])
def test_a_right_answer_is_rejected_at_most_as_often_as_computed(transform: Any) -> None:
    """There are 400 draws on either side, the fewest that are judged."""
    runs, alarms = 40, 0
    for seed in range(runs):
        reference = posterior(transform(normal(4, 100, 3, seed=2 * seed)))
        q = posterior(transform(normal(1, 400, 3, seed=2 * seed + 1)))
        word = ppgp.compare({"q": q}, reference=reference).verdicts["q"]
        alarms += word not in (AGREES, "unjudged")
    assert alarms <= binom.isf(1e-3, runs, verdicts.FALSE_ALARM)


def test_limits_rise_with_the_number_of_figures() -> None:
    """Bonferroni's bound for normal figures; the distance of two samples is as rarely beyond."""
    assert verdicts.standard_errors(1) == pytest.approx(2.5758, abs=1e-4)
    assert verdicts.standard_errors(100) == pytest.approx(3.8906, abs=1e-4)
    passed, size = 0, 1 / (1 / 400 + 1 / 400)
    for seed in range(200):
        x, y = np.sort(normal(2, 400, seed=seed))
        both = np.concatenate([x, y])
        shares = [np.searchsorted(z, both, "right") / 400 for z in (x, y)]
        passed += bool(np.abs(shares[0] - shares[1]).max() > verdicts.share_limit(1, size))
    assert passed <= binom.isf(1e-3, 200, verdicts.FALSE_ALARM)
