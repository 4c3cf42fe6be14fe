"""Commands that read a saved posterior: predict, calibrate and diagnose."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import files
from ..errors import SettingError, counted
from ..recipes.parsing import recipe_of
from ..runtime.levels import exact_level
from .data_options import MissingOfKnown, Sep, drops_rows, separator
from .options import Level, Seed, complete_scores
from .output import Json, print_json, print_table, results
from .recipe_options import split_names

__all__ = ["calibrate", "diagnose", "predict"]

PARQUET = ".parquet"
TABLES = (".csv", PARQUET)  # formats of predictions
STANDARD = "-"  # the standard input, or output


def predict(
    posterior: Annotated[Path, typer.Argument(help="a file that `ppgp fit` wrote")],
    data: Annotated[Path, typer.Argument(help='new rows: a file, as `ppgp fit` takes it, or "-"')],
    calibration: Annotated[
        Path | None,
        typer.Option(help="a file of rows that are not training rows, with their target"),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="the target column of the calibration file (and of data, if it has one)"),
    ] = None,
    level: Level = 0.9,
    out: Annotated[
        Path,
        typer.Option(help='file to write, .csv or .parquet; "-": .csv on the standard output'),
    ] = Path("predictions.csv"),
    missing: Annotated[
        str, typer.Option(help='"refuse" calibration rows with an empty cell, or "drop" them')
    ] = "refuse",
    keep: Annotated[
        str,
        typer.Option(help="columns of the new rows to write too, comma-separated; --id is kept"),
    ] = "",
    sep: Sep = None,
    as_json: Json = False,
) -> None:
    """Predict new rows; with calibration rows, the intervals carry a guarantee.

    A new row with an empty cell keeps its place, and its prediction is empty. The names of the rows
    that `ppgp fit --id` has read are the first column. Parquet files, or a folder of them, go to a
    .parquet file in chunks; the same command after one that was stopped goes on where it was.
    """
    from ..tables.table_files import table_file

    exact_level(level)
    drop_missing = drops_rows(missing)
    printed = str(out) == STANDARD
    if not printed:
        files.check_file(out)
    # the table itself may go to the standard output; the messages then go to the standard error
    to_stream = printed or files.is_stream(out)
    suffix = out.suffix.lower()
    if suffix not in TABLES and not to_stream:
        raise SettingError(
            f"a file to write that ends in {' or '.join(TABLES)}",
            str(out),
            "rename it: --out predictions.csv",
        )
    files.check_saved(posterior)
    if calibration is not None and str(data) == str(calibration) == STANDARD:
        raise SettingError("one table on the standard input", "two", "name a file for one of them")
    known = None
    if calibration is not None:
        known = table_file(calibration, separator(sep))
    if sep is None and not to_stream and suffix == PARQUET and _is_parquet(data):
        _predict_file(
            (posterior, data, out, known, target, level, drop_missing, split_names(keep)),
            as_json,
        )
        return
    if data.is_dir() and any(data.glob("*.parquet")):
        do = "write to a .parquet file: --out predictions.parquet"
        raise SettingError("a file of new rows", f"the folder {data}", do)
    rows = table_file(data, separator(sep))

    from .posterior_tables import predicted_table

    table, region = predicted_table(
        posterior, rows, known, target, level, drop_missing, split_names(keep)
    )
    if not printed:
        _write_table(table, out)
    elif not as_json:
        typer.echo(table.to_csv(index=False, lineterminator="\n"), nl=False)
    if as_json:
        guarantee = None if region is None else region.guarantee
        rows = table.to_dict("records")
        print_json("predict", out=out, level=level, guarantee=guarantee, rows=rows)
        return
    place = "to the standard output" if printed else f"to {out}"
    typer.echo(f"wrote: {counted(len(table), 'row')} {place}", err=to_stream)
    if region is not None:
        typer.echo(f"guarantee: {region.guarantee}", err=to_stream)


def _is_parquet(data: Path) -> bool:
    """Return whether new rows are a Parquet file or a folder of them, which is read in chunks."""
    return data.suffix.lower() == PARQUET or data.is_dir()


def _predict_file(arguments: tuple[Any, ...], as_json: bool) -> None:
    """Predict from Parquet to Parquet, chunk by chunk, and say what was written."""
    from .posterior_tables import predicted_file

    written = predicted_file(*arguments, progress=sys.stderr.isatty() and not as_json)
    out, level = arguments[2], arguments[5]
    if as_json:
        from pyarrow import parquet

        rows = parquet.read_table(out).to_pylist()
        print_json("predict", out=out, level=level, guarantee=written.guarantee, rows=rows)
        return
    typer.echo(f"wrote: {counted(written.n, 'row')} to {out}")
    if written.guarantee is not None:
        typer.echo(f"guarantee: {written.guarantee}")


def _write_table(table: Any, out: Path) -> None:
    """Write a data frame as its suffix says."""
    with results(), files.replacing(out) as file:
        if out.suffix.lower() == ".parquet":
            table.to_parquet(file)
        else:
            table.to_csv(file, index=False)


def calibrate(
    posterior: Annotated[Path, typer.Argument(help="a file that `ppgp fit` wrote")],
    data: Annotated[
        Path, typer.Argument(help="rows that are not training rows, with their target")
    ],
    target: Annotated[
        str | None, typer.Option(help="the target column; default: that of the fit")
    ] = None,
    scores: Annotated[
        str | None,
        typer.Option(
            help="scores or recipes, comma-separated; see `ppgp list`",
            autocompletion=complete_scores,
        ),
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="a column of groups: the guarantee then holds in each")
    ] = None,
    level: Level = 0.9,
    seed: Seed = 0,
    missing: MissingOfKnown = "refuse",
    sep: Sep = None,
    as_json: Json = False,
) -> None:
    """Calibrate several scores on half of the rows, and test their sets on the other half."""
    from ..tables.table_files import table_file

    exact_level(level)
    drop_missing = drops_rows(missing)
    files.check_saved(posterior)
    for one in split_names(scores or ""):
        recipe_of("score", one)
    file = table_file(data, separator(sep))

    from ..posterior.averaging import load_fitted
    from .posterior_tables import known_rows
    from .score_comparison import ScoreComparison

    fitted = load_fitted(posterior)
    name = target or str(fitted.data.target_name)
    known = known_rows(file, fitted, (name, group), drop_missing)
    comparison = ScoreComparison(fitted, known, name, group, seed)
    rows = comparison.rows(split_names(scores or ""), level)
    if as_json:
        sizes = {"n_calibration": comparison.n_calibration, "n_test": comparison.n_test}
        print_json("calibrate", level=level, seed=seed, group=group, **sizes, rows=rows)
        return
    print_table(
        rows,
        f"{level:.0%} sets: {comparison.n_calibration} rows to calibrate, "
        f"{comparison.n_test} to test",
    )
    if not group:
        typer.echo(
            f"band: where the coverage of {comparison.n_test} test rows lies, nine times in ten; "
            "not known for scores that tie or have two sides"
        )


def diagnose(
    posterior: Annotated[Path, typer.Argument(help="a file that `ppgp fit` wrote")],
    worst: Annotated[int, typer.Option(help="how many scalars to show, the worst first")] = 12,
    out: Annotated[
        Path | None, typer.Option(help="folder for the figures that suit this kind of posterior")
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(help="another fit of the same model to judge this one by; also drawn"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Report whether to trust a posterior: chains by their mixing, guides by importance weights."""
    if worst < 1:
        do = "name how many scalars to show: --worst 12"
        raise SettingError("a whole number of at least 1 as --worst", str(worst), do)
    if out is not None:
        files.check_folder(out)
    files.check_saved(posterior)
    if reference is not None:
        files.check_saved(reference)

    from ..diagnostics.diagnosis import diagnose as diagnose_posterior
    from ..posterior.averaging import load_fitted
    from ..posterior.loading import load_posterior
    from ..posterior.units_of_draws import scale_of

    fitted = load_fitted(posterior)
    other = None if reference is None else load_posterior(reference)
    diagnosis = diagnose_posterior(fitted, other)
    table = diagnosis.worst_first
    summary = table.head(worst).to_dict("index")
    rows = [{"site": site, **row} for site, row in summary.items()]
    figures = [] if out is None else _write_figures(out, fitted, other)
    if as_json:
        verdict = {"verdict": diagnosis.verdict, "reason": diagnosis.reason}
        about = {"scalars": len(table), "findings": list(diagnosis.findings), "figures": figures}
        print_json("diagnose", **verdict, **about, rows=rows)
        return
    order = "the worst first"
    if table.columns[0] == "weight" and not {"r_hat", "shift"} & set(table.columns):
        order = "the largest weight first"
    shown = f"{min(worst, len(table))} of {len(table)} scalars, {order}"
    print_table(rows, f"{posterior.name}: {shown} ({scale_of('model', fitted.scaler)})")
    for finding in diagnosis.findings:
        typer.echo(f"- {finding}")
    typer.echo(f"verdict: {diagnosis.verdict} ({diagnosis.reason})")
    for figure in figures:
        typer.echo(f"figure: {figure}")


def _write_figures(out: Path, posterior: Any, other: Any) -> list[Path]:
    """Write the figures that suit a posterior to a folder, and return their paths."""
    from .. import plots

    paths = []
    for name, figure in plots.suited(posterior, other).items():
        paths.append(out / f"{name}.png")
        with results():
            files.write_figure(paths[-1], figure, dpi=130)
    return paths
