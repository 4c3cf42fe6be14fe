"""Temperatures of boosted fits: when they sharpen, and when they may only widen."""

from __future__ import annotations

import pytest
import torch

from ppgp import Dataset, fit, likelihoods, models
from ppgp.inference import NaturalGradientBoosting
from ppgp.inference.boosting.stages import Rows, log_temperature
from ppgp.likelihoods import Predicted

F64 = torch.float64


def drawn(n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(seed), dtype=F64)


@pytest.mark.parametrize("kind", ["nll", "crps"])
@pytest.mark.parametrize("classes", [2, 3])
def test_rows_of_one_class_do_not_sharpen(classes: int, kind: str) -> None:
    likelihood = likelihoods.Bernoulli() if classes == 2 else likelihoods.Categorical(classes)
    f = torch.full((likelihood.learned, 12), -2.0, dtype=F64)
    y = torch.full((12,), 0.0 if classes == 2 else classes - 1.0, dtype=F64)
    assert 0.0 <= log_temperature(likelihood, kind, f, Rows(f.mT, y)) < 1e-3


def test_many_rows_still_widen_classes_that_are_too_sure() -> None:
    f = drawn(4000)[None]
    y = torch.rand(4000, dtype=F64, generator=torch.Generator().manual_seed(1)) < f[0].sigmoid()
    found = log_temperature(likelihoods.Bernoulli(), "nll", 3 * f, Rows(f.mT, y.to(F64)))
    assert found == pytest.approx(torch.tensor(3.0).log().item(), abs=0.15)


@pytest.mark.parametrize("sharp", [False, True])
def test_censored_rows_do_not_sharpen(sharp: bool) -> None:
    """The survival of a limit below the median is larger the narrower the distribution is."""
    likelihood = likelihoods.LogNormal(noise=Predicted())
    f = torch.stack([torch.full((20,), 1.0, dtype=F64), torch.zeros(20, dtype=F64)])
    y = (0.5 + 0.1 * drawn(20)).exp()
    flags = None if sharp else torch.ones(20, dtype=torch.bool)
    found = log_temperature(likelihood, "nll", f, Rows(f.mT, y, flags))
    assert found < -0.4 if sharp else 0.0 <= found < 1e-3


def test_few_positive_rows_do_not_make_probabilities_extreme() -> None:
    g = torch.Generator().manual_seed(0)
    X = torch.randn(150, 4, generator=g, dtype=F64)
    y = (torch.rand(150, generator=g, dtype=F64) < torch.sigmoid(X[:, 0] - 2.8)).to(F64)
    assert 0.05 < float(y.mean()) < 0.15
    posterior = fit(
        models.Boosted(likelihoods.Bernoulli()),
        Dataset(X, y),
        NaturalGradientBoosting(),
        progress=False,
    )
    share = y.mean()
    entropy = -(share * share.log() + (1 - share) * (1 - share).log())
    assert float(-posterior.out_of_fold().log_prob(y).mean()) < 1.2 * float(entropy)
