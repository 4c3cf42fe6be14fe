"""``fit``: fit a model to data by a method, and return a Posterior."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from time import perf_counter
from typing import Any, cast, overload
from warnings import catch_warnings, simplefilter

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import Module

from ...capabilities import Candidates, FollowsFit, Reselects, supports
from ...data.arguments import Arguments, as_training_data, is_frame
from ...data.dataset import Dataset, IdentityScaler, Scaler, of_all_ranks
from ...data.outputs import Outputs
from ...data.stream.stream import Stream
from ...data.training_data import TrainingData, same_value
from ...density.evidence_at_mode import precision_near
from ...density.target import Target
from ...display.user_warnings import warn
from ...errors import (
    ConvergenceWarning,
    DataError,
    NotApplicable,
    NumericalError,
    PpgpError,
    UnknownName,
    counted,
)
from ...kernels import Kernel
from ...models import Model, Multi, Program
from ...networks.networks import instances_in
from ...posterior.convergence import mixing
from ...posterior.multi import MultiPosterior
from ...posterior.posterior import Posterior
from ...posterior.summary import cut_short
from ...provenance.found_on import Found, origin_of
from ...runtime.memory import SMALL, must_fit
from ...runtime.process_group import naming
from ...runtime.process_locks import one_at_a_time
from ...runtime.team import ALONE
from ...runtime.threads import limited, numbers_in
from ...runtime.whole_numbers import check_seed
from ..base import Inference, attempted
from ..boosting.natural_gradient import NaturalGradientBoosting
from ..ensemble import Ensemble
from ..mcmc.nuts import NUTS
from ..optimise.laplace import Laplace
from ..optimise.map import MAP
from ..optimise.search import SearchOptions
from ..runs import TWICE, run, second_goes_to_the_caller
from .checks import (
    check_options,
    check_program,
    check_support,
    check_team,
    check_training_rows,
    no_dataset,
    no_method,
    no_path,
    refuse_another_scale,
    warn_of_flat_degrees,
    warn_of_unshared,
)
from .streams import streamed_rows, with_sums

__all__ = ["OWN_METHODS", "default_name", "depends_on_rows", "fit", "found_on", "own_method"]

STOPPED = "stopped by Ctrl-C"  # what methods say of a fit that ends early
FEWEST_ROWS = 3  # of a fit
MOST_TO_COMPARE = 1_000  # rows of a series to all of which every candidate is fitted
ROWS_TO_COMPARE = 500  # rows that choose among the candidates for more
STEPS_OF_ALL = 20  # of a search over more rows
SETTLED = 0.1  # nats, which the last steps of a search gain less than
OF_STEPS = "the search ended after"
ROWS_BETWEEN = 8_000  # on which a search begins for more, where a step costs far less
LEAST_CURVATURE = 1.0  # of a log density in a direction, about that of a prior
MOST_ROUNDS = 3  # fits that may follow a first one, each with a recipe that suits the last


def _multiplications(model: Any, data: Any, how: Any) -> float:
    """Return about how many multiplications one evaluation of the density takes.

    It is 0 if the arguments do not fit together, which ``fit`` reports.
    """
    if isinstance(model, Model) and isinstance(data, Dataset):
        rows = min(data.n, getattr(how, "batch_size", None) or data.n)
        with suppress(PpgpError):
            return model.work(rows, data.d)
    elif callable(model) and isinstance(data, Mapping):
        return Program(model).work(numbers_in(data))
    return 0.0


@overload
def fit(
    model_or_program: Multi,
    data: Outputs,
    how: Inference | None = None,
    *,
    seed: int = 0,
    progress: bool = True,
    standardise: bool = True,
) -> MultiPosterior: ...


@overload
def fit(
    model_or_program: Model | Callable[..., Any],
    data: Dataset | Stream | Mapping[str, Any],
    how: Inference | None = None,
    *,
    seed: int = 0,
    progress: bool = True,
    standardise: bool = True,
    init: Posterior | Tensor | None = None,
    checkpoint: str | Path | None = None,
) -> Posterior: ...


def fit(
    model_or_program: Model | Multi | Callable[..., Any],
    data: Dataset | Stream | Outputs | Mapping[str, Any],
    how: Inference | None = None,
    *,
    seed: int = 0,
    progress: bool = True,
    standardise: bool = True,
    init: Posterior | Tensor | None = None,
    checkpoint: str | Path | None = None,
) -> Posterior | MultiPosterior:
    """Fit a model to data.

    A model is a Pyro program (Bingham et al. 2019). The page of each method names its paper.

    Args:
        model_or_program: A recipe from ``ppgp.models``, or any Pyro program: a function, or a
            ``pyro.nn.PyroModule``, whose ``forward`` has the arguments.
        data: A Dataset for a model; Outputs for ``models.Multi``; ``{argument: value}`` for a
            program. A Stream (``ppgp.stream``) for SVGP by SVI; for SGPR by MAP with
            "lbfgs", "adam" or "adagrad"; and for LinearRegression, LogisticRegression,
            SoftmaxRegression, GLM without groups, NeuralRegression and SVGP by SGLD, or by MAP with
            "lbfgs", "newton", "adam", "adagrad" or "sgd".
            Arrays keep their dtype, which is float64 in NumPy and pandas. Arguments and priors of a
            program need one dtype: write ``torch.zeros(2, dtype=torch.float64)`` in the priors, or
            pass float32 arguments.
        how: The method, a record from ``ppgp.inference``. None: ``NaturalGradientBoosting()`` for
            Boosted, a deep ensemble for NeuralRegression with flat priors, ``Laplace()`` for a
            Gaussian process of more than ``model.sampled_rows`` rows (500 of GP), and otherwise
            ``NUTS()``. If every hyperparameter is a number, nothing is fitted: the Posterior has
            one draw, and its stats hold log p(y) or a lower bound of it.
        seed: The seed that every random number follows from.
        progress: Whether to show a progress bar.
        standardise: Whether to standardise the data first, as far as the model declares that they
            may be scaled (never the arguments of a program). Fixed numbers, inducing inputs and
            priors inside ``priors.InUnitsOfData`` are in the units of the data, and so are
            predictions. Other priors are on the standardised scale.

            To fit again to other rows, pass ``posterior.recipe``: ``posterior.model`` is on the
            scale of its own rows, and is refused for rows of another scale.
        init: Where to start: a Posterior over all or some of the sites, or a vector z [p] of
            unconstrained values (see ``Target``). The rows of that Posterior count as training rows
            of this one, as do those on which ``fit_variogram`` or ``networks.pretrained``
            determined a part of the recipe.
        checkpoint: A file that keeps the state of a long run. If a run is killed, the same call
            continues from the file and ends as the run would have, to the last digit on the same
            machine. MAP by every optimizer, SVI with a Gaussian guide or the bound of a model
            (SVGP), NaturalGradientBoosting and all Markov chains support it (NUTS per
            finished chain). Stochastic methods keep their state after the last step. Deterministic
            searches keep the results of their evaluations, up to 256 MB, which the same call then
            takes in place of new ones. MAP of a model that places its neighbours or inducing
            inputs again after a fit has a file for each further fit, with ".2", ".3" and so on
            after the name. Ctrl-C saves too. A save that fails issues a StorageWarning, and the
            next one is tried; ``posterior.warnings`` reports whether the last one failed. The file
            is locked during the run.

    Returns:
        A Posterior (a MultiPosterior for ``models.Multi``), also after a run that did not converge.
        What is wrong with the run is in ``posterior.warnings``, and is issued as
        ConvergenceWarning.

    Raises:
        DataError: If the data do not fit the model, or have fewer than 3 rows.
        SettingError: If an option does not fit the data.
        NotApplicable: If the method cannot fit this model; the message names one that can.
        StorageError: If the checkpoint is damaged, of another run, or in use by another process,
            which the message names.
        KeyboardInterrupt: If Ctrl-C comes before there is anything to return, or within two seconds
            of the one before it, also if that one ended an earlier fit; so a loop of fits can be
            ended. The checkpoint is saved.

    Examples:
        Rows that lie far apart say nothing of one another. With a prior variance of 1 and a noise
        variance of 1, the mean of f at a row is half of its y, and its variance is 1 / 2:

        >>> import pyro
        >>> import torch
        >>> from pyro.distributions import Normal
        >>> import ppgp
        >>> from ppgp import inference, kernels, models
        >>> recipe = models.GP(kernels.RBF(variance=1.0, lengthscale=1.0), noise=1.0, mean=0.0)
        >>> data = ppgp.Dataset([[0.0], [100.0], [200.0]], [3.0, 0.0, -5.0])
        >>> posterior = ppgp.fit(
        ...     recipe, data, inference.MAP(), progress=False, standardise=False
        ... )
        >>> f = posterior.latent([[0.0]])
        >>> round(f.mean.item(), 3), round(f.variance.item(), 3)
        (1.5, 0.5)

        A Pyro program: the mean mu of four normal numbers of variance 1, under the prior N(0, 1),
        has its mode at their sum over 5:

        >>> def program(y):
        ...     mu = pyro.sample("mu", Normal(0.0, 1.0))
        ...     with pyro.plate("rows", len(y)):
        ...         pyro.sample("y", Normal(mu, 1.0), obs=y)
        >>> y = torch.tensor([1.0, 2.0, 3.0, 4.0])
        >>> posterior = ppgp.fit(program, {"y": y}, inference.MAP(), progress=False)
        >>> round(posterior.draws["mu"].item(), 3)
        2.0
    """
    if type(seed) is not int or seed.bit_length() > 63:
        seed = check_seed(seed)
    if not isinstance(checkpoint, str | PathLike | None):
        raise no_path(checkpoint)
    if isinstance(model_or_program, Multi):
        options: dict[str, Any] = {"how": how, "seed": seed, "progress": progress}
        options |= {"standardise": standardise, "init": init, "checkpoint": checkpoint}
        return _fit_each(model_or_program, data, options)
    if isinstance(data, Stream):
        data = streamed_rows(model_or_program, how, data)
    if isinstance(data, Dataset) and supports(model_or_program, Candidates):
        options = {"seed": seed, "progress": progress, "standardise": standardise}
        if (found := _best_candidate(model_or_program, data, how, options)) is not None:
            best, chosen = found
            if how == MAP() and init is None and checkpoint is None:
                return _told(chosen)
            options |= {"init": chosen if init is None else init, "checkpoint": checkpoint}
            return fit(best, data, how, **options)
    work = _multiplications(model_or_program, data, how)
    team = getattr(data, "team", ALONE)
    untrained, at_rank = nullcontext(), nullcontext()
    if isinstance(model_or_program, Module):
        untrained = _left_untrained(model_or_program)
    if not team.alone:
        at_rank = naming(team.rank, team.size, checkpoint)
    with second_goes_to_the_caller(), one_at_a_time(), limited(work), untrained, at_rank:
        if dist.is_available() and dist.is_initialized():
            warn_of_unshared(data)
        named = how is not None
        if how is None:
            how = NUTS()
            if isinstance(model_or_program, Model):
                how = own_method(model_or_program, getattr(data, "n", 0))
        if not isinstance(how, Inference):
            raise no_method(how, model_or_program)
        if isinstance(model_or_program, Program):
            model_or_program = model_or_program.function
        sent = team.bytes_reduced
        if isinstance(model_or_program, Model):
            if not team.alone:
                check_options(team, init, standardise, checkpoint)
            problem = _problem_of_model(model_or_program, data, how, named, standardise, seed)
        else:
            problem = problem_of_program(model_or_program, data)
        with nullcontext() if team.alone else team.all_or_none():
            target = problem.target(how)
        options = {"seed": seed, "progress": progress and team.rank == 0, "init": init}
        if checkpoint is not None:
            options["checkpoint"] = checkpoint
        unusual = (target.random, target.batches, target.out_of_torch)
        if checkpoint is not None or any(unusual):
            check_support(how, target, checkpoint is not None)
        if not target.collapsed_elbo:  # whose result is one draw
            size = 8 * how.numbers(target.dim)
            if size > SMALL:
                name = f"the draws of {target.dim:,} numbers by {type(how).__name__}"
                must_fit(size, name, how.less_memory)
        posterior = run(how, target, options)
        if how.seeks_mode and isinstance(problem.model, FollowsFit):
            problem, posterior = _followed(problem, posterior, target, how, options)
        if problem.data.streamed:
            posterior = with_sums(posterior, problem.data)
        notes, stats = _judged(problem, posterior, target, sent)
        posterior = replace(
            posterior,
            data=problem.data.in_memory,
            scaler=problem.scaler,
            recipe=problem.recipe,
            stats=posterior.stats | stats,
            warnings=(*posterior.warnings, *notes),
            also_seen=also_seen(model_or_program, data, init),
        )
        for sentence in (s for s in posterior.warnings if s not in target.warned):
            said = f"{sentence}; {TWICE}" if STOPPED in sentence else sentence
            warn(said, ConvergenceWarning)
        return posterior


def _best_candidate(
    model: Any, data: Dataset, how: Any, options: Mapping[str, Any]
) -> tuple[Model, Posterior] | None:
    """Return the candidate of the highest evidence and its fit by MAP; None without candidates.

    Args:
        model: A model with candidates.
        data: The training rows.
        how: The method that the user named, or None.
        options: Those of ``fit``.
    """
    if (
        not data.team.alone
        or data.n < FEWEST_ROWS
        or not (how is None or isinstance(how, Inference))
    ):
        return None
    begun = perf_counter()
    fits = fits_of_candidates(model, data, options)
    if not fits:
        return None
    best, chosen = _of_highest_evidence(fits)
    return best, replace(chosen, seconds=perf_counter() - begun)


def _of_highest_evidence(fits: Sequence[tuple[Model, Posterior]]) -> tuple[Model, Posterior]:
    """Return the fit of the highest evidence, which is not asked of a single one."""
    if len(fits) == 1:
        return fits[0]
    return max(fits, key=lambda pair: pair[1].log_evidence)


#: nats of the density at the mode, of which the volumes of about eight hyperparameters are a part,
#: so that the weight of an average is far below the smallest that counts
FAR_BELOW = 60.0
#: nats by which a candidate without an evidence is not left out without a word
MUCH_HIGHER = 10.0


def fits_of_candidates(
    model: Any, data: Dataset, options: Mapping[str, Any]
) -> list[tuple[Model, Posterior]]:
    """Return the candidates of a model, each with its fit by MAP.

    Those whose density at the mode is more than ``FAR_BELOW`` below that of another are left out,
    and no evidence is computed of them. So are those without an evidence: their density does not
    curve down at the mode, as where the rows have no noise. A warning says so if one of them is
    higher by ``MUCH_HIGHER``. If no candidate has an evidence, that of the highest density is the
    only one. Of more than ``ROWS_TO_COMPARE`` rows the last ones choose, and the best candidate
    alone is fitted to all of them, from its mode there. After Ctrl-C those that have been fitted
    are compared; they, and their warnings, say that the choice was interrupted.

    Args:
        model: A model with candidates.
        data: The training rows.
        options: Those of ``fit``.
    """
    options = {**options, "progress": False}
    candidates = model.candidates(data, options["standardise"])
    few, in_order = data, torch.argsort(data.X[:, 0])
    if data.n > MOST_TO_COMPARE:
        few = data.rows(in_order[-ROWS_TO_COMPARE:])
    with second_goes_to_the_caller(), catch_warnings():
        simplefilter("ignore", ConvergenceWarning)
        every, stopped = _fitted_in_turn(candidates, few, options)
        every, ended = _with_evidences(every)
        stopped = stopped or ended
    found = [pair for pair in every if "log_evidence" in pair[1].stats]
    highest = max(map(_height, every), default=-math.inf)
    if highest > max(map(_height, found), default=-math.inf) + MUCH_HIGHER:
        number = f"{len(every) - len(found)} of {len(every)} candidates"
        kept = "those with one are compared"
        if not found:
            found = [max(every, key=_height)]
            kept = "the one of the highest density is kept"
        if not stopped:
            warn(
                f"no evidence of {number}, whose density does not curve down at the mode, as where "
                f"the rows have no noise: {kept}",
                ConvergenceWarning,
            )
    if data.n > MOST_TO_COMPARE and found:
        with second_goes_to_the_caller(), catch_warnings():
            simplefilter("ignore", ConvergenceWarning)
            best, at_mode = _of_highest_evidence(found)
            for n in (data.n,) if stopped else (ROWS_BETWEEN, data.n):
                if n <= data.n:
                    rows = data.rows(in_order[-n:]) if n < data.n else data
                    init = _on_scale_of(at_mode, rows, best, options["standardise"])
                    try:
                        root = None if stopped else _root_of_steps(at_mode, n)
                    except KeyboardInterrupt:
                        root, stopped = None, True
                    how = _FromMode(starts=1, steps=1 if stopped else STEPS_OF_ALL, root=root)
                    at_mode = _settled(fit(best, rows, how, init=init, **options))
                    at_mode = replace(at_mode, how=MAP(starts=1, steps=how.steps))
            found = [(best, at_mode)]
    if stopped:
        number = f"{len(every)} of {counted(len(candidates), 'candidate')}"
        note = f"{STOPPED}: {number} fitted and compared"
        found = [(each, _interrupted(fitted, note)) for each, fitted in found]
    return found


@dataclass(frozen=True)
class _FromMode(MAP):
    """A search for a mode near that of fewer rows.

    Attributes:
        root: That of ``SearchOptions``.
    """

    root: Tensor | None = field(default=None, repr=False, compare=False, kw_only=True)

    def _options(self, progress: bool, target: Target | None = None) -> SearchOptions:
        return replace(super()._options(progress, target), root=self.root)


def _root_of_steps(at_mode: Posterior, n: int) -> Tensor | None:
    """Return the root of steps for n rows, given the mode of fewer rows; None if there is none.

    Their second derivatives grow with the number of rows.
    """
    target = Target(at_mode.model, at_mode.data)
    z = target.unconstrain(at_mode.draws)[0, 0]
    try:
        precision = precision_near(target, z) * (n / at_mode.data.n)
    except NumericalError:  # a factor that fails beside the mode
        return None
    if not bool(torch.isfinite(precision).all()):
        return None
    values, vectors = torch.linalg.eigh(precision)
    return vectors / values.abs().clamp_min(LEAST_CURVATURE).sqrt()


def _fitted_in_turn(
    candidates: Sequence[Model], rows: Dataset, options: Mapping[str, Any]
) -> tuple[list[tuple[Model, Posterior]], bool]:
    """Return each candidate with its fit by MAP, and whether Ctrl-C ended that.

    After Ctrl-C the last fit counts only where it is the first.
    """
    every: list[tuple[Model, Posterior]] = []
    try:
        for each in candidates:
            fitted = fit(each, rows, MAP(starts=1), **options)
            if cut_short(fitted.stats):
                return every or [(each, fitted)], True
            every.append((each, fitted))
    except KeyboardInterrupt:
        if not every:
            raise
        return every, True
    return every, False


def _with_evidences(
    every: Sequence[tuple[Model, Posterior]],
) -> tuple[list[tuple[Model, Posterior]], bool]:
    """Return candidates with their evidence in their stats, and whether Ctrl-C ended that.

    Those far below the highest one with an evidence are left out.
    """
    found: dict[int, tuple[Model, Posterior]] = {}
    highest = -math.inf
    try:
        for i in sorted(range(len(every)), key=lambda i: _height(every[i]), reverse=True):
            each, fitted = every[i]
            if _height(every[i]) < highest - FAR_BELOW:
                break
            found[i] = each, _with_evidence(fitted)
            if math.isinf(highest) and "log_evidence" in found[i][1].stats:
                highest = _height(every[i])
    except KeyboardInterrupt:
        if not found:
            raise
        return [found[i] for i in sorted(found)], True
    return [found[i] for i in sorted(found)], False


def _with_evidence(posterior: Posterior) -> Posterior:
    """Return a fit by MAP with its evidence in its stats, where it ended and that is finite."""
    if cut_short(posterior.stats):
        return posterior
    with suppress(NumericalError):
        value = posterior.log_evidence
        if math.isfinite(value):
            own = value + posterior.scaler.log_scale(posterior.data)
            return replace(posterior, stats=posterior.stats | {"log_evidence": own})
    return posterior


def _interrupted(posterior: Posterior, note: str) -> Posterior:
    """Return a fit with a note on the Ctrl-C that ended the choice that it comes from."""
    kept = tuple(each for each in posterior.warnings if not each.startswith(OF_STEPS))
    stats = posterior.stats | {"interrupted": True}
    return replace(posterior, stats=stats, warnings=(note, *kept))


def _settled(posterior: Posterior) -> Posterior:
    """Return a posterior without a note on the number of steps, if the last ones gained little.

    A step over many rows takes a second, and the last digits of the mode say nothing.
    """
    losses = posterior.stats["losses"]
    settled = len(losses) > 5 and float(losses[-5:].max() - losses.min()) < SETTLED
    if not settled:
        return posterior
    kept = tuple(note for note in posterior.warnings if not note.startswith(OF_STEPS))
    return replace(posterior, warnings=kept)


def _height(fitted: tuple[Model, Posterior]) -> float:
    """Return the log density of a candidate at its mode."""
    return float(fitted[1].stats["log_density"])


def _on_scale_of(found: Posterior, data: Dataset, model: Model, standardise: bool) -> Posterior:
    """Return the hyperparameters of a fit to other rows on the scale that a fit to data has."""
    scaler: Scaler = IdentityScaler.for_data(data)
    if standardise:
        _, scaler = data.standardised(scale_y="y" in model.scales)
    one = {name: torch.ones_like(draws) for name, draws in found.draws.items()}
    before = found.model.data_units(one, found.scaler)
    after = found.model.data_units(one, scaler)
    draws = {}
    for name, value in found.draws.items():
        was, is_now = before[name], after[name]
        # a mean is moved as well as scaled
        if was is not None and is_now is not None and not name.startswith("mean"):
            draws[name] = value * was / is_now
    return replace(found, draws=draws)


def _told(posterior: Posterior) -> Posterior:
    """Return a posterior after issuing its warnings."""
    for sentence in posterior.warnings:
        warn(f"{sentence}; {TWICE}" if STOPPED in sentence else sentence, ConvergenceWarning)
    return posterior


def _judged(
    problem: _Problem, posterior: Posterior, target: Target, sent: int
) -> tuple[list[str], dict[str, Any]]:
    """Return warnings of the model about its data and about the fit, and the stats of the fit.

    ``sent`` are the bytes that a team had reduced before the fit.
    """
    model, data = problem.model, problem.data
    checks: dict[str, Callable[[], Sequence[str]]] = {
        "the check of what the data identify": lambda: model.check_identifiability(data.shared),
        "the check of the fit": lambda: model.check_fit(posterior.theta, data),
    }
    if posterior.mcmc:
        checks["the check of convergence"] = lambda: mixing(posterior).complaints
    notes: list[str] = []
    with torch.no_grad():
        for what, check in checks.items():
            notes += attempted(target, notes, what, check, [])
        what = "the summary of the fit"
        stats = attempted(target, notes, what, lambda: model.fit_stats(posterior.theta, data), {})
    team = target.team
    if not team.alone:
        stats |= {"processes": team.size, "bytes_reduced": team.bytes_reduced - sent}
    if data.streamed:
        stats["rows"] = data.total
    return notes, stats


@dataclass(frozen=True, eq=False)
class _Problem:
    """A model that is ready for its data.

    Attributes:
        model: The prepared recipe, or the wrapped program.
        data: The data on the scale of the model.
        scaler: What put them on that scale.
        recipe: The recipe as it was given; None for a program.
    """

    model: Any
    data: Any
    scaler: Scaler
    recipe: Any

    def target(self, how: Inference) -> Target:
        """Return the log density that the method sees."""
        return Target(
            self.model,
            self.data,
            optimise_params=how.optimises_params,
            collapsed_elbo=how.collapses(self.model),
            empty=not isinstance(self.model, Program),
            subsample=how.takes_random_density,
        )

    def following(self, posterior: Posterior) -> _Problem | None:
        """Return the problem with a recipe that suits the fit; None if this one does."""
        if posterior.stats.get("interrupted"):
            return None
        middle = {name: value.median(0).values for name, value in posterior.theta.items()}
        if not self.model.outdated(middle, self.data):
            return None
        return replace(self, model=self.model.reselected(middle, self.data))


def _followed(
    problem: _Problem,
    posterior: Posterior,
    target: Target,
    how: Inference,
    options: Mapping[str, Any],
) -> tuple[_Problem, Posterior]:
    """Return the last of the problems that suit the fit before them, and its fit."""
    path = options.get("checkpoint")
    for place in range(2, 2 + MOST_ROUNDS):
        notes: list[str] = []
        what = "the choice of a recipe that suits the fit"
        following = attempted(target, notes, what, partial(problem.following, posterior), None)
        if following is None:
            return problem, replace(posterior, warnings=(*posterior.warnings, *notes))
        problem = following
        changed: dict[str, Any] = {"init": posterior}
        if path is not None:  # the next fit is of another model
            changed["checkpoint"] = f"{fspath(path)}.{place}"
        posterior = run(how, problem.target(how), {**options, **changed})
    return problem, posterior


def _problem_of_model(
    model: Model, data: Any, how: Inference, named: bool, standardise: bool, seed: int
) -> _Problem:
    """Make the model ready for its data; refuse what does not fit together."""
    if not isinstance(data, Dataset):
        raise no_dataset(model, data)
    device, default = data.X.device, torch.get_default_device()
    if default.type not in ("cpu", device.type):
        do = f"use data.to({str(default)!r})"
        raise DataError(f"rows on torch's default device, {default}", f"rows on {device}", do)
    team = data.team
    all_or_none = nullcontext if team.alone else team.all_or_none
    if not team.alone:
        check_team(model, data, how, named, seed)
    present = data
    with all_or_none():  # a weight of 0 says that the row is absent
        if data.weights is not None and not bool((data.weights > 0).all()):
            present = data.rows(data.weights > 0)
    left_out = present is not data
    if not team.alone:  # by some rank
        left_out = team.gathered(present.n) != data.rows_of_ranks
    if left_out:
        data = present.in_team(team)
    with all_or_none():
        check_training_rows(model, data)
    if data.feature_names and team.rank == 0:
        warn_of_flat_degrees(model, data, data.feature_names)
    reselects = isinstance(model, Reselects) and model.reselect
    if reselects and not how.reselects_inducing:
        raise NotApplicable(
            "MAP('adam') or MAP('sgd') to place inducing inputs again on the way",
            repr(how),
            "use one, or leave reselect out",
        )
    if model.rows_on_every_rank and not team.alone:
        data = of_all_ranks(data)
    scaler: Scaler
    if standardise and model.scales:
        data, scaler = data.standardised(scale_y="y" in model.scales, scale_X="X" in model.scales)
    else:
        scaler = IdentityScaler.for_data(data)
    recipe = model
    if model.standardised:
        refuse_another_scale(model, scaler, standardise)
    else:
        model = model.in_units(scaler)
        marked = any(f.name == "standardised" for f in fields(cast(Any, model)))
        if marked and not scaler.is_identity:
            model = replace(cast(Any, model), standardised=True)
    with all_or_none():
        covariance = model.covariance
        if isinstance(covariance, Kernel) and covariance.has_places():
            columns = model.covariance_columns(data.d)
            names = data.feature_names and [data.feature_names[c] for c in columns]
            covariance.check_places(data.X[:, columns], names)
        prepared = model.for_method(how).prepare(data.shared)
        prepared = prepared.made_from(recipe, (data.in_memory, scaler))
    if not team.alone:
        team.check_alike({"prepared model": prepared}, "run one version of torch on every rank")
    if model.rows_on_every_rank:
        data = data.worked_on_by(team)
    return _Problem(prepared, data, scaler, recipe.given or recipe)


def problem_of_program(program: Callable[..., Any], data: Any) -> _Problem:
    """Wrap the program, with arguments that fit it."""
    check_program(program)
    model = Program(program)
    given, data = data, as_training_data(data)
    if not isinstance(data, Arguments):
        names = ", ".join(f"{name}=..." for name in model.arguments({}))
        raise DataError(
            "a dict of the program's arguments", type(data).__name__, f"pass dict({names})"
        )
    model.check_arguments(data)
    if any(map(is_frame, given.values())) and not model.runs(data):
        frames = as_training_data(given, frames=True)
        data = frames if model.runs(frames) else data
    return _Problem(model, data, IdentityScaler.for_data(data), None)


def _fit_each(multi: Multi, data: Any, options: dict[str, Any]) -> MultiPosterior:
    """Fit one model to each output.

    Args:
        multi: The models.
        data: The Outputs.
        options: Those of ``fit``.

    Raises:
        DataError: If the data are no Outputs.
        NotApplicable: With a checkpoint or a start, which belong to one fit.
    """
    if not isinstance(data, Outputs):
        do = "use ppgp.data.Outputs(X, Y)"
        raise DataError("Outputs for Multi", type(data).__name__, do)
    for name in ("init", "checkpoint"):
        if options.get(name) is not None:
            do = "fit that output by itself: ppgp.fit(model, outputs.datasets[0])"
            raise NotApplicable(f"a fit of one output for {name}=", "Multi", do)
    models = multi.models(len(data.datasets))
    pairs = zip(models, data.datasets, strict=True)
    fits = [fit(model, each, **options) for model, each in pairs]
    return MultiPosterior(dict(zip(data.names, fits, strict=True)))


@contextmanager
def _left_untrained(program: Module) -> Iterator[None]:
    """Give the parameters and buffers of a module their values back at the end.

    Pyro optimises the parameters of a PyroModule in place. The Posterior holds the fitted ones, so
    a second fit starts where the first one started.
    """
    before = {name: value.detach().clone() for name, value in program.state_dict().items()}
    try:
        yield
    finally:
        with torch.no_grad():
            for name, value in program.state_dict().items():
                value.copy_(before[name])


def found_on(recipe: Any) -> list[Dataset]:
    """Return the tables from which parts of a recipe were estimated.

    Such parts are numbers from ``fit_variogram`` and modules from ``pretrained``.
    """
    things = [*instances_in(recipe, Found), *instances_in(recipe, nn.Module)]
    tables = (table for thing in things for table in origin_of(thing).tables)
    return list({id(table): table for table in tables}.values())


def also_seen(model: Any, data: Any, init: Any) -> tuple[TrainingData, ...]:
    """Return the tables other than ``data``, in its units, that a fit of ``model`` depends on."""
    recipe = (model.given or model) if isinstance(model, Model) else model
    tables: list[TrainingData] = [*found_on(recipe)]
    if isinstance(model, Model) and model.made_for is not None and depends_on_rows(model):
        rows, scaler = model.made_for
        tables.append(scaler.back(rows))
    if isinstance(init, Posterior):
        tables += [*init.also_seen, init.scaler.back(init.data)]
    every = {id(table): table for table in tables}  # some are found more than once
    return tuple(table for table in every.values() if not table.same_rows(data))


def depends_on_rows(model: Model) -> bool:
    """Whether a prior, a mean or inducing inputs come from the rows that it was prepared for."""
    given = model.given or model
    names = {f.name for f in fields(cast(Any, model))} - {"standardised"}
    return not all(same_value(getattr(model, name), getattr(given, name)) for name in names)


def _deep_ensemble() -> Inference:
    """Return the method of Lakshminarayanan, Pritzel & Blundell (2017)."""
    return Ensemble(MAP("adam", adversarial=0.01))


#: ``Model.own_method`` -> the method; the command line knows the methods by the same names
OWN_METHODS: dict[str, Callable[[], Inference]] = {
    "deep-ensemble": _deep_ensemble,
    "ngb": NaturalGradientBoosting,
    "laplace": Laplace,
}
USUAL = "nuts"


def default_name(model: Any, n: int) -> str:
    """Return the name of the method of a fit to n rows without ``how``.

    It is the model's own, or else NUTS, which for a model of many rows would take hours: past
    ``Model.sampled_rows`` it is Laplace.
    """
    if model.own_method:
        return model.own_method
    if model.sampled_rows is not None and n > model.sampled_rows:
        return "laplace"
    return USUAL


def own_method(model: Any, n: int) -> Inference:
    """Return the method of a fit to n rows without ``how``.

    Raises:
        UnknownName: If the model names a method as its own that does not exist.
    """
    name = default_name(model, n)
    if name == USUAL:
        return NUTS()
    if name not in OWN_METHODS:
        raise UnknownName("method of a model", name, OWN_METHODS)
    return OWN_METHODS[name]()
