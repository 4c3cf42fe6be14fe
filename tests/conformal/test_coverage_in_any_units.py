"""Coverage of predictive distributions without sd or width, or in extreme units.

The share of covered rows is compared with beta-binomial bands.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.distributions import Distribution, Normal, StudentT

from ppgp import Prediction
from ppgp import conformal as C
from ppgp.conformal.split import threshold

F64, F32 = torch.float64, torch.float32
OLD, NEW = 199, 1500


def numbers(n: int, seed: int = 0) -> Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(seed), dtype=F64)


def in_band(calibrator: C.Calibrator, prediction: Prediction, y: Tensor, level: float) -> None:
    """Assert that coverage lies in its beta-binomial band of 0.9999, and that sets are finite.

    Sets are not empty either, but for a few of highest density, where their row has a wide
    predictive distribution.
    """
    region = calibrator(prediction, level=level)
    assert bool(torch.isfinite(region.width).all())
    assert float(region.empty.double().mean()) <= (
        0.02 if isinstance(calibrator.score, C.Density) else 0.0
    )
    low, high = calibrator.coverage_band(level, confidence=0.9999, rows=len(y))
    assert low <= float(region.covers(y).double().mean()) <= high


SCORES = [C.Absolute(), C.Normalized(), C.Quantile(), C.PIT(), C.Density()]


@pytest.mark.parametrize("score", SCORES, ids=repr)
def test_one_draw_of_infinite_variance_among_200(score: C.Score) -> None:
    """With df 1.9 in one draw the mixture has an infinite sd, and with df 0.9 no mean either."""
    n = 60 + 120
    df = torch.full((200, 1), 5.0, dtype=F64)
    df[7], df[9] = 1.9, 0.9
    loc = numbers(n)
    predictive = Prediction(
        StudentT(
            df.expand(200, n), loc + 0.1 * numbers(200, 1)[:, None], torch.ones(200, n, dtype=F64)
        )
    )
    assert not bool(torch.isfinite(predictive.std).any())
    y = loc + 1.5 * numbers(n, 2)
    in_band(C.calibrate(score, predictive[:60], y[:60]), predictive[60:], y[60:], 0.8)


@pytest.mark.parametrize("score", [*SCORES, C.Signed(normalized=True)], ids=repr)
@pytest.mark.parametrize(
    ("unit", "dtype"), [(1e160, F64), (1e-170, F64), (1e20, F32), (1e-24, F32)]
)
def test_units_whose_square_overflows_or_underflows(
    score: C.Score, unit: float, dtype: torch.dtype
) -> None:
    loc, sd = numbers(OLD + NEW), 0.5 + numbers(OLD + NEW, 1).abs()
    predictive = Prediction(Normal((unit * loc)[None].to(dtype), (unit * sd)[None].to(dtype)))
    y = (unit * (loc + sd * numbers(OLD + NEW, 2))).to(dtype)
    calibrator = C.calibrate(score, predictive[:OLD], y[:OLD])
    if score.sides == 1:
        in_band(calibrator, predictive[OLD:], y[OLD:], 0.8)
        return
    region = calibrator(predictive[OLD:], level=0.8)
    system = C.predictive_system(predictive[:OLD], y[:OLD])(predictive[OLD:]).interval(0.8)
    for found in (region, system):
        assert bool(torch.isfinite(found.width).all())
        assert float(found.covers(y[OLD:]).double().mean()) == pytest.approx(
            0.8, abs=5 * math.sqrt(0.16 / OLD)
        )


@pytest.mark.parametrize("score", [C.Normalized(), C.Signed(normalized=True)], ids=repr)
def test_a_row_without_a_spread_is_infinite_where_the_rows_are_too_few_and_a_point_elsewhere(
    score: C.Score,
) -> None:
    sd = torch.tensor([[1.0, 0.0]], dtype=F64)
    new = Prediction(Normal(torch.zeros(1, 2, dtype=F64), sd, validate_args=False))
    old = Prediction(Normal(torch.zeros(1, 99, dtype=F64), torch.ones(1, 99, dtype=F64)))
    few = C.calibrate(score, old[:5], numbers(5))(new, level=0.9)
    assert bool(few.infinite.all())
    many = C.calibrate(score, old, numbers(99))(new, level=0.9)
    assert many.covers([0.0, 0.0]).tolist() == [True, True]
    assert many.width[1] == 0
    assert not bool(many.empty.any())
    system = C.predictive_system(old, numbers(99))(new)
    assert system.interval(0.9).covers([0.0, 0.0]).tolist() == [True, True]
    assert system.cdf([0.0, 0.0])[1] == pytest.approx(0.5)
    assert system.crps([0.0, 2.0])[1] == pytest.approx(2.0)


def test_infinite_scores_of_a_signed_score_still_cover() -> None:
    """Every y lies above a mean without a spread: the score is -inf below and inf above."""
    score = C.Signed(normalized=True)
    y = 1 + numbers(OLD + NEW).abs()
    predictive = Prediction(
        Normal(
            torch.zeros(1, OLD + NEW, dtype=F64),
            torch.zeros(1, OLD + NEW, dtype=F64),
            validate_args=False,
        )
    )
    region = C.calibrate(score, predictive[:OLD], y[:OLD])(predictive[OLD:], level=0.8)
    assert bool(region.covers(y[OLD:]).all())
    assert not bool(region.covers(-y[OLD:]).any())


@pytest.mark.parametrize(("below", "above"), [(math.inf, -math.inf), (-math.inf, math.inf)])
def test_a_set_without_numbers_is_empty_and_not_infinite(below: float, above: float) -> None:
    predictive = Prediction(Normal(torch.zeros(1, 2, dtype=F64), torch.ones(1, 2, dtype=F64)))
    region = C.Signed().region(
        predictive, torch.tensor([below, above], dtype=F64).expand(2, 2), 0.9
    )
    assert bool(region.empty.all())
    assert not bool(region.infinite.any())


@pytest.mark.parametrize("score", SCORES, ids=repr)
def test_a_prediction_of_nan_is_an_error_and_not_an_empty_set(score: C.Score) -> None:
    predictive = Prediction(
        Normal(
            torch.tensor([[0.0, math.nan]], dtype=F64),
            torch.ones(1, 2, dtype=F64),
            validate_args=False,
        )
    )
    with pytest.raises(ArithmeticError, match="row 1"):
        score.region(predictive, torch.tensor(1.0, dtype=F64), 0.9)


@pytest.mark.parametrize(("dtype", "factor"), [(F64, 6.0), (F64, 1000.0), (F32, 4.0), (F32, 100.0)])
@pytest.mark.parametrize("family", ["Normal", "mixture", "StudentT"])
def test_the_cdf_of_too_narrow_a_prediction_still_ranks(
    family: str, dtype: torch.dtype, factor: float
) -> None:
    n = OLD + 400
    loc, sd = numbers(n), 0.5 + numbers(n, 1).abs()
    shift = torch.zeros(1 if family != "mixture" else 3, 1, dtype=F64)
    place, width = ((loc + 0.01 * shift).to(dtype), (sd / factor).expand(len(shift), n).to(dtype))
    predictive: Distribution = Normal(place.expand_as(width), width)
    if family == "StudentT":
        predictive = StudentT(torch.full_like(width, 30.0), place.expand_as(width), width)
    y = (loc + sd * numbers(n, 2)).to(dtype)
    in_band(
        C.calibrate(C.PIT(), Prediction(predictive)[:OLD], y[:OLD]),
        Prediction(predictive)[OLD:],
        y[OLD:],
        0.9,
    )


def lines(n: int, sharp: float) -> tuple[Prediction, Tensor]:
    """Return mixtures of 150 narrow components of equal weight, and y from one of them."""
    generator = torch.Generator().manual_seed(3)
    places = torch.rand(150, n, generator=generator, dtype=F64) * 1000
    predictive = Prediction(Normal(places, torch.full_like(places, sharp)))
    chosen = torch.randint(150, (n,), generator=generator)
    return predictive, places[chosen, torch.arange(n)] + sharp * numbers(n)


@pytest.mark.parametrize("sharp", [1e-4, 1e-9])
def test_many_modes_of_little_probability_each(sharp: float) -> None:
    predictive, y = lines(29 + 20, sharp)
    calibrator = C.calibrate(C.Density(), predictive[:29], y[:29])
    in_band(calibrator, predictive[29:], y[29:], 0.8)
    q = threshold(calibrator.scores(0.8), 0.8)
    inside = C.Density().score(predictive[29:], y[29:], 0.8) <= q
    region = calibrator(predictive[29:], level=0.8)
    assert torch.equal(region.covers(y[29:]), inside)
    assert region.pieces is not None
    assert min(map(len, region.pieces)) > 100


def weighted(weights: Tensor, new: Tensor, dtype: torch.dtype) -> Tensor:
    y = numbers(OLD).to(dtype)
    zeros = torch.zeros(1, OLD, dtype=dtype)
    calibrator = C.calibrate(
        C.Absolute(), Prediction(Normal(zeros, torch.ones_like(zeros))), y, weights=weights
    )
    predictive = Prediction(Normal(zeros[:, :2], torch.ones_like(zeros[:, :2])))
    region = calibrator(predictive, level=0.8, weights=new)
    assert "nan" not in region.guarantee
    assert "inf" not in region.guarantee
    assert region.upper is not None
    return region.upper


@pytest.mark.parametrize(
    ("unit", "dtype"), [(1e307, F64), (1e-300, F64), (1e39, F32), (1e-60, F32)]
)
def test_only_ratios_of_weights_count(unit: float, dtype: torch.dtype) -> None:
    ratios, new = 1 + numbers(OLD, 5).abs(), torch.tensor([0.5, 3.0], dtype=F64)
    found = weighted(unit * ratios, unit * new, dtype)
    assert torch.equal(found, weighted(ratios, new, dtype))
    # the 0.8 quantile of the absolute value of a standard normal y is 1.28
    assert bool((found > 0.9).all())
    outweighed = weighted(ratios, torch.tensor([1e308, 0.0], dtype=F64), dtype)
    assert torch.isinf(outweighed).tolist() == [True, False]


def test_weights_cover_in_any_units() -> None:
    """New rows have x ~ N(1, 1) and calibration rows N(0, 1), so that the weights are exp(x).

    They are multiplied by a constant that overflows in float32.
    """
    hits = []
    for seed in range(300):
        x = numbers(100, seed)
        y = (numbers(100, seed + 1000) * torch.exp(x / 2)).float()
        predictive = Prediction(Normal(torch.zeros(1, 101), torch.ones(1, 101)))
        new = numbers(1, seed + 2000) + 1
        truth = (numbers(1, seed + 3000) * torch.exp(new / 2)).float()
        calibrator = C.calibrate(C.Absolute(), predictive[:100], y, weights=1e50 * torch.exp(x))
        hits.append(
            bool(
                calibrator(predictive[100:], level=0.8, weights=1e50 * torch.exp(new)).covers(truth)
            )
        )
    assert sum(hits) / 300 >= 0.8 - 4 * math.sqrt(0.16 / 300)
