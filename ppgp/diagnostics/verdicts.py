"""The words in which an approximation is judged, and the differences that count: the same for ``compare`` and ``diagnose``."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["AGREES", "REJECTED", "SPREAD", "Difference"]

AGREES = "agrees"
SPREAD = "means agree, spread does not"
REJECTED = "do not use"
SEVERITY = (AGREES, SPREAD, REJECTED)

MEAN_TOLERANCE = 0.1  # sds of the reference: a shift that moves a central 90 % interval's coverage by under one point
SPREAD_TOLERANCE = 0.05  # of the ratio of sds
TAIL_TOLERANCE = 0.025  # of the share of draws beyond the 5 % and 95 % quantiles of the reference
ERRORS = 3.0  # Monte Carlo standard errors that a difference must exceed, beyond the tolerance, before it counts


@dataclass(frozen=True)
class Difference:
    """One scalar under an approximation and under a reference; each figure with its Monte Carlo standard error.

    Args:
        shift: of the means, in sds of the reference.
        ratio: of the sds.
        tails: shares of the approximation below the reference's 5 % quantile and above its 95 %, each 0.05 where they agree;
            None where they are not known.
    """

    site: str
    shift: float
    shift_error: float
    ratio: float
    ratio_error: float
    tails: tuple[float, float] | None = None
    tail_error: float = 0.0

    def _beyond(self) -> list[tuple[float, str, str]]:
        """(by how much a figure passes its tolerance and error, the word, the figure): the means first."""
        shift = abs(self.shift) - ERRORS * self.shift_error - MEAN_TOLERANCE
        ratio = abs(self.ratio - 1) - ERRORS * self.ratio_error - SPREAD_TOLERANCE
        kind = "overconfident" if self.ratio < 1 else "underconfident"
        found = [
            (shift, REJECTED, f"{self.site}: mean {abs(self.shift):.2f} sd off (+-{self.shift_error:.2f})"),
            (ratio, SPREAD, f"{self.site}: {kind}, sd {self.ratio:.2f} of the reference's (+-{self.ratio_error:.2f})"),
        ]
        if self.tails is not None:
            for share, side in zip(self.tails, ("below the 5 %", "above the 95 %"), strict=True):
                tail = abs(share - 0.05) - ERRORS * self.tail_error - TAIL_TOLERANCE
                found.append(
                    (tail, SPREAD, f"{self.site}: {share:.1%} {side} quantile of the reference (+-{self.tail_error:.1%})")
                )
        return found

    @property
    def finite(self) -> bool:
        return all(map(math.isfinite, (self.shift, self.shift_error, self.ratio, self.ratio_error)))

    @property
    def verdict(self) -> str:
        return self.judged()[0]

    def judged(self) -> tuple[str, str, float]:
        """The word, the figure that says so, and by how much it passes (for agreement: comes nearest to passing)."""
        if not self.finite:
            return REJECTED, f"{self.site}: not finite", math.inf
        found = self._beyond()
        for word in (REJECTED, SPREAD):
            passed = [f for f in found if f[1] == word and f[0] > 0]
            if passed:
                size, _, figure = max(passed)
                return word, figure, size
        size, _, figure = found[0]
        return AGREES, figure, size


def worst(differences: list[Difference]) -> tuple[str, str]:
    """The verdict on a model: that on its worst scalar, and the figure that says so."""
    word, figure, _ = max((d.judged() for d in differences), key=lambda j: (SEVERITY.index(j[0]), j[2]))
    return word, f"largest shift, {figure}" if word == AGREES else figure
