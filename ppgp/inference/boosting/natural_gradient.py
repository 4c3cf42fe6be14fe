"""Natural gradient boosting: probabilistic predictions by sums of trees."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor

from ...capabilities import BoostedSum, require
from ...density.target import Target
from ...errors import DataError, NotApplicable, SettingError, counted
from ...likelihoods import Parametric
from ...posterior.posterior import Posterior
from ...runtime.memory import must_fit
from ...runtime.progress import bar
from ...runtime.threads import at_most
from ..base import Inference, from_draws
from ..checkpoint import Checkpoint
from ..options import Between, Count, OneOf, Share
from .folds import checked_folds, fold_of_rows
from .members import SHARE_INSIDE, Run
from .stages import Rows, Settings, unit_of

UpToOne = Annotated[float, Between(0.0, 1.0 + 1e-12, "use a number above 0 and at most 1")]


@dataclass(frozen=True)
class NaturalGradientBoosting(Inference):
    """Natural gradient boosting of a ``models.Boosted``.

    Duan et al. (2020). At stage m the natural gradient of the score at every row is fitted by one
    learner per function of x. Each function moves along the output of its learner, by
    ``learning_rate`` times a step length common to all functions. The CRPS resists outliers. If
    rows are held out, a temperature fitted on them corrects distributions that are too narrow or
    too wide.

    With ``folds=J`` the Posterior has J draws, of which each was not trained on one fold.
    ``posterior.out_of_fold()`` gives the distribution of each row by the member that was not
    trained on it, which ``cross_calibrate`` and ``stacking_weights`` take without another fit.

    Stats, each [1, draw]: ``score``, the mean training score after the last fitted stage;
    ``held_out_score``, the mean score at the rows held out; ``stages``; ``seconds``.

    Args:
        score: "crps" or "nll", the negative log density.
        steps: The largest number of stages.
        learning_rate: What each step is multiplied by.
        rows: The share of the rows, drawn anew, that each stage is fitted to.
        weights: How learners weigh the squared errors of rows: "unit", or "metric" (the diagonal
            of the Riemannian metric).
        search: How the length of a step is found: "halving" from 1 until the score does not rise,
            "exact" for the best length up to 1, or None for 1.
        folds: A number of folds; or one label per row, a splitter of scikit-learn, or its pairs of
            indices, such as ``list(GroupKFold(4).split(X, y, groups))``, which train on all rows
            outside a fold. None: one fit to all rows.
        hold_out: Without folds, the share of the rows on which the number of steps is chosen,
            before all rows are fitted for so many steps. None: all ``steps`` are taken.
        patience: How many stages without improvement end a search for the number of steps.
        stopping: What chooses the steps and the temperature of a member: "inside" (a tenth of its
            own training rows, so that the coverage of CV+ is guaranteed) or "fold" (the fold that
            it is not trained on; sharper, and the coverage of CV+ is then approximate).
        temperature: Whether to rescale the distributions by a temperature fitted on rows held out,
            which only widens those of classes and of censored targets. It has no effect where no
            rows are held out: ``folds=None`` without ``hold_out``.

    Raises:
        SettingError: For an option outside its range, or ``hold_out`` beside folds; on use, for
            folds that do not fit the rows.
        UnknownName: If there is no such score, search, way to weigh or to stop.
        NotApplicable: On use, if the model is no ``Boosted``, a parameter has a prior, or the
            likelihood has no such score.
        DataError: On use, if all targets are equal, and the likelihood predicts their spread.

    Examples:
        >>> import ppgp, torch
        >>> from ppgp import inference, learners, models
        >>> X = torch.linspace(0, 1, 120, dtype=torch.float64)[:, None]
        >>> wiggle = torch.sin(200 * X[:, 0])
        >>> y = torch.where(X[:, 0] < 0.5, 0.1 * wiggle, wiggle)  # ten times the noise on the right
        >>> options = {"steps": 20, "learning_rate": 0.5, "folds": 2}
        >>> how = inference.NaturalGradientBoosting("nll", **options)
        >>> model = models.Boosted(learner=learners.Trees(depth=2))
        >>> posterior = ppgp.fit(model, ppgp.Dataset(X, y), how, progress=False)
        >>> posterior.draws["start"].shape  # [chain, draw, function], a draw per fold
        torch.Size([1, 2, 2])
        >>> narrow, wide = posterior.predict([[0.25], [0.75]]).std
        >>> bool(wide > 3 * narrow)
        True
        >>> posterior.out_of_fold().mean.shape
        torch.Size([120])
    """

    score: Annotated[str, OneOf(("nll", "crps"))] = "crps"
    steps: Count = 1000
    learning_rate: UpToOne = 0.04
    rows: UpToOne = 0.7
    weights: Annotated[str, OneOf(("unit", "metric"))] = "unit"
    search: Annotated[str, OneOf(("halving", "exact"))] | None = "halving"
    folds: Any = 5
    hold_out: Share | None = None
    patience: Count = 50
    stopping: Annotated[str, OneOf(("inside", "fold"))] = "inside"
    temperature: bool = True
    starts_at_a_point = False
    params_of_run = ("fold",)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "folds", checked_folds(self.folds))
        if self.folds is not None and self.hold_out is not None:
            raise SettingError(
                "either folds or hold_out", "both", "leave one of them out, or pass folds=None"
            )

    def quick(self) -> NaturalGradientBoosting:
        folds = None if self.folds is None else 2
        return replace(self, steps=3, folds=folds)

    def numbers(self, p: int) -> float:
        return 0.0

    def __call__(
        self,
        target: Target,
        *,
        seed: int = 0,
        progress: bool = False,
        init: Posterior | Tensor | None = None,
        checkpoint: str | Path | None = None,
    ) -> Posterior:
        """Boost the model of the target.

        Args:
            target: The density.
            seed: The seed that every random number follows from.
            progress: Whether to show a progress bar.
            init: A boosted Posterior of this model, these rows and these folds, to whose stages
                others are added. It takes ``stopping="fold"``, or neither folds nor ``hold_out``.
            checkpoint: A file that keeps the state of the run.

        Raises:
            NotApplicable: If the model is no sum of learners, a parameter has a prior, the
                likelihood has no such score, or ``init`` is of another model or other rows, folds
                or members, or has learned from the rows that would choose its steps.
            DataError: If all targets are equal, and the likelihood predicts their spread.
            SettingError: If the folds do not fit the rows.
            NotEnoughMemory: If so many steps, functions and members do not fit.
        """
        started = time.perf_counter()
        model = require(target.model, BoostedSum)
        _check_numbers(model.likelihood)
        if self.score not in model.likelihood.kinds:
            name = type(model.likelihood).__name__
            do = "use NaturalGradientBoosting(score='nll')"
            raise NotApplicable(f"a score that {name} has", repr(self.score), do)
        data: Any = target.data
        _check_spread(model.likelihood, data.y, data.right_censored)
        unit = unit_of(model.likelihood, data.y)
        rows = Rows(data.X, data.y / unit, data.right_censored)
        settings = self._settings(model, unit, data)
        _check_init(init, target)
        self._check_start(init)
        # sums over rows on one thread are the same whatever the number of threads
        with Checkpoint(checkpoint, self, target, seed) as saved, at_most(1):
            run = Run(self, settings, rows, seed, saved)
            run.folds = self._fold_of_rows(rows, seed)
            self._check_rows(data.n, run.folds)
            K, members = settings.likelihood.learned, run.total_members
            check_memory(settings.learner, data.n, data.d, K, self.steps, members)
            if isinstance(init, Posterior):
                _check_members(init, run)
                run.begin_at(model, init, unit)
            with bar("NaturalGradientBoosting", run.total, progress) as update:
                run.complete(update)
            draws, params = run.sites(model, unit)
            stats = run.stats()
            notes = [
                *run.notes(),
                *_notes_of_ties(model.likelihood, self.score, data.y),
                *_notes_of_f(run),
            ]
            how = self
            if run.folds is not None and not isinstance(self.folds, int):
                how = replace(self, folds=int(run.folds.max()) + 1)  # a splitter cannot be saved
            posterior = from_draws(
                how, target, draws, started, stats, notes, params, interrupted=run.interrupted
            )
            return saved.with_notes(posterior)

    def _check_start(self, init: Any) -> None:
        """Refuse to go on from stages that have learned from the rows that would end the fit."""
        chosen = self.hold_out is not None if self.folds is None else self.stopping == "inside"
        if init is not None and chosen:
            raise NotApplicable(
                "rows that init has not learned from, to choose the steps and the temperature",
                "hold_out, or folds stopped inside, whose fits end with one to all these rows",
                'pass stopping="fold" with folds, or leave out hold_out or init',
            )

    def _settings(self, model: BoostedSum, unit: float, data: Any) -> Settings:
        likelihood: Any = model.likelihood.in_units(unit)
        return Settings(
            likelihood,
            self.score,
            model.learner.knowing(data.X),
            self.learning_rate,
            self.rows,
            self.weights == "metric",
            self.search,
            self.steps,
            self.patience,
            tuple(data.coded),
            torch.get_num_threads(),
        )

    def _check_rows(self, n: int, fold: Tensor | None) -> None:
        """Refuse a share of the rows that leaves a stage without rows."""
        kept_back = SHARE_INSIDE if self.stopping == "inside" else 0.0
        least = n if fold is None else n - int(fold.bincount().max())
        if fold is None:
            kept_back = self.hold_out or 0.0
        least -= round(kept_back * least)
        if int(self.rows * least) < 1:
            raise SettingError(
                "a share of at least one row per stage as rows of NaturalGradientBoosting",
                f"{self.rows:g} of {counted(least, 'row')}",
                f"use rows of at least {math.ceil(1e3 / least) / 1e3:g}",
            )

    def _fold_of_rows(self, rows: Rows, seed: int) -> Tensor | None:
        if self.folds is None:
            return None
        return fold_of_rows(self.folds, rows.X, rows.y, seed)


def _notes_of_f(run: Run) -> list[str]:
    """Return a warning if no function of any member depends on x."""
    for member in run.members:
        f = member.fit.f
        if member.fit.best and not torch.equal(f, f[:, :1].expand_as(f)):
            return []
    return [
        "no stage that was kept depends on x: one distribution for all rows; if y depends on x, "
        "lower min_rows or the penalty of the learner"
    ]


def _check_numbers(likelihood: Any) -> None:
    """Refuse a parameter with a prior."""
    free = [name for name, s in likelihood.sites().items() if not s.fixed]
    if not free:
        return
    name, kind = free[0], type(likelihood).__name__
    wanted, do = f"numbers as {name} of {kind}", f"write {kind}().at_shares(data)"
    if isinstance(likelihood, Parametric):
        wanted = f"a number or Predicted() as {name} of {kind}"
        do = f"write {kind}({name}=Predicted())"
    raise NotApplicable(wanted, repr(likelihood.given(name)), do)


def _check_init(init: Any, target: Target) -> None:
    """Refuse a start that is no boosted posterior of this model and these rows."""
    if init is None:
        return
    do = "pass a fit of this model to these rows by this method, or leave init out"
    boosted = isinstance(init, Posterior) and type(init.model) is type(target.model)
    if not boosted or not init.model.tensors_of(init.draws):
        raise NotApplicable("a boosted Posterior as init", repr(init)[:60], do)
    if repr(init.model) != repr(target.model):  # equal estimators of scikit-learn are not ==
        raise NotApplicable("a Posterior of this model as init", f"one of {init.model!r}", do)
    data: Any = target.data
    if not data.same_rows(init.data) or data.coded != init.data.coded:
        got = "one of other rows, or of other flags of censored targets"
        raise NotApplicable("a Posterior of these rows as init", got, do)


def _check_members(init: Posterior, run: Run) -> None:
    """Refuse a start whose members have learned from other rows than those of this fit."""
    before, members = init.params.get("fold"), init.shape[1]
    if before is None or run.folds is None:
        same = before is run.folds
    else:
        same = torch.equal(before, run.folds)
    if not same:
        folds = "None" if before is None else 'init.params["fold"]'
        raise NotApplicable(
            "a Posterior of the same folds as init",
            "one whose members have learned from other rows",
            f"pass folds={folds}, or leave init out",
        )
    if members != run.total_members:
        raise NotApplicable(
            f"a Posterior of {counted(run.total_members, 'member')} as init",
            counted(members, "member"),
            "pass one fit by this method with all its members, or leave init out",
        )


BYTES_PER_NUMBER = 8
PER_ROW = 10  # numbers per row and function: f, scores, gradients, metric, and what a stage adds
COPIES = 2  # the stages as they are grown, and as they are joined


def check_memory(learner: Any, n: int, d: int, functions: int, steps: int, members: int) -> None:
    """Refuse a fit whose stages or functions do not fit.

    Args:
        learner: The learner.
        n: The number of rows.
        d: The number of columns of X.
        functions: K, the number of functions of x.
        steps: The largest number of stages.
        members: The number of members.

    Raises:
        NotEnoughMemory: With what would fit.
    """
    at_rows = float(PER_ROW * BYTES_PER_NUMBER) * n * functions
    must_fit(
        at_rows,
        f"{functions:,} functions of {n:,} rows",
        "use fewer rows, or fewer classes",
    )
    per_stage = float(COPIES * functions * members) * learner.bytes_per_stage(n, d)

    def advice(available: float) -> str:
        fewer = int(max(available - at_rows, 0.0) / per_stage)
        return f"use at most {fewer:,} steps, fewer folds or smaller learners"

    must_fit(
        at_rows + per_stage * steps,
        f"{steps:,} steps of {functions:,} functions in {members:,} members",
        advice,
    )


#: the share of equal targets above which the CRPS of a Gaussian is least at a width of 0
LARGEST_SHARE_OF_TIES = 2**-0.5


def _check_spread(likelihood: Any, y: Tensor, right_censored: Tensor | None) -> None:
    """Check that the width of a continuous distribution has a best value.

    Raises:
        DataError: If all targets are equal.
    """
    if not _is_continuous(likelihood) or right_censored is not None:
        return
    if bool((y == y[0]).all()):
        raise DataError(
            "targets that differ, as the likelihood predicts their spread",
            f"{float(y[0]):g} in every row",
            "give its parameters as numbers, or leave the constant target out",
        )


def _notes_of_ties(likelihood: Any, kind: str, y: Tensor) -> list[str]:
    """Return a note if so many targets are equal that the CRPS is least at a width of 0."""
    if kind != "crps" or not _is_continuous(likelihood):
        return []
    values, counts = y.unique(return_counts=True)
    share = float(counts.max()) / len(y)
    if share <= LARGEST_SHARE_OF_TIES:
        return []
    return [
        f"{share:.0%} of the targets are {float(values[counts.argmax()]):g}: the CRPS is least for "
        "distributions that are almost that one value; use score='nll', or model those rows apart"
    ]


def _is_continuous(likelihood: Any) -> bool:
    """Return whether it has a density of y, and predicts a parameter of its width."""
    return bool(likelihood.predicted) and not getattr(likelihood, "counts", False)
