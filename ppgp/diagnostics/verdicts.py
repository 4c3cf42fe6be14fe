"""The verdicts of ``compare`` and ``diagnose``, and the differences that lead to them.

Each of the M figures of a posterior exceeds its limit with probability at most FALSE_ALARM / M
where the two distributions are the same (or differ by less than the tolerances). The verdict is
then other than "agrees" with probability at most FALSE_ALARM. Means, sds and shares are taken as
normal with their Monte Carlo errors; the limits of the distances hold for every distribution.
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

# sds of the reference: such a shift changes a central 90 % interval's coverage by under one point
MEAN_TOLERANCE = 0.1
SPREAD_TOLERANCE = 0.05  # of the ratio of sds
TAIL_TOLERANCE = 0.025  # of the share of draws beyond the 5 % and 95 % quantiles of the reference
# of the share of draws below any point: the change by a normal shift of MEAN_TOLERANCE
SHARE_TOLERANCE = 0.04
# nats per scalar: what a mean and an sd at their tolerances cost a normal distribution
LP_TOLERANCE = 0.5 * ((1 + SPREAD_TOLERANCE) ** 2 - 1 + MEAN_TOLERANCE**2)
FALSE_ALARM = 0.01

Judged = tuple[str, str, float]
"""The verdict, the figure that decides, and by how much it exceeds its limit."""


def standard_errors(figures: int) -> float:
    """Return how many standard errors beyond its tolerance a difference must lie to count.

    Args:
        figures: how many figures are judged.
    """
    return -float(ndtri(FALSE_ALARM / (2 * figures)))


def share_limit(figures: int, size: float) -> float:
    """Return the limit of the largest difference of two empirical distribution functions.

    Samples of one distribution exceed it with probability FALSE_ALARM / figures at most, by the
    inequality of Dvoretzky, Kiefer and Wolfowitz for two samples (Wei & Dudley 2012).

    Args:
        figures: how many figures are judged.
        size: 1 / (1 / n + 1 / m).
    """
    return math.sqrt(math.log(2 * figures / FALSE_ALARM) / (2 * size))


def distance_limit(figures: int, size: float, roughness: float) -> float:
    """Return the limit of the Wasserstein distance, in sds.

    Times the square root of ``size``, the distance tends to the integral of an absolute Brownian
    bridge, a norm whose mean is ``roughness`` and whose weak variance is 1: Gaussian concentration
    (Borell).

    Args:
        figures: how many figures are judged.
        size: 1 / (1 / n + 1 / m).
        roughness: see ``Difference``.
    """
    return (roughness + math.sqrt(2 * math.log(figures / FALSE_ALARM))) / math.sqrt(size)


@dataclass(frozen=True)
class Difference:
    """One scalar under an approximation and under a reference, with Monte Carlo standard errors.

    Attributes:
        site: the name of the scalar.
        shift: the difference of the means, in sds of the reference.
        shift_error: the standard error of the shift.
        ratio: the ratio of the sds; None for a point, which has no sd.
        ratio_error: the standard error of the ratio.
        tails: the shares of the approximation below the reference's 5 % quantile and above its
            95 % quantile, each 0.05 where they agree; None where they are not known.
        tail_error: the standard error of each share.
        kolmogorov: the largest difference of the two shares of draws below one point; None where it
            is not known.
        wasserstein: the distance of the two distributions, in sds of the reference; None where it
            is not known.
        size: 1 / (1 / n + 1 / m), with the effective numbers of draws of both.
        roughness: the mean Wasserstein distance of two samples of one distribution, in sds, times
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
    def figures(self) -> int:
        """The number of figures that are judged."""
        others = (self.ratio, self.tails, self.tails, self.kolmogorov, self.wasserstein)
        return 1 + sum(figure is not None for figure in others)

    def _beyond(self, figures: int) -> list[Judged]:
        """Return the verdict by each figure, with its excess over the limit: the means first."""
        errors = standard_errors(figures)
        shift = abs(self.shift) - errors * self.shift_error - MEAN_TOLERANCE
        figure = f"{self.site}: mean {abs(self.shift):.2f} sd off (+-{self.shift_error:.2f})"
        judged = [(REJECTED, figure, shift)]
        if self.ratio is not None:
            kind = "overconfident" if self.ratio < 1 else "underconfident"
            excess = abs(self.ratio - 1) - errors * self.ratio_error - SPREAD_TOLERANCE
            figure = f"sd {self.ratio:.2f} of the reference's (+-{self.ratio_error:.2f})"
            judged.append((SPREAD, f"{self.site}: {kind}, {figure}", excess))
        if self.tails is not None:
            for share, side in zip(self.tails, ("below the 5 %", "above the 95 %"), strict=True):
                excess = abs(share - 0.05) - errors * self.tail_error - TAIL_TOLERANCE
                figure = f"{share:.1%} {side} quantile of the reference (+-{self.tail_error:.1%})"
                judged.append((SPREAD, f"{self.site}: {figure}", excess))
        if self.kolmogorov is not None:
            limit = share_limit(figures, self.size)
            figure = (
                f"{self.site}: another shape, shares of draws below a point differ by "
                f"{self.kolmogorov:.2f} (noise {limit:.2f})"
            )
            judged.append((SPREAD, figure, self.kolmogorov - limit - SHARE_TOLERANCE))
        if self.wasserstein is not None:
            limit = distance_limit(figures, self.size, self.roughness)
            figure = (
                f"{self.site}: another shape, {self.wasserstein:.2f} sd apart in Wasserstein "
                f"distance (noise {limit:.2f})"
            )
            judged.append((SPREAD, figure, self.wasserstein - limit - MEAN_TOLERANCE))
        return judged

    @property
    def finite(self) -> bool:
        """Whether the figures of means and sds are finite."""
        figures = (self.shift, self.shift_error, self.ratio, self.ratio_error)
        return all(figure is None or math.isfinite(figure) for figure in figures)

    def judged(self, figures: int | None = None) -> Judged:
        """Return the verdict, the figure that decides, and by how much it exceeds its limit.

        For agreement the figure is that of the means.

        Args:
            figures: how many are judged in all, those of other scalars included; None: those of
                this scalar alone.
        """
        if not self.finite:
            return REJECTED, f"{self.site}: not finite", math.inf
        judged = self._beyond(figures or self.figures)
        for word in (REJECTED, SPREAD):
            exceeded = [one for one in judged if one[0] == word and one[2] > 0]
            if exceeded:
                return exceeded[0]
        _, figure, excess = judged[0]
        if self.ratio is None:
            return SPREAD, f"{figure}: a point, which has no spread", excess
        return AGREES, figure, excess


