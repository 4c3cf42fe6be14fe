"""Natural gradient boosting: probabilistic predictions by sums of trees."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor

from ...errors import NotApplicable, SettingError
from ...numerics.threads import at_most
from ...posterior.posterior import Posterior
from ...target.capabilities import BoostedSum, require
from ...target.target import Target
from ..base import Inference, from_draws
from ..checkpoint import Checkpoint
from ..options import Between, Count, OneOf, Share
from ..progress import bar
from .folds import checked_folds, fold_of_rows
from .members import Run
from .memory import check_memory
from .stages import Rows, Settings
from .units import unit_of

Rate = Annotated[float, Between(0.0, 1.0 + 1e-12, "use a share of at most 1")]


@dataclass(frozen=True)
class NaturalGradientBoosting(Inference):
    """Natural gradient boosting of a ``models.Boosted``.

    Duan et al. (2020). At stage m the natural gradient of the score at every row is fitted by one
    learner per function of x, and the functions move by ``learning_rate`` times a step along their
    sum. The CRPS resists outliers, and with ``folds`` a temperature, found on rows that a member
    has not learned from, mends that its distributions are too narrow.

    With ``folds=J`` the Posterior has J draws, of which each has not seen one fold.
    ``posterior.out_of_fold()`` gives the distribution of each row by the member that has not seen
    it, which ``cross_calibrate`` and ``stacking_weights`` take without another fit.

    Stats: ``score`` [draw], the mean score at the rows of each member; ``held_out_score`` [draw];
    ``stages`` [draw]; ``seconds`` [draw].

    Args:
        score: "crps" or "nll", the negative log density.
        steps: the largest number of stages.
        learning_rate: what each step is multiplied by.
        rows: the share of the rows, drawn anew, that each stage is fitted to.
        weights: how learners weigh the squared errors of rows: "unit", or "metric" (the diagonal
            of the Riemannian metric, under which every step descends).
        search: how the length of a step is found: "halving" from 1 until the score does not rise,
            "exact" for the best length up to 1, or None for 1.
        folds: a number of folds; or one label per row, a splitter of scikit-learn, or its pairs of
            indices. None: one fit to all rows.
        hold_out: without folds, the share of the rows on which the number of steps is chosen,
            before all rows are fitted for so many steps. None: all ``steps`` are taken.
        patience: how many stages without improvement end a search for the number of steps.
        stopping: what chooses the steps and the temperature of a member: "inside" (a tenth of its
            own training rows, so that the coverage of CV+ is guaranteed) or "fold" (the fold that
            it has not seen; sharper, and the coverage of CV+ is then approximate).
        temperature: whether to widen the distributions by a temperature found on rows held out.
    """

    score: Annotated[str, OneOf(("nll", "crps"))] = "crps"
    steps: Count = 1000
    learning_rate: Rate = 0.04
    rows: Rate = 0.7
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
            target: the density.
            seed: the seed that every random number follows from.
            progress: whether to show a progress bar.
            init: a boosted Posterior of this model and these rows, to whose stages others are
                added.
            checkpoint: a file that keeps the state of the run.

        Raises:
            NotApplicable: if the model is no sum of learners, a parameter has a prior, or the
                likelihood has no such score.
            SettingError: if the folds do not fit the rows.
            NotEnoughMemory: if so many steps, functions and members do not fit.
        """
        started = time.perf_counter()
        model = require(target.model, BoostedSum)
        _check_numbers(model.likelihood)
        data: Any = target.data
        unit = unit_of(model.likelihood, data.y)
        rows = Rows(data.X, data.y / unit, data.right_censored)
        settings = self._settings(model, unit, data)
        _check_init(init, target, self)
        # sums over rows on one thread are the same whatever the number of threads
        with Checkpoint(checkpoint, self, target, seed) as saved, at_most(1):
            run = Run(self, settings, rows, seed, saved)
            run.folds = self._fold_of_rows(rows, seed)
            K, members = settings.law.learned, run.total_members
            check_memory(settings.learner, data.n, data.d, K, self.steps, members)
            if isinstance(init, Posterior):
                run.begin_at(model, init, unit)
            with bar("NaturalGradientBoosting", run.total, progress) as update:
                run.complete(update)
            draws, params = run.sites(model, unit)
            stats, notes = run.stats(), run.notes()
            how = self
            if run.folds is not None and not isinstance(self.folds, int):
                how = replace(self, folds=int(run.folds.max()) + 1)  # a splitter cannot be saved
            posterior = from_draws(
                how, target, draws, started, stats, notes, params, interrupted=run.interrupted
            )
            return saved.with_notes(posterior)

    def _settings(self, model: BoostedSum, unit: float, data: Any) -> Settings:
        law: Any = model.likelihood.in_units(unit)
        return Settings(
            law,
            self.score,
            model.learner,
            self.learning_rate,
            self.rows,
            self.weights == "metric",
            self.search,
            self.steps,
            self.patience,
            tuple(data.coded),
            torch.get_num_threads(),
        )

    def _fold_of_rows(self, rows: Rows, seed: int) -> Tensor | None:
        if self.folds is None:
            return None
        return fold_of_rows(self.folds, rows.X, rows.y, seed)


def _check_numbers(likelihood: Any) -> None:
    """Refuse a parameter with a prior."""
    free = [name for name, s in likelihood.sites().items() if not s.fixed]
    if free:
        raise NotApplicable(
            f"a number or Predicted() as {free[0]} of {type(likelihood).__name__}",
            repr(getattr(likelihood, free[0])),
            f"write {type(likelihood).__name__}({free[0]}=Predicted())",
        )


def _check_init(init: Any, target: Target, how: NaturalGradientBoosting) -> None:
    """Refuse a start that is no boosted posterior of these rows and folds."""
    if init is None:
        return
    do = "pass a fit of this model to these rows by this method, or leave init out"
    boosted = isinstance(init, Posterior) and type(init.model) is type(target.model)
    if not boosted or not init.model.tensors_of(init.draws):
        raise NotApplicable("a boosted Posterior as init", repr(init)[:60], do)
    data: Any = target.data
    one, other = init.data.X.nan_to_num(), data.X.nan_to_num()  # missing values
    same = torch.equal(one, other) and torch.equal(init.data.y, data.y)
    if not same:
        raise NotApplicable("a Posterior of these rows as init", "one of other rows", do)
    if ("fold" in init.params) != (how.folds is not None):
        raise NotApplicable("init with the folds of this method", "others", do)
