"""The interface of conformal scores, and the floating-point arithmetic of their sets.

A score measures how strange y is under a prediction; its set holds every y that is not stranger
than a threshold q.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ...arguments import named_arguments
from ...data.training_data import same_value
from ...errors import NotApplicable, an, own_class
from ...numerics.finite import all_finite
from ...numerics.float_order import between, number, place
from ...posterior.prediction import Origin, Prediction, digest_of
from ...posterior.region import Region
from ...posterior.vector_prediction import VectorPrediction

ULPS = 8  # roundings by which ``widened`` moves an end
LONGEST = 1 << 61  # the largest step, so that sums of two positions stay below 2^63
GROWTH = 8  # factor of the step while the last number that holds is not enclosed
ALL = slice(None)

#: ``holds(y, rows)`` returns [k] bool for candidates y [k] at the rows ``rows`` [k]. Once it is
#: false, it is false for every number further out.
Condition = Callable[[Tensor, Tensor | slice], Tensor]


@named_arguments
class Score:
    """A nonconformity score and its inverse.

    They satisfy ``y in region(prediction, q, level)  <=>  score(prediction, y, level) <= q`` in
    every column of the score. A new score defines ``score`` and ``region``. Both take the level, as
    some scores need it; larger means stranger. Vovk, Gammerman & Shafer (2005), chapter 2, call it
    a nonconformity measure.

    ``score`` returns [n], or [n, 2] with one column per side, in units of its own; the threshold q
    is in the same units, and the set in the units of y.

    Attributes:
        kinds: The kinds of Prediction that the score is for.
        sides: Columns of the score; 2 where each side has its own.
        conservative: Whether the set can only grow beyond the model's own, so that coverage has no
            upper bound.
        of_level: Whether the score of a y may differ between levels.
        roundings: The number of roundings by which the score of one row may differ between two
            batches of rows.

    Raises:
        UnknownArgument: If the constructor of a score has no argument of a name.
        NotApplicable: By ``check``, if the score is not for such a y.

    Examples:
        A score of one's own, the residual relative to the mean:

        >>> import ppgp
        >>> from ppgp import conformal
        >>> class Relative(conformal.Score):
        ...     def score(self, prediction, y, level):
        ...         return (y - prediction.mean).abs() / prediction.mean
        ...
        ...     def region(self, prediction, q, level):
        ...         half = q * prediction.mean
        ...         return ppgp.Region(level, "", prediction.mean - half, prediction.mean + half)
        >>> calibration = ppgp.Prediction.from_points([10.0] * 9)
        >>> y = [11.0, 12.0, 13.0, 14.0, 15.0, 9.5, 8.5, 7.5, 6.5]
        >>> calibrator = ppgp.calibrate(Relative(), calibration, y)
        >>> region = calibrator(ppgp.Prediction.from_points([100.0, 200.0]), level=0.9)
        >>> region.to_frame()
           lower  upper
        0   50.0  150.0
        1  100.0  300.0
        >>> region.guarantee
        'marginal coverage >= 0.9 (exchangeable rows)'
    """

    kinds: ClassVar[tuple[str, ...]] = ("continuous", "count")
    sides: ClassVar[int] = 1
    conservative: ClassVar[bool] = False
    of_level: ClassVar[bool] = True
    roundings: ClassVar[int] = 8

    @property
    def floor(self) -> float | None:
        """The threshold below which sets shrink no further.

        None for a score whose sets can be empty.
        """
        return None

    def score(self, prediction: Prediction, y: Tensor, level: float) -> Tensor:
        """Return the score of y [n] at a level: [n], or [n, 2] with one column per side."""
        raise NotImplementedError

    def region(self, prediction: Prediction, q: Tensor, level: float) -> Region:
        """Return the set of y whose score is at most q.

        Args:
            prediction: Of the n rows.
            q: A scalar, or [n] with one threshold per row; with two sides, a last axis of 2.
            level: The nominal coverage, in (0, 1).
        """
        raise NotImplementedError

    def ends(self, prediction: Prediction, level: float) -> Ends | None:
        """Return the ``Ends`` whose score this one is; None: it is no score of that kind."""
        return None

    def check(self, prediction: Prediction) -> None:
        """Check that the score is for such a y.

        Raises:
            NotApplicable: If it is not.
        """
        if prediction.kind in self.kinds:
            return
        advice = "use conformal.Absolute(), Normalized() or Quantile()"
        if prediction.kind == "classes":
            advice = "use conformal.LAC()"
        kinds = " or ".join(self.kinds)
        expected = f"a prediction of {kinds} y for {type(self).__name__}"
        raise NotApplicable(expected, prediction.kind, advice)


def not_a_score(score: Any) -> NotApplicable:
    """Return the error for an argument that is no score, such as the class or the name of one."""
    got, do = repr(score), "pass one of ppgp.conformal"
    if isinstance(score, type):
        got = f"the class {score.__name__}"
        if issubclass(score, Score):
            do = f"call it: {score.__name__}()"
    elif isinstance(score, str):
        name = own_class(Score, score)
        if name:
            do = f"write conformal.{name}()"
    else:
        got = an(type(score).__name__)
    return NotApplicable("a score such as conformal.Absolute()", got, do)


def not_a_prediction(prediction: Any) -> NotApplicable:
    """Return the error for an argument that is no Prediction, such as the inputs or a posterior."""
    got, do = an(type(prediction).__name__), "pass posterior.predict(X)"
    if isinstance(prediction, Mapping) and prediction:  # of several outputs or sites
        name = next(iter(prediction))
        do = f"pass one of its predictions at a time, such as predictions[{name!r}]"
    elif isinstance(prediction, VectorPrediction):
        do = "pass one number of each row, prediction.output(0)"
    return NotApplicable("a Prediction", got, do)


def made_otherwise(new: Origin | None, calibration: Origin | None) -> str | None:
    """Return the "heuristic: ..." guarantee for new rows that were not predicted in the same way.

    Rows are exchangeable with their predictions only if one function of a row gave all of these,
    and no calibration row was used to find it. The result is None where that is so, or where the
    origins are not known.
    """
    if calibration is not None and (why := calibration.unknown()):
        return f"heuristic: calibration rows may have been used in the fit, as {why}"
    if new is None or calibration is None:
        return None
    difference = ""
    if new.fit is not calibration.fit and digest_of(new.fit) != digest_of(calibration.fit):
        difference = "another fit"
    elif new.method != calibration.method:
        difference = f"{new.method}, not {calibration.method}"
    else:
        ours, theirs = new.settings, calibration.settings
        for name in sorted(ours.keys() | theirs.keys()):
            missing = name not in ours or name not in theirs
            if missing or not same_value(ours[name], theirs[name]):
                difference = f"{new.method} with another {name}"
                break
    if not difference:
        return None
    return (
        "heuristic: no coverage is guaranteed, as the new rows were predicted otherwise than the "
        f"calibration rows: by {difference}"
    )


@dataclass(frozen=True)
class Ends:
    """The score max((lower - y) / below, (y - upper) / above) of an interval, and its inverse.

    All arithmetic here rounds monotonically, so that the set {score <= q} is an interval of
    floating-point numbers. A search among these numbers gives its exact ends, and the equivalence
    that defines a ``Score`` holds to the last digit.

    Attributes:
        lower: [n], the lower ends.
        upper: [n], the upper ends.
        below: [n], the unit of the score below the interval; None: 1. A unit of 0 gives every y
            beyond the end an infinite score.
        above: [n], the unit above the interval, likewise.
    """

    lower: Tensor
    upper: Tensor
    below: Tensor | None = None
    above: Tensor | None = None

    def finite(self) -> bool:
        """Return whether all ends and units are finite."""
        parts = (self.lower, self.upper, self.below, self.above)
        return all(all_finite(part) for part in parts if part is not None)

    def __getitem__(self, rows: Tensor | slice) -> Ends:
        """Return those of some rows."""
        below = above = None if self.below is None else self.below[rows]
        if self.above is not self.below:
            above = None if self.above is None else self.above[rows]
        return Ends(self.lower[rows], self.upper[rows], below, above)

    def sides(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the two scores of y [n], one per side."""
        y = y.to(self.lower)
        return ratio(self.lower - y, self.below), ratio(y - self.upper, self.above)

    def score(self, y: Tensor) -> Tensor:
        """Return the larger of the two scores of y, [n]."""
        return torch.maximum(*self.sides(y))

    def region(self, q_below: Tensor, q_above: Tensor, level: float) -> Region:
        """Return the set whose score is at most q_below on the lower and q_above on the upper side.

        Args:
            q_below: [] or [n].
            q_above: [] or [n].
            level: The nominal coverage of the Region.
        """
        below = above = _distance(self.below, q_below)
        if self.above is not self.below or q_above is not q_below:
            above = _distance(self.above, q_above)
        lower = self._end_of_set(q_below, *below, -1)
        upper = self._end_of_set(q_above, *above, 1)
        return interval(lower, upper, level)

    def _end_of_set(self, q: Tensor, distance: Tensor, half: Tensor, outward: int) -> Tensor:
        """Return one end of the set, whose score is at most q on that side.

        The search starts from the number nearest to it, which is the end of the interval itself at
        a distance of 0. A difference that exceeds the distance by less than half its rounding is
        rounded to it. The rounding error of a sum is a number (Knuth's two-sum): the start is next
        to the last number of the set, also where it is small beside the distance.

        Args:
            q: [] or [n].
            distance: [] or [n], of the set's end from that of the interval.
            half: [] or [n], half the distance from ``distance`` to the next number.
            outward: 1 for the upper end, -1 for the lower.
        """
        end, unit = self.upper, self.above
        if outward < 0:
            end, unit = self.lower, self.below
        each = q.expand(end.shape)

        def holds(y: Tensor, rows: Tensor | slice) -> Tensor:
            beyond = y - end[rows] if outward > 0 else end[rows] - y
            return ratio(beyond, unit, rows) <= each[rows]

        reach = (outward * distance).to(end)
        total = end + reach
        rest = total - end
        # in place, as new memory takes longer than these sums
        error = (total - rest).neg_().add_(end)
        error.add_(rest.neg_().add_(reach)).add_(outward * half.to(end))
        guess = total + error
        beyond = total.sub_(guess).add_(error).mul_(-outward)  # how much the guess is too far out
        # half-way between two numbers, a difference is rounded to the even one
        odd = distance.view(torch.int64 if distance.dtype == torch.float64 else torch.int32) & 1
        inward = torch.nextafter(guess, torch.full_like(guess[:1], -outward * torch.inf))
        guess = torch.where((beyond > 0) | ((beyond == 0) & (odd == 1)), inward, guess)
        return end_of_set(holds, guess, q, outward)


