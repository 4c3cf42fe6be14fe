"""The interface of every conformal score: how strange y is under a prediction, and the set of y that is not stranger than q."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ...errors import NotApplicable, an, own_class
from ...numerics.float_search import Condition, last_inside
from ...posterior.prediction import Prediction
from ...posterior.region import Region


class Score:
    """A pair that keeps one law: ``y in region(prediction, q, level)  <=>  score(prediction, y, level) <= q`` in every column.

    A new score gives ``score`` and ``region``. Both take the level, as some scores need it; larger means stranger.
    """

    #: the kinds of Prediction it is for
    kinds: ClassVar[tuple[str, ...]] = ("continuous", "count")
    #: columns of the score: 2 for one a side
    sides: ClassVar[int] = 1
    #: whether the set can only grow beyond the model's own, so that coverage has no upper bound
    conservative: ClassVar[bool] = False
    #: roundings by which the score of one row may differ between two batches of rows
    roundings: ClassVar[int] = 8

    @property
    def floor(self) -> float | None:
        """The threshold below which sets shrink no further, for a score whose sets are never empty; None for the others."""
        return None

    def score(self, prediction: Prediction, y: Tensor, level: float) -> Tensor:
        """[n], or [n, 2] with one column a side."""
        raise NotImplementedError

    def region(self, prediction: Prediction, q: Tensor, level: float) -> Region:
        """The set of y with a score of at most q; q is a scalar, or [n] with one threshold a row."""
        raise NotImplementedError

    def check(self, prediction: Prediction) -> None:
        """Raises NotApplicable where the score is not for such a y."""
        if prediction.kind not in self.kinds:
            advice = (
                "use conformal.LAC()"
                if prediction.kind == "classes"
                else "use conformal.Absolute(), Normalized() or Quantile()"
            )
            raise NotApplicable(
                f"a law of {' or '.join(self.kinds)} y for {type(self).__name__}",
                prediction.kind,
                advice,
            )


def check_score(score: Any) -> None:
    """Raises NotApplicable for what is no score: its class, its name."""
    if isinstance(score, Score):
        return
    got, do = repr(score), "pass one of ppgp.conformal"
    if isinstance(score, type):
        got = f"the class {score.__name__}"
        do = f"call it: {score.__name__}()" if issubclass(score, Score) else do
    elif isinstance(score, str):
        found = own_class(Score, score)
        do = f"write conformal.{found}()" if found else do
    else:
        got = an(type(score).__name__)
    raise NotApplicable("a score such as conformal.Absolute()", got, do)


def check_prediction(prediction: Any) -> None:
    """Raises NotApplicable for what is no Prediction: the inputs themselves, a posterior."""
    if not isinstance(prediction, Prediction):
        raise NotApplicable(
            "a Prediction", an(type(prediction).__name__), "pass posterior.predict(X)"
        )


@dataclass(frozen=True)
class Ends:
    """The score max((lower - y) / below, (y - upper) / above) of an interval [lower, upper], and its inverse.

    Everything here is arithmetic that rounds monotonically, so that the set {score <= q} is an interval of floating-point
    numbers: its ends are found among them, exactly, and the law of ``Score`` holds to the last digit.

    Attributes:
        lower, upper: [n]
        below, above: [n], the units of the score on either side; None: 1. A unit of 0 makes every y beyond the end infinitely strange.
    """

    lower: Tensor
    upper: Tensor
    below: Tensor | None = None
    above: Tensor | None = None

    def sides(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """The two scores at y [n], one a side."""
        y = y.to(self.lower)
        return _ratio(self.lower - y, self.below), _ratio(y - self.upper, self.above)

    def score(self, y: Tensor) -> Tensor:
        """[n]"""
        return torch.maximum(*self.sides(y))

    def region(self, q_below: Tensor, q_above: Tensor, level: float) -> Region:
        """The set where the lower score is at most ``q_below`` and the upper at most ``q_above``, each [] or [n]."""
        q_below, q_above = (q.expand(self.lower.shape) for q in (q_below, q_above))

        def holds_below(y: Tensor, rows: Tensor | slice) -> Tensor:
            return _ratio(self.lower[rows] - y, _part(self.below, rows)) <= q_below[rows]

        def holds_above(y: Tensor, rows: Tensor | slice) -> Tensor:
            return _ratio(y - self.upper[rows], _part(self.above, rows)) <= q_above[rows]

        lower = ended(holds_below, _guess(self.lower, self.below, q_below, -1), q_below, -1)
        upper = ended(holds_above, _guess(self.upper, self.above, q_above, 1), q_above, 1)
        return interval(lower, upper, level)


def _part(unit: Tensor | None, rows: Tensor | slice) -> Tensor | None:
    return None if unit is None else unit[rows]


def _ratio(distance: Tensor, unit: Tensor | None) -> Tensor:
    """distance / unit, 0 for 0 / 0."""
    if unit is None:
        return distance
    value = distance / unit
    return torch.where(distance == 0, distance, value) if bool((unit == 0).any()) else value


def _guess(end: Tensor, unit: Tensor | None, q: Tensor, outward: int) -> Tensor:
    finite = torch.where(torch.isfinite(q), q, torch.zeros_like(q)).to(end)
    return end + outward * (finite if unit is None else finite * unit)


def ended(holds: Condition, guess: Tensor, q: Tensor, outward: int) -> Tensor:
    """One end of the set {score <= q}: infinite where q is +inf, and on the far side (nothing) where it is -inf."""
    finite = torch.isfinite(q)
    if bool(finite.all()):
        return last_inside(holds, guess, outward)
    end = torch.where(torch.isposinf(q), outward * torch.inf, -outward * torch.inf).to(guess)
    some = torch.nonzero(finite).flatten()
    if len(some):
        end[some] = last_inside(lambda y, rows: holds(y, some[rows]), guess[some], outward)
    return torch.where(torch.isnan(q), torch.full_like(end, torch.nan), end)


def interval(lower: Tensor, upper: Tensor, level: float) -> Region:
    """An interval; where the ends have crossed, or lie beyond all numbers on one side, it is empty, from inf to -inf."""
    crossed = (lower > upper) | torch.isposinf(lower) | torch.isneginf(upper)
    if not bool(crossed.any()):
        return Region(level, "", lower, upper)
    inf = torch.full_like(lower, torch.inf)
    return Region(level, "", torch.where(crossed, inf, lower), torch.where(crossed, -inf, upper))


ULPS = 8  # roundings that ends found by other arithmetic than a score's are moved out by


def widened(lower: Tensor, upper: Tensor, level: float) -> Region:
    """``interval`` of ends found by arithmetic that differs from that of the scores ranked, each moved out by a few roundings.

    Where y repeats, a threshold is the score of many rows, and an end one rounding too far in would lose them all.
    """
    size = torch.maximum(lower.abs(), upper.abs())
    size = torch.where(torch.isfinite(size), size, torch.minimum(lower.abs(), upper.abs()))
    slack = torch.nan_to_num(ULPS * torch.finfo(lower.dtype).eps * size, nan=0.0, posinf=0.0)
    crossed = lower > upper
    return interval(
        torch.where(crossed, lower, lower - slack),
        torch.where(crossed, upper, upper + slack),
        level,
    )


def eased(q: Tensor, scores: Tensor, roundings: int) -> Tensor:
    """Thresholds q (of any shape, with a column per side where ``scores`` [n, sides] has them), raised by so many roundings where
    scores repeat there.

    Where y has atoms, a threshold is the score of many rows, and a new row with the same y and the same law, computed in
    another batch, may come out some roundings higher.
    """
    columns = scores.reshape(len(scores), -1)
    parts = q.unbind(-1) if columns.shape[1] > 1 else (q,)
    raised = []
    for part, column in zip(parts, columns.T, strict=True):
        ordered = column.sort().values
        margin = (
            roundings
            * torch.finfo(ordered.dtype).eps
            * torch.where(torch.isfinite(part), part.abs(), 0.0)
        )
        here = part.reshape(-1)
        low = torch.searchsorted(ordered, (here - margin.reshape(-1)).contiguous())
        high = torch.searchsorted(ordered, (here + margin.reshape(-1)).contiguous(), right=True)
        repeated = (high - low > 1).reshape(part.shape) & torch.isfinite(part)
        raised.append(torch.where(repeated, part + margin, part))
    return torch.stack(raised, -1) if columns.shape[1] > 1 else raised[0]
