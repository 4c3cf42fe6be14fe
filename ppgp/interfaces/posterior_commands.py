"""Commands that read a saved posterior: predict, calibrate and diagnose."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .. import files
from ..errors import SettingError
from .data_options import DropMissing
from .options import Level, Seed
from .recipe_options import split_names
from .tables import print_table

__all__ = ["calibrate", "diagnose", "predict"]

DropOfCalibration = Annotated[
    bool, typer.Option("--drop-missing", help="drop calibration rows with an empty cell")
]
TABLES = (".csv", ".parquet")  # formats of predictions


def predict(
    posterior: Annotated[Path, typer.Argument(help="a file that `ppgp fit` wrote")],
    data: Annotated[Path, typer.Argument(help="new rows: a .csv, .tsv or .parquet file")],
    calibration: Annotated[
        Path | None,
        typer.Option(help="a file of rows that are not training rows, with their target"),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="the target column of the calibration file (and of data, if it has one)"),
    ] = None,
    level: Level = 0.9,
    out: Annotated[Path, typer.Option(help="file to write, .csv or .parquet")] = Path(
        "predictions.csv"
    ),
    drop_missing: DropOfCalibration = False,
) -> None:
    """Predict new rows; with calibration rows, the intervals carry a guarantee.

    A new row with an empty cell keeps its place, and its prediction is empty.
    """
    from .posterior_tables import predicted_table

    files.check_file(out)
    # the table itself may go to the standard output; the messages then go to the standard error
    to_stream = files.is_stream(out)
    suffix = out.suffix.lower()
    if suffix not in TABLES and not to_stream:
        raise SettingError(
            f"a file to write that ends in {' or '.join(TABLES)}",
            str(out),
            "rename it: --out predictions.csv",
        )
    table, region = predicted_table(posterior, data, calibration, target, level, drop_missing)
    with files.replacing(out) as file:
        if suffix == ".parquet":
            table.to_parquet(file)
        else:
            table.to_csv(file, index=False)
    typer.echo(f"wrote: {out} ({len(table)} rows)", err=to_stream)
    if region is not None:
        typer.echo(f"guarantee: {region.guarantee}", err=to_stream)


def calibrate(
    posterior: Annotated[Path, typer.Argument(help="a file that `ppgp fit` wrote")],
    data: Annotated[
        Path, typer.Argument(help="rows that are not training rows, with their target")
    ],
    target: Annotated[
        str | None, typer.Option(help="the target column; default: that of the fit")
    ] = None,
    scores: Annotated[
        str | None, typer.Option(help="scores or recipes, comma-separated; see `ppgp list`")
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="a column of groups: the guarantee then holds in each")
    ] = None,
    level: Level = 0.9,
    seed: Seed = 0,
    drop_missing: DropMissing = False,
) -> None:
    """Calibrate several scores on half of the rows, and test their sets on the other half."""
    from ..posterior.loading import load_posterior
    from ..posterior.region import exact_level
    from .posterior_tables import known_rows
    from .score_comparison import ScoreComparison

    exact_level(level)
    fitted = load_posterior(posterior)
    name = target or str(fitted.data.target_name)
    rows = known_rows(data, fitted, (name, group), drop_missing)
    comparison = ScoreComparison(fitted, rows, name, group, seed)
    print_table(
        comparison.rows(split_names(scores or ""), level),
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
) -> None:
    """Report whether to trust a posterior: chains by their mixing, guides by importance weights."""
    from ..diagnostics.diagnosis import diagnose as diagnose_posterior
    from ..posterior.loading import load_posterior

    if out is not None:
        files.check_folder(out)
    fitted = load_posterior(posterior)
    other = None if reference is None else load_posterior(reference)
    diagnosis = diagnose_posterior(fitted, other)
    table = diagnosis.table
    key = next((c for c in ("r_hat", "shift") if c in table.columns), None)
    if key is not None:
        size: Any = table[key].astype(float).abs()
        table = table.loc[size.sort_values(ascending=False).index]
    rows = [{"site": site, **row} for site, row in table.head(worst).to_dict("index").items()]
    print_table(
        rows,
        f"{posterior.name}: {min(worst, len(table))} of {len(table)} scalars, the worst first",
    )
    for finding in diagnosis.findings:
        typer.echo(f"- {finding}")
    typer.echo(f"verdict: {diagnosis.verdict} ({diagnosis.reason})")
    if out is None:
        return
    from .. import plots

    for name, figure in plots.suited(fitted, other).items():
        files.write_figure(out / f"{name}.png", figure, dpi=130)
        typer.echo(f"figure: {out / name}.png")