def ratio(distance: Tensor, units: Tensor | None, rows: Tensor | slice = ALL) -> Tensor:
    """Return distance / unit of some rows, and 0 for 0 / 0."""
    if units is None:
        return distance
    unit = units[rows]
    value = distance / unit
    if unit.numel() and not float(unit.amin()) > 0:
        return torch.where((distance == 0) & (unit == 0), distance, value)
    return value


def _distance(unit: Tensor | None, q: Tensor) -> tuple[Tensor, Tensor]:
    """Return the largest distance with a ratio to the unit of at most q, and half its rounding.

    A ratio that exceeds q by less than half the distance to the next number is rounded to q. Where
    q is not finite, the distance is 0.
    """
    finite = torch.isfinite(q)
    distance = torch.where(finite, q, torch.zeros_like(q))
    up = torch.full((), torch.inf, dtype=q.dtype, device=q.device)
    if unit is not None:
        limit = distance.to(unit)
        up = up.to(unit)
        half = (torch.nextafter(limit, up) - limit) / 2
        distance = (limit * unit).add_(half * unit)
        following = torch.nextafter(distance, up)
        ratio = following / unit
        distance = torch.where(ratio <= limit, following, distance)
        over = torch.div(distance, unit, out=ratio) > limit
        if bool(over.any()):
            over = torch.nonzero(over).flatten()
            distance[over] = torch.nextafter(distance[over], -up)
    half = (torch.nextafter(distance, up) - distance) / 2
    return distance, torch.where(finite, half, torch.zeros_like(half))


