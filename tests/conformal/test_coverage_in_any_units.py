"""Coverage where a law has no sd, no width, no precision left, or units far from 1; within beta-binomial bands."""

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
    """Covered as often as a beta-binomial law allows, but for one in 10,000; by sets that end, and that are not empty.

    (A set of the highest density may be, where the law of its row is wide.)
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
    """A Student's t with df 1.9 gives the whole mixture an sd of inf, and one with df 0.9 no mean either."""
    n = 60 + 120
    df = torch.full((200, 1), 5.0, dtype=F64)
    df[7], df[9] = 1.9, 0.9
    loc = numbers(n)
    law = Prediction(
        StudentT(
            df.expand(200, n), loc + 0.1 * numbers(200, 1)[:, None], torch.ones(200, n, dtype=F64)
        )
    )
    assert not bool(torch.isfinite(law.std).any())
    y = loc + 1.5 * numbers(n, 2)
    in_band(C.calibrate(score, law[:60], y[:60]), law[60:], y[60:], 0.8)


@pytest.mark.parametrize("score", [*SCORES, C.Signed(normalized=True)], ids=repr)
@pytest.mark.parametrize(
    ("unit", "dtype"), [(1e160, F64), (1e-170, F64), (1e20, F32), (1e-24, F32)]
)
def test_units_whose_square_is_no_number(score: C.Score, unit: float, dtype: torch.dtype) -> None:
    loc, sd = numbers(OLD + NEW), 0.5 + numbers(OLD + NEW, 1).abs()
    law = Prediction(Normal((unit * loc)[None].to(dtype), (unit * sd)[None].to(dtype)))
    y = (unit * (loc + sd * numbers(OLD + NEW, 2))).to(dtype)
    calibrator = C.calibrate(score, law[:OLD], y[:OLD])
    if score.sides == 1:
        in_band(calibrator, law[OLD:], y[OLD:], 0.8)
        return
    region = calibrator(law[OLD:], level=0.8)
    system = C.predictive_system(law[:OLD], y[:OLD])(law[OLD:]).interval(0.8)
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


def test_sides_that_are_all_beyond_the_largest_number_keep_their_law() -> None:
    """Every y lies above a mean without a spread: the score is -inf below and inf above, which is no empty set."""
    score = C.Signed(normalized=True)
    y = 1 + numbers(OLD + NEW).abs()
    law = Prediction(
        Normal(
            torch.zeros(1, OLD + NEW, dtype=F64),
            torch.zeros(1, OLD + NEW, dtype=F64),
            validate_args=False,
        )
    )
    region = C.calibrate(score, law[:OLD], y[:OLD])(law[OLD:], level=0.8)
    assert bool(region.covers(y[OLD:]).all())
    assert not bool(region.covers(-y[OLD:]).any())


@pytest.mark.parametrize(("below", "above"), [(math.inf, -math.inf), (-math.inf, math.inf)])
def test_a_set_that_no_number_belongs_to_is_empty_and_not_infinite(
    below: float, above: float
) -> None:
    law = Prediction(Normal(torch.zeros(1, 2, dtype=F64), torch.ones(1, 2, dtype=F64)))
    region = C.Signed().region(law, torch.tensor([below, above], dtype=F64).expand(2, 2), 0.9)
    assert bool(region.empty.all())
    assert not bool(region.infinite.any())


@pytest.mark.parametrize("score", SCORES, ids=repr)
def test_a_law_that_could_not_be_computed_is_an_error_and_not_an_empty_set(score: C.Score) -> None:
    law = Prediction(
        Normal(
            torch.tensor([[0.0, math.nan]], dtype=F64),
            torch.ones(1, 2, dtype=F64),
            validate_args=False,
        )
    )
    with pytest.raises(ArithmeticError, match="row 1"):
        score.region(law, torch.tensor(1.0, dtype=F64), 0.9)


