"""y in region <=> score(y) <= q, for all scores and families with a density, in any units."""

from __future__ import annotations

import families
import pytest
import torch
from torch import Tensor

from ppgp import Prediction, Region
from ppgp import conformal as C
from ppgp.numerics.float_order import number, place

LEVEL, DRAWS, ROWS = 0.9, 2, 3
#: scores by arithmetic, whose ends are exact
EXACT = [
    C.Absolute(),
    C.Normalized(),
    C.Signed(),
    C.Signed(normalized=True),
    C.Quantile(),
    C.Quantile(unit="median"),
    C.Quantile(unit="width"),
    C.Quantile(widen_only=True),
]
#: scores by a cdf or a density, which are monotone but for their own rounding
ROUNDED = [C.PIT(), C.Density()]
NOISE = 64  # roundings of the score by which a cdf of SciPy may be non-monotone

UNITS = {torch.float64: 150, torch.float32: 18}


def stepped(x: Tensor, steps: int) -> Tensor:
    """Return the numbers so many floating-point steps away; infinite ones stay."""
    finite = torch.where(torch.isfinite(x), x, torch.zeros_like(x))
    return torch.where(torch.isfinite(x), number(place(finite) + steps, x.dtype), x)


def ends_of(region: Region) -> list[Tensor]:
    lower, upper = region
    found = [lower, upper]
    for k in range(max(map(len, region.pieces or ((),)))):
        for side in (0, 1):
            inner = [
                row[min(k, len(row) - 1)][side] if row else torch.inf for row in region.pieces or ()
            ]
            found.append(torch.tensor(inner, dtype=lower.dtype))
    return found


def near(y: Tensor, region: Region, predictive: Prediction) -> Tensor:
    """Return whether y is within 4 roundings of an end, in units of the end or the prediction."""
    eps = torch.finfo(y.dtype).eps
    size = torch.maximum(predictive.spread, predictive.centre.abs())
    close = [(y - end).abs() <= 4 * eps * torch.maximum(end.abs(), size) for end in ends_of(region)]
    return torch.stack(close).any(0)


def disagreements(
    score: C.Score, predictive: Prediction, region: Region, q: Tensor, points: list[Tensor]
) -> list[str]:
    """Return the points whose score and membership disagree, in words; all are scored at once."""
    if score in ROUNDED:
        rows = torch.arange(len(predictive)).repeat(len(points))
        s = score.score(predictive[rows], torch.cat(points), LEVEL)
    else:
        s = score.score(predictive, torch.stack(points), LEVEL)
    s = s.reshape(len(points), len(predictive), -1)
    wrong = []
    for y, each in zip(points, s, strict=True):
        odd = (each <= q).all(1) != region.covers(y)
        if score in ROUNDED:
            odd &= ~near(y, region, predictive)
            odd &= ~((each - q).abs() <= NOISE * torch.finfo(s.dtype).eps * (1 + q.abs())).any(1)
        wrong += [
            f"{score!r} {predictive!r}: y {y[i]!r}, score {each[i]}, q {q}, {region}"
            for i in torch.nonzero(odd).flatten()
        ]
    return wrong


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute each quantile of a prediction once; far from 1, its search takes seconds."""
    plain = Prediction.quantile
    known: dict[tuple[int, float], tuple[Prediction, Tensor]] = {}

    def quantile(self: Prediction, p: float | Tensor) -> Tensor:
        if isinstance(p, Tensor):
            return plain(self, p)
        key = (id(self), p)
        if key not in known:
            known[key] = (self, plain(self, p))  # the prediction too, so that its id stays its own
        return known[key][1].clone()

    monkeypatch.setattr(Prediction, "quantile", quantile)


@pytest.mark.usefixtures("remembered")
@pytest.mark.parametrize("name", families.FAMILIES)
@pytest.mark.parametrize(
    ("exponent", "single", "seed"), [(150, False, 0), (-150, True, 1)], ids=["large", "small"]
)
def test_membership_is_the_score_at_most_q(
    name: str, exponent: int, single: bool, seed: int
) -> None:
    """10 scores are tested, in float64 and float32.

    PIT and Density are monotone only up to rounding, so that y next to an end may lie on either
    side: within 4 roundings of the end or of the size of the prediction, or where the score is
    within 64 of its own roundings of q. SciPy's incomplete gamma and Student's cdf are off by many
    roundings of the score. y then moves by as many of its own roundings times |score / (y times the
    slope of the score)|, which has no bound where the distribution is flat.
    """
    dtype = torch.float32 if single else torch.float64
    unit = 10.0 ** (exponent * UNITS[dtype] / 150)
    predictive = families.prediction(name, unit, dtype, seed, DRAWS, ROWS)
    spread, *points = (predictive.sample(1, seed=k)[0] for k in range(3))
    points.append(3 * spread)
    for score in EXACT + ROUNDED:
        s = score.score(predictive, spread, LEVEL).reshape(ROWS, -1)
        q = s.median(0).values  # the score of a row: a y that lies on an end
        region = score.region(predictive, q if score.sides == 2 else q[0], LEVEL)
        at_ends = [stepped(end, k) for end in ends_of(region) for k in (-9, 0, 9)]
        finite = [torch.where(torch.isfinite(y), y, spread) for y in at_ends]
        wrong = disagreements(score, predictive, region, q, [spread, *points, *finite])
        assert not wrong, wrong[0]


@pytest.mark.parametrize("score", EXACT + ROUNDED, ids=repr)
def test_infinite_thresholds_give_everything_and_nothing(score: C.Score) -> None:
    predictive = families.prediction("StudentT", 1.0, torch.float64, 0, 3, 4)
    whole, none = (
        score.region(predictive, torch.tensor(q, dtype=torch.float64), LEVEL)
        for q in (torch.inf, -torch.inf)
    )
    lower, upper = whole
    assert lower.tolist() == [-torch.inf] * 4
    assert upper.tolist() == [torch.inf] * 4
    assert bool(none.empty.all())
    assert not bool(none.covers(predictive.quantile(0.5)).any())


@pytest.mark.parametrize("draws", [1, 40])
def test_pit_is_right_far_into_the_tails(draws: int) -> None:
    """At 60 sds a cdf is 0 or 1.

    The score is -log P(Y > 60) of the standard normal, from its asymptotic series.
    """
    zeros = torch.zeros(draws, 1, dtype=torch.float64)
    predictive = Prediction(torch.distributions.Normal(zeros, torch.ones_like(zeros)))
    # z^2 / 2 + log z + log(2 pi) / 2 + 1 / z^2
    tail = 1800 + 4.094344562222101 + 0.9189385332046727 + 0.0002775394
    for y in (-60.0, 60.0):
        assert float(
            C.PIT().score(predictive, torch.tensor([y], dtype=torch.float64), LEVEL)
        ) == pytest.approx(tail, abs=1e-6)
    region = C.PIT().region(predictive, torch.tensor(tail, dtype=torch.float64), LEVEL)
    lower, upper = region
    assert float(upper) == pytest.approx(60, abs=1e-6)
    assert float(lower) == pytest.approx(-60, abs=1e-6)