def end_of_set(holds: Condition, guess: Tensor, q: Tensor, outward: int) -> Tensor:
    """Return one end of the set {score <= q}.

    It is infinite where q is +inf. Where q is -inf the set is empty, and its end is infinite on the
    opposite side.

    Args:
        holds: Whether values of y, at some rows, belong to the set.
        guess: [n], numbers near the end.
        q: [] or [n], thresholds.
        outward: 1 for the upper end, -1 for the lower.
    """
    finite = torch.isfinite(q)
    if bool(finite.all()):
        return last_inside(holds, guess, outward)
    q, finite = q.expand(guess.shape), finite.expand(guess.shape)
    end = torch.where(torch.isposinf(q), outward * torch.inf, -outward * torch.inf).to(guess)
    some = torch.nonzero(finite).flatten()
    if len(some):
        end[some] = last_inside(lambda y, rows: holds(y, some[rows]), guess[some], outward)
    return torch.where(torch.isnan(q), torch.full_like(end, torch.nan), end)


def last_inside(holds: Condition, guess: Tensor, outward: int) -> Tensor:
    """Find the number furthest out at which ``holds`` is true.

    Args:
        holds: True up to some number and false beyond it, in the direction ``outward``.
        guess: [n], numbers near the result. Only the number of calls depends on them. NaN stays
            NaN.
        outward: 1 for upwards, -1 for downwards.

    Returns:
        [n]; infinite where ``holds`` never becomes false, and infinite with the opposite sign where
        it is never true.
    """
    x, unknown = guess, None
    if not all_finite(guess):
        most, unknown = torch.finfo(guess.dtype).max, torch.isnan(guess)
        x = torch.where(unknown, torch.zeros_like(guess), guess).clamp(-most, most)
    out = torch.full((), outward * torch.inf, dtype=x.dtype, device=x.device)
    following = torch.nextafter(x, out)
    inside, also = holds(x, ALL), holds(following, ALL)
    if unknown is None and all_finite(following):
        found = inside > also
        if bool(found.all()):
            return x
        result, rows = x.clone(), torch.nonzero(~found).flatten()
    else:
        unfinished = inside == also
        if unknown is not None:
            unfinished = unfinished & ~unknown
        last = torch.isinf(following)  # x is the largest number
        result = torch.where(inside & last, out, x)
        rows = torch.nonzero(torch.where(last, ~inside, unfinished)).flatten()
    x, following, inside = x[rows], following[rows], inside[rows]
    # a guess that rounding has moved out by one number
    preceding = torch.nextafter(x, -out)
    one_in = ~inside & torch.isfinite(preceding) & holds(preceding, rows)
    result[rows] = torch.where(one_in, preceding, x)
    if not bool(one_in.all()):
        start, far = torch.where(inside, following, x)[~one_in], rows[~one_in]
        result[far] = _searched(holds, far, start, inside[~one_in], outward)
    return result if unknown is None else torch.where(unknown, guess, result)


