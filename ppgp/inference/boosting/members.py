"""The members of a boosted posterior: which rows each learns from, and how it ends."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ...capabilities import BoostedSum
from ...learners import stack
from ...posterior.posterior import Posterior
from ...runtime.seeding import permutation
from ..checkpoint import Checkpoint
from .stages import Fit, Rows, Settings, constants_of_data, in_unit, log_temperature

SHARE_INSIDE = 0.1  # of the training folds, on which the number of steps is chosen


@dataclass(eq=False)
class Member:
    """One draw of the result.

    Attributes:
        fit: The fit whose stages are the draw.
        log_temperature: The log of its temperature.
        held_out_score: The mean score at the rows that chose its steps.
        capped: Whether the score at those rows was best at the last step.
        seconds: How long it took.
    """

    fit: Fit
    log_temperature: float = 0.0
    held_out_score: float = math.nan
    capped: bool = False
    seconds: float = 0.0


class Run:
    """All fits of one call, in order.

    A fit that only chooses the number of steps is followed by one of all its rows.

    Attributes:
        how: The method, ``NaturalGradientBoosting``.
        settings: What all fits share.
        rows: All rows.
        seed: The seed of the learners.
        saved: The checkpoint.
        folds: The fold of each row [n]; None: one member learns from all rows.
        members: Those that are complete; one that was interrupted only if it is the first.
        before: The constants and the tensors that member j goes on from; [] without ``init``.
        found: The state of the fits in the checkpoint, names beginning with the number of the fit.
        finished: The state of the fits that have ended here, by the same names.
        fits: How many fits have begun.
        taken: How many stages all fits have taken here.
        interrupted: Whether Ctrl-C came.
    """

    def __init__(
        self,
        how: Any,
        settings: Settings,
        rows: Rows,
        seed: int,
        saved: Checkpoint,
    ) -> None:
        self.how, self.settings, self.rows, self.seed, self.saved = how, settings, rows, seed, saved
        self.folds: Tensor | None = None
        self.members: list[Member] = []
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
            start = in_unit(model.likelihood, theta["start"], unit)
            self.before.append((start, model.tensors_of(theta)))

    # -- the fits -----------------------------------------------------------------------------

    def complete(self, update: Any) -> None:
        """Make all fits; Ctrl-C ends them early.

        A member that was interrupted is kept only if it is the first.

        Raises:
            KeyboardInterrupt: If Ctrl-C came before the first stage.
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
        for j in range(self.total_members):
            yield (
                torch.nonzero(self.folds != j).flatten(),
                torch.nonzero(self.folds == j).flatten(),
            )

    def _member(self, train: Tensor, fold: Tensor, update: Any) -> Member:
        share = self.how.hold_out if self.folds is None else SHARE_INSIDE
        if self.folds is not None and self.how.stopping == "fold":
            return self._stopped_on(train, fold, update)
        if share is None:
            return Member(self._fitted(self.settings, train, None, update))
        generator = torch.Generator().manual_seed(self.seed + 1)
        order = train[permutation(generator, len(train))]
        kept_back = max(1, round(share * len(train)))
        first = self._stopped_on(order[kept_back:].sort().values, order[:kept_back], update)
        if self.interrupted:
            return first
        settings = replace(self.settings, steps=first.fit.best)
        first.fit = self._fitted(settings, train, None, update)
        return first

    def _stopped_on(self, train: Tensor, held_out: Tensor, update: Any) -> Member:
        """Return a fit that ends where the score at rows held out is best."""
        fit = self._fitted(self.settings, train, held_out, update)
        capped = fit.best - fit.taken_before >= self.settings.steps
        member = Member(fit, held_out_score=fit.held_out_scores[fit.best], capped=capped)
        if self.how.temperature:
            assert fit.f_held_out is not None
            rows = self.rows.take(held_out)
            member.log_temperature = log_temperature(
                self.settings.likelihood, self.settings.kind, fit.f_held_out, rows
            )
        return member

    def _fitted(
        self, settings: Settings, train: Tensor, held_out: Tensor | None, update: Any
    ) -> Fit:
        """Run one fit, from its checkpoint if there is one, until it ends or is interrupted."""
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
        start = torch.stack([constants_of_data(model.likelihood, fit.start, unit) for fit in fits])
        draws = {"start": start[None].to(like.device)}
        if self.how.temperature and self._tempers:
            values = [self._log_temperature_of(j) for j in range(len(self.members))]
            draws["temperature"] = like.new_tensor([values])
        for name, value in stack([fit.tensors() for fit in fits]).items():
            draws[model.site_of(name)] = value[None].to(like.device)
        params = {"unit": like.new_tensor(unit)}
        if self.folds is not None and not self.interrupted:
            params["fold"] = self.folds
        return draws, params

    @property
    def _tempers(self) -> bool:
        return any(member.log_temperature != 0.0 for member in self.members)

    def _log_temperature_of(self, j: int) -> float:
        """Return the log temperature of member j: its own, or one for all under "fold"."""
        if self.folds is None or self.how.stopping == "inside":
            return self.members[j].log_temperature
        return self._pooled_log_temperature

    @cached_property
    def _pooled_log_temperature(self) -> float:
        """The log temperature of least score over the rows of all folds."""
        parts = [m.fit for m in self.members]
        f = torch.cat([fit.f_held_out for fit in parts if fit.f_held_out is not None], -1)
        rows = [fit.held_out for fit in parts if fit.held_out is not None]
        flags = None
        if rows[0].censored is not None:
            flags = torch.cat([part.censored for part in rows if part.censored is not None])
        together = Rows(rows[0].X, torch.cat([part.y for part in rows]), flags)
        return log_temperature(self.settings.likelihood, self.settings.kind, f, together)

    def stats(self) -> dict[str, Any]:
        """Return the stats of the Posterior."""

        def per_member(values: list[float]) -> Tensor:
            return torch.tensor([values], dtype=torch.float64)

        scores = [m.fit.value / len(m.fit.train.y) for m in self.members]
        return {
            "score": per_member(scores),
            "held_out_score": per_member([m.held_out_score for m in self.members]),
            "stages": per_member([float(m.fit.best) for m in self.members]),
            "seconds": per_member([m.seconds for m in self.members]),
        }

    def notes(self) -> list[str]:
        """Return the warnings of the Posterior."""
        notes = []
        if self.interrupted:
            stages = int(sum(member.fit.best for member in self.members))
            members, total = len(self.members), self.total_members
            notes.append(f"stopped by Ctrl-C: {members} of {total} members, {stages} stages")
        if any(member.capped for member in self.members):
            notes.append(
                "the score at the rows held out still improved at the last step; raise steps, or "
                "learning_rate"
            )
        return notes