@dataclass(frozen=True)
class LogDensity:
    """The difference of the mean log densities of an approximation's and a reference's draws.

    Attributes:
        gap: the difference, in nats.
        error: its Monte Carlo standard error.
        scalars: the number of scalars of the posterior; each may cost LP_TOLERANCE.
        figures: the number of figures that are judged.
    """

    gap: float
    error: float
    scalars: int
    figures: int = 1

    def judged(self, figures: int) -> Judged:
        """Return the verdict, the figure, and by how much it exceeds its limit.

        Args:
            figures: how many are judged in all.
        """
        if not math.isfinite(self.gap):
            figure = "log density: not finite at some draw, and finite at all of the reference"
            return SPREAD, figure, math.inf
        side = "above" if self.gap > 0 else "below"
        nats = f"mean {abs(self.gap):.2f} nats {side} the reference's (+-{self.error:.2f})"
        beyond = abs(self.gap) - standard_errors(figures) * self.error - LP_TOLERANCE * self.scalars
        word = SPREAD if beyond > 0 else AGREES
        return word, f"log density: {nats}", beyond


def worst(
    scalars: Sequence[Difference], joint: Sequence[Difference | LogDensity] = ()
) -> tuple[str, str]:
    """Return the verdict by the worst figure of a model, and the sentence that states it.

    The sentence is about a scalar, where a scalar is as bad as any other figure.

    Args:
        scalars: the differences of single scalars.
        joint: the differences in other directions, and of the log density.
    """
    figures = sum(d.figures for d in [*scalars, *joint])
    worst_of_each = []
    for part in (scalars, joint):
        if part:
            worst_of_each.append(max((d.judged(figures) for d in part), key=_badness))
    word, figure, _ = max(worst_of_each, key=lambda judged: SEVERITY.index(judged[0]))
    if word == AGREES:
        figure = f"largest shift, {figure}"
    return word, figure


def _badness(judged: Judged) -> tuple[int, float]:
    return SEVERITY.index(judged[0]), judged[2]
