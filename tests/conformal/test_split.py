"""The threshold of split conformal prediction: its rank, its edge cases, its guarantees."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyro.distributions as dist
import pytest
import torch

from ppgp.conformal import APS, LAC, Absolute, Decay, Normalized, Quantile, Score, Signed, calibrate
from ppgp.conformal.split import rank, smallest_n, threshold
from ppgp.errors import DataError, DataWarning, NotApplicable, SettingError
from ppgp.posterior.prediction import Prediction


def standard(n: int, seen: torch.Tensor | None = None) -> Prediction:
    zeros = torch.zeros(1, n, dtype=torch.float64)
    return Prediction(dist.Normal(zeros, torch.ones_like(zeros)), in_training=seen)


def test_the_index_equals_exact_rational_arithmetic_for_every_n_and_level() -> None:
    for percent in range(1, 100):
        level = percent / 100
        for n in range(1, 1001):
            exact = math.ceil(Fraction(percent, 100) * (n + 1))
            assert rank(n, level) == exact


def test_floating_point_would_be_off_by_one_for_some_levels() -> None:
    wrong = sum(
        math.ceil((n + 1) * (1 - (1 - p / 100))) != math.ceil(Fraction(p, 100) * (n + 1))
        for p in range(1, 100)
        for n in range(1, 1001)
    )
    assert wrong > 0


@pytest.mark.parametrize(("level", "n"), [(0.9, 9), (0.95, 19), (0.99, 99)])
def test_the_smallest_n_is_finite_and_one_fewer_is_not(level: float, n: int) -> None:
    assert smallest_n(level) == n
    scores = torch.arange(1.0, n + 1)
    assert float(threshold(scores, level)) == n
    assert math.isinf(float(threshold(scores[:-1], level)))


@pytest.mark.parametrize("score", [Absolute(), Normalized(), Quantile()], ids=repr)
def test_too_few_rows_give_the_whole_line_and_a_message(score: Score) -> None:
    y = torch.linspace(-1, 1, 8, dtype=torch.float64)
    region = calibrate(score, standard(8), y)(standard(3), level=0.9)
    assert bool(region.infinite.all())
    assert "infinite" in region.guarantee
    assert "9" in region.guarantee


def test_split_conformal_equals_numpy_by_hand() -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(size=37)
    region = calibrate(Absolute(), standard(37), y)(standard(4), level=0.8)
    expected = np.sort(np.abs(y))[math.ceil(Fraction(8, 10) * 38) - 1]
    assert np.allclose(np.asarray(region.upper), expected, atol=0)


def test_only_a_signed_score_narrows_an_interval_that_was_too_wide() -> None:
    generator = torch.Generator().manual_seed(0)
    y = 0.2 * torch.randn(99, generator=generator, dtype=torch.float64)
    own = standard(1).interval(0.9)
    signed, clipped = (
        calibrate(s, standard(99), y)(standard(1), level=0.9)
        for s in (Quantile(), Quantile(widen_only=True))
    )
    assert float(signed.width) < float(own.width)
    assert float(clipped.width) == pytest.approx(float(own.width))


def test_an_interval_with_crossed_ends_is_empty() -> None:
    region = Quantile().region(standard(2), torch.tensor(-5.0, dtype=torch.float64), 0.9)
    assert bool(region.empty.all())
    assert not bool(region.covers([0.0, 0.0]).any())


def test_infinite_scores_count_as_largest_and_nan_is_refused() -> None:
    zeros = torch.zeros(1, 20, dtype=torch.float64)
    sd = torch.ones_like(zeros)
    sd[0, 3] = 0.0
    known = Prediction(dist.Normal(zeros, sd, validate_args=False))  # row 3 says that y is 0
    assert bool(
        torch.isinf(
            calibrate(Normalized(), known, torch.ones(20, dtype=torch.float64)).scores(0.9)[3]
        )
    )
    assert calibrate(Normalized(), known, torch.zeros(20, dtype=torch.float64)).scores(0.9)[3] == 0
    sd[0, 3] = math.nan
    with pytest.raises(DataError, match=r"NaN in row 3"):
        calibrate(Normalized(), known, torch.zeros(20, dtype=torch.float64)).scores(0.9)


def test_training_rows_are_recognised_and_the_guarantee_is_heuristic() -> None:
    seen = torch.tensor([True] * 3 + [False] * 17)
    with pytest.warns(DataWarning, match="3 of 20 calibration rows"):
        calibrator = calibrate(Absolute(), standard(20, seen), torch.zeros(20))
    assert calibrator(standard(2), level=0.9).guarantee.startswith("heuristic")


def test_the_coverage_given_the_rows_has_a_beta_distribution() -> None:
    """With uniform scores, the coverage given the rows is the k-th order statistic."""
    generator = torch.Generator().manual_seed(1)
    n, k = 50, rank(50, 0.9)
    coverage = torch.rand(4000, n, generator=generator).sort(1).values[:, k - 1].numpy()
    low, high = calibrate(Absolute(), standard(n), torch.zeros(n)).coverage_band(
        0.9, confidence=0.9
    )
    inside = float(((coverage > low) & (coverage < high)).mean())
    assert inside == pytest.approx(0.9, abs=4 * math.sqrt(0.9 * 0.1 / 4000))


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 90.0, 1.5])
def test_a_level_outside_0_1_is_refused(level: float) -> None:
    with pytest.raises(SettingError, match=r"level in \(0, 1\)"):
        calibrate(Absolute(), standard(20), torch.zeros(20))(standard(2), level=level)


def test_a_score_for_the_other_kind_of_y_names_the_right_one() -> None:
    classes = Prediction(dist.Bernoulli(logits=torch.zeros(1, 5)))
    with pytest.raises(NotApplicable, match="LAC"):
        calibrate(Absolute(), classes, torch.zeros(5))
    with pytest.raises(NotApplicable, match="Absolute"):
        calibrate(LAC(), standard(5), torch.zeros(5))


def test_y_of_another_length_or_with_nan_is_refused() -> None:
    with pytest.raises(DataError, match="one y per calibration row"):
        calibrate(Absolute(), standard(5), torch.zeros(4))
    with pytest.raises(DataError, match=r"row 2"):
        calibrate(Absolute(), standard(3), [0.0, 1.0, float("nan")])


def test_the_coverage_band_is_refused_where_it_does_not_hold() -> None:
    y = torch.zeros(20)
    seen = torch.zeros(20, dtype=torch.bool)
    seen[0] = True
    with pytest.warns(DataWarning):
        trained = calibrate(Absolute(), standard(20, seen), y)
    others = [
        calibrate(Signed(), standard(20), y),
        calibrate(Absolute(), standard(20), y, groups=["a"] * 20),
        calibrate(Absolute(), standard(20), y, weights=torch.ones(20)),
        calibrate(Absolute(), standard(20), y, weights=Decay(0.9)),
        trained,
    ]
    for calibrator in others:
        with pytest.raises(NotApplicable, match="band"):
            calibrator.coverage_band(0.8)


def test_scores_that_repeat_are_ties() -> None:
    """The band of the coverage is that of distinct scores."""
    distinct = torch.linspace(0.01, 2, 99, dtype=torch.float64)
    repeated = distinct.index_fill(0, torch.tensor([3, 50]), 0.7)
    for score in (Absolute(), Signed()):
        assert not calibrate(score, standard(99), distinct).ties(0.8)
        assert calibrate(score, standard(99), repeated).ties(0.8)


def test_a_sentence_that_names_some_groups_counts_the_others() -> None:
    groups = [*"abcdefg", *("h" * 20)]
    y = torch.linspace(-1, 1, 27, dtype=torch.float64)
    calibrator = calibrate(Absolute(), standard(27), y, groups=groups)
    sentence = calibrator(standard(2), 0.9, groups=["a", "h"]).guarantee
    assert "infinite in a, b, c, d, e and 2 more, with fewer than the 9 rows" in sentence
    few = calibrate(Absolute(), standard(21), y[:21], groups=["a", *("h" * 20)])
    assert "infinite in a, with fewer" in few(standard(1), 0.9, groups=["a"]).guarantee


@pytest.mark.parametrize("score", [LAC(), APS()])
@pytest.mark.parametrize(("stray", "shown"), [(3.0, "3"), (-1.0, "-1"), (0.5, "0.5")])
def test_labels_that_are_no_columns_of_the_probabilities_are_refused(
    score: Score, stray: float, shown: str
) -> None:
    p = Prediction.from_probabilities(torch.full((4, 3), 1 / 3, dtype=torch.float64))
    y = torch.tensor([0.0, 2.0, stray, 1.0])
    with pytest.raises(DataError, match=rf"labels 0\.\.2 as y, got {shown} in row 2"):
        calibrate(score, p, y)


def test_a_score_of_the_users_own_checks_predictions_itself() -> None:
    class Picky(Absolute):
        def check(self, prediction: Prediction) -> None:
            raise NotApplicable("another prediction", "this one", "pass another one")

    prediction = Prediction(dist.Normal(torch.zeros(9), torch.ones(9)))
    with pytest.raises(NotApplicable, match="another prediction"):
        calibrate(Picky(), prediction, torch.arange(9.0))
    usual = calibrate(Absolute(), prediction, torch.arange(9.0))
    with pytest.raises(NotApplicable, match="another prediction"):
        replace(usual, score=Picky())(prediction)
