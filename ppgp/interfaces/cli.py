"""The command line: ``ppgp compare | fit | predict | calibrate | diagnose | reproduce | list``.

Commands import torch when they run, so that ``ppgp --help`` is quick.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .. import __version__, files
from ..errors import NotApplicable, PpgpError
from . import data_options as columns
from .lists import named_members
from .options import Level, Likelihood, Progress, Seed, Settings
from .output import whole_output
from .posterior_commands import calibrate, diagnose, predict
from .recipe_options import (
    AUTO,
    advised_models,
    build_models_and_methods,
    methods_of_models,
    split_names,
    usual_models,
)
from .signals import INTERRUPTED, exit_on_signals
from .tables import print_table

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Gaussian processes and Bayesian regression in Pyro: fit by any method, see which "
    "posterior to trust, get intervals with a guarantee.",
)

FRACTIONS = (0.6, 0.2, 0.2)  # of the rows: to fit, to calibrate, to test
USUAL_METHODS = "map,laplace,svi,nuts"


@app.callback(invoke_without_command=True)
def _about(
    version: Annotated[bool, typer.Option("--version", help="print the version and stop")] = False,
) -> None:
    if version:
        typer.echo(f"ppgp {__version__}")
        raise typer.Exit


@app.command()
def compare(
    data: columns.Data,
    target: columns.Target = None,
    models: Annotated[
        str | None,
        typer.Option(
            help='names or recipes, comma-separated; see `ppgp list`; "auto": the Gaussian '
            "processes that suit the table, by ppgp.advise, and by map alone if others are slow"
        ),
    ] = None,
    how: Annotated[
        str | None,
        typer.Option(
            help="methods, comma-separated; default: the model's own, as that of ngboost, or else "
            + USUAL_METHODS
        ),
    ] = None,
    likelihood: Likelihood = None,
    level: Level = 0.9,
    out: Annotated[Path, typer.Option(help="folder of the report")] = Path("report"),
    seed: Seed = 0,
    settings: Settings = None,
    progress: Progress = True,
    missing: columns.Missing = "refuse",
    drop_missing: columns.DropMissing = False,
    categories: columns.Categories = "refuse",
    dates: columns.Dates = "refuse",
    coordinates: columns.Coordinates = "",
    noise_sd: columns.NoiseSd = None,
    offset: columns.Offset = None,
    trials: columns.Trials = None,
    weights: columns.Weights = None,
    groups: columns.Groups = "",
    ids: columns.Ids = None,
    classes: columns.Classes = "",
) -> None:
    """Fit models by several methods, predict, calibrate, and report which posterior to trust."""
    from ..diagnostics.comparison import compare as compare_posteriors
    from ..posterior.region import exact_level
    from .model_method_grid import fit_grid
    from .report import write_report
    from .results_file import rows_of

    exact_level(level)
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
        data, target, cells, categories, coordinates, groups, roles, classes, dates
    )
    train, calibration, test = table.split(*FRACTIONS, seed=seed)
    if models == AUTO:
        plan = advised_models(train, likelihood, how, USUAL_METHODS)
    else:
        names_of_models = split_names(models or usual_models(table))
        plan = methods_of_models(names_of_models, how, USUAL_METHODS, train.n)
    methods = list(dict.fromkeys(name for names in plan.values() for name in names))
    built_models, built_methods = build_models_and_methods(
        [*plan], methods, settings or [], likelihood, table.groups or ()
    )
    pairs = [(name, method) for name, of_model in plan.items() for method in of_model]
    posteriors, names, refused, interrupted = fit_grid(
        built_models, built_methods, pairs, train, seed, progress
    )
    if not posteriors:
        raise NotApplicable(
            "at least one model and method that fit together", "; ".join(refused), "see `ppgp list`"
        )
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
    print_table(rows, f"{data}: {split}; {level:.0%} intervals")
    for reason in refused:
        typer.echo(f"not run: {reason}", err=True)
    typer.echo(f"report: {page}")
    for problem in problems:
        typer.echo(f"not written: {problem}", err=True)
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if problems:
        raise typer.Exit(1)


@app.command()
def fit(
    data: columns.Data,
    target: columns.Target = None,
    model: Annotated[str, typer.Option(help="a name or recipe; see `ppgp list`")] = "gp",
    how: Annotated[
        str | None,
        typer.Option(help="a method; default: the model's own, or nuts, or for many rows laplace"),
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
    coordinates: columns.Coordinates = "",
    right_censored: columns.RightCensored = None,
    noise_sd: columns.NoiseSd = None,
    offset: columns.Offset = None,
    trials: columns.Trials = None,
    weights: columns.Weights = None,
    groups: columns.Groups = "",
    ids: columns.Ids = None,
    classes: columns.Classes = "",
) -> None:
    """Fit one model by one method and save the posterior.

    After Ctrl-C, the partial posterior is saved in NAME.partial.safetensors.
    """
    from ..inference.fitting import fit as fit_posterior
    from ..posterior.summary import cut_short

    files.check_file(out)
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
        data, target, cells, categories, coordinates, groups, roles, classes, dates
    )
    method = how or methods_of_models([model], None, "nuts", table.n)[model][0]
    models, methods = build_models_and_methods(
        [model], [method], settings or [], likelihood, table.groups or ()
    )
    posterior = fit_posterior(models[model], table, methods[method], seed=seed, progress=progress)
    interrupted = cut_short(posterior.stats)
    title = f"{model} by {method}, {posterior.seconds:.1f} s"
    if interrupted:
        title += ", interrupted"
    summary = posterior.summary().to_dict("index")
    print_table([{"site": site, **row} for site, row in summary.items()], title)
    if not interrupted:
        typer.echo(f"saved: {posterior.save(out)}")
        return
    partial = posterior.save(out.with_name(f"{out.stem}.partial{out.suffix}"))
    typer.echo(f"the fit was interrupted; its partial posterior: {partial}")
    raise typer.Exit(INTERRUPTED)


for command in (predict, calibrate, diagnose):
    app.command()(command)


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
    """Run a published experiment again and print its table.

    Some experiments have options of their own: uci takes --data-dir, --sets, --splits, --models;
    league has --methods and --epochs in place of --models.
    """
    from ..experiments import experiment, options_of
    from .results_file import write_results

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
    """List the names of models, methods, scores and experiments, and what recipes consist of."""
    for title, rows in named_members():
        print_table(rows, title)


def main() -> None:
    """Run the command line.

    A mistake of the user is one sentence and exit status 2; Ctrl-C gives 130, SIGTERM 143.
    """
    import warnings

    warnings.formatwarning = columns.format_warning
    with exit_on_signals():
        try:
            with whole_output():
                app()
        except PpgpError as error:
            typer.echo(f"ppgp: {columns.in_the_shell(str(error))}", err=True)
            raise SystemExit(2) from None
