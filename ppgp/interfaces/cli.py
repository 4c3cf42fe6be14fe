"""The command line: ``ppgp compare | fit | predict | calibrate | diagnose | reproduce | list``. Torch is imported only once a command needs it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import __version__, files
from ..errors import DataError, NotApplicable, PpgpError, SettingError, UnknownName, listed
from . import recipes as zoo
from .output import whole_output
from .signals import INTERRUPTED, one_way_out
from .tables import print_table

if TYPE_CHECKING:
    from ..data.dataset import Dataset

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Gaussian processes and Bayesian regression in Pyro: fit any way, see which answer to trust, get intervals with a guarantee.",
)

FRACTIONS = (0.6, 0.2, 0.2)
TABLES = (".csv", ".parquet")  # what predictions are written as

Data = Annotated[
    str,
    typer.Argument(
        help="a name (diabetes, breast_cancer, openml:NAME, ...) or a .csv, .tsv or .parquet file"
    ),
]
Target = Annotated[str | None, typer.Option(help="the column that is y; needed for a file")]
Level = Annotated[float, typer.Option(help="level of the intervals, in (0, 1)")]
Seed = Annotated[int, typer.Option(help="every random number comes from it")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="an option of a model or method, numbers in the units of the data: kernel.lengthscale=2, nuts.draws=200, noise='LogNormal(0, 1)'",
    ),
]
Progress = Annotated[bool, typer.Option(help="show progress bars")]


@app.callback(invoke_without_command=True)
def _about(
    version: Annotated[bool, typer.Option("--version", help="print the version and stop")] = False,
) -> None:
    if version:
        typer.echo(f"ppgp {__version__}")
        raise typer.Exit


def _names(text: str) -> list[str]:
    """A comma-separated list in which commas inside brackets belong to a recipe."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([") - (c in ")]")
        if c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return list(dict.fromkeys(p.strip() for p in [*parts, text[start:]] if p.strip()))