@pytest.mark.parametrize(("dtype", "factor"), [(F64, 6.0), (F64, 1000.0), (F32, 4.0), (F32, 100.0)])
@pytest.mark.parametrize("family", ["Normal", "mixture", "StudentT"])
def test_the_cdf_of_a_law_that_is_too_narrow_still_ranks(
    family: str, dtype: torch.dtype, factor: float
) -> None:
    n = OLD + 400
    loc, sd = numbers(n), 0.5 + numbers(n, 1).abs()
    shift = torch.zeros(1 if family != "mixture" else 3, 1, dtype=F64)
    place, width = ((loc + 0.01 * shift).to(dtype), (sd / factor).expand(len(shift), n).to(dtype))
    law: Distribution = Normal(place.expand_as(width), width)
    if family == "StudentT":
        law = StudentT(torch.full_like(width, 30.0), place.expand_as(width), width)
    y = (loc + sd * numbers(n, 2)).to(dtype)
    in_band(
        C.calibrate(C.PIT(), Prediction(law)[:OLD], y[:OLD]), Prediction(law)[OLD:], y[OLD:], 0.9
    )


def lines(n: int, sharp: float) -> tuple[Prediction, Tensor]:
    """150 lines of one weight, each in a place of its own, and y on one of them."""
    generator = torch.Generator().manual_seed(3)
    places = torch.rand(150, n, generator=generator, dtype=F64) * 1000
    law = Prediction(Normal(places, torch.full_like(places, sharp)))
    chosen = torch.randint(150, (n,), generator=generator)
    return law, places[chosen, torch.arange(n)] + sharp * numbers(n)


@pytest.mark.parametrize("sharp", [1e-4, 1e-9])
def test_modes_that_hold_little_each_and_everything_together(sharp: float) -> None:
    law, y = lines(29 + 20, sharp)
    calibrator = C.calibrate(C.Density(), law[:29], y[:29])
    in_band(calibrator, law[29:], y[29:], 0.8)
    q = threshold(calibrator.scores(0.8), 0.8)
    inside = C.Density().score(law[29:], y[29:], 0.8) <= q
    region = calibrator(law[29:], level=0.8)
    assert torch.equal(region.covers(y[29:]), inside)
    assert region.pieces is not None
    assert min(map(len, region.pieces)) > 100


def weighted(weights: Tensor, new: Tensor, dtype: torch.dtype) -> Tensor:
    y = numbers(OLD).to(dtype)
    zeros = torch.zeros(1, OLD, dtype=dtype)
    calibrator = C.calibrate(
        C.Absolute(), Prediction(Normal(zeros, torch.ones_like(zeros))), y, weights=weights
    )
    law = Prediction(Normal(zeros[:, :2], torch.ones_like(zeros[:, :2])))
    region = calibrator(law, level=0.8, weights=new)
    assert "nan" not in region.guarantee
    assert "inf" not in region.guarantee
    return region.upper  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("unit", "dtype"), [(1e307, F64), (1e-300, F64), (1e39, F32), (1e-60, F32)]
)
def test_weights_count_by_their_ratios_alone(unit: float, dtype: torch.dtype) -> None:
    ratios, new = 1 + numbers(OLD, 5).abs(), torch.tensor([0.5, 3.0], dtype=F64)
    found = weighted(unit * ratios, unit * new, dtype)
    assert torch.equal(found, weighted(ratios, new, dtype))
    assert bool(
        (found > 0.9).all()
    )  # 0.8 of the absolute value of a standard normal y lie below 1.28
    outweighed = weighted(ratios, torch.tensor([1e308, 0.0], dtype=F64), dtype)
    assert torch.isinf(outweighed).tolist() == [True, False]


def test_weights_cover_in_any_units() -> None:
    """x ~ N(1, 1) where the calibration rows have N(0, 1), the weights exp(x) times a constant that float32 has no number for."""
    hits = []
    for seed in range(300):
        x = numbers(100, seed)
        y = (numbers(100, seed + 1000) * torch.exp(x / 2)).float()
        law = Prediction(Normal(torch.zeros(1, 101), torch.ones(1, 101)))
        new = numbers(1, seed + 2000) + 1
        truth = (numbers(1, seed + 3000) * torch.exp(new / 2)).float()
        calibrator = C.calibrate(C.Absolute(), law[:100], y, weights=1e50 * torch.exp(x))
        hits.append(
            bool(calibrator(law[100:], level=0.8, weights=1e50 * torch.exp(new)).covers(truth))
        )
    assert sum(hits) / 300 >= 0.8 - 4 * math.sqrt(0.16 / 300)
