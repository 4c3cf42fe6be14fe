"""CV+ by a search for each end equals CV+ from the ends of every set."""

import pytest
import torch
from torch.distributions import Normal

from ppgp.conformal import Absolute, Normalized, Quantile
from ppgp.conformal.cross_sets import of_every_set, order_statistics
from ppgp.posterior.prediction import Prediction

M, FOLD = 5, 33


def _predictions(folds, generator):
    """Return the predictions of M rows, one per fold."""
    mean = torch.randn(folds, M, generator=generator, dtype=torch.float64)
    sd = torch.rand(folds, M, generator=generator, dtype=torch.float64) + 0.2
    return [Prediction(Normal(mean[k : k + 1], sd[k : k + 1])) for k in range(folds)]


@pytest.mark.parametrize(
    "score", [Absolute(), Normalized(), Quantile(), Quantile(unit="width", widen_only=True)]
)
@pytest.mark.parametrize(("scale", "ties"), [(1.0, False), (0.05, False), (1.0, True)])
def test_the_search_gives_the_order_statistics_of_all_sets(score, scale, ties):
    """Small scores of Quantile are negative, so that many of its sets are empty."""
    generator = torch.Generator().manual_seed(3)
    new = _predictions(2, generator)
    scores = []
    for k, prediction in enumerate(new):
        y = scale * torch.randn(FOLD + k, M, generator=generator, dtype=torch.float64)
        scores.append(torch.stack([score.score(prediction, row, 0.8)[0] for row in y]))
    if ties:
        scores = [(2 * s).round() / 2 for s in scores]
    n = sum(map(len, scores))
    lower, upper = of_every_set(score, new, scores, 0.8)
    for low in (1, n // 10, n // 2, n):
        found = order_statistics(score, new, scores, low, n - low + 1, 0.8)
        assert torch.equal(found[0], lower.kthvalue(low, 0).values)
        assert torch.equal(found[1], upper.kthvalue(n - low + 1, 0).values)


def test_infinite_scores_and_few_rows_take_every_set():
    """An infinite score makes a set the whole line, whose ends no search meets."""
    generator = torch.Generator().manual_seed(4)
    new = _predictions(2, generator)
    scores = [torch.rand(FOLD, generator=generator, dtype=torch.float64) for _ in new]
    scores[0][:30] = torch.inf
    lower, upper = order_statistics(Absolute(), new, scores, 20, 47, 0.9)
    assert torch.isneginf(lower).all()
    assert torch.isposinf(upper).all()
    few = [s[30:32] for s in scores]
    lower, _ = order_statistics(Absolute(), new, few, 3, 1, 0.9)
    every, _ = of_every_set(Absolute(), new, few, 0.9)
    assert torch.equal(lower, every.kthvalue(3, 0).values)