def _recipes(
    models: list[str], hows: list[str], settings: list[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The records named, with ``--set`` applied to each that has the option; ``name.option`` applies to that one alone."""
    built = {name: zoo.build_model(name) for name in models}
    ways = {name: zoo.build_how(name) for name in hows}
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise SettingError(
                "--set option=value", repr(setting), "for example --set kernel.lengthscale=2"
            )
        head, _, rest = path.partition(".")
        taken, refused = 0, None
        for group in (built, ways):
            for name in group:
                try:
                    group[name] = zoo.changed(
                        group[name], rest if rest and head == name else path, text
                    )
                    taken += 1
                except UnknownName as error:
                    refused = error
        if not taken and refused is not None:
            raise refused
    return built, ways


def _load(data: str, target: str | None) -> Dataset:
    from ..data.loading import load

    return load(data, target)


@app.command()
def compare(
    data: Data,
    target: Target = None,
    models: Annotated[
        str | None, typer.Option(help="names or recipes, comma-separated; see `ppgp list`")
    ] = None,
    how: Annotated[str, typer.Option(help="methods, comma-separated")] = "map,laplace,svi,nuts",
    level: Level = 0.9,
    out: Annotated[Path, typer.Option(help="folder of the report")] = Path("report"),
    seed: Seed = 0,
    settings: Settings = None,
    progress: Progress = True,
) -> None:
    """Fit models by several methods, predict, calibrate, and say which answer to trust."""
    from ..diagnostics.comparison import compare as compare_posteriors
    from ..posterior.region import exact_level
    from .fitting_each import each_by_each
    from .report import rows_of, write_report

    exact_level(level)
    files.check_folder(out)
    table = _load(data, target)
    chosen = _names(models) if models else (["logistic"] if table.classes else ["gp", "linear"])
    built, ways = _recipes(chosen, _names(how), settings or [])
    train, calibration, test = table.split(*FRACTIONS, seed=seed)
    posteriors, names, refused, interrupted = each_by_each(built, ways, train, seed, progress)
    if not posteriors:
        raise NotApplicable(
            "at least one model and method that fit together", "; ".join(refused), "see `ppgp list`"
        )
    comparison = compare_posteriors(posteriors, test=test, calibration=calibration, level=level)
    about = {
        "data": data,
        "rows": f"{train.n} to fit, {calibration.n} to calibrate, {test.n} to test",
        "level": level,
        "seed": seed,
        "version": __version__,
    }
    about["split"] = about.pop("rows")
    page, problems = write_report(out, comparison, posteriors, names, test, **about)
    print_table(
        rows_of(comparison, posteriors, names), f"{data}: {about['split']}; {level:.0%} intervals"
    )
    for sentence in refused:
        typer.echo(f"not run: {sentence}", err=True)
    typer.echo(f"report: {page}")
    for sentence in problems:
        typer.echo(f"not written: {sentence}", err=True)
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if problems:
        raise typer.Exit(1)


@app.command()
def fit(
    data: Data,
    target: Target = None,
    model: Annotated[str, typer.Option(help="a name or recipe; see `ppgp list`")] = "gp",
    how: Annotated[str, typer.Option(help="a method")] = "nuts",
    out: Annotated[Path, typer.Option(help="file to save the posterior in")] = Path(
        "posterior.safetensors"
    ),
    seed: Seed = 0,
    settings: Settings = None,
    progress: Progress = True,
) -> None:
    """Fit one model by one method and save the posterior; after Ctrl-C, in NAME.partial.safetensors."""
    from ..inference.fitting import fit as fit_posterior
    from ..posterior.summary import cut_short

    files.check_file(out)
    table = _load(data, target)
    built, ways = _recipes([model], [how], settings or [])
    posterior = fit_posterior(built[model], table, ways[how], seed=seed, progress=progress)
    stopped = cut_short(posterior.stats)
    print_table(
        [{"site": site, **row} for site, row in posterior.summary().to_dict("index").items()],
        f"{model} by {how}, {posterior.seconds:.1f} s" + (", interrupted" if stopped else ""),
    )
    if not stopped:
        typer.echo(f"saved: {posterior.save(out)}")
        return
    partial = posterior.save(out.with_name(f"{out.stem}.partial{out.suffix}"))
    typer.echo(f"stopped before its end; what there is: {partial}")
    raise typer.Exit(INTERRUPTED)


@app.command()
def predict(
    posterior: Annotated[Path, typer.Argument(help="a file that `ppgp fit` wrote")],
    data: Annotated[Path, typer.Argument(help="new rows: a .csv, .tsv or .parquet file")],
    calibration: Annotated[
        Path | None,
        typer.Option(help="a file with rows that the fit has not seen, and their target"),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="the target column of the calibration file (and of data, if it has one)"),
    ] = None,
    level: Level = 0.9,
    out: Annotated[Path, typer.Option(help="file to write, .csv or .parquet")] = Path(
        "predictions.csv"
    ),
) -> None:
    """Predict new rows; with calibration rows, the intervals carry a guarantee."""
    import pandas as pd

    from ..conformal import LAC, Normalized, calibrate
    from ..data.loading import read_frame
    from ..posterior.loading import load_posterior

    files.check_file(out)
    aside = files.is_stream(out)  # the table itself may stand on the standard output
    suffix = out.suffix.lower()
    if suffix not in TABLES and not aside:
        raise SettingError(
            f"a file to write that ends in {' or '.join(TABLES)}",
            str(out),
            "rename it: --out predictions.csv",
        )
    fitted = load_posterior(posterior)
    name = target or fitted.data.target_name
    prediction = fitted.predict(_inputs(read_frame(data), fitted, name))
    classes = prediction.kind == "classes"
    region = None if classes else prediction.interval(level)
    if calibration is not None:
        known = read_frame(calibration)
        if name not in known.columns:
            raise UnknownName("target column", str(name), map(str, known.columns))
        score = LAC() if classes else Normalized()
        region = calibrate(
            score, fitted.predict(_inputs(known, fitted, name)), _targets(known[name], fitted)
        )(prediction, level=level)
    if classes:
        labels = fitted.data.classes or (0, 1)
        table = pd.DataFrame(
            prediction.probabilities.numpy(), columns=[f"p({label})" for label in labels]
        )
        if region is not None and region.labels is not None:
            table["set"] = [
                " ".join(str(labels[k]) for k, kept in enumerate(row) if kept)
                for row in region.labels.tolist()
            ]
    else:
        assert region is not None
        lower, upper = region
        table = pd.DataFrame(
            {"mean": prediction.mean, "sd": prediction.std, "lower": lower, "upper": upper}
        )
    with files.replacing(out) as file:
        table.to_parquet(file) if suffix == ".parquet" else table.to_csv(file, index=False)
    typer.echo(f"wrote: {out} ({len(table)} rows)", err=aside)
    if region is not None:
        typer.echo(f"guarantee: {region.guarantee}", err=aside)


def _inputs(frame: Any, fitted: Any, *others: str | None) -> Any:
    """What a fit predicts from: of a fit with names its own columns, whatever else the file holds; else all but the ``others``."""
    from ..data.columns import numeric

    names = fitted.data.feature_names
    if not names:
        return numeric(frame[[c for c in frame.columns if c not in others]]).to_numpy(dtype=float)
    heads = {name.partition("=")[0] for name in names}
    return frame[[c for c in frame.columns if str(c) in heads or str(c) in names]]


def _targets(column: Any, fitted: Any) -> Any:
    """A target column as numbers; labels as the codes of the fit."""
    from ..data.arrays import as_tensor

    classes = fitted.data.classes
    if classes is None or set(column) <= set(range(len(classes))):
        values = as_tensor(column.to_numpy(), f"column {column.name}").numpy()
        bad = [row for row, value in enumerate(values.tolist()) if not math.isfinite(value)]
        if bad:
            got = f"NaN or infinity in {listed(bad, 'row')} of column {column.name}"
            raise DataError("finite targets", got, "drop those rows")
        return values
    known = {str(label): code for code, label in enumerate(classes)}
    strange = sorted({str(v) for v in column} - set(known))
    if strange:
        raise DataError(
            f"labels among {', '.join(known)}",
            ", ".join(strange[:5]),
            "the fit has never seen them: drop those rows",
        )
    return column.map(lambda v: known[str(v)]).to_numpy(dtype=float)


@app.command()
def calibrate(
    posterior: Annotated[Path, typer.Argument(help="a file that `ppgp fit` wrote")],
    data: Annotated[Path, typer.Argument(help="rows that the fit has not seen, with their target")],
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
) -> None:
    """Calibrate on half of the rows by several scores, and say on the other half what each delivers."""
    import numpy as np
    import torch

    from .. import conformal
    from ..data.loading import read_frame
    from ..diagnostics import metrics
    from ..posterior.loading import load_posterior
    from ..posterior.region import exact_level

    exact_level(level)
    fitted, frame = load_posterior(posterior), read_frame(data)
    name = target or str(fitted.data.target_name)
    for column in [name, *([group] if group else [])]:
        if column not in frame.columns:
            raise UnknownName("column", str(column), map(str, frame.columns))
    order = torch.randperm(len(frame), generator=torch.Generator().manual_seed(seed)).numpy()
    halves = order[: len(frame) // 2], order[len(frame) // 2 :]
    inputs, targets = (
        _inputs(frame, fitted, name, group),
        _targets(frame[name], fitted),
    )  # whose errors name rows of the file
    ours, new = (
        fitted.predict(inputs[rows] if isinstance(inputs, np.ndarray) else inputs.iloc[rows])
        for rows in halves
    )
    y, truth = (targets[rows] for rows in halves)
    labels = [frame[group].to_numpy()[rows] if group else None for rows in halves]
    default = (
        "lac,aps,raps"
        if new.kind == "classes"
        else "absolute,normalized,signed,quantile,pit,density"
    )
    rows: list[dict[str, Any]] = []
    if new.kind != "classes":
        own = new.interval(level)
        rows.append(
            {
                "score": "(the model's own)",
                "coverage": metrics.coverage(own, truth),
                "width": metrics.mean_width(own),
            }
        )
        rows[0] |= {"infinite": 0.0, "empty": 0.0, "guaranteed": own.guarantee}
    for recipe in _names(scores or default):
        region = conformal.calibrate(zoo.build_score(recipe), ours, y, groups=labels[0])(
            new, level=level, groups=labels[1]
        )
        rows.append(
            {
                "score": recipe,
                "coverage": metrics.coverage(region, truth),
                "width": metrics.mean_width(region),
                "infinite": float(region.infinite.double().mean()),
                "empty": float(region.empty.double().mean()),
                "guaranteed": region.guarantee,
            }
        )
    print_table(rows, f"{level:.0%} sets: {len(y)} rows to calibrate, {len(truth)} to test")
    if not group:
        low, high = conformal.calibrate(
            zoo.build_score("lac" if new.kind == "classes" else "absolute"), ours, y
        ).coverage_band(level, 0.9, len(truth))
        typer.echo(
            f"at {level:.0%} the coverage of {len(truth)} test rows lies in {low:.3f} .. {high:.3f}, nine times in ten"
        )


@app.command()
def diagnose(
    posterior: Annotated[Path, typer.Argument(help="a file that `ppgp fit` wrote")],
    worst: Annotated[int, typer.Option(help="how many scalars to show, the worst first")] = 12,
    out: Annotated[
        Path | None, typer.Option(help="folder for the figures that suit this kind of posterior")
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(help="another fit of the model, to judge it by and draw the marginals over"),
    ] = None,
) -> None:
    """Say whether to believe a posterior: chains by their mixing, guides by importance weights."""
    from ..diagnostics.diagnosis import diagnose as diagnose_posterior
    from ..posterior.loading import load_posterior

    if out is not None:
        files.check_folder(out)
    fitted = load_posterior(posterior)
    other = None if reference is None else load_posterior(reference)
    found = diagnose_posterior(fitted, other)
    table = found.table
    key = next((c for c in ("r_hat", "shift") if c in table.columns), None)
    if key is not None:
        table = table.reindex(table[key].astype(float).abs().sort_values(ascending=False).index)  # type: ignore[call-overload]
    rows = [{"site": site, **row} for site, row in table.head(worst).to_dict("index").items()]
    print_table(
        rows,
        f"{posterior.name}: {min(worst, len(found.table))} of {len(found.table)} scalars, the worst first",
    )
    for sentence in found.findings:
        typer.echo(f"- {sentence}")
    typer.echo(f"verdict: {found.verdict} ({found.figure})")
    if out is None:
        return
    from .. import plots

    for name, figure in plots.suited(fitted, other).items():
        files.write_figure(out / f"{name}.png", figure, dpi=130)
        typer.echo(f"figure: {out / name}.png")


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def reproduce(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="an experiment; see `ppgp list`")],
    out: Annotated[
        Path | None, typer.Option(help="folder for results.json and figures; default: the name")
    ] = None,
    seed: Seed = 0,
    quick: Annotated[
        bool, typer.Option("--quick", help="a small version, to see that it runs")
    ] = False,
) -> None:
    """Run a published experiment again and print its table. Some have options of their own: uci takes --data-dir, --sets, --splits, --models."""
    from ..experiments import experiment, options_of
    from .report import write_results

    run = experiment(name)
    folder = files.check_folder(out or Path(name))
    options = options_of(run, context.args)
    rows = run(folder, seed=seed, quick=quick, **options)
    path = write_results(
        folder, rows, experiment=name, seed=seed, quick=quick, version=__version__, **options
    )
    print_table(rows, name)
    typer.echo(f"results: {path}")


@app.command(name="list")
def list_members() -> None:
    """The models, methods and experiments that go by a name."""
    from ..experiments import EXPERIMENTS

    for title, members in (
        ("models", zoo.MODELS),
        ("methods (--how)", zoo.HOWS),
        ("scores (--scores)", zoo.SCORES),
    ):
        print_table(
            [{"name": n, "recipe": r, "what it is": w} for n, (r, w) in members.items()], title
        )
    print_table(
        [{"name": n, "what it shows": w} for n, (_, w) in EXPERIMENTS.items()],
        "experiments (ppgp reproduce)",
    )


def main() -> None:
    """Run the command line; a mistake of the user's is one sentence and exit code 2; Ctrl-C is 130, SIGTERM 143."""
    import warnings

    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"  # type: ignore[assignment]
    with one_way_out():
        try:
            with whole_output():
                app()
        except PpgpError as error:
            typer.echo(f"ppgp: {error}", err=True)
            raise SystemExit(2) from None
