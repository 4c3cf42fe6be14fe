"""The command ``ppgp report``: the report of ``ppgp compare``, of posteriors that are saved."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .. import __version__, files
from ..errors import SettingError
from .data_options import DropMissing, Sep, separator
from .json_output import Json, print_json
from .options import Level
from .tables import print_table

if TYPE_CHECKING:
    from ..posterior.posterior import Posterior

__all__ = ["report"]


def report(
    posteriors: Annotated[list[Path], typer.Argument(help="files that `ppgp fit` wrote")],
    test: Annotated[
        Path, typer.Option(help="a file of rows that are not training rows, with their target")
    ],
    calibration: Annotated[
        Path | None,
        typer.Option(help="a file of further such rows, for conformal sets with a guarantee"),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="the target column; default: that of the fits")
    ] = None,
    level: Level = 0.9,
    out: Annotated[Path, typer.Option(help="folder of the report")] = Path("report"),
    drop_missing: DropMissing = False,
    sep: Sep = None,
    as_json: Json = False,
) -> None:
    """Write the report of `ppgp compare` for saved posteriors, without a fit.

    Chains (nuts) among them are the reference of the other posteriors of the same model and rows.
    """
    from ..diagnostics.comparison import compare as compare_posteriors
    from ..posterior.loading import load_posterior
    from ..posterior.region import exact_level
    from ..report.report import write_report
    from ..report.results_file import rows_of
    from .rows_of_posteriors import check_fits, rows_for_all

    exact_level(level)
    files.check_folder(out)
    fits = {name: load_posterior(path) for name, path in _named(posteriors).items()}
    check_fits(fits)
    test_rows = rows_for_all(test, fits, target, drop_missing, separator(sep))
    calibration_rows = None
    rows_used = f"{test_rows.n} to test"
    if calibration is not None:
        calibration_rows = rows_for_all(calibration, fits, target, drop_missing, separator(sep))
        rows_used = f"{calibration_rows.n} to calibrate, {rows_used}"
    comparison = compare_posteriors(fits, test=test_rows, calibration=calibration_rows, level=level)
    names = _models_and_methods(fits)
    about = {"data": test, "level": level, "version": __version__, "split": rows_used}
    page, problems = write_report(out, comparison, fits, names, test_rows, "ppgp report", **about)
    rows = rows_of(comparison, fits, names)
    if as_json:
        print_json("report", **about, report=page, rows=rows)
    else:
        print_table(rows, f"{test}: {rows_used}; {level:.0%} intervals")
        typer.echo(f"report: {page}")
    for problem in problems:
        typer.echo(f"not written: {problem}", err=True)
    if problems:
        raise typer.Exit(1)


def _named(paths: list[Path]) -> dict[str, Path]:
    """Return the files by the names of their posteriors: that of the file, or of its path.

    Raises:
        SettingError: If a file is given twice.
    """
    for path in paths:
        if paths.count(path) > 1:
            raise SettingError("each posterior once", f"{path} twice", "leave one out")
    stems = [path.stem for path in paths]
    return {
        path.stem if stems.count(path.stem) == 1 else str(path.with_suffix("")): path
        for path in paths
    }


def _models_and_methods(fits: Mapping[str, Posterior]) -> dict[str, tuple[str, str]]:
    """Return the pair ``(model, method)`` of each posterior, which no other one has.

    Different models of one class are numbered, and so are fits by one method.
    """
    from ..diagnostics.choice_of_reference import same_model

    pairs: dict[str, tuple[str, str]] = {}
    first_of_model: dict[str, Posterior] = {}
    for name, fit in fits.items():
        known = (label for label, other in first_of_model.items() if same_model(fit, other))
        model = next(known, None)
        if model is None:
            model = _unused(type(fit.model).__name__, set(first_of_model))
            first_of_model[model] = fit
        methods = {method for label, method in pairs.values() if label == model}
        pairs[name] = model, _unused(type(fit.how).__name__, methods)
    return pairs


def _unused(name: str, used: set[str]) -> str:
    """Return a name, with a number if it is used already."""
    number, found = 1, name
    while found in used:
        number += 1
        found = f"{name} {number}"
    return found
