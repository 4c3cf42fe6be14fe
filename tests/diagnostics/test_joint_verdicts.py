"""What no scalar shows by itself: correlations, shapes, the log density; and how often a right answer is called wrong."""

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
    """Whose posterior these draws are said to be."""


def posterior(z: np.ndarray, lp: np.ndarray | None = None) -> Posterior:
    """Draws z [chain, draw, p]: chains of NUTS where there are several, else Laplace's."""
    how = inference.NUTS() if len(z) > 1 else inference.Laplace()
    stats: dict[str, Any] = {} if lp is None else {"lp": torch.as_tensor(lp)}
    return Posterior(
        models.Program(program), {}, {"z": torch.as_tensor(z)}, how, seconds=1.0, stats=stats
    )


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def test_mean_field_of_many_equally_correlated_parameters_does_not_agree() -> None:
    """Every marginal is within tolerance (sds .966 of the true ones); the sd of the sum is 7.5 where 18.5 is right."""
    p = 60
    C = 0.92 * np.eye(p) + 0.08
    reference = posterior(normal(4, 1000, p) @ np.linalg.cholesky(C).T)
    best = np.diag(np.linalg.inv(C)) ** -0.5
    field = posterior(best * normal(1, 1000, p, seed=1))
    found = ppgp.compare({"svi": field}, reference=reference)
    assert set(found.latents["verdict"]) == {AGREES}
    assert found.verdicts["svi"] == SPREAD
    assert found.joint is not None
    assert found.joint["ratio"].min() == pytest.approx(7.5 / 18.5, abs=0.06)
    assert "overconfident" in found.reasons["svi"]
    full = posterior(normal(1, 1000, p, seed=2) @ np.linalg.cholesky(C).T)
    assert ppgp.compare({"svi": full}, reference=reference).verdicts["svi"] == AGREES


@pytest.mark.parametrize("a", [0.9, 0.93, 0.95])
@pytest.mark.parametrize("swapped", [False, True])
def test_a_normal_law_beside_two_bumps_does_not_agree(a: float, swapped: bool) -> None:
    """Means, sds and tails are near each other; the middle is not."""
    spread = math.sqrt(1 - a * a)

    def bumps(*shape: int) -> np.ndarray:
        return a * np.sign(normal(*shape, seed=3)) + spread * normal(*shape, seed=4)

    pair = (bumps, normal) if swapped else (normal, bumps)
    found = ppgp.compare({"q": posterior(pair[1](1, 1000))}, reference=posterior(pair[0](4, 1000)))
    assert found.verdicts["q"] == SPREAD


def test_a_banana_beside_a_normal_law_of_its_moments_is_told_by_the_log_density() -> None:
    """x ~ N(0, 1), y given x ~ N(x^2, 0.5^2) in ten pairs, beside the normal law with their means and sds, uncorrelated as they are."""
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
@pytest.mark.parametrize("law", [lambda x: x, np.exp], ids=["normal", "lognormal"])
def test_a_right_answer_is_called_wrong_at_most_as_often_as_computed(law: Any) -> None:
    """The least that is judged: 400 draws on either side; the count of false alarms lies below its binomial bound."""
    runs, alarms = 40, 0
    for seed in range(runs):
        reference = posterior(law(normal(4, 100, 3, seed=2 * seed)))
        q = posterior(law(normal(1, 400, 3, seed=2 * seed + 1)))
        word = ppgp.compare({"q": q}, reference=reference).verdicts["q"]
        alarms += word not in (AGREES, "unjudged")
    assert alarms <= binom.isf(1e-3, runs, verdicts.FALSE_ALARM)


def test_limits_rise_with_the_number_of_figures() -> None:
    """Bonferroni over normal figures; the distance of two samples passes its limit as rarely."""
    assert verdicts.standard_errors(1) == pytest.approx(2.5758, abs=1e-4)
    assert verdicts.standard_errors(100) == pytest.approx(3.8906, abs=1e-4)
    passed, size = 0, 1 / (1 / 400 + 1 / 400)
    for seed in range(200):
        x, y = np.sort(normal(2, 400, seed=seed))
        both = np.concatenate([x, y])
        shares = [np.searchsorted(z, both, "right") / 400 for z in (x, y)]
        passed += bool(np.abs(shares[0] - shares[1]).max() > verdicts.share_limit(1, size))
    assert passed <= binom.isf(1e-3, 200, verdicts.FALSE_ALARM)
