"""Differences between two posteriors of one model, each with the verdict that it gives.

Scalars and projections have a ``Difference``, the log density of the draws a ``LogDensity``.
``worst`` is the verdict by all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .verdicts import (
    AGREES,
    LP_TOLERANCE,
    MEAN_TOLERANCE,
    REJECTED,
    SEVERITY,
    SHARE_TOLERANCE,
    SPREAD,
    SPREAD_TOLERANCE,
    TAIL_TOLERANCE,
    Judged,
    distance_limit,
    share_limit,
    standard_errors,
)

__all__ = ["Difference", "LogDensity", "worst"]


@dataclass(frozen=True)
class Difference:
    """One scalar under an approximation and under a reference, with Monte Carlo standard errors.

    Attributes:
        site: The name of the scalar.
        shift: The difference of the means, in sds of the reference.
        shift_error: The standard error of the shift.
        ratio: The ratio of the sds; None for a point, which has no sd.
        ratio_error: The standard error of the ratio.
        tails: The shares of the approximation below the reference's 5 % quantile and above its
            95 % quantile, each 0.05 where they agree; None where they are not known.
        tail_error: The standard error of each share.
        kolmogorov: The largest difference of the two shares of draws below one point; None where it
            is not known.
        wasserstein: The distance of the two distributions, in sds of the reference; None where it
            is not known.
        size: 1 / (1 / n + 1 / m), with the effective numbers of draws of both.
        roughness: The mean Wasserstein distance of two samples of one distribution, in sds, times
            the square root of ``size``.
    """

    site: str
    shift: float
    shift_error: float
    ratio: float | None
    ratio_error: float
    tails: tuple[float, float] | None = None
    tail_error: float = 0.0
    kolmogorov: float | None = None
    wasserstein: float | None = None
    size: float = math.inf
    roughness: float = 0.0

    @property
    def comparisons(self) -> int:
        """The number of comparisons that are made."""
        others = (self.ratio, self.tails, self.tails, self.kolmogorov, self.wasserstein)
        return 1 + sum(other is not None for other in others)

    def _by_comparison(self, comparisons: int) -> list[Judged]:
        """Return the verdict by each comparison, with its excess over the limit; means first."""
        errors = standard_errors(comparisons)
        shift = abs(self.shift) - errors * self.shift_error - MEAN_TOLERANCE
        reason = f"{self.site}: mean {abs(self.shift):.2f} sd off (+-{self.shift_error:.2f})"
        judged = [(REJECTED, reason, shift)]
        if self.ratio is not None:
            kind = "overconfident" if self.ratio < 1 else "underconfident"
            excess = abs(self.ratio - 1) - errors * self.ratio_error - SPREAD_TOLERANCE
            reason = f"sd {self.ratio:.2f} of the reference's (+-{self.ratio_error:.2f})"
            judged.append((SPREAD, f"{self.site}: {kind}, {reason}", excess))
        if self.tails is not None:
            for share, side in zip(self.tails, ("below the 5 %", "above the 95 %"), strict=True):
                excess = abs(share - 0.05) - errors * self.tail_error - TAIL_TOLERANCE
                reason = f"{share:.1%} {side} quantile of the reference (+-{self.tail_error:.1%})"
                judged.append((SPREAD, f"{self.site}: {reason}", excess))
        if self.kolmogorov is not None:
            limit = share_limit(comparisons, self.size)
            reason = (
                f"{self.site}: another shape, shares of draws below a point differ by "
                f"{self.kolmogorov:.2f} (noise {limit:.2f})"
            )
            judged.append((SPREAD, reason, self.kolmogorov - limit - SHARE_TOLERANCE))
        if self.wasserstein is not None:
            limit = distance_limit(comparisons, self.size, self.roughness)
            reason = (
                f"{self.site}: another shape, {self.wasserstein:.2f} sd apart in Wasserstein "
                f"distance (noise {limit:.2f})"
            )
            judged.append((SPREAD, reason, self.wasserstein - limit - MEAN_TOLERANCE))
        return judged

    @property
    def finite(self) -> bool:
        """Whether the differences of mean and sd are finite."""
        numbers = (self.shift, self.shift_error, self.ratio, self.ratio_error)
        return all(number is None or math.isfinite(number) for number in numbers)

    def judged(self, comparisons: int | None = None) -> Judged:
        """Return the verdict, the reason for it, and by how much the difference exceeds its limit.

        The reason for agreement is the difference of the means.

        Args:
            comparisons: How many are made in all, those of other scalars included; None: those of
                this scalar alone.
        """
        if not self.finite:
            return REJECTED, f"{self.site}: not finite", math.inf
        judged = self._by_comparison(comparisons or self.comparisons)
        for word in reversed(SEVERITY):
            exceeded = [one for one in judged if one[0] == word and one[2] > 0]
            if exceeded:
                return exceeded[0]
        _, reason, excess = judged[0]
        if self.ratio is None:
            return SPREAD, f"{reason}: a point, which has no spread", excess
        return AGREES, reason, excess


@dataclass(frozen=True)
class LogDensity:
    """The difference of the mean log densities of an approximation's and a reference's draws.

    Attributes:
        gap: The difference, in nats.
        error: Its Monte Carlo standard error.
        scalars: The number of scalars of the posterior; each may cost LP_TOLERANCE.
        comparisons: The number of comparisons that are made.
    """

    gap: float
    error: float
    scalars: int
    comparisons: int = 1

    def judged(self, comparisons: int) -> Judged:
        """Return the verdict, the reason for it, and by how much the gap exceeds its limit.

        Args:
            comparisons: How many are made in all.
        """
        if not math.isfinite(self.gap):
            reason = "log density: not finite at some draw, and finite at all of the reference"
            return SPREAD, reason, math.inf
        side = "above" if self.gap > 0 else "below"
        nats = f"mean {abs(self.gap):.2f} nats {side} the reference's (+-{self.error:.2f})"
        tolerance = LP_TOLERANCE * self.scalars
        excess = abs(self.gap) - standard_errors(comparisons) * self.error - tolerance
        word = SPREAD if excess > 0 else AGREES
        return word, f"log density: {nats}", excess


def worst(
    scalars: Sequence[Difference], joint: Sequence[Difference | LogDensity] = ()
) -> tuple[str, str]:
    """Return the verdict by the worst difference of a model, and the sentence that states it.

    If a single scalar is as bad as the worst projection, the sentence names the scalar.

    Args:
        scalars: The differences of single scalars.
        joint: The differences in other directions, and of the log density.
    """
    comparisons = sum(d.comparisons for d in [*scalars, *joint])
    worst_of_each = []
    for part in (scalars, joint):
        if part:
            worst_of_each.append(max((d.judged(comparisons) for d in part), key=_badness))
    word, reason, _ = max(worst_of_each, key=lambda judged: SEVERITY.index(judged[0]))
    if word == AGREES:
        reason = f"largest shift, {reason}"
    return word, reason


def _badness(judged: Judged) -> tuple[int, float]:
    return SEVERITY.index(judged[0]), judged[2]
