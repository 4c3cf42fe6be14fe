"""Guarantees are not stated where they do not hold."""

from __future__ import annotations

from typing import Any

import pyro.distributions as dist
import pytest
import torch

import ppgp
from ppgp import conformal as C
from ppgp import inference, models, priors
from ppgp.conformal.online import PastScores
from ppgp.data import Dataset
from ppgp.errors import NotApplicable
from ppgp.provenance.found_on import Found, Origin

F64 = torch.float64


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
@pytest.mark.parametrize(
    "how",
    [
        inference.SGLD(batch_size=10, warmup=50, draws=100, chains=2),
        inference.SGHMC(batch_size=10, warmup=50, draws=100, chains=2),
        inference.SVI("iaf", steps=200),
    ],
    ids=repr,
)
def test_conformal_bayes_is_heuristic_where_draws_are_not_from_the_posterior(
    how: inference.Inference,
) -> None:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(40, 2, generator=generator, dtype=F64)
    y = X[:, 0] + torch.randn(40, generator=generator, dtype=F64)
    posterior = ppgp.fit(models.LinearRegression(), Dataset(X, y), how, progress=False)
    assert ppgp.conformal_bayes(posterior, X[:2], 0.8).guarantee.startswith("heuristic")


@pytest.mark.parametrize(
    "score", [C.Quantile(widen_only=True), C.LAC(keep_best=True), C.APS(randomized=False)], ids=repr
)
def test_there_is_no_coverage_band_for_sets_that_only_grow(score: C.Score) -> None:
    if score.kinds == ("classes",):
        predictive = ppgp.Prediction(
            dist.Categorical(torch.tensor([0.9, 0.1], dtype=F64).expand(1, 99, 2))
        )
    else:
        predictive = ppgp.Prediction(dist.Normal(torch.zeros(1, 99, dtype=F64), 5.0))
    with pytest.raises(NotApplicable, match="grow"):
        C.calibrate(score, predictive, torch.zeros(99, dtype=F64)).coverage_band(0.8)


def test_at_a_level_next_to_0_the_threshold_is_the_smallest_score() -> None:
    assert PastScores([1.0, 2.0, 3.0], None).threshold(1 - 1e-11) == 1.0
    predictive = ppgp.Prediction(dist.Normal(torch.zeros(1, 3, dtype=F64), 1.0))
    assert len(C.ACI(C.Absolute(), 1e-10)(predictive, torch.ones(3, dtype=F64)).errors) == 3


@pytest.mark.parametrize(
    ("standardise", "claims"), [(True, "heuristic"), (False, "coverage >= 0.8")]
)
def test_conformal_bayes_claims_coverage_only_where_the_ranked_rows_did_not_scale_the_priors(
    standardise: bool, claims: str
) -> None:
    """With n = 9, noise alone and tight priors, coverage was .43 +- .02 at a level of .5."""
    g = torch.Generator().manual_seed(0)
    X = torch.randn(30, 1, generator=g, dtype=torch.float64)
    data = ppgp.Dataset(X, X[:, 0] + torch.randn(30, generator=g, dtype=torch.float64))
    model = ppgp.models.LinearRegression()
    posterior = ppgp.fit(
        model, data, ppgp.inference.Exact(draws=400), progress=False, standardise=standardise
    )
    assert ppgp.conformal_bayes(posterior, X[:2], 0.8).guarantee.startswith(claims)


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_conformal_bayes_is_heuristic_for_numbers_that_may_come_from_the_ranked_rows() -> None:
    """With weights by least squares from n = 14 rows of 6 columns, coverage was .56 at .8."""
    generator = torch.Generator().manual_seed(0)
    data = Dataset(*(torch.randn(*s, generator=generator, dtype=F64) for s in ((14, 2), (14,))))
    least_squares = torch.linalg.lstsq(data.X, data.y[:, None]).solution[:, 0].tolist()

    def sentence(weight: tuple[Any, ...], **options: bool) -> str:
        model = models.LinearRegression(weight, 0.0, priors.LogNormal(-1.0, 1.5))
        how = inference.Laplace(draws=100)
        posterior = ppgp.fit(model, data, how, progress=False, standardise=False)
        return ppgp.conformal_bayes(posterior, data.X[:1], 0.8, **options).guarantee

    plain = tuple(least_squares)
    assert sentence(plain).startswith("heuristic: no finite-sample guarantee, as weight")
    assert sentence(plain, fixed_beforehand=True).startswith("coverage >= 0.8")
    found = tuple(Found.on(w, Origin(data)) for w in least_squares)
    known = sentence(found, fixed_beforehand=True)
    assert known.startswith("heuristic: no finite-sample guarantee, as something in the recipe")
