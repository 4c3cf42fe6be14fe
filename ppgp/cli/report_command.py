"""The command ``ppgp report``: the report of ``ppgp compare``, of posteriors that are saved."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import __version__, files
from ..errors import NotApplicable, SettingError
from ..runtime.levels import exact_level
from .data_options import MissingOfKnown, Sep, drops_rows, separator
from .options import Level, Progress
from .output import Json, print_json, print_table

if TYPE_CHECKING:
    from ..data.dataset import Dataset
    from ..posterior.averaging import Average
    from ..posterior.posterior import Posterior
    from ..tables.table_files import TableFile

__all__ = ["report", "rows_for_all"]


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
    missing: MissingOfKnown = "refuse",
    sep: Sep = None,
    progress: Progress = True,
    as_json: Json = False,
) -> None:
    """Write the report of `ppgp compare` for saved posteriors, without a fit.

    Chains (nuts) among them are the reference of the other posteriors of the same model and rows.
    """
    exact_level(level)
    drop_missing = drops_rows(missing)
    files.check_folder(out)
    named = _named(posteriors)
    for path in named.values():
        files.check_saved(path)
    test_file = _rows_file(test, sep)
    calibration_file = None
    if calibration is not None:
        calibration_file = _rows_file(calibration, sep)

    from ..diagnostics.comparison import compare as compare_posteriors
    from ..posterior.averaging import load_fitted
    from ..report.report import write_report
    from ..report.results_file import rows_of
    from ..runtime.progress import bar

    steps = len(named) + 2  # to load each, to compare, and to write
    with bar("report", steps, progress and sys.stderr.isatty()) as update:
        fits = {}
        for name, path in named.items():
            fits[name] = load_fitted(path)
            update(len(fits))
        _check_fits(fits)
        test_rows = rows_for_all(test_file, fits, target, drop_missing)
        calibration_rows = None
        rows_used = f"{test_rows.n} to test"
        if calibration_file is not None:
            calibration_rows = rows_for_all(calibration_file, fits, target, drop_missing)
            rows_used = f"{calibration_rows.n} to calibrate, {rows_used}"
        rows_of_all = {"test": test_rows, "calibration": calibration_rows}
        comparison = compare_posteriors(fits, **rows_of_all, level=level)
        update(steps - 1)
        names = _models_and_methods(fits)
        about = {"data": test, "level": level, "version": __version__, "split": rows_used}
        options = (comparison, fits, names, test_rows, "ppgp report")
        page, problems = write_report(out, *options, **about)
        update(steps)
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


def _models_and_methods(fits: Mapping[str, Posterior | Average]) -> dict[str, tuple[str, str]]:
    """Return the pair ``(model, method)`` of each posterior, which no other one has.

    Different models of one class are numbered, and so are fits by one method.
    """
    from ..diagnostics.choice_of_reference import same_model
    from ..posterior.averaging import Average

    pairs: dict[str, tuple[str, str]] = {}
    first_of_model: dict[str, Posterior | Average] = {}
    for name, fit in fits.items():
        known = (label for label, other in first_of_model.items() if same_model(fit, other))
        model = next(known, None)
        if model is None:
            own = fit if isinstance(fit, Average) else fit.model
            model = _unused(type(own).__name__, set(first_of_model))
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


def _check_fits(posteriors: Mapping[str, Posterior | Average]) -> None:
    """Check that rows of one table can be new rows of all posteriors.

    Raises:
        NotApplicable: If one is the fit of a user's program.
        SettingError: If the posteriors are fits of other targets, classes or input columns.
    """
    for name, posterior in posteriors.items():
        if not getattr(posterior.data, "is_table", False):
            do = "leave it out, and call ppgp.compare in Python"
            raise NotApplicable("fits to a table", f"a program in {name}", do)
    _same("one target", {name: fit.data.target_name for name, fit in posteriors.items()})
    _same("the same classes", {name: fit.data.classes for name, fit in posteriors.items()})
    columns = {
        name: tuple(sorted(fit.data.feature_names or ())) for name, fit in posteriors.items()
    }
    _same("the same input columns", columns)


def _same(what: str, found: Mapping[str, Any]) -> None:
    """Raise SettingError where the posteriors differ."""
    first, *others = found
    for other in others:
        if found[other] != found[first]:
            got = f"{_words(found[first])} of {first} and {_words(found[other])} of {other}"
            raise SettingError(f"posteriors of {what}", got, "report them in two calls")


def _words(found: Any) -> str:
    """Return what a posterior has, in words."""
    if isinstance(found, tuple):
        return ", ".join(map(str, found)) or "none"
    return repr(found)


def _rows_file(path: Path, sep: str | None) -> TableFile:
    """Return a file of rows with their target.

    Raises:
        SettingError: If it is the standard input.
    """
    from ..tables.table_files import STANDARD_INPUT, table_file

    if str(path) == STANDARD_INPUT:
        got = "the standard input"
        raise SettingError("a file of rows with their target", got, "write them to a file")
    return table_file(path, separator(sep))


def rows_for_all(
    file: TableFile,
    posteriors: Mapping[str, Posterior | Average],
    target: str | None,
    drop_missing: bool,
) -> Dataset:
    """Return the rows of a file that posteriors predict, with their targets.

    Args:
        file: The file.
        posteriors: The posteriors by name, for which ``_check_fits`` has passed.
        target: The target column; None: that of the fits.
        drop_missing: Whether to drop rows with a missing value.

    Raises:
        SettingError: If the target is an input.
        UnknownName: If a column is not in the file.
        DataError: If a row has a missing value and is not dropped.
    """
    from ..data.dataset import Dataset
    from ..data.new_rows import read
    from ..tables.wrong_rows import numbered
    from .posterior_tables import inputs_for, known_rows, known_targets

    first, *others = posteriors.values()
    name = str(target or first.data.target_name)
    frame = known_rows(file, first, (name, None), drop_missing)
    with numbered(frame.index.tolist()):
        rows, roles = read(inputs_for(frame, first, name), first.data)
        for other in others:  # such as known noise, which the first fit need not have
            roles = read(inputs_for(frame, other, name), other.data)[1] | roles
        return Dataset(
            rows,
            known_targets(frame, name, first),
            feature_names=first.data.feature_names,
            target_name=first.data.target_name,
            classes=first.data.classes,
            missing=first.data.missing,
            categorical=first.data.categorical,
            levels=first.data.levels,
            **roles,
        )
