"""The words in which an approximation is judged, and the differences that count: the same for ``compare`` and ``diagnose``.

False alarms: each of the M figures of a posterior passes its limit with probability at most FALSE_ALARM / M where the two laws
are the same (or differ by less than the tolerances), so that the word is other than "agrees" with probability at most FALSE_ALARM.
Means, sds and shares are normal given their Monte Carlo errors; the distances have limits that hold for every law.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import ndtri

__all__ = [
    "AGREES",
    "CUT_SHORT",
    "FALSE_ALARM",
    "REFERENCE",
    "REJECTED",
    "SPREAD",
    "UNJUDGED",
    "Difference",
    "LogDensity",
]

AGREES = "agrees"
SPREAD = "means agree, spread does not"
REJECTED = "do not use"
UNJUDGED = "unjudged"
REFERENCE = "reference"
CUT_SHORT = "its search was stopped by Ctrl-C: fit it again"
SEVERITY = (AGREES, SPREAD, REJECTED)

MEAN_TOLERANCE = 0.1  # sds of the reference: a shift that moves a central 90 % interval's coverage by under one point
SPREAD_TOLERANCE = 0.05  # of the ratio of sds
TAIL_TOLERANCE = 0.025  # of the share of draws beyond the 5 % and 95 % quantiles of the reference
SHARE_TOLERANCE = 0.04  # of the share of draws below any point: what a shift of MEAN_TOLERANCE moves of a normal law
LP_TOLERANCE = 0.5 * (
    (1 + SPREAD_TOLERANCE) ** 2 - 1 + MEAN_TOLERANCE**2
)  # nats a scalar: what both cost a normal law
FALSE_ALARM = 0.01

Judged = tuple[str, str, float]
"""The word, the figure that says so, and by how much it passes its limit."""


def standard_errors(figures: int) -> float:
    """How many standard errors lie between a difference and its tolerance before it counts, with so many figures judged."""
    return -float(ndtri(FALSE_ALARM / (2 * figures)))


def share_limit(figures: int, size: float) -> float:
    """What the largest difference of two empirical distribution functions passes with probability FALSE_ALARM / figures at most.

    The inequality of Dvoretzky, Kiefer and Wolfowitz, for two samples (Wei & Dudley 2012); ``size``: 1 / (1 / n + 1 / m).
    """
    return math.sqrt(math.log(2 * figures / FALSE_ALARM) / (2 * size))


def distance_limit(figures: int, size: float, roughness: float) -> float:
    """The same of the Wasserstein distance, in sds. Over the square root of ``size`` it tends to the integral of an absolute Brownian
    bridge, a norm whose mean is ``roughness`` and whose weak variance is 1: Gaussian concentration (Borell)."""
    return (roughness + math.sqrt(2 * math.log(figures / FALSE_ALARM))) / math.sqrt(size)


@dataclass(frozen=True)
class Difference:
    """One scalar under an approximation and under a reference; each figure with its Monte Carlo standard error.

    Args:
        shift: of the means, in sds of the reference.
        ratio: of the sds; None for a point, which has none.
        tails: shares of the approximation below the reference's 5 % quantile and above its 95 %, each 0.05 where they agree;
            None where they are not known.
        kolmogorov: largest difference of the two shares of draws below one point; None where it is not known.
        wasserstein: distance of the two laws, in sds of the reference; None where it is not known.
        size: 1 / (1 / n + 1 / m), with the effective numbers of draws of both.
        roughness: mean of the Wasserstein distance of two samples of one law, in sds, times the square root of ``size``.
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
    def figures(self) -> int:
        """How many figures are judged."""
        others = (self.ratio, self.tails, self.tails, self.kolmogorov, self.wasserstein)
        return 1 + sum(figure is not None for figure in others)

    def _beyond(self, figures: int) -> list[Judged]:
        """The word, the figure, and by how much it passes its tolerance and error: the means first."""
        errors = standard_errors(figures)
        shift = abs(self.shift) - errors * self.shift_error - MEAN_TOLERANCE
        found = [
            (
                REJECTED,
                f"{self.site}: mean {abs(self.shift):.2f} sd off (+-{self.shift_error:.2f})",
                shift,
            )
        ]
        if self.ratio is not None:
            kind = "overconfident" if self.ratio < 1 else "underconfident"
            figure = f"{self.site}: {kind}, sd {self.ratio:.2f} of the reference's (+-{self.ratio_error:.2f})"
            found.append(
                (SPREAD, figure, abs(self.ratio - 1) - errors * self.ratio_error - SPREAD_TOLERANCE)
            )
        if self.tails is not None:
            for share, side in zip(self.tails, ("below the 5 %", "above the 95 %"), strict=True):
                figure = f"{self.site}: {share:.1%} {side} quantile of the reference (+-{self.tail_error:.1%})"
                found.append(
                    (SPREAD, figure, abs(share - 0.05) - errors * self.tail_error - TAIL_TOLERANCE)
                )
        if self.kolmogorov is not None:
            limit = share_limit(figures, self.size)
            figure = f"{self.site}: another shape, shares of draws below a point differ by {self.kolmogorov:.2f} (noise {limit:.2f})"
            found.append((SPREAD, figure, self.kolmogorov - limit - SHARE_TOLERANCE))
        if self.wasserstein is not None:
            limit = distance_limit(figures, self.size, self.roughness)
            figure = f"{self.site}: another shape, {self.wasserstein:.2f} sd apart in Wasserstein distance (noise {limit:.2f})"
            found.append((SPREAD, figure, self.wasserstein - limit - MEAN_TOLERANCE))
        return found

    @property
    def finite(self) -> bool:
        known = (
            f for f in (self.shift, self.shift_error, self.ratio, self.ratio_error) if f is not None
        )
        return all(map(math.isfinite, known))

    def judged(self, figures: int | None = None) -> Judged:
        """The word, the figure that says so, and by how much it passes (for agreement: comes nearest to passing).

        ``figures``: how many are judged in all, those of other scalars too.
        """
        if not self.finite:
            return REJECTED, f"{self.site}: not finite", math.inf
        found = self._beyond(figures or self.figures)
        for word in (REJECTED, SPREAD):
            passed = [f for f in found if f[0] == word and f[2] > 0]
            if passed:
                return passed[0]
        if self.ratio is None:
            return SPREAD, f"{found[0][1]}: a point, which has no spread", found[0][2]
        return AGREES, *found[0][1:]