def _searched(
    holds: Condition, rows: Tensor, start: Tensor, inside: Tensor, outward: int
) -> Tensor:
    """Enclose the last number that holds by growing steps, then bisect over the positions between.

    Args:
        holds: As in ``last_inside``.
        rows: [k], the rows to search for.
        start: [k], where the search starts.
        inside: [k] bool, whether ``holds`` is true there.
        outward: 1 for upwards, -1 for downwards.
    """
    dtype = start.dtype
    furthest = int(place(torch.tensor([torch.finfo(dtype).max], dtype=dtype)))
    where = outward * place(start)  # larger is further out
    # low holds for rows that start inside, high does not for rows that start outside
    low = where.clone()
    high = where.clone()
    step = 1
    active = torch.arange(len(rows), device=rows.device)
    while len(active):
        out = inside[active]
        # mirrored where the search goes inwards
        base = torch.where(out, low[active], -high[active])
        trial = torch.where(base > furthest - step, torch.full_like(base, furthest), base + step)
        at = torch.where(out, trial, -trial)
        true = holds(number(outward * at, dtype), rows[active])
        low[active] = torch.where(true, at, low[active])
        high[active] = torch.where(true, high[active], at)
        edge = trial == furthest
        never = torch.where(out, edge & true, edge & ~true)
        low[active] = torch.where(never & ~out, torch.full_like(at, -furthest - 1), low[active])
        high[active] = torch.where(never & out, torch.full_like(at, furthest + 1), high[active])
        low[active] = torch.where(never & out, torch.full_like(at, furthest), low[active])
        high[active] = torch.where(never & ~out, torch.full_like(at, -furthest), high[active])
        active = active[(true == out) & ~never]
        step = min(step * GROWTH, LONGEST)
    low, high = _bisected(holds, rows, low, high, furthest, outward, dtype)
    value = number((outward * low).clamp(-furthest, furthest), dtype)
    infinite = torch.full_like(value, outward * torch.inf)
    return torch.where(low < -furthest, -infinite, torch.where(high > furthest, infinite, value))


