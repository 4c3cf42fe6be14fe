"""Verdicts of compare on right and wrong approximations."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

import ppgp
from ppgp import inference, models
from ppgp.data import Dataset
from ppgp.errors import NotApplicable, SettingError, UnknownName
from ppgp.posterior import Posterior

N = 4000


def fake(
    loc: float = 0.0, scale: float = 1.0, chains: int = 4, seed: int = 0, name: str = "z"
) -> Posterior:
    """Return a posterior of a program with one site, from independent normal draws."""
    generator = torch.Generator().manual_seed(seed)
    z = loc + scale * torch.randn(chains, N // chains, generator=generator, dtype=torch.float64)
    how = inference.NUTS() if chains > 1 else inference.Laplace()
    return Posterior(models.Program(fake), {}, {name: z}, how, seconds=2.0)


@pytest.mark.parametrize(
    ("loc", "scale", "word"),
    [
        (0.0, 1.0, "agrees"),
        (0.4, 1.0, "do not use"),
        (3.0, 1.0, "do not use"),
        (0.0, 0.5, "means agree, spread does not"),
        (0.0, 2.0, "means agree, spread does not"),
    ],
)
def test_each_wrong_approximation_has_its_verdict(loc: float, scale: float, word: str) -> None:
    comparison = ppgp.compare({"nuts": fake(), "q": fake(loc, scale, chains=1, seed=1)})
    assert comparison.verdicts == {"nuts": "reference", "q": word}
    row = comparison.sites.iloc[0]
    assert row["difference"] == pytest.approx(loc, abs=4 * row["difference_error"])
    assert row["ratio"] == pytest.approx(scale, abs=4 * row["ratio_error"])
    assert row["verdict"] == word
    from scipy.stats import norm

    assert row["tail_5"] == pytest.approx(
        norm.cdf((norm.ppf(0.05) - loc) / scale), abs=5 * row["tail_error"] * max(1, scale)
    )
    if word == "means agree, spread does not":
        assert ("overconfident" if scale < 1 else "underconfident") in comparison.reasons["q"]


def test_tails_are_judged_where_mean_and_sd_agree() -> None:
    """Two points have the mean and sd of a standard normal, and nothing in its tails."""
    q = fake(chains=1, seed=1)
    q.draws["z"] = q.draws["z"].sign()
    comparison = ppgp.compare({"nuts": fake(), "q": q})
    assert comparison.verdicts["q"] == "means agree, spread does not"
    assert "quantile of the reference" in comparison.reasons["q"]


def test_the_monte_carlo_error_of_a_difference_is_computed() -> None:
    row = ppgp.compare({"nuts": fake(), "q": fake(chains=1, seed=1)}).sites.iloc[0]
    assert row["difference_error"] == pytest.approx(math.sqrt(2 / N), rel=0.2)
    assert row["ratio_error"] == pytest.approx(math.sqrt(2 / (2 * N)), rel=0.2)


def test_a_wasserstein_distance_of_shifted_normals_is_the_shift() -> None:
    row = ppgp.compare({"nuts": fake(), "q": fake(0.5, chains=1, seed=1)}).sites.iloc[0]
    assert row["wasserstein"] == pytest.approx(0.5, abs=5 * math.sqrt(2 / N))


def test_the_reference_may_be_a_name_or_a_posterior() -> None:
    assert ppgp.compare({"a": fake(), "b": fake(seed=1)}, reference="b").verdicts == {
        "a": "agrees",
        "b": "reference",
    }
    assert ppgp.compare({"a": fake(seed=2)}, reference=fake()).verdicts == {"a": "agrees"}


def test_the_reason_of_a_reference_tells_chains_from_other_draws() -> None:
    chains, draws = fake(), fake(chains=1, seed=1)
    point = replace(draws, draws={"z": draws.draws["z"][:, :1]})
    named = {"chains": chains, "draws": draws, "point": point}
    reasons = {name: ppgp.compare(named, reference=name).reasons[name] for name in named}
    assert reasons == {
        "chains": "chains converged",
        "draws": "independent draws by Laplace",
        "point": "one point: nothing varies in it",
    }


def test_bad_references_are_refused() -> None:
    with pytest.raises(UnknownName, match="did you mean 'nuts'"):
        ppgp.compare({"nuts": fake()}, reference="nut")
    with pytest.raises(NotApplicable, match="same sites"):
        ppgp.compare({"a": fake()}, reference=fake(name="w"))
    with pytest.raises(SettingError, match="at least one posterior"):
        ppgp.compare({})
    with pytest.raises(SettingError, match=r"level in \(0, 1\)"):
        ppgp.compare({"a": fake()}, level=90.0)


def test_without_a_reference_nothing_is_judged() -> None:
    assert ppgp.compare({"q": fake(chains=1)}).verdicts == {"q": "unjudged"}


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_predictive_metrics_equal_their_formulas() -> None:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(120, 2, generator=generator, dtype=torch.float64)
    data = Dataset(
        X,
        X @ torch.tensor([1.0, -2.0], dtype=torch.float64)
        + 0.3 * torch.randn(120, generator=generator, dtype=torch.float64),
    )
    train, calibration, test = data.split(0.5, 0.25, 0.25)
    posterior = ppgp.fit(models.LinearRegression(), train, inference.Laplace(), progress=False)
    comparison = ppgp.compare({"q": posterior}, test=test, calibration=calibration, level=0.8)
    row = comparison.to_frame().loc["q"]
    prediction = posterior.predict(test.X)
    assert row["rmse"] == pytest.approx(float((prediction.mean - test.y).square().mean().sqrt()))
    assert row["nll"] == pytest.approx(-float(prediction.log_prob(test.y).mean()))
    region = ppgp.calibrate(
        ppgp.conformal.Normalized(), posterior.predict(calibration.X), calibration.y
    )(prediction, level=0.8)
    assert row["conformal_width"] == pytest.approx(float(region.width.mean()))
    assert "q" in repr(comparison)


@pytest.mark.parametrize("chains", [1, 4])
def test_a_reference_of_three_draws_judges_nothing(chains: int) -> None:
    short, long = fake(chains=chains), fake(seed=1)
    short = replace(short, draws={"z": short.draws["z"][:, :3]})
    comparison = ppgp.compare({"q": long}, short)
    assert comparison.verdicts["q"] == "unjudged"
    assert "reference" in comparison.reasons["q"]
    assert "3 draws" in comparison.reasons["q"]
