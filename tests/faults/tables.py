"""Hostile tables through every command that reads a table.

Each gives the right answer, or one sentence and exit code 2.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import hostile_tables as hostile
from .cases import Outcome, answer, command, run
from .counts import Counts, how_it_ended

Read = Callable[[Path], Any]


class Desk:
    """A folder with a clean table, a fit to it, and each command's answer for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        for number, name in enumerate(("fitted.csv", "clean.csv")):
            (folder / name).write_text(hostile.text(hostile.clean(random.Random(number))))
        self.good = folder / "good.safetensors"
        fit = run(command("fit", "fitted.csv", *FIT, "--out", "good.safetensors"), folder)
        assert fit.code == 0, fit.err
        self.right: dict[str, Any] = {
            name: self.read(name, folder / "clean.csv")[1] for name in COMMANDS
        }

    def read(self, name: str, table: Path) -> tuple[Outcome, Any]:
        """Run a command on a table, and return how it ended and its figures."""
        words, product, reader = COMMANDS[name]
        out = self.folder / product
        out.unlink(missing_ok=True)
        given = [str(table) if word == "TABLE" else word for word in words]
        found = run(command(*given), self.folder)
        if found.code:
            return found, None
        if product != "fit.safetensors":
            return found, reader(found, out)
        return found, answer(lambda: reader(found, out), self.folder)


def _written(_: Outcome, out: Path) -> list[list[float]]:
    lines = out.read_text().splitlines()
    return [[float(v) for v in line.split(",")] for line in lines[1:]]


def _drawn(_: Outcome, out: Path) -> list[list[float]]:
    """Return the predictions of a fit at two rows."""
    import pandas as pd

    import ppgp

    posterior = ppgp.load_posterior(out)
    names = posterior.data.feature_names
    rows = pd.DataFrame([[40.0, 1.7, 0.0], [50.0, 1.6, 1.0]], columns=hostile.NAMES[:3])
    prediction = posterior.predict(
        rows[list(names)] if set(names) == set(rows.columns) else rows.to_numpy()
    )
    return [prediction.mean.tolist(), prediction.std.tolist()]


def _printed(found: Outcome, _: Path) -> list[list[float]]:
    """Return the figures of a table on the terminal."""
    words = itertools.chain.from_iterable(
        line.split() for line in found.out.splitlines() if "│" in line
    )
    return [[float(w) for w in words if w.replace(".", "", 1).replace("-", "", 1).isdigit()]]


FIT = ("--target", "y", "--model", "linear", "--how", "map", "--no-progress")
POSTERIOR = "good.safetensors"

#: the arguments of a command, the file that it writes, and the function that reads it
COMMANDS: dict[str, tuple[tuple[str, ...], str, Callable[[Outcome, Path], Any]]] = {
    "predict": (("predict", POSTERIOR, "TABLE", "--out", "new.csv"), "new.csv", _written),
    "fit": (("fit", "TABLE", *FIT, "--out", "fit.safetensors"), "fit.safetensors", _drawn),
    "calibrated": (
        ("predict", POSTERIOR, "clean.csv", "--calibration", "TABLE", "--out", "new.csv"),
        "new.csv",
        _written,
    ),
    "calibrate": (("calibrate", POSTERIOR, "TABLE", "--scores", "absolute"), ".out", _printed),
}


def campaign(seed: int, count: int, folder: Path) -> Counts:
    """Run the commands in turn on ``count`` hostile tables."""
    counts = Counts("hostile tables")
    desk = Desk(folder / "tables")
    for number, (table, name) in enumerate(
        zip(hostile.generated(seed, count), itertools.cycle(COMMANDS), strict=False)
    ):
        path = desk.folder / f"{number}.csv"
        path.write_bytes(table.content)
        found, figures = desk.read(name, path)
        judge(
            counts, f"{number}: {table.kind}, {name}", table, found, figures, desk.right[name], name
        )
    return counts


def judge(
    counts: Counts,
    case: str,
    table: hostile.Hostile,
    found: Outcome,
    figures: Any,
    right: Any,
    name: str,
) -> None:
    """Count the failures of one case."""
    counts.cases += 1
    fate = table.fate
    if fate == "target":
        fate = "same" if name == "predict" else "refused"
    how_it_ended(counts, case, found, (0, 2))
    if found.raw:
        return
    if found.code == 2 and (fate == "same" or "ppgp: " not in found.err):
        counts.add("wrong exit codes", case, f"2: {found.err[-300:]}")
    elif found.code == 0 and (fate == "refused" or not finite(figures)):
        counts.add("silent differences", case, f"exit 0 with {str(figures)[:200]}")
    elif found.code == 0 and fate in ("same", "either") and not alike(figures, right):
        counts.add("silent differences", case, f"{str(figures)[:200]} for {str(right)[:200]}")


def finite(figures: Any) -> bool:
    return figures is not None and all(math.isfinite(v) for row in figures for v in row)


def alike(ours: Any, theirs: Any) -> bool:
    """Return whether two tables of figures agree up to the effect of another order of rows."""
    if [len(row) for row in ours] != [len(row) for row in theirs]:
        return False
    pairs = zip(itertools.chain(*ours), itertools.chain(*theirs), strict=True)
    return all(math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-6) for a, b in pairs)