@dataclass(frozen=True)
class LogDensity:
    """The mean log density of an approximation's draws less that of the reference's, in nats: where both lie.

    Args:
        gap: the difference.
        error: its Monte Carlo standard error.
        scalars: of the posterior; each may cost LP_TOLERANCE.
    """

    gap: float
    error: float
    scalars: int
    figures: int = 1

    def judged(self, figures: int) -> Judged:
        if not math.isfinite(self.gap):
            return (
                SPREAD,
                "log density: not finite at some draw, where the reference has none",
                math.inf,
            )
        side = "above" if self.gap > 0 else "below"
        figure = f"log density: mean {abs(self.gap):.2f} nats {side} the reference's (+-{self.error:.2f})"
        beyond = abs(self.gap) - standard_errors(figures) * self.error - LP_TOLERANCE * self.scalars
        return SPREAD if beyond > 0 else AGREES, figure, beyond


def worst(
    scalars: Sequence[Difference], joint: Sequence[Difference | LogDensity] = ()
) -> tuple[str, str]:
    """The verdict on a model: that on its worst figure, and the sentence that says so; a scalar's, where it is as bad as any."""
    figures = sum(d.figures for d in [*scalars, *joint])
    parts = [
        max((d.judged(figures) for d in part), key=_badness) for part in (scalars, joint) if part
    ]
    word, figure, _ = max(parts, key=lambda j: SEVERITY.index(j[0]))
    return word, f"largest shift, {figure}" if word == AGREES else figure


def _badness(judged: Judged) -> tuple[int, float]:
    return SEVERITY.index(judged[0]), judged[2]
