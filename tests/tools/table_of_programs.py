"""The table of the documentation of what the methods do with programs of Pyro's users.

``python tests/tools/table_of_programs.py`` fits every program of ``tests/programs_of_users.py``,
which takes some hours, and prints the table. With ``--write`` it replaces the one in
docs/programs.md. Names behind it choose programs: their rows are printed, or with ``--write``
replaced, each as soon as it is there, and the others stay. Any error that is not one of the library
ends the run.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyro
import tables_of_docs

import ppgp
from ppgp.errors import PpgpError
from ppgp.inference import MAP, NUTS, SVI, Inference, Laplace

sys.path.append(str(Path(__file__).parents[1]))

from programs_of_users import IN_ORDER, PROGRAMS, UsersProgram

NAME = "programs"  # of the marks in the documentation
OK = "ok"
METHODS: Mapping[str, Inference] = {
    "MAP": MAP(),
    "Laplace": Laplace(draws=1000),
    "SVI": SVI(draws=1000),
    "NUTS": NUTS(draws=1000, warmup=1000, chains=4),
}
QUICK: Mapping[str, Inference] = {
    "MAP": MAP(steps=30),
    "Laplace": Laplace(draws=20),
    "SVI": SVI(steps=30, draws=20),
    "NUTS": NUTS(draws=15, warmup=30, chains=1),
}
AFTER: Mapping[str, Callable[[Any, UsersProgram], Any]] = {
    "predict": lambda posterior, users: posterior.predict(**users.of_a_prediction),
    "loo": lambda posterior, users: ppgp.psis_loo(posterior),
    "ArviZ": lambda posterior, users: posterior.to_arviz(),
}
COLUMNS = ("kind", *METHODS, *AFTER)


def sentence(error: PpgpError) -> str:
    """Return the text of an error in one line."""
    return " ".join(str(error).split())


def outcomes(
    name: str, methods: Mapping[str, Inference], judged: bool = True, seed: int = 0
) -> dict[str, str]:
    """Return the row of a program: ``{column: "ok", a verdict or a sentence}``.

    Args:
        name: Of the program.
        methods: ``{name: method}``; predictions and what follows use the last that fits.
        judged: Whether the cell of a method is what ``compare`` says of it beside NUTS.
        seed: Of the fits.
    """
    with pyro.get_param_store().scope():  # a module of pyro.contrib.gp puts its params there
        return _outcomes(name, methods, judged, seed)


def _outcomes(
    name: str, methods: Mapping[str, Inference], judged: bool, seed: int
) -> dict[str, str]:
    kind, make = PROGRAMS[name]
    users = make()
    row, posteriors = {"kind": kind}, {}
    for method, how in methods.items():
        if isinstance(how, SVI) and users.guide is not None:
            how = replace(how, guide=users.guide)
        try:
            posteriors[method] = ppgp.fit(
                users.program, users.arguments, how, seed=seed, progress=False
            )
            row[method] = OK
        except PpgpError as error:
            row[method] = sentence(error)
    if judged and "NUTS" in posteriors:
        row |= verdicts({method: in_order(name, fit) for method, fit in posteriors.items()})
    for what, do in AFTER.items():
        try:
            do(list(posteriors.values())[-1], users)
            row[what] = OK
        except PpgpError as error:
            row[what] = sentence(error)
        except IndexError:
            row[what] = "no fit"
    return row


def in_order(name: str, posterior: Any) -> Any:
    """Return a posterior with its labels in an order, where labels can be exchanged."""
    if name not in IN_ORDER:
        return posterior
    return replace(posterior, draws=IN_ORDER[name](posterior.draws))


def verdicts(posteriors: Mapping[str, Any]) -> dict[str, str]:
    """Return what ``compare`` says of each posterior beside that of NUTS; "ok" for "agrees"."""
    try:
        found = ppgp.compare(dict(posteriors), reference="NUTS")
    except PpgpError as error:
        return {name: f"fits, {sentence(error)}" for name in posteriors if name != "NUTS"}
    cells = {}
    for name, word in found.verdicts.items():
        if name == "NUTS":
            continue
        # the first difference, without the advice on it
        reason = found.reasons.get(name, "").partition("; ")[0].partition(": the chains")[0]
        cells[name] = OK if word == "agrees" else f"{word}: {reason}"
    return cells


def is_refused(cell: str) -> bool:
    """Return whether a cell is the sentence of an error rather than "ok" or a verdict."""
    return cell.startswith("expected")


def table(rows: Mapping[str, Mapping[str, str]]) -> str:
    """Return the table as Markdown."""
    lines = [f"| program | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name, row in rows.items():
        title = name.replace("_", " ")
        cells = [row[column].replace("|", "\\|") for column in COLUMNS]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    warnings.simplefilter("ignore")
    chosen = [word for word in sys.argv[1:] if not word.startswith("--")]
    methods = QUICK if "--quick" in sys.argv else METHODS
    write = "--write" in sys.argv
    rows = tables_of_docs.rows_of(tables_of_docs.in_docs(NAME)) if write else {}
    for name in chosen or PROGRAMS:
        begun = time.perf_counter()
        rows[name] = outcomes(name, methods, judged=methods is METHODS)
        print(name, f"{time.perf_counter() - begun:.1f} s", rows[name], file=sys.stderr, flush=True)
        if write:  # a run that is broken off keeps what it has
            tables_of_docs.show(
                NAME, table({name: rows[name] for name in PROGRAMS if name in rows})
            )
    if not write:
        print(table(rows), end="")


if __name__ == "__main__":
    main()
