"""What a campaign counts, and the table it prints."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from .cases import Outcome

KINDS = (
    "orphans",
    "lost or damaged files",
    "raw tracebacks",
    "silent differences",
    "hangs",
    "wrong exit codes",
)


@dataclass
class Counts:
    """The counts of one part of the campaign.

    Attributes:
        title: The name of the part.
        cases: The number of cases.
        wrong: The number of failures of each kind.
        findings: A line per failure.
        slowest_stop: The longest time from a signal to the end, in seconds.
    """

    title: str
    cases: int = 0
    wrong: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    findings: list[str] = field(default_factory=list)
    slowest_stop: float = 0.0

    def add(self, kind: str, case: str, detail: str) -> None:
        """Record a failure of a case."""
        self.wrong[kind] += 1
        self.findings.append(f"{self.title}, {case}: {kind}: {detail}")
        print(self.findings[-1], file=sys.stderr, flush=True)

    @property
    def bad(self) -> int:
        return sum(self.wrong.values())


def how_it_ended(
    counts: Counts,
    case: str,
    found: Outcome,
    codes: tuple[int, ...] | None = None,
    raw: bool | None = None,
) -> None:
    """Count failures that no case may have: a hang, orphans, a traceback, a wrong exit code.

    Args:
        counts: Where to count.
        case: The name of the case.
        found: How it ended.
        codes: The valid exit codes; None for any.
        raw: Whether a traceback counts as a failure; None counts any.
    """
    traceback = found.raw if raw is None else raw
    if found.hung:
        counts.add("hangs", case, f"{found.seconds:.0f} s")
    if found.orphans:
        counts.add("orphans", case, str(found.orphans))
    if traceback:
        counts.add("raw tracebacks", case, found.err[-1500:])
    elif codes is not None and found.code not in codes:
        counts.add("wrong exit codes", case, f"{found.code}: {found.err[-300:]}")


def table(parts: list[Counts]) -> str:
    """Return the counts as text: one row per part, one column per count."""
    heads = ["", "cases", *KINDS]
    rows = [[p.title, str(p.cases), *(str(p.wrong[kind]) for kind in KINDS)] for p in parts]
    whole = [
        str(sum(p.cases for p in parts)),
        *(str(sum(p.wrong[kind] for p in parts)) for kind in KINDS),
    ]
    lines = [heads, *rows, ["all", *whole]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    )
