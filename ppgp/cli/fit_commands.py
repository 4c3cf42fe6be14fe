"""Commands that fit models: compare and fit."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import __version__, files
from ..display.user_warnings import warn
from ..errors import NotApplicable, NotEnoughMemory, PpgpWarning, SettingError, UnknownName
from ..recipes.parsing import MODELS
from ..runtime.levels import exact_level
from ..runtime.whole_numbers import check_workers
from .data_options import (
    Data,
    RightCensored,
    TableOptions,
    Target,
    in_the_shell,
    with_table_options,
)
from .options import (
    Level,
    Likelihood,
    Progress,
    Seed,
    Settings,
    Workers,
    complete_methods,
    complete_models,
)
from .output import Json, print_json, print_table, results
from .recipe_options import (
    AUTO,
    advised_models,
    build_models_and_methods,
    check_names,
    has_times,
    methods_of_models,
    split_names,
    usual_models,
)
from .signals import INTERRUPTED

if TYPE_CHECKING:
    from ..data.dataset import Dataset
    from ..posterior.averaging import Average
    from ..posterior.posterior import Posterior

__all__ = ["compare", "fit", "fit_grid", "warn_of_long_fits", "warn_of_many_rows"]

FRACTIONS = (0.6, 0.2, 0.2)  # of the rows: to fit, to calibrate, to test
USUAL_METHODS = "map,laplace,svi,nuts"
#: models that take long with many rows: class -> its name in ``ppgp.advise``
EXACT = {"GP": "GP", "LatentGP": "GP"}
IN_PLACE = ("Vecchia", "SGPR", "SVGP")  # that a warning names for them, where they suit
SUFFIX = ".safetensors"  # of a saved posterior
FEW_ROWS = 300  # of a series, whose candidates never take that long
LONG_FIT = 30.0  # seconds of a fit past which it is said before
#: method -> about how many times as long as MAP its evaluations of the density take
TIMES_OF_MAP = {
    "Laplace": 1.5,
    "Pathfinder": 4.0,
    "Ensemble": 5.0,
    "SVI": 30.0,
    "MetropolisHastings": 300.0,
    "HMC": 1_000.0,
    "NUTS": 1_000.0,
}


@with_table_options
def compare(
    data: Data,
    target: Target = None,
    models: Annotated[
        str | None,
        typer.Option(
            help='names or recipes, comma-separated; see `ppgp list`; "auto": the Gaussian '
            "processes that suit the table, by ppgp.advise, and by map alone if others are slow",
            autocompletion=complete_models,
        ),
    ] = None,
    how: Annotated[
        str | None,
        typer.Option(
            help="methods, comma-separated; default: the model's own, as that of ngboost, or else "
            + USUAL_METHODS,
            autocompletion=complete_methods,
        ),
    ] = None,
    likelihood: Likelihood = None,
    level: Level = 0.9,
    out: Annotated[Path, typer.Option(help="folder of the report")] = Path("report"),
    seed: Seed = 0,
    settings: Settings = None,
    progress: Progress = True,
    workers: Workers = None,
    *,
    columns: TableOptions,
    as_json: Json = False,
) -> None:
    """Fit models by several methods, predict, calibrate, and report which posterior to trust."""
    exact_level(level)
    check_workers(workers)
    files.check_folder(out)
    check_names(models, how, likelihood, settings)
    looked = columns.look(data, target)

    from ..data.files.loading import loaded
    from ..diagnostics.comparison import compare as compare_posteriors
    from ..report.report import saved_if_it_fails, write_report
    from ..report.results_file import rows_of

    table = loaded(looked)
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
    pairs = [(name, method) for name, of_model in plan.items() for method in of_model]
    warn_of_many_rows(built_models, train)
    warn_of_long_fits(pairs, built_models, built_methods, train)
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
        typer.echo(f"not run: {in_the_shell(reason)}", err=True)
    for problem in problems:
        typer.echo(f"not written: {problem}", err=True)
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if problems:
        raise typer.Exit(1)


@with_table_options
def fit(
    data: Data,
    target: Target = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="a name or recipe; see `ppgp list`; default: gp for numbers, or sgpr for more "
            "than 5,000 rows; logistic for two classes, softmax for more; for a series of numbers, "
            "which has --time or one column of dates alone, the candidates of state-space, "
            "averaged by their evidence, with --likelihood poisson for counts",
            autocompletion=complete_models,
        ),
    ] = None,
    how: Annotated[
        str | None,
        typer.Option(
            help="a method; default: the model's own, or nuts, or for many rows laplace; for a "
            "series map",
            autocompletion=complete_methods,
        ),
    ] = None,
    likelihood: Likelihood = None,
    out: Annotated[Path, typer.Option(help="file to save the posterior in")] = Path(
        "posterior.safetensors"
    ),
    seed: Seed = 0,
    settings: Settings = None,
    progress: Progress = True,
    right_censored: RightCensored = None,
    *,
    columns: TableOptions,
    as_json: Json = False,
) -> None:
    """Fit one model by one method and save the posterior.

    After Ctrl-C, the partial posterior is saved in NAME.partial.safetensors.
    """
    _check_place(out)
    check_names(model, how, likelihood, settings)
    looked = columns.look(data, target, right_censored)

    from ..data.files.loading import loaded
    from ..inference.fitting.fit import fit as fit_posterior
    from ..posterior.summary import cut_short

    table = loaded(looked)
    posterior: Posterior | Average
    series, other = None, None
    if model is None and has_times(table):
        series, other = _of_series(table, likelihood, how or "map", settings or [])
    if series is not None:
        model, method = "series", how or "map"
        posterior = _fitted_series(*series, table, seed, progress)
        rows = _weights_of(posterior)
        title = f"candidates for a series by {method}, {posterior.seconds:.1f} s"
    else:
        model = model or usual_models(table, likelihood)[0]
        method = how or methods_of_models([model], None, "nuts", table.n)[model][0]
        if other is not None:
            sentence = f"one {model} by {method} is fitted, no average of candidates: {other}"
            typer.echo(f"note: {sentence}", err=True)
        models, methods = build_models_and_methods(
            [model], [method], settings or [], likelihood, table.groups or ()
        )
        warn_of_many_rows(models, table)
        warn_of_long_fits([(model, method)], models, methods, table)
        options = {"seed": seed, "progress": progress}
        posterior = fit_posterior(models[model], table, methods[method], **options)
        title = f"{model} by {method}, {posterior.seconds:.1f} s (data units)"
        rows = _rows_of_sites(posterior)
    interrupted, sentences = cut_short(posterior.stats), posterior.warnings
    if interrupted:
        title += ", interrupted"
    if not as_json:
        print_table(rows, title)
    saved = out.with_name(f"{out.stem}.partial{out.suffix}") if interrupted else out
    with results():
        posterior.save(saved)
    if as_json:
        about = {"data": data, "n": table.n, "model": model, "how": method, "seed": seed}
        run = {"seconds": posterior.seconds, "interrupted": interrupted, "saved": saved}
        print_json("fit", **about, **run, warnings=sentences, rows=rows)
    elif interrupted:
        typer.echo(f"the fit was interrupted; its partial posterior: {saved}")
    else:
        typer.echo(f"saved: {saved}")
    if interrupted:
        raise typer.Exit(INTERRUPTED)


def _rows_of_sites(posterior: Posterior) -> list[dict[str, Any]]:
    """Return one row per scalar of the posterior, in the units of the data."""
    table = posterior.summary("data")
    if posterior.shape == (1, 1):  # one point has no spread
        table = table[["mean"]].rename(columns={"mean": "value"})
    return [{"site": site, **row} for site, row in table.to_dict("index").items()]


def _of_series(
    table: Dataset, likelihood: str | None, how: str, settings: list[str]
) -> tuple[tuple[Any, Any] | None, str | None]:
    """Return the model without a kernel and the method of a table of times, or why there is none.

    Args:
        table: The Dataset.
        likelihood: The name or recipe of a likelihood.
        how: That of the method.
        settings: What ``--set`` gives.
    """
    from ..capabilities import Candidates, supports
    from ..inference.fitting.candidates import without_candidates
    from ..models.markov.series_rule import FEWEST_ROWS

    if table.classes:
        return None, "y holds labels"
    roles = [f"--{role.replace('_', '-')}" for role in table.columns_with_roles if role != "ids"]
    if roles:
        return None, f"they take no {', '.join(roles)}"
    given = " ".join(f"--set {setting}" for setting in settings)
    refused = f"not all of them take {given}"
    name = "state-space"
    try:
        models, methods = build_models_and_methods([name], [how], settings, likelihood, ())
    except (UnknownName, SettingError, NotApplicable):
        of_method = [s for s in settings if s.startswith(f"{how}.")]
        if of_method == settings:
            raise
        # a setting that the method itself refuses is no matter of the model
        build_models_and_methods([name], [how], of_method, likelihood, ())
        return None, refused
    found = models[name]
    if not supports(found, Candidates):
        return None, refused
    # only a likelihood leaves the table to other models
    if likelihood is not None and table.n >= FEWEST_ROWS and not found.candidates(table):
        error = without_candidates(found, table)
        return None, f"candidates for a series need {error.expected}, got {error.got}"
    return (found, methods[how]), None


def _fitted_series(model: Any, method: Any, table: Dataset, seed: int, progress: bool) -> Average:
    """Return the average of the candidates for a series by a method."""
    from ..inference.fitting.candidates import fit_candidates

    if type(method).__name__ == "MAP":
        _warn_of_long_choice(table)
    return fit_candidates(model, table, method, seed=seed, progress=progress)


def _warn_of_long_choice(table: Dataset) -> None:
    """Warn of candidates that probably take longer than half a minute together."""
    from ..inference.fitting.candidates import expected_seconds
    from ..models import StateSpaceGP
    from ..models.advice.advice import about

    if table.n <= FEW_ROWS:
        return
    number = len(StateSpaceGP().candidates(table))
    seconds = expected_seconds(number, table.n)
    if seconds > LONG_FIT:
        sentence = (
            f"{number} candidates for {table.n:,} rows take about {about(seconds)}: one alone is "
            "quicker, such as --model 'StateSpaceGP(Matern(1.5))' --how map"
        )
        warn(sentence, PpgpWarning)


def _weights_of(average: Average) -> list[dict[str, Any]]:
    """Return one row per candidate, the largest weight first."""
    pairs = zip(average, average.weights.tolist(), strict=True)
    ordered = sorted(pairs, key=lambda pair: -pair[1])
    return [{"candidate": name, "weight": weight} for name, weight in ordered]


def fit_grid(
    models: dict[str, Any],
    methods: dict[str, Any],
    pairs: list[tuple[str, str]],
    train: Dataset,
    seed: int,
    progress: bool,
    workers: int | None = None,
) -> tuple[dict[str, Any], dict[str, tuple[str, str]], list[str], bool]:
    """Fit models by methods; after Ctrl-C no further fit begins.

    Args:
        models: Models by name.
        methods: Inference records by name.
        pairs: The names of each model and method to fit, in order.
        train: The training rows.
        seed: Seed of every fit.
        progress: Whether to report progress.
        workers: How many processes fit, each on one thread, as in ``jobs.each``.

    Returns:
        The posteriors by name, the pair ``(model, method)`` of each posterior, one sentence for
        each pair that does not go together or in memory, and whether Ctrl-C ended the loop.

    Raises:
        SettingError: If there is no worker.
        KeyboardInterrupt: If Ctrl-C comes before there is a posterior.
    """
    from ..inference.jobs import each, in_parallel
    from ..inference.runs import raise_if_interrupted

    shared = in_parallel(workers)
    jobs = [_Pair(*pair, models[pair[0]], methods[pair[1]]) for pair in pairs]
    work = partial(_fitted, train, seed, progress and not shared)
    fitted: dict[int, Any] = {}
    interrupted = False
    try:
        ended = each(work, jobs, workers, progress and shared, title="fits", noun="fit")
        with closing(ended):
            for number, result in ended:
                fitted[number] = result
                if not isinstance(result, str):
                    raise_if_interrupted(result)
    except KeyboardInterrupt:
        if all(isinstance(result, str) for result in fitted.values()):
            raise
        interrupted = True
    posteriors: dict[str, Any] = {}
    names: dict[str, tuple[str, str]] = {}
    refused: list[str] = []
    for number in sorted(fitted):
        job, result = jobs[number], fitted[number]
        if isinstance(result, str):
            refused.append(f"{job.model_name} by {job.method_name}: {result}")
            continue
        name = f"{job.model_name} {job.method_name}"
        names[name] = (job.model_name, job.method_name)
        posteriors[name] = result
    return posteriors, names, refused, interrupted


@dataclass(frozen=True, eq=False)
class _Pair:
    """A model and a method, with their names."""

    model_name: str
    method_name: str
    model: Any
    method: Any


def _fitted(train: Dataset, seed: int, progress: bool, pair: _Pair) -> Posterior | str:
    """Return the posterior of a model by a method, or why they do not go together."""
    from ..inference.fitting.fit import fit as fit_posterior

    _announce(f"{pair.model_name} by {pair.method_name}", progress)
    try:
        return fit_posterior(pair.model, train, pair.method, seed=seed, progress=progress)
    except (NotApplicable, NotEnoughMemory) as error:
        return str(error)


def _announce(text: str, show: bool) -> None:
    """Print which fit begins, unless a terminal already shows its progress bar."""
    if show and not sys.stderr.isatty():
        typer.echo(text, err=True)


def warn_of_many_rows(models: Mapping[str, Any], table: Any) -> None:
    """Warn of each exact Gaussian process that has more rows than ``ppgp.advise`` gives it.

    Args:
        models: {name: model}.
        table: The Dataset to fit.
    """
    from ..models.advice.advice import about

    for name, model in models.items():
        options = _advised(model, table)
        own = options.get(EXACT.get(type(model).__name__, ""))
        if own is None or own.suits or not own.seconds > 0:
            continue
        others = [options[one] for one in IN_PLACE if options[one].suits]
        faster = ", or ".join(f"{_name(one.model)} ({about(one.seconds)})" for one in others)
        sentence = (
            f"{name} {own.reason}; a fit to {table.n:,} takes about {about(own.seconds)}: "
            f"fit {faster}"
        )
        warn(sentence, PpgpWarning)


def warn_of_long_fits(
    pairs: Iterable[tuple[str, str]], models: dict[str, Any], methods: dict[str, Any], table: Any
) -> None:
    """Warn of each fit that probably takes longer than half a minute, though MAP would not.

    Args:
        pairs: The names of each model and method to fit.
        models: Models by name.
        methods: Inference records by name.
        table: The Dataset to fit.
    """
    from ..models.advice import costs
    from ..models.advice.advice import about

    for name, method_name in pairs:
        model, method = models[name], methods[method_name]
        own = _advised(model, table).get(EXACT.get(type(model).__name__, type(model).__name__))
        if own is None or not own.suits or own.seconds > LONG_FIT:
            continue
        times = TIMES_OF_MAP.get(type(method).__name__, 1.0)
        seconds = costs.by_method(own.seconds, own.model, table.d, times)
        if seconds > LONG_FIT:
            of_laplace = TIMES_OF_MAP["Laplace"]
            laplace = about(costs.by_method(own.seconds, own.model, table.d, of_laplace))
            sentence = (
                f"{name} by {method_name} takes about {about(seconds)}: --how laplace takes about "
                f"{laplace}, and --how map {about(own.seconds)}"
            )
            warn(sentence, PpgpWarning)


def _advised(model: Any, table: Any) -> dict[str, Any]:
    """Return the options of ``ppgp.advise`` by their names; none for another kind of model."""
    from ..models.advice.advice import advise
    from ..models.advice.suitability import EVERY

    if type(model).__name__ not in (*EXACT, *EVERY) or not hasattr(model, "kernel"):
        return {}
    law = getattr(model, "likelihood", None)
    advice = advise(n=table.n, d=table.d, kernel=model.kernel, likelihood=law)
    return {option.model: option for option in advice.options}


def _name(model: str) -> str:
    """Return the name of a class in ``ppgp list``."""
    return next(name for name, (recipe, _) in MODELS.items() if recipe.startswith(f"{model}("))


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
