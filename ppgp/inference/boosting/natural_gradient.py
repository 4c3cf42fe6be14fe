"""Natural gradient boosting: probabilistic predictions by sums of trees."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor

from ...errors import NotApplicable, SettingError
from ...learners import stack
from ...numerics.threads import at_most
from ...posterior.posterior import Posterior
from ...target.capabilities import BoostedSum, require
from ...target.target import Target
from ..base import Inference, from_draws
from ..checkpoint import Checkpoint
from ..options import Between, Count, OneOf, Share
from ..progress import bar
from .folds import fold_of_rows
from .memory import check_memory
from .stages import Fit, Rows, Settings, temperature

INSIDE = 0.1  # the share of the training folds on which the number of steps is chosen
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

    def __post_init__(self) -> None:
        super().__post_init__()
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
            run = _Run(self, settings, rows, seed, saved)
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


@dataclass(eq=False)
class _Member:
    """One draw of the result.

    Attributes:
        fit: the fit whose stages are the draw.
        temperature: the log of its temperature.
        held_out: the mean score at the rows that chose its steps.
        seconds: how long it took.
    """

    fit: Fit
    temperature: float = 0.0
    held_out: float = math.nan
    seconds: float = 0.0


class _Run:
    """All fits of one call, in order.

    A fit that only chooses the number of steps is followed by one of all its rows.
    """

    def __init__(
        self,
        how: NaturalGradientBoosting,
        settings: Settings,
        rows: Rows,
        seed: int,
        saved: Checkpoint,
    ) -> None:
        self.how, self.settings, self.rows, self.seed, self.saved = how, settings, rows, seed, saved
        self.folds: Tensor | None = None
        self.members: list[_Member] = []
        self.before: list[tuple[Tensor, dict[str, Tensor]]] = []
        self.found = saved.found() or {}
        self.finished: dict[str, Tensor] = {}
        self.fits = 0
        self.taken = 0
        self.interrupted = False

    @property
    def total(self) -> int:
        """The largest number of stages of all fits."""
        twice = 2 if self._refits else 1
        return self.total_members * twice * self.settings.steps

    @property
    def total_members(self) -> int:
        """The number of members when all fits are made."""
        return 1 if self.folds is None else int(self.folds.max()) + 1

    @property
    def _refits(self) -> bool:
        if self.folds is None:
            return self.how.hold_out is not None
        return self.how.stopping == "inside"

    def begin_at(self, model: BoostedSum, init: Posterior, unit: float) -> None:
        """Let member j go on from draw j of a posterior."""
        for j in range(init.shape[1]):
            theta = {k: v[0, j] for k, v in init.draws.items()}
            start = _in_unit(model.likelihood, theta["start"], unit)
            self.before.append((start, model.tensors_of(theta)))

    # -- the fits -----------------------------------------------------------------------------

    def complete(self, update: Any) -> None:
        """Make all fits; Ctrl-C ends them early.

        A member that was interrupted is kept only if it is the first.

        Raises:
            KeyboardInterrupt: if Ctrl-C came before the first stage.
        """
        for train, fold in self._parts():
            began = time.perf_counter()
            member = self._member(train, fold, update)
            member.seconds = time.perf_counter() - began
            if not self.interrupted or not self.members:
                self.members.append(member)
            if self.interrupted:
                return

    def _parts(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the rows to learn from and the rows left out of each member."""
        n = len(self.rows.y)
        if self.folds is None:
            yield torch.arange(n), torch.arange(0)
            return
        for j in range(int(self.folds.max()) + 1):
            yield (
                torch.nonzero(self.folds != j).flatten(),
                torch.nonzero(self.folds == j).flatten(),
            )

    def _member(self, train: Tensor, fold: Tensor, update: Any) -> _Member:
        share = self.how.hold_out if self.folds is None else INSIDE
        if self.folds is not None and self.how.stopping == "fold":
            return self._stopped_on(train, fold, update)
        if share is None:
            return _Member(self._fitted(self.settings, train, None, update))
        generator = torch.Generator().manual_seed(self.seed + 1)
        order = train[torch.randperm(len(train), generator=generator)]
        kept_back = max(1, round(share * len(train)))
        first = self._stopped_on(order[kept_back:].sort().values, order[:kept_back], update)
        if self.interrupted:
            return first
        more = first.fit.best - first.fit.taken_before
        settings = replace(self.settings, steps=more)
        first.fit = self._fitted(settings, train, None, update)
        return first

    def _stopped_on(self, train: Tensor, held_out: Tensor, update: Any) -> _Member:
        """Return a fit that ends where the score at rows held out is best."""
        fit = self._fitted(self.settings, train, held_out, update)
        member = _Member(fit, held_out=fit.held_out_scores[fit.best])
        if self.how.temperature:
            assert fit.f_held_out is not None
            rows = self.rows.take(held_out)
            member.temperature = temperature(
                self.settings.law, self.settings.kind, fit.f_held_out, rows
            )
        return member

    def _fitted(
        self, settings: Settings, train: Tensor, held_out: Tensor | None, update: Any
    ) -> Fit:
        """Return a fit that has ended, resumed from the checkpoint if it is there."""
        number, self.fits = self.fits, self.fits + 1
        valid = None if held_out is None else self.rows.take(held_out)
        earlier = self.before[len(self.members)] if self.before else (None, None)
        fit = Fit(settings, self.rows.take(train), self.seed, valid, *earlier)
        prefix = f"{number}."
        found = {k.removeprefix(prefix): v for k, v in self.found.items() if k.startswith(prefix)}
        if found:
            fit.restore(found)
        try:
            self._take_stages(fit, prefix, update)
        except KeyboardInterrupt:
            if not self.members and len(fit.steps) == fit.taken_before:
                raise
            self.interrupted = True
        self.finished |= {prefix + k: v for k, v in fit.state().items()}
        return fit

    def _take_stages(self, fit: Fit, prefix: str, update: Any) -> None:
        """Let a fit go on until it ends."""
        while not fit.ended:
            fit.advance()
            self.taken += 1
            if self.taken % 10 == 0:
                update(self.taken, score=fit.value / len(fit.train.y))
            if self.saved.due():
                self._save(prefix, fit)

    def _save(self, prefix: str, fit: Fit) -> None:
        self.saved.save({**self.finished, **{prefix + k: v for k, v in fit.state().items()}})

    # -- the result ---------------------------------------------------------------------------

    def sites(self, model: BoostedSum, unit: float) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the draws {site: [1, member, *event]} and the params of the Posterior."""
        like = self.rows.y
        fits = [member.fit for member in self.members]
        start = torch.stack([_in_data_units(model.likelihood, fit.start, unit) for fit in fits])
        draws = {"start": start[None]}
        if self.how.temperature and self._tempers:
            values = [self._temperature_of(j) for j in range(len(self.members))]
            draws["temperature"] = torch.tensor([values]).to(like)
        for name, value in stack([fit.tensors() for fit in fits]).items():
            draws[model.site_of(name)] = value[None]
        params = {"unit": torch.tensor(unit).to(like)}
        if self.folds is not None and not self.interrupted:
            params["fold"] = self.folds
        return draws, params

    @property
    def _tempers(self) -> bool:
        return any(member.temperature != 0.0 for member in self.members)

    def _temperature_of(self, j: int) -> float:
        """Return the log temperature of member j: its own, or one for all under "fold"."""
        if self.folds is None or self.how.stopping == "inside":
            return self.members[j].temperature
        return self._pooled_temperature

    @cached_property
    def _pooled_temperature(self) -> float:
        """The log temperature of least score over the rows of all folds."""
        parts = [m.fit for m in self.members]
        f = torch.cat([fit.f_held_out for fit in parts if fit.f_held_out is not None], -1)
        rows = [fit.held_out for fit in parts if fit.held_out is not None]
        flags = None
        if rows[0].censored is not None:
            flags = torch.cat([part.censored for part in rows if part.censored is not None])
        together = Rows(rows[0].X, torch.cat([part.y for part in rows]), flags)
        return temperature(self.settings.law, self.settings.kind, f, together)

    def stats(self) -> dict[str, Any]:
        """Return the stats of the Posterior."""

        def per_member(values: list[float]) -> Tensor:
            return torch.tensor([values], dtype=torch.float64)

        scores = [m.fit.value / len(m.fit.train.y) for m in self.members]
        return {
            "score": per_member(scores),
            "held_out_score": per_member([m.held_out for m in self.members]),
            "stages": per_member([float(m.fit.best) for m in self.members]),
            "seconds": per_member([m.seconds for m in self.members]),
        }

    def notes(self) -> list[str]:
        """Return the warnings of the Posterior."""
        notes = []
        if self.interrupted:
            stages = int(sum(member.fit.best for member in self.members))
            members, total = len(self.members), 1
            if self.folds is not None:
                total = int(self.folds.max()) + 1
            notes.append(f"stopped by Ctrl-C: {members} of {total} members, {stages} stages")
        short = [m for m in self.members if m.fit.held_out is not None]
        if any(m.fit.best >= self.settings.steps for m in short):
            notes.append(
                "the score at the rows held out still improved at the last step; raise steps, or "
                "learning_rate"
            )
        return notes


def unit_of(likelihood: Any, y: Tensor) -> float:
    """Return the power of two next to the spread of y; 1 for counts and classes.

    Boosting in this unit gives the same bits whatever power of two y is multiplied by.
    """
    if "y" in likelihood.scales:
        size = float(y.std())
    elif likelihood.positive:
        size = float(y.log().mean().exp())
    else:
        return 1.0
    if not math.isfinite(size) or size <= 0:
        return 1.0
    return 2.0 ** round(math.log2(size))


def _in_data_units(likelihood: Any, start: Tensor, unit: float) -> Tensor:
    """Return the constants with the first of them in the units of the data."""
    moved = start.clone()
    if "y" in likelihood.scales:
        moved[0] = start[0] * unit
    elif unit != 1.0:
        moved[0] = start[0] + math.log(unit)
    return moved


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
    same = torch.equal(init.data.X, target.data.X) and torch.equal(init.data.y, target.data.y)
    if not same:
        raise NotApplicable("a Posterior of these rows as init", "one of other rows", do)
    if ("fold" in init.params) != (how.folds is not None):
        raise NotApplicable("init with the folds of this method", "others", do)


def _in_unit(likelihood: Any, start: Tensor, unit: float) -> Tensor:
    """Return the constants in the unit of the fit; the inverse of ``_in_data_units``."""
    moved = start.clone()
    if "y" in likelihood.scales:
        moved[0] = start[0] / unit
    elif unit != 1.0:
        moved[0] = start[0] - math.log(unit)
    return moved
