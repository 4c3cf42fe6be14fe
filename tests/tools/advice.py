"""The table of the documentation that shows what ``ppgp.advise`` answers for some sizes of data.

``python tests/tools/advice.py`` prints it, and with ``--write`` replaces that in docs/contents.md
(``make tables``).
"""

from __future__ import annotations

from typing import Any

import tables_of_docs

from ppgp import advise, likelihoods
from ppgp.models.advice.advice import about

NAME = "advice"  # of the marks in the documentation
SHOWN = 3

#: what the data are -> the arguments of ``advise``
CASES: dict[str, dict[str, Any]] = {
    "1,000 rows of 5 columns": {"n": 1_000, "d": 5},
    "2,000 rows of time": {"n": 2_000, "d": 1},
    "1,000,000 rows of time": {"n": 1_000_000, "d": 1},
    "100,000 places, rough": {"n": 100_000, "d": 2, "smoothness": 1.5},
    "100,000 places, smooth": {"n": 100_000, "d": 2, "smoothness": float("inf")},
    "20,000 rows of 3 columns": {"n": 20_000, "d": 3},
    "20,000 rows of 20 columns": {"n": 20_000, "d": 20},
    "10,000,000 rows of 20 columns": {"n": 10_000_000, "d": 20},
    "1,000 counts": {"n": 1_000, "d": 3, "likelihood": likelihoods.Poisson()},
    "50,000 counts": {"n": 50_000, "d": 3, "likelihood": likelihoods.Poisson()},
    "1,000 labels of 5 classes": {"n": 1_000, "d": 3, "likelihood": likelihoods.Categorical()},
}


def table() -> str:
    """Return the table as Markdown: one row per case, with the models that suit."""
    lines = ["| data | models, with the time of a fit |", "|---|---|"]
    for case, given in CASES.items():
        options = advise(**given).suited[:SHOWN]
        named = ", ".join(f"{option.model} ({about(option.seconds)})" for option in options)
        lines.append(f"| {case} | {named} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    tables_of_docs.show(NAME, table())
