"""The command line: ``ppgp compare | fit | predict | calibrate | diagnose | report | reproduce``.

``ppgp list`` prints the names that they take.

Commands import torch when they run, so that ``ppgp --help`` is quick.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .. import __version__, files
from ..errors import PpgpError
from ..recipes import parsing as recipes
from ..recipes.members import members
from .data_options import TableCommand, format_warning, in_the_shell
from .experiment_files import ExperimentCommand
from .fit_commands import compare, fit
from .options import Seed
from .output import Json, NotWritten, print_json, print_table, results, whole_output
from .posterior_commands import calibrate, diagnose, predict
from .report_command import report
from .signals import exit_on_signals, in_words_of

PARTS = {
    "kernels": "kernels, in the recipe of a model",
    "networks": "networks, in Deep(network, kernel)",
    "means": "means, in GP(mean=)",
    "likelihoods": "likelihoods, in GLM(likelihood=)",
    "learners": "learners, in Boosted(learner=)",
    "experiments": "experiments (ppgp reproduce)",
}

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Gaussian processes and Bayesian regression in Pyro: fit by any method, see which "
    "posterior to trust, get intervals with a guarantee.",
    epilog="Exit status: 0 done; 1 a file of the results could not be written; 2 the command or "
    "the data cannot be used, with a sentence that says why; 130 after Ctrl-C, 143 after SIGTERM. "
    "Messages count the rows of a table from 0, without the header.",
)


@app.callback(invoke_without_command=True)
def _about(
    version: Annotated[bool, typer.Option("--version", help="print the version and stop")] = False,
) -> None:
    if version:
        typer.echo(f"ppgp {__version__}")
        raise typer.Exit


for command in (compare, fit):
    app.command(cls=ExperimentCommand)(command)
for command in (predict, calibrate, report):
    app.command(cls=TableCommand)(command)
app.command()(diagnose)


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
    as_json: Json = False,
) -> None:
    """Run a published experiment again and print its table.

    Some experiments have options of their own: uci takes --data-dir, --sets, --splits, --models,
    --workers; league has --methods and --epochs in place of --models.
    """
    from ..experiments import experiment, options_of
    from ..report.results_file import write_results

    run = experiment(name)
    folder = files.check_folder(out or Path(name))
    options = options_of(run, context.args)
    rows = run(folder, seed=seed, quick=quick, **options)
    about = {"experiment": name, "seed": seed, "quick": quick, "version": __version__, **options}
    with results():
        path = write_results(folder, rows, **about)
    if as_json:
        print_json("reproduce", experiment=name, seed=seed, quick=quick, results=path, rows=rows)
        return
    print_table(rows, name)
    typer.echo(f"results: {path}")


@app.command(name="list")
def list_members(as_json: Json = False) -> None:
    """List the names of models, methods, scores and experiments, and what recipes consist of."""
    if as_json:
        print_json("list", tables=[{"title": t, "rows": rows} for t, rows in _named_members()])
        return
    for title, rows in _named_members():
        print_table(rows, title)


def _named_members() -> list[tuple[str, list[dict[str, Any]]]]:
    """Return (title, flat records) of each table."""
    named = {
        "models": recipes.MODELS,
        "methods (--how)": recipes.HOWS,
        "likelihoods (--likelihood)": recipes.LIKELIHOODS,
        "scores (--scores)": recipes.SCORES,
    }
    tables = [
        (
            title,
            [
                {"name": name, "recipe": recipe, "what it is": meaning}
                for name, (recipe, meaning) in of_family.items()
            ],
        )
        for title, of_family in named.items()
    ]
    for family, title in PARTS.items():
        calls = members()[family].values()
        tables.append((title, [{"name": call, "what it is": what} for call, what in calls]))
    return tables


def main() -> None:
    """Run the command line.

    A mistake of the user is one sentence and exit status 2, and a result that cannot be written is
    one and 1; Ctrl-C gives 130, SIGTERM 143.
    """
    import warnings

    with exit_on_signals() as received:
        warnings.formatwarning = lambda message, *_: in_words_of(received, format_warning(message))
        try:
            with whole_output():
                app()
        except PpgpError as error:
            typer.echo(f"ppgp: {in_the_shell(str(error))}", err=True)
            raise SystemExit(1 if isinstance(error, NotWritten) else 2) from None
