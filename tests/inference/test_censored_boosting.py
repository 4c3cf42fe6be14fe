"""Boosting with right-censored targets: recovery of the truth, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import Dataset, fit, likelihoods, models
from ppgp.errors import NotApplicable
from ppgp.inference import MAP, NUTS, NaturalGradientBoosting
from ppgp.likelihoods import Predicted
from ppgp.posterior.posterior import Posterior

F64 = torch.float64
N = 20_000
HOW = NaturalGradientBoosting(score="nll", steps=25, learning_rate=0.2, rows=1.0, folds=None)
LAWS = {
    "exponential": likelihoods.Exponential(),
    "weibull": likelihoods.Weibull(shape=Predicted()),
    "log-normal": likelihoods.LogNormal(noise=Predicted()),
}
TRUTH = {"exponential": (0.5,), "weibull": (0.5, math.log(1.7)), "log-normal": (0.5, math.log(0.8))}
still_improving = pytest.mark.filterwarnings("ignore:the score at the rows held out")
each = pytest.mark.parametrize("name", list(LAWS))


def times(name: str, n: int = N, by_group: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """Return X [n, 1] of two groups, times that end at censoring, and the flags."""
    g = torch.Generator().manual_seed(1)
    X = torch.randint(0, 2, (n, 1), generator=g).to(F64)
    f = torch.tensor(TRUTH[name], dtype=F64)[:, None].repeat(1, n)
    f[0] += by_group * X[:, 0]
    law = LAWS[name].distribution({}, f if len(f) > 1 else f[0])
    with ppgp.runtime.seeding.seeded(2):
        y = law.sample()
    limit = 3.0 * torch.empty(n, dtype=F64).exponential_(generator=g)
    return X, torch.minimum(y, limit), y > limit


def boosted(name: str, X: Tensor, y: Tensor, flags: Tensor | None) -> Posterior:
    data = Dataset(X, y, right_censored=flags)
    return fit(models.Boosted(LAWS[name]), data, HOW, progress=False)


def at(posterior: Posterior, x: float) -> Tensor:
    """Return the functions [K] at one value of x, in the units of the data."""
    one = {k: v[0] for k, v in posterior.draws.items()}
    model = posterior.model
    theta = one | posterior.params
    f = model.functions(theta, torch.tensor([[x]], dtype=F64))[0, :, 0]
    unit = theta["unit"].log()
    moved = f.clone()
    moved[1:] += model.likelihood.dimensions.get("noise", 0.0) * unit
    return moved


@each
def test_without_a_column_that_matters_the_constant_law_is_recovered(name: str) -> None:
    _, y, flags = times(name)
    assert 0.2 < float(flags.to(F64).mean()) < 0.6
    X = torch.ones(N, 1, dtype=F64)
    truth = torch.tensor(TRUTH[name], dtype=F64)
    with pytest.warns(ppgp.errors.ConvergenceWarning, match="depends on x"):
        found = at(boosted(name, X, y, flags), 1.0)
    tolerance = 0.05  # four standard errors of a log scale of about 10,000 events
    torch.testing.assert_close(found, truth, rtol=0.0, atol=tolerance)
    with pytest.warns(ppgp.errors.ConvergenceWarning, match="depends on x"):
        biased = at(boosted(name, X, y, None), 1.0)
    assert float((biased - truth).abs().max()) > 4 * tolerance


@each
def test_trees_recover_the_law_of_each_group(name: str) -> None:
    X, y, flags = times(name, by_group=0.7)
    posterior = boosted(name, X, y, flags)
    for x in (0.0, 1.0):
        truth = torch.tensor(TRUTH[name], dtype=F64)
        truth[0] += 0.7 * x
        torch.testing.assert_close(at(posterior, x), truth, rtol=0.0, atol=0.08)
    biased = boosted(name, X, y, None)
    assert abs(float(at(biased, 1.0)[0]) - TRUTH[name][0] - 0.7) > 0.3


@each
def test_the_constant_law_of_map_is_where_boosting_starts(name: str) -> None:
    X, y, flags = times(name, 300)
    data = Dataset(X, y, right_censored=flags)
    with pytest.warns(ppgp.errors.ConvergenceWarning, match="no learners"):
        posterior = fit(models.Boosted(LAWS[name]), data, MAP(), progress=False)
    start = LAWS[name].initial(y, right_censored=flags)
    torch.testing.assert_close(posterior.draws["start"][0, 0], start, rtol=1e-4, atol=1e-4)
    f = start[:, None].expand(-1, len(y))
    survival = -LAWS[name].score({}, f, y, right_censored=flags)
    theta = {"start": start[None]}
    found = posterior.model.log_likelihood(theta, data)["y"][0]
    torch.testing.assert_close(found, survival, rtol=1e-9, atol=1e-9)


def test_chains_of_the_constant_law_know_the_flags() -> None:
    X, y, flags = times("exponential", 400)
    data = Dataset(X, y, right_censored=flags)
    with pytest.warns(ppgp.errors.ConvergenceWarning, match="no learners"):
        posterior = fit(
            models.Boosted(LAWS["exponential"]), data, NUTS(400, 600, 2), progress=False
        )
    events = float((~flags).sum())
    mean = math.log(float(y.sum()) / events)
    assert float(posterior.draws["start"].mean()) == pytest.approx(mean, abs=4 / math.sqrt(events))
    assert float(posterior.draws["start"].std()) == pytest.approx(events**-0.5, rel=0.3)


@still_improving
def test_folds_and_saved_posteriors_keep_the_flags(tmp_path: Path) -> None:
    X, y, flags = times("weibull", 300)
    data = Dataset(X, y, right_censored=flags)
    how = NaturalGradientBoosting(score="nll", steps=5, folds=3, stopping="fold")
    posterior = fit(models.Boosted(LAWS["weibull"]), data, how, progress=False)
    loaded = ppgp.load_posterior(posterior.save(tmp_path / "times.ppgp"))
    assert loaded.data.same_rows(posterior.data)
    assert torch.equal(loaded.data.right_censored, flags)
    assert torch.equal(loaded.predict(X).mean, posterior.predict(X).mean)


def test_the_default_score_is_refused_with_advice() -> None:
    X, y, flags = times("weibull", 100)
    data = Dataset(X, y, right_censored=flags)
    with pytest.raises(NotApplicable, match="not proper for them: use score='nll'"):
        fit(models.Boosted(LAWS["weibull"]), data, NaturalGradientBoosting(), progress=False)


@still_improving
def test_conformal_sets_and_metrics_of_censored_rows_are_refused() -> None:
    X, y, flags = times("exponential", 120)
    data = Dataset(X, y, right_censored=flags)
    model = models.Boosted(LAWS["exponential"])
    how = NaturalGradientBoosting(score="nll", steps=3, folds=3, stopping="fold")
    posterior = fit(model, data, how, progress=False)
    for refused in (
        lambda: ppgp.cross_calibrate(posterior),
        lambda: ppgp.cross_calibrate(posterior.out_of_fold()),
        lambda: ppgp.cross_calibrate(model, data, how, folds=3),
        lambda: ppgp.compare({"one": posterior}, test=data),
    ):
        with pytest.raises(NotApplicable, match="targets that are known"):
            refused()
