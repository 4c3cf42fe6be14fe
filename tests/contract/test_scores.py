"""Properties of every conformal score: inverse, monotone, permutation-invariant, covering."""

from __future__ import annotations

import math
from itertools import pairwise

import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

from ppgp import conformal
from ppgp.conformal import Score, calibrate
from ppgp.posterior.prediction import Prediction

LEVEL = 0.9
ROUNDINGS = 8
MEMBERS = [getattr(conformal, name) for name in conformal.__all__]
KINDS = [kind for kind in MEMBERS if isinstance(kind, type) and issubclass(kind, Score)]
SCORES = [kind() for kind in KINDS if kind is not Score]
SCORES += [
    conformal.Quantile(widen_only=True),
    conformal.Quantile(unit="median"),
    conformal.Quantile(unit="width"),
]
SCORES += [
    conformal.LAC(keep_best=True),
    conformal.APS(randomized=False),
    conformal.Signed(normalized=True),
]


def prediction_for(score: Score, n: int, generator: torch.Generator) -> tuple[Prediction, Tensor]:
    """Return a prediction that is not the distribution of y, and y."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    if "classes" in score.kinds:
        logits = normal(3, n, 4)
        labels = torch.multinomial(torch.softmax(normal(n, 4), -1), 1, generator=generator)[:, 0]
        return Prediction(dist.Categorical(logits=logits)), labels.double()
    x = normal(n)
    distribution = dist.Normal(
        x + 0.1 * normal(3, n), 0.5 + 0.2 * x.abs() + torch.zeros(3, 1, dtype=torch.float64)
    )
    return Prediction(distribution), x + (0.4 + 0.4 * x.abs()) * normal(n)


def candidates(score: Score, n: int, generator: torch.Generator) -> list[Tensor]:
    if "classes" in score.kinds:
        return [torch.full((n,), float(k), dtype=torch.float64) for k in range(4)]
    return [4 * torch.randn(n, generator=generator, dtype=torch.float64) for _ in range(20)]


@pytest.mark.parametrize("score", SCORES, ids=repr)
def test_y_is_in_the_region_exactly_where_its_score_is_at_most_q(score: Score) -> None:
    generator = torch.Generator().manual_seed(0)
    prediction, _ = prediction_for(score, 50, generator)
    points = candidates(score, 50, generator)
    scores = [score.score(prediction, y, LEVEL).reshape(50, -1) for y in points]
    for q in (-0.3, 0.0, 0.2, 0.7, 1.5, math.inf):
        region = score.region(prediction, torch.tensor(q, dtype=torch.float64), LEVEL)
        for y, s in zip(points, scores, strict=True):
            assert torch.equal(region.covers(y), (s <= q).all(1))


@pytest.mark.parametrize("score", SCORES, ids=repr)
def test_y_is_in_the_region_of_its_own_score(score: Score) -> None:
    """Rounding of the ends of an interval must not leave out the row whose score is q."""
    generator = torch.Generator().manual_seed(7)
    prediction, _ = prediction_for(score, 500, generator)
    for y in candidates(score, 500, generator)[:4]:
        q = score.score(prediction, y, LEVEL)
        if isinstance(score, conformal.PIT | conformal.Density):
            # their ends are searched for with densities of some of the rows, which may be rounded
            # otherwise than those of all rows
            q = q + ROUNDINGS * torch.finfo(q.dtype).eps * q.abs()
        assert bool(score.region(prediction, q, LEVEL).covers(y).all())


@pytest.mark.parametrize("score", SCORES, ids=repr)
def test_regions_grow_with_q(score: Score) -> None:
    prediction, _ = prediction_for(score, 30, torch.Generator().manual_seed(1))
    widths = [
        score.region(prediction, torch.tensor(q, dtype=torch.float64), LEVEL).width
        for q in (-0.5, 0.0, 0.3, 0.9, 2.0)
    ]
    assert all(bool((a <= b).all()) for a, b in pairwise(widths))


@pytest.mark.parametrize("score", SCORES, ids=repr)
def test_the_order_of_calibration_rows_does_not_matter(score: Score) -> None:
    generator = torch.Generator().manual_seed(2)
    prediction, y = prediction_for(score, 40, generator)
    new, _ = prediction_for(score, 5, generator)
    order = torch.randperm(40, generator=generator)
    one, other = (
        calibrate(score, p, t)(new, level=LEVEL)
        for p, t in ((prediction, y), (prediction[order], y[order]))
    )
    assert torch.equal(one.width, other.width)


@pytest.mark.parametrize("n", [9, 19, 50, 200])
@pytest.mark.parametrize("score", SCORES, ids=repr)
def test_coverage_lies_between_the_level_and_the_level_plus_one_over_n_plus_one(
    score: Score, n: int
) -> None:
    """Over draws of calibration rows with one test row each, within three standard errors."""
    repetitions = 3000 if n <= 50 else 1000
    generator = torch.Generator().manual_seed(3 + n)
    prediction, y = prediction_for(score, repetitions * (n + 1), generator)
    sides = score.sides
    if n < conformal.split.smallest_n(LEVEL, sides):
        return  # infinite sets: another test
    s = score.score(prediction, y, LEVEL).reshape(repetitions, n + 1, sides)
    k = conformal.split.rank(n, LEVEL, sides)
    covered = s[:, n] <= s[:, :n].kthvalue(k, 1).values
    assert float(covered.all(1).double().mean()) >= LEVEL - 3 * math.sqrt(
        LEVEL * (1 - LEVEL) / repetitions
    )
    each = 1 - (1 - LEVEL) / sides
    error = 3 * math.sqrt(each * (1 - each) / repetitions)
    for coverage in covered.double().mean(0).tolist():
        assert coverage >= each - error
        if not score.conservative:
            assert coverage <= each + 1 / (n + 1) + error


@pytest.mark.parametrize("score", SCORES, ids=repr)
def test_every_score_is_documented_with_a_source_and_prints_what_builds_it(score: Score) -> None:
    assert any(str(year) in (type(score).__doc__ or "") for year in range(1990, 2030))
    namespace = {name: getattr(conformal, name) for name in conformal.__all__}
    assert eval(repr(score), namespace) == score
