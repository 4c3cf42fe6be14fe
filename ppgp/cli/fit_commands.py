"""Commands that fit models: compare and fit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .. import __version__, files
from ..errors import NotApplicable, SettingError
from . import completion
from . import data_options as columns
from .json_output import Json, print_json
from .options import Level, Likelihood, Progress, Seed, Settings, Workers
from .output import results
from .recipe_options import (
    AUTO,
    advised_models,
    build_models_and_methods,
    methods_of_models,
    split_names,
    usual_models,
)
from .row_limits import warn_of_many_rows
from .signals import INTERRUPTED
from .tables import print_table

__all__ = ["compare", "fit"]

FRACTIONS = (0.6, 0.2, 0.2)  # of the rows: to fit, to calibrate, to test
USUAL_METHODS = "map,laplace,svi,nuts"
SUFFIX = ".safetensors"  # of a saved posterior


def compare(
    data: columns.Data,
    target: columns.Target = None,
    models: Annotated[
        str | None,
        typer.Option(
            help='names or recipes, comma-separated; see `ppgp list`; "auto": the Gaussian '
            "processes that suit the table, by ppgp.advise, and by map alone if others are slow",
            autocompletion=completion.models,
        ),
    ] = None,
    how: Annotated[
        str | None,
        typer.Option(
            help="methods, comma-separated; default: the model's own, as that of ngboost, or else "
            + USUAL_METHODS,
            autocompletion=completion.methods,
        ),
    ] = None,
    likelihood: Likelihood = None,
    level: Level = 0.9,
    out: Annotated[Path, typer.Option(help="folder of the report")] = Path("report"),
    seed: Seed = 0,
    settings: Settings = None,
    progress: Progress = True,
    workers: Workers = None,
    missing: columns.Missing = "refuse",
    drop_missing: columns.DropMissing = False,
    categories: columns.Categories = "refuse",
    dates: columns.Dates = "refuse",
    one_hot: columns.OneHot = "",
    drop: columns.Drop = "",
    sep: columns.Sep = None,
    coordinates: columns.Coordinates = "",
    noise_sd: columns.NoiseSd = None,
    offset: columns.Offset = None,
    trials: columns.Trials = None,
    weights: columns.Weights = None,
    groups: columns.Groups = "",
    ids: columns.Ids = None,
    classes: columns.Classes = "",
    as_json: Json = False,
) -> None:
    """Fit models by several methods, predict, calibrate, and report which posterior to trust."""
    from ..diagnostics.comparison import compare as compare_posteriors
    from ..inference.jobs import check_workers
    from ..posterior.region import exact_level
    from ..report.report import saved_if_it_fails, write_report
    from ..report.results_file import rows_of
    from .model_method_grid import fit_grid

    exact_level(level)
    check_workers(workers)
    files.check_folder(out)
    roles = {
        "noise_sd": noise_sd,
        "offset": offset,
        "trials": trials,
        "weights": weights,
        "ids": ids,
    }
    cells = columns.treatment_of_blanks(missing, drop_missing)
    table = columns.load_table(
        data,
        target,
        cells,
        categories,
        coordinates,
        groups,
        roles,
        classes,
        dates,
        sep,
        one_hot,
        drop,
    )
    train, calibration, test = table.split(*FRACTIONS, seed=seed)
    if models == AUTO:
        plan = advised_models(train, likelihood, how, USUAL_METHODS)
    else:
        names_of_models = split_names(models or "") or usual_models(table, likelihood)
        plan = methods_of_models(names_of_models, how, USUAL_METHODS, train.n)
    methods = list(dict.fromkeys(name for names in plan.values() for name in names))
    built_models, built_methods = build_models_and_methods(
        [*plan], methods, settings or [], likelihood, table.groups or ()
    )
    warn_of_many_rows(built_models, train)
    pairs = [(name, method) for name, of_model in plan.items() for method in of_model]
    posteriors, names, refused, interrupted = fit_grid(
        built_models, built_methods, pairs, train, seed, progress, workers
    )
    if not posteriors:
        raise NotApplicable(
            "at least one model and method that fit together", "; ".join(refused), "see `ppgp list`"
        )
    with saved_if_it_fails(out, posteriors):
        comparison = compare_posteriors(posteriors, test=test, calibration=calibration, level=level)
    split = f"{train.n} to fit, {calibration.n} to calibrate, {test.n} to test"
    about = {
        "data": data,
        "level": level,
        "seed": seed,
        "version": __version__,
        "split": split,
    }
    page, problems = write_report(out, comparison, posteriors, names, test, **about)
    rows = rows_of(comparison, posteriors, names)
    if as_json:
        print_json("compare", **about, report=page, not_run=refused, rows=rows)
    else:
        print_table(rows, f"{data}: {split}; {level:.0%} intervals")
        typer.echo(f"report: {page}")
    for reason in refused:
        typer.echo(f"not run: {columns.in_the_shell(reason)}", err=True)
    for problem in problems:
        typer.echo(f"not written: {problem}", err=True)
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if problems:
        raise typer.Exit(1)


def fit(
    data: columns.Data,
    target: columns.Target = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="a name or recipe; see `ppgp list`; default: gp for numbers, or sgpr for more "
            "than 5,000 rows; logistic for two classes, softmax for more",
            autocompletion=completion.models,
        ),
    ] = None,
    how: Annotated[
        str | None,
        typer.Option(
            help="a method; default: the model's own, or nuts, or for many rows laplace",
            autocompletion=completion.methods,
        ),
    ] = None,
    likelihood: Likelihood = None,
    out: Annotated[Path, typer.Option(help="file to save the posterior in")] = Path(
        "posterior.safetensors"
    ),
    seed: Seed = 0,
    settings: Settings = None,
    progress: Progress = True,
    missing: columns.Missing = "refuse",
    drop_missing: columns.DropMissing = False,
    categories: columns.Categories = "refuse",
    dates: columns.Dates = "refuse",
    one_hot: columns.OneHot = "",
    drop: columns.Drop = "",
    sep: columns.Sep = None,
    coordinates: columns.Coordinates = "",
    right_censored: columns.RightCensored = None,
    noise_sd: columns.NoiseSd = None,
    offset: columns.Offset = None,
    trials: columns.Trials = None,
    weights: columns.Weights = None,
    groups: columns.Groups = "",
    ids: columns.Ids = None,
    classes: columns.Classes = "",
    as_json: Json = False,
) -> None:
    """Fit one model by one method and save the posterior.

    After Ctrl-C, the partial posterior is saved in NAME.partial.safetensors.
    """
    from ..inference.fitting.fit import fit as fit_posterior
    from ..posterior.summary import cut_short

    _check_place(out)
    roles = {
        "noise_sd": noise_sd,
        "offset": offset,
        "trials": trials,
        "weights": weights,
        "ids": ids,
        "right_censored": right_censored,
    }
    cells = columns.treatment_of_blanks(missing, drop_missing)
    table = columns.load_table(
        data,
        target,
        cells,
        categories,
        coordinates,
        groups,
        roles,
        classes,
        dates,
        sep,
        one_hot,
        drop,
    )
    model = model or usual_models(table, likelihood)[0]
    method = how or methods_of_models([model], None, "nuts", table.n)[model][0]
    models, methods = build_models_and_methods(
        [model], [method], settings or [], likelihood, table.groups or ()
    )
    warn_of_many_rows(models, table)
    posterior = fit_posterior(models[model], table, methods[method], seed=seed, progress=progress)
    interrupted = cut_short(posterior.stats)
    title = f"{model} by {method}, {posterior.seconds:.1f} s (data units)"
    if interrupted:
        title += ", interrupted"
    table_of_sites = posterior.summary("data")
    if posterior.shape == (1, 1):  # one point has no spread
        table_of_sites = table_of_sites[["mean"]].rename(columns={"mean": "value"})
    summary = table_of_sites.to_dict("index")
    rows = [{"site": site, **row} for site, row in summary.items()]
    if not as_json:
        print_table(rows, title)
    saved = out.with_name(f"{out.stem}.partial{out.suffix}") if interrupted else out
    with results():
        posterior.save(saved)
    if as_json:
        about = {"data": data, "n": table.n, "model": model, "how": method, "seed": seed}
        run = {"seconds": posterior.seconds, "interrupted": interrupted, "saved": saved}
        print_json("fit", **about, **run, warnings=posterior.warnings, rows=rows)
    elif interrupted:
        typer.echo(f"the fit was interrupted; its partial posterior: {saved}")
    else:
        typer.echo(f"saved: {saved}")
    if interrupted:
        raise typer.Exit(INTERRUPTED)


def _check_place(out: Path) -> None:
    """Check, before the work, that a posterior can be saved in a file.

    Raises:
        SettingError: For the standard output, and for a suffix of another format.
        StorageError: If the file cannot be written.
    """
    wanted = "a file to save the posterior in"
    if str(out) == "-":
        do = f"name a file: --out posterior{SUFFIX}"
        raise SettingError(wanted, "the standard output", do)
    files.check_file(out)
    if out.suffix.lower() not in ("", SUFFIX) and not files.is_stream(out):
        do = f"rename it: --out {out.stem}{SUFFIX}"
        raise SettingError(f"{wanted} that ends in {SUFFIX}", str(out), do)
