"""A verdict needs enough draws on both sides, and states what is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import ppgp
from ppgp import inference, models
from ppgp.posterior import Posterior
from ppgp.posterior.convergence import convergence_warnings, missing_for_comparison, mixing

WORDS = {"agrees", "means agree, spread does not", "do not use"}


def program() -> None:
    """A program for posteriors of given draws."""


def posterior(z: Any, how: inference.Inference, **stats: Any) -> Posterior:
    """Return a posterior of draws z [chain, draw] of one site."""
    return Posterior(
        models.Program(program), {}, {"z": torch.as_tensor(z)}, how, seconds=1.0, stats=stats
    )


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def slow(chains: int, draws: int, rho: float, seed: int = 0) -> np.ndarray:
    """Return autoregressive chains of N(0, 1).

    Each has about draws (1 - rho) / (1 + rho) effective draws.
    """
    e = normal(chains, draws, seed=seed)
    x = e.copy()
    for t in range(1, draws):
        x[:, t] = rho * x[:, t - 1] + (1 - rho**2) ** 0.5 * e[:, t]
    return x


REFERENCE = posterior(normal(4, 1000), inference.NUTS())
APART = normal(4, 1000, seed=1) + np.array([0.0, 0.0, 0.0, 1.5])[:, None]


@pytest.mark.parametrize(
    ("candidate", "fact"),
    [
        (posterior(0.71 + normal(1, 20, seed=1), inference.Laplace()), "20 draws"),
        (posterior(normal(1, 399, seed=1), inference.SVI()), "399 draws"),
        (posterior(APART, inference.NUTS()), "R-hat"),
        (posterior(slow(4, 500, 0.97), inference.HMC()), "effective sample size"),
        (posterior(normal(1, 4000, seed=1), inference.NUTS(chains=1)), "one chain"),
        (posterior(normal(4, 3, seed=1), inference.NUTS()), "3 draws"),
        (posterior(np.zeros((4, 100)), inference.NUTS()), "stuck"),
        (posterior(np.arange(4.0)[:, None] + np.zeros((4, 100)), inference.NUTS()), "R-hat"),
    ],
    ids=["Laplace", "SVI", "R-hat", "ESS", "one chain", "short chains", "stuck", "stuck apart"],
)
def test_what_is_missing_is_stated(candidate: Posterior, fact: str) -> None:
    """It is stated for a candidate, for a reference, and for a fit."""
    assert any(fact in sentence for sentence in missing_for_comparison(candidate))
    judged = ppgp.compare({"q": candidate}, reference=REFERENCE)
    assert judged.verdicts == {"q": "unjudged"}
    assert fact in judged.reasons["q"]
    if not (candidate.draws["z"] == 0).all():
        turned = ppgp.compare(
            {"q": posterior(normal(1, 1000, seed=2), inference.Laplace())}, reference=candidate
        )
        assert turned.verdicts == {"q": "unjudged"}
        assert "reference" in turned.reasons["q"]
        assert fact in turned.reasons["q"]
    if candidate.mcmc:
        assert any(fact in sentence for sentence in convergence_warnings(candidate))
        assert any(fact in sentence for sentence in ppgp.diagnose(candidate).findings)


@pytest.mark.parametrize(
    "candidate",
    [
        posterior(normal(1, 400, seed=1), inference.Laplace()),
        posterior(normal(4, 110, seed=5), inference.NUTS()),
        posterior(np.zeros((1, 1)), inference.MAP()),
        posterior(np.ones((1, 1)), inference.MAP()),
    ],
    ids=["400 draws", "chains", "point", "point that is off"],
)
def test_a_posterior_with_enough_draws_is_judged(candidate: Posterior) -> None:
    assert missing_for_comparison(candidate) == []
    assert ppgp.compare({"q": candidate}, reference=REFERENCE).verdicts["q"] in WORDS


def test_a_point_is_judged_on_its_mean_alone() -> None:
    near, off = (posterior(np.full((1, 1), x), inference.MAP()) for x in (0.02, 0.5))
    judged = ppgp.compare({"near": near, "off": off}, reference=REFERENCE)
    assert judged.verdicts == {"near": "means agree, spread does not", "off": "do not use"}


def test_figures_are_reported_without_a_verdict() -> None:
    few = posterior(0.71 + normal(1, 20, seed=1), inference.Laplace())
    row = ppgp.compare({"q": few}, reference=REFERENCE).sites.iloc[0]
    assert row["difference"] == pytest.approx(0.71, abs=4 / 20**0.5)
    assert row["verdict"] == "unjudged"


def test_chains_that_have_converged_are_the_reference_before_longer_ones_that_have_not() -> None:
    bad = posterior(np.tile(APART, 3), inference.NUTS())
    good = posterior(normal(4, 500, seed=4), inference.NUTS())
    assert ppgp.compare({"bad": bad, "good": good}).verdicts == {
        "bad": "unjudged",
        "good": "reference",
    }


@pytest.mark.parametrize(
    "how",
    [inference.SGLD(batch_size=10), inference.SGHMC(batch_size=10)],
    ids=lambda h: type(h).__name__,
)
def test_chains_on_mini_batches_need_a_reference(how: inference.Inference) -> None:
    """Mixing does not show the noise of their gradients: here sds are 1.5 times too wide."""
    wide = posterior(1.5 * normal(4, 1000, seed=1), how)
    assert mixing(wide).complaints == []
    alone = ppgp.diagnose(wide)
    assert alone.verdict == "unjudged"
    assert "mini-batches" in alone.reason
    assert ppgp.diagnose(wide, REFERENCE).verdict == "means agree, spread does not"
    right = posterior(normal(4, 1000, seed=1), how)
    assert ppgp.diagnose(right, REFERENCE).verdict == "agrees"
    laplace = posterior(normal(1, 1000, seed=2), inference.Laplace())
    assert ppgp.compare({"sg": wide, "q": laplace}).verdicts == {"sg": "unjudged", "q": "unjudged"}
    assert (
        ppgp.compare({"sg": wide, "nuts": REFERENCE}).verdicts["sg"]
        == "means agree, spread does not"
    )
    named = ppgp.compare({"sg": wide, "q": laplace}, reference="sg")
    assert named.verdicts["q"] == "unjudged"
    assert "mini-batches" in named.reasons["q"]


@pytest.mark.parametrize(
    "how", [inference.SGLD(), inference.SGHMC()], ids=lambda h: type(h).__name__
)
def test_steps_that_are_never_rejected_need_a_reference_too(how: inference.Inference) -> None:
    """The bias of the step size is the same in every chain, where R-hat does not show it."""
    wide = posterior(1.5 * normal(4, 1000, seed=1), how)
    alone = ppgp.diagnose(wide)
    assert alone.verdict == "unjudged"
    assert "never rejected" in alone.reason
    assert ppgp.diagnose(wide, REFERENCE).verdict == "means agree, spread does not"
    assert ppgp.diagnose(posterior(normal(4, 1000, seed=1), how), REFERENCE).verdict == "agrees"
    assert ppgp.compare({"sg": wide}).verdicts == {"sg": "unjudged"}


def test_a_program_that_takes_rows_at_random_is_on_mini_batches_too() -> None:
    found = posterior(
        normal(4, 1000, seed=1), inference.SGLD(), random_density="a plate that takes 10 of 30 rows"
    )
    assert "mini-batches" in ppgp.diagnose(found).reason


def angles(turn: float, how: inference.Inference, seed: int, chains: int = 4) -> Posterior:
    """Return draws of N(turn, 0.2^2), as angles in (-pi, pi]."""
    x = turn + 0.2 * normal(chains, 4000 // chains, seed=seed)
    return posterior(np.arctan2(np.sin(x), np.cos(x)), how, circular=("z",))


def test_an_angle_next_to_pi_is_judged_like_any_other() -> None:
    """On the real line such draws have two modes, at -pi and pi."""
    seam, zero = (angles(turn, inference.NUTS(), 3).summary() for turn in (3.0, 0.0))
    np.testing.assert_allclose(seam["mean"] - 3.0, zero["mean"], atol=1e-12)
    for figure in ("sd", "mcse_mean", "mcse_sd"):
        np.testing.assert_allclose(seam[figure], zero[figure], rtol=1e-9)
    np.testing.assert_allclose(
        seam[["5%", "50%", "95%"]] - 3.0, zero[["5%", "50%", "95%"]], atol=1e-12
    )
    assert float(seam["r_hat"].iloc[0]) < 1.01
    assert float(seam["ess_bulk"].iloc[0]) > 2000
    same = {"q": angles(np.pi, inference.Laplace(), 5, 1), "r": angles(np.pi, inference.NUTS(), 4)}
    assert ppgp.compare(same).verdicts["q"] == "agrees"
    off = {
        "q": angles(np.pi + 0.2, inference.Laplace(), 5, 1),
        "r": angles(np.pi, inference.NUTS(), 4),
    }
    assert ppgp.compare(off).verdicts["q"] == "do not use"


def test_chains_at_two_angles_have_not_converged() -> None:
    x = np.pi + 0.2 * normal(4, 500, seed=1) + np.array([0.0, 0.0, 0.0, 2.0])[:, None]
    found = posterior(np.arctan2(np.sin(x), np.cos(x)), inference.NUTS(), circular=("z",))
    assert found.r_hat()["z"] > 1.1
    assert any("R-hat" in sentence for sentence in convergence_warnings(found))


def test_the_joint_mode_of_f_is_reported_as_a_poor_fit_whatever_the_verdict() -> None:
    joint = posterior(np.zeros((1, 1)), inference.MAP(), joint_mode=True)
    for given in (REFERENCE, None):
        assert "SVI or NUTS" in ppgp.compare({"q": joint}, reference=given).reasons["q"]
    assert "SVI or NUTS" not in ppgp.compare({"q": joint, "nuts": REFERENCE}).reasons["nuts"]
