"""The table of the documentation of methods that fit ten programs in float32 and in float64.

``python tests/tools/dtypes.py`` makes all fits with tiny budgets, which takes some minutes, and
prints the table; with ``--write`` it replaces the one in docs/dtypes.md (``make tables``). The
contract of dtypes compares each cell with a fit.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from pathlib import Path

import tables_of_docs

import ppgp
from ppgp.errors import NotApplicable

sys.path.append(str(Path(__file__).parents[1]))

from dtype_programs import DTYPES, Case, cases, methods

NAME = "dtypes"  # of the marks in the documentation
BOTH, NEITHER = "both", "refused"

Outcomes = Mapping[str, bool]


def cell(ran: Outcomes) -> str:
    """Return the cell of a method and a program: the dtypes in which it ran."""
    named = [dtype for dtype, did in ran.items() if did]
    if len(named) == len(DTYPES):
        return BOTH
    return ", ".join(named) or NEITHER


def ran(case: Case, method: str) -> dict[str, bool]:
    """Return in which dtypes a method fits a program rather than refuses it."""
    found = {}
    for name, dtype in DTYPES.items():
        try:
            how = methods()[method].quick()
            ppgp.fit(case.make(dtype), case.fit_arguments(dtype), how, progress=False)
        except NotApplicable:
            found[name] = False
        else:
            found[name] = True
    return found


def table(cells: Mapping[tuple[str, str], str]) -> str:
    """Return the table as Markdown, from the cell of each method and program."""
    programs = list(cases())
    lines = [f"| method | {' | '.join(programs)} |", "|---" * (len(programs) + 1) + "|"]
    for method in methods():
        row = " | ".join(cells[method, program] for program in programs)
        lines.append(f"| `{method}` | {row} |")
    return "\n".join(lines) + "\n"


def cells_of(text: str) -> dict[tuple[str, str], str]:
    """Return the cell of each method and program, from the table."""
    header, _, *rows = [
        [part.strip() for part in line.split("|")[1:-1]] for line in text.split("\n")[:-1]
    ]
    return {
        (row[0].strip("`"), program): found
        for row in rows
        for program, found in zip(header[1:], row[1:], strict=True)
    }


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    measured = {
        (method, name): cell(ran(case, method))
        for name, case in cases().items()
        for method in methods()
    }
    tables_of_docs.show(NAME, table(measured))
