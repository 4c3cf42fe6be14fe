"""Diagnosis without a reference: right approximations pass, wrong ones are detected."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import either_arviz
import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import inference
from ppgp.diagnostics import diagnosis
from ppgp.diagnostics.diagnosis import diagnose, k_hat, reweighted
from ppgp.errors import NotApplicable
from ppgp.inference import MAP, NUTS, SVI, Exact, Laplace
from ppgp.models import LinearRegression, LogisticRegression
from ppgp.posterior import Posterior
from ppgp.posterior.sample_statistics import k_hat_limit

F64 = torch.float64
PRECISION = torch.tensor([[2.0, 1.3], [1.3, 1.0]], dtype=F64)
COVARIANCE = torch.linalg.inv(PRECISION)


def gaussian(mean: Tensor) -> None:
    pyro.sample("z", dist.MultivariateNormal(mean, precision_matrix=PRECISION))


def correlated(how: Any) -> Posterior:
    return ppgp.fit(gaussian, {"mean": torch.zeros(2, dtype=F64)}, how, progress=False)


def made_up(z: Tensor, lp: Tensor, log_q: Tensor) -> Posterior:
    """Return a posterior of draws [1, draw, p] with their densities, like those of a guide."""
    return Posterior(None, {}, {"z": z}, SimpleNamespace(), stats={"lp": lp, "log_q": log_q})


def drawn_from(
    sd: float, shift: float = 0.0, draws: int = 4000, df: float | None = None
) -> Posterior:
    """Return draws of N(shift, sd^2) for a target N(0, 1), or Student's t."""
    z = shift + sd * torch.randn(1, draws, 1, generator=torch.Generator().manual_seed(0), dtype=F64)
    zero = torch.zeros((), dtype=F64)
    target = dist.Normal(zero, 1.0) if df is None else dist.StudentT(df, zero, 1.0)
    return made_up(z, target.log_prob(z[..., 0]), dist.Normal(shift, sd).log_prob(z[..., 0]))


def test_k_hat_equals_arviz() -> None:
    how = Laplace(draws=900)
    posterior = ppgp.fit(LogisticRegression(), ppgp.load("breast_cancer"), how, progress=False)
    ratios = (posterior.stats["lp"] - posterior.stats["log_q"]).flatten().numpy()
    _, expected = either_arviz.psis(ratios)
    assert k_hat(posterior) == pytest.approx(float(expected), abs=1e-6)


@pytest.mark.parametrize(("draws", "limit"), [(100, 0.5), (1000, 2 / 3), (10**5, 0.7)])
def test_the_limit_depends_on_the_number_of_draws(draws: int, limit: float) -> None:
    assert k_hat_limit(draws) == pytest.approx(limit)


@pytest.mark.parametrize(
    "how",
    [NUTS(), Laplace(), SVI("multivariate_normal"), inference.HMC()],
    ids=lambda h: type(h).__name__,
)
def test_a_right_approximation_agrees(how: Any) -> None:
    found = diagnose(correlated(how))
    assert found.verdict == "agrees", found
    assert (found.table["verdict"] == "agrees").all()


def test_mean_field_on_a_correlated_gaussian_is_detected() -> None:
    found = diagnose(correlated(SVI("normal", draws=4000)))
    assert found.verdict in ("means agree, spread does not", "do not use")
    assert found.findings


@pytest.mark.parametrize(
    ("posterior", "verdicts"),
    [
        (drawn_from(1.0), {"agrees"}),
        (drawn_from(1.3), {"means agree, spread does not"}),
        (drawn_from(0.05), {"do not use"}),  # collapsed
        (drawn_from(1.0, shift=6.0), {"do not use"}),  # elsewhere
        (
            drawn_from(1.0, df=1.5),
            {"do not use", "means agree, spread does not"},
        ),  # tails too light
    ],
    ids=["right", "wide", "collapsed", "elsewhere", "light tails"],
)
def test_wrong_approximations_are_detected(posterior: Posterior, verdicts: set[str]) -> None:
    found = diagnose(posterior)
    assert found.verdict in verdicts, found
    assert found.k_hat is not None


def test_weighted_moments_are_those_of_the_target() -> None:
    mean, sd, mean_error, sd_error = reweighted(drawn_from(1.4, shift=0.3, draws=20_000))["z[0]"]
    assert mean == pytest.approx(0.0, abs=4.5 * mean_error)
    assert sd == pytest.approx(1.0, abs=4.5 * sd_error)


def chains(z: np.ndarray, **stats: Tensor) -> Posterior:
    return Posterior(
        None, {}, {"z": torch.as_tensor(z)}, SimpleNamespace(chains=len(z)), stats=dict(stats)
    )


def test_chains_in_different_places() -> None:
    e = np.random.default_rng(0).normal(size=(4, 1000))
    found = diagnose(chains(e + 5 * np.arange(4)[:, None]))
    assert found.verdict == "do not use"
    assert "the chains sit in 4 modes" in found.findings[0]


def test_each_failed_check_of_chains_has_its_advice() -> None:
    generator = np.random.default_rng(0)
    e = generator.normal(size=(4, 1000))
    diverging = torch.zeros(4, 1000, dtype=torch.bool)
    diverging[0, :30] = True
    found = diagnose(chains(e, diverging=diverging))
    assert any("target_accept" in s for s in found.findings)
    walk = np.cumsum(generator.normal(size=(4, 1000)), axis=1)
    assert any("E-BFMI" in s for s in diagnose(chains(e, energy=torch.as_tensor(walk))).findings)
    slow = np.cumsum(generator.normal(size=(4, 1000)), axis=1)
    assert diagnose(chains(slow)).verdict == "do not use"
    one = diagnose(chains(e[:1]))
    assert one.verdict == "unjudged"
    assert any("R-hat compares chains" in s for s in one.findings)
    assert "stuck" in " ".join(diagnose(chains(np.zeros((4, 100)))).findings)


def test_a_point_and_an_exact_posterior() -> None:
    data = ppgp.load("diabetes")
    point = diagnose(ppgp.fit(LinearRegression(), data, MAP(), progress=False))
    assert point.verdict == "unjudged"
    assert "no spread" in point.reason
    assert diagnose(ppgp.fit(LinearRegression(), data, Exact(), progress=False)).verdict == "agrees"
    with pytest.raises(NotApplicable, match="Laplace or SVI"):
        k_hat(ppgp.fit(LinearRegression(), data, MAP(), progress=False))


def test_a_fit_stopped_too_early_is_detected() -> None:
    """The fit takes one step from a start far away."""
    data = ppgp.load("breast_cancer")
    early = ppgp.fit(
        LogisticRegression(),
        data,
        SVI("multivariate_normal", steps=1, batch_size=100),
        progress=False,
    )
    assert diagnose(early).verdict == "do not use"


def test_the_repr_shows_the_verdict_and_its_reasons() -> None:
    found = replace(diagnose(drawn_from(1.3)), findings=("first", "second"))
    assert repr(found).splitlines()[0].startswith("means agree, spread does not")
    assert repr(found).splitlines()[1:] == ["first", "second"]
    assert diagnosis.EBFMI_LIMIT == 0.3


def test_the_repr_says_the_reason_once() -> None:
    found = diagnosis.Diagnosis("do not use", "first", ("first", "second"), pd.DataFrame())
    assert repr(found).splitlines() == ["do not use: first", "second"]
