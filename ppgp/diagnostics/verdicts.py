"""The verdicts of ``compare`` and ``diagnose``, their tolerances and limits.

Which module gives which word:

- "agrees", "means agree, spread does not" and "do not use": ``differences`` (draws against those of
  a reference, or against their importance-weighted draws), ``predictive_differences`` (predictions
  of test rows) and ``diagnosis`` (chains by their mixing, guides by their k-hat). Draws that are
  not finite are "do not use" in ``judging``.
- "unjudged": ``judging`` (too few draws, or the reference lacks something), ``comparison`` (no
  draws, no reference, or Ctrl-C stopped the fit) and ``diagnosis`` (a single chain with findings, a
  density that is not known, steps that are never rejected, or Ctrl-C).
- "reference": ``comparison``, for the reference itself.

A further word that a difference may give needs a place in ``SEVERITY``.

Each of M comparisons exceeds its limit with probability at most FALSE_ALARM / M where the two
distributions are the same (or differ by less than the tolerances). The verdict is then other than
"agrees" with probability at most FALSE_ALARM. Means, sds and shares are taken as normal with their
Monte Carlo errors; the limits of the distances hold for every distribution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from scipy.special import ndtri

__all__ = [
    "AGREES",
    "CUT_SHORT",
    "FALSE_ALARM",
    "REFERENCE",
    "REJECTED",
    "SEVERITY",
    "SPREAD",
    "UNJUDGED",
    "Verdict",
]

AGREES = "agrees"
SPREAD = "means agree, spread does not"
REJECTED = "do not use"
UNJUDGED = "unjudged"
REFERENCE = "reference"
SEVERITY = (AGREES, SPREAD, REJECTED)  # the words of a difference, the mildest first

CUT_SHORT = "its search was stopped by Ctrl-C: fit it again"  # a reason, not a verdict

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
"""The verdict, the reason for it, and by how much the difference exceeds its limit."""


def standard_errors(comparisons: int) -> float:
    """Return how many standard errors beyond its tolerance a difference must lie to count.

    Args:
        comparisons: How many comparisons are made.
    """
    return -float(ndtri(FALSE_ALARM / (2 * comparisons)))


def share_limit(comparisons: int, size: float) -> float:
    """Return the limit of the largest difference of two empirical distribution functions.

    Samples of one distribution exceed it with probability FALSE_ALARM / comparisons at most, by
    the inequality of Dvoretzky, Kiefer and Wolfowitz for two samples (Wei & Dudley 2012).

    Args:
        comparisons: How many comparisons are made.
        size: 1 / (1 / n + 1 / m).
    """
    return math.sqrt(math.log(2 * comparisons / FALSE_ALARM) / (2 * size))


def distance_limit(comparisons: int, size: float, roughness: float) -> float:
    """Return the limit of the Wasserstein distance, in sds.

    sqrt(size) * distance tends to the integral of an absolute Brownian bridge. This is a random
    norm of mean ``roughness`` and weak variance 1; the limit bounds its tail (Borell).

    Args:
        comparisons: How many comparisons are made.
        size: 1 / (1 / n + 1 / m).
        roughness: See ``differences.Difference``.
    """
    return (roughness + math.sqrt(2 * math.log(comparisons / FALSE_ALARM))) / math.sqrt(size)


@dataclass(frozen=True)
class Verdict:
    """The verdict on a posterior, with every difference from its reference.

    Attributes:
        word: The verdict.
        reason: The difference that decides, or what is missing.
        scalars: One row per scalar that varies in the reference.
        joint: One row per projection, and one for the log density.
    """

    word: str
    reason: str
    scalars: list[dict[str, Any]] = field(default_factory=list)
    joint: list[dict[str, Any]] = field(default_factory=list)

    def unjudged(self, missing: str) -> Verdict:
        """Return the same differences without their verdicts."""
        scalars = [{**row, "verdict": UNJUDGED} for row in self.scalars]
        joint = [{**row, "verdict": UNJUDGED} for row in self.joint]
        return Verdict(UNJUDGED, missing, scalars, joint)