def _bisected(
    holds: Condition,
    rows: Tensor,
    low: Tensor,
    high: Tensor,
    furthest: int,
    outward: int,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """Bisect until low, where the condition holds, and high, where it does not, are adjacent."""
    while True:
        active = torch.nonzero(between(low, high) > low).flatten()
        if not len(active):
            return low, high
        middle = between(low[active], high[active])
        true = holds(number(outward * middle, dtype), rows[active])
        low[active] = torch.where(true, middle, low[active])
        high[active] = torch.where(true, high[active], middle)


def interval(lower: Tensor, upper: Tensor, level: float) -> Region:
    """Return intervals as a Region.

    An interval is empty, from inf to -inf, where its ends have crossed or both are infinite on the
    same side.
    """
    crossed = lower > upper
    if not (all_finite(lower) and all_finite(upper)):
        crossed = crossed | torch.isposinf(lower) | torch.isneginf(upper)
    if not bool(crossed.any()):
        return Region(level, "", lower, upper)
    inf = torch.full_like(lower, torch.inf)
    return Region(level, "", torch.where(crossed, inf, lower), torch.where(crossed, -inf, upper))


def widened(lower: Tensor, upper: Tensor, level: float) -> Region:
    """Return intervals as a Region, each end moved outward by a few roundings.

    This is for ends that do not follow from the arithmetic of the ranked scores. Where y repeats, a
    threshold is the score of many rows, and an end one rounding too far inward would lose them all.
    """
    size = torch.maximum(lower.abs(), upper.abs())
    size = torch.where(torch.isfinite(size), size, torch.minimum(lower.abs(), upper.abs()))
    slack = torch.nan_to_num(ULPS * torch.finfo(lower.dtype).eps * size, nan=0.0, posinf=0.0)
    crossed = lower > upper
    low = torch.where(crossed, lower, lower - slack)
    high = torch.where(crossed, upper, upper + slack)
    return interval(low, high, level)


def raised_at_ties(q: Tensor, scores: Tensor, roundings: int) -> Tensor:
    """Return thresholds, raised by some roundings where several scores equal them.

    Where y has atoms, a threshold is the score of many rows. The score of a new row with the same y
    and the same predictive distribution, computed in another batch, may be some roundings higher.

    Args:
        q: Thresholds of any shape, with a last axis of sides where ``scores`` has columns.
        scores: [n] or [n, sides], of the calibration rows.
        roundings: How many.
    """
    columns = scores.reshape(len(scores), -1)
    two_sided = columns.shape[1] > 1
    parts = q.unbind(-1) if two_sided else (q,)
    raised = []
    for part, column in zip(parts, columns.T, strict=True):
        size = torch.where(torch.isfinite(part), part.abs(), 0.0)
        margin = roundings * torch.finfo(column.dtype).eps * size
        low, high = part - margin, part + margin
        if part.numel() == 1:
            count = ((column >= low) & (column <= high)).sum().reshape(part.shape)
        else:
            ordered = column.sort().values
            first = torch.searchsorted(ordered, low.reshape(-1).contiguous())
            last = torch.searchsorted(ordered, high.reshape(-1).contiguous(), right=True)
            count = (last - first).reshape(part.shape)
        repeated = (count > 1) & torch.isfinite(part)
        raised.append(torch.where(repeated, high, part))
    return torch.stack(raised, -1) if two_sided else raised[0]
