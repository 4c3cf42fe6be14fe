"""The law of every score, y in region <=> score(y) <= q, for every law with a density and in any units."""

from __future__ import annotations

import densities
import pytest
import torch
from torch import Tensor

from ppgp import Prediction, Region
from ppgp import conformal as C
from ppgp.numerics.float_search import number, place

LEVEL, DRAWS, ROWS = 0.9, 2, 3
#: scores of arithmetic, whose ends are exact
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
NOISE = 64  # roundings of the score by which a cdf of SciPy may go back and forth

UNITS = {torch.float64: 150, torch.float32: 18}


def stepped(x: Tensor, steps: int) -> Tensor:
    """So many floating-point numbers away; infinite ones stay."""
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


def near(y: Tensor, region: Region, law: Prediction) -> Tensor:
    """Whether y is within 4 roundings of an end, in units of the end or of the law's own size."""
    eps = torch.finfo(y.dtype).eps
    size = torch.maximum(law.spread, law.centre.abs())
    close = [(y - end).abs() <= 4 * eps * torch.maximum(end.abs(), size) for end in ends_of(region)]
    return torch.stack(close).any(0)


def disagreements(
    score: C.Score, law: Prediction, region: Region, q: Tensor, points: list[Tensor]
) -> list[str]:
    """What each y of ``points`` says, all scored at once; exact scores by the very ends that the region was made of."""
    if score in ROUNDED:
        rows = torch.arange(len(law)).repeat(len(points))
        s = score.score(law[rows], torch.cat(points), LEVEL)
    else:
        s = score.score(law, torch.stack(points), LEVEL)
    s = s.reshape(len(points), len(law), -1)
    wrong = []
    for y, each in zip(points, s, strict=True):
        odd = (each <= q).all(1) != region.covers(y)
        if score in ROUNDED:
            odd &= ~near(y, region, law)
            odd &= ~((each - q).abs() <= NOISE * torch.finfo(s.dtype).eps * (1 + q.abs())).any(1)
        wrong += [
            f"{score!r} {law!r}: y {y[i]!r}, score {each[i]}, q {q}, {region}"
            for i in torch.nonzero(odd).flatten()
        ]
    return wrong


@pytest.mark.parametrize("name", densities.LAWS)
@pytest.mark.parametrize(
    ("exponent", "single", "seed"), [(150, False, 0), (-150, True, 1)], ids=["large", "small"]
)
def test_membership_is_the_score_at_most_q(
    name: str, exponent: int, single: bool, seed: int
) -> None:
    """Of 10 scores, in float64 and float32.

    A PIT and a density are monotone but for their own rounding, so that y next to an end may lie on either side: within 4 roundings
    of the end or of the law's size, or where the score is within 64 of its own roundings of q: SciPy's incomplete gamma
    and Student's cdf go back and forth by many roundings of the score, at which y moves by as many of its own times
    |score / (y times the score's slope)|, beyond any number of roundings where the law is flat.
    """
    dtype = torch.float32 if single else torch.float64
    unit = 10.0 ** (exponent * UNITS[dtype] / 150)
    law = densities.prediction(name, unit, dtype, seed, DRAWS, ROWS)
    spread, *points = (law.sample(1, seed=k)[0] for k in range(3))
    points.append(3 * spread)
    for score in EXACT + ROUNDED:
        s = score.score(law, spread, LEVEL).reshape(ROWS, -1)
        q = s.median(0).values  # the score of a row: a y that lies on an end
        region = score.region(law, q if score.sides == 2 else q[0], LEVEL)
        at_ends = [stepped(end, k) for end in ends_of(region) for k in (-9, 0, 9)]
        finite = [torch.where(torch.isfinite(y), y, spread) for y in at_ends]
        wrong = disagreements(score, law, region, q, [spread, *points, *finite])
        assert not wrong, wrong[0]


@pytest.mark.parametrize("score", EXACT + ROUNDED, ids=repr)
def test_infinite_thresholds_give_everything_and_nothing(score: C.Score) -> None:
    law = densities.prediction("StudentT", 1.0, torch.float64, 0, 3, 4)
    whole, none = (
        score.region(law, torch.tensor(q, dtype=torch.float64), LEVEL)
        for q in (torch.inf, -torch.inf)
    )
    assert whole.lower.tolist() == [-torch.inf] * 4  # type: ignore[union-attr]
    assert whole.upper.tolist() == [torch.inf] * 4  # type: ignore[union-attr]
    assert bool(none.empty.all())
    assert not bool(none.covers(law.quantile(0.5)).any())


@pytest.mark.parametrize("draws", [1, 40])
def test_a_law_that_is_right_far_into_its_tails(draws: int) -> None:
    """60 sds out, where a cdf has long been 0 or 1: -log P(Y > 60) of the standard normal, from its asymptotic series."""
    zeros = torch.zeros(draws, 1, dtype=torch.float64)
    law = Prediction(torch.distributions.Normal(zeros, torch.ones_like(zeros)))
    tail = (
        1800 + 4.094344562222101 + 0.9189385332046727 + 0.0002775394
    )  # z^2 / 2 + log z + log(2 pi) / 2 + 1 / z^2
    for y in (-60.0, 60.0):
        assert float(
            C.PIT().score(law, torch.tensor([y], dtype=torch.float64), LEVEL)
        ) == pytest.approx(tail, abs=1e-6)
    region = C.PIT().region(law, torch.tensor(tail, dtype=torch.float64), LEVEL)
    assert float(region.upper) == pytest.approx(60, abs=1e-6)  # type: ignore[arg-type]
    assert float(region.lower) == pytest.approx(-60, abs=1e-6)  # type: ignore[arg-type]
