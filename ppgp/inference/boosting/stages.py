"""One boosted fit, in a unit of y: stages of learners along the natural gradient of a score."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from scipy import optimize
from torch import Tensor

from ...errors import DataError

LEAST_STEP = 1e-4  # the relative length of a step below which a fit ends
HALVINGS = 14  # 2^-14 is below it
LEAST_LOG_TEMPERATURE, MOST_LOG_TEMPERATURE = -2.0, 3.0


@dataclass(frozen=True)
class Rows:
    """Rows of a fit.

    Attributes:
        X: [n, d].
        y: [n], in the unit of the fit.
        censored: [n], which targets are only known to be exceeded; None: none of them.
    """

    X: Tensor
    y: Tensor
    censored: Tensor | None = None

    def take(self, index: Tensor) -> Rows:
        """Return some of the rows, without a copy if they are all."""
        if len(index) == len(self.y) and bool((index.diff() == 1).all()):
            return self
        flags = None if self.censored is None else self.censored[index]
        return Rows(self.X[index], self.y[index], flags)


@dataclass(frozen=True)
class Settings:
    """What all fits of one run share.

    Attributes:
        likelihood: That of y in the unit of the fit; every parameter is a number or predicted.
        kind: The score.
        learner: The learner.
        learning_rate: What each step is multiplied by.
        rows: The share of rows per stage.
        metric_weights: Whether learners weigh rows by the diagonal of the metric.
        search: How the length of a step is found: "halving", "exact" or None.
        steps: The largest number of stages.
        patience: How many stages without improvement on the rows held out end a fit.
        categorical: Columns of codes.
        threads: Of the learner, which do not change the result.
    """

    likelihood: Any
    kind: str
    learner: Any
    learning_rate: float
    rows: float
    metric_weights: bool
    search: str | None
    steps: int
    patience: int
    categorical: tuple[int, ...] = ()
    threads: int = 1


@dataclass(eq=False)
class Fit:
    """A boosted fit in progress, of the L = ``likelihood.learned`` functions that boosting finds.

    Attributes:
        settings: What it shares with others.
        train: The rows that it learns from.
        seed: The seed of the learners.
        held_out: The rows that end it; None: it takes all its steps.
        given_start: The constants [L] to start from; None: those of least score.
        before: Tensors of the learner to go on from, steps included.
        start: The constants [L].
        steps: The lengths of the steps so far, learning rate included.
        f: The functions at the rows of ``train``, [L, n].
        f_held_out: The same at ``held_out``, at the best number of stages.
        value: The total score at ``train``.
        held_out_scores: The mean score at ``held_out`` after each stage, before the first included.
        best: The number of stages that were best on ``held_out``; all of them without it.
        ended: Whether no further stage would be kept.
    """

    settings: Settings
    train: Rows
    seed: int
    held_out: Rows | None = None
    given_start: Tensor | None = None
    before: Mapping[str, Tensor] | None = None
    steps: list[float] = field(default_factory=list)
    held_out_scores: list[float] = field(default_factory=list)
    best: int = 0
    ended: bool = False

    def __post_init__(self) -> None:
        s, valid = self.settings, self.held_out
        start = self.given_start
        if start is None:
            censored = self.train.censored
            start = s.likelihood.initial(self.train.y, s.kind, right_censored=censored)
        self.start = start[: s.likelihood.learned]
        self.growing = s.learner.begin(
            self.train.X,
            s.likelihood.learned,
            valid=None if valid is None else valid.X,
            rows=s.rows,
            seed=self.seed,
            categorical=s.categorical,
            threads=s.threads,
        )
        if self.before:
            self.growing.restore(self.before)
            self.steps = [1.0] * self.growing.stages
            self.best = len(self.steps)
        self.taken_before = len(self.steps)
        self.ended = s.steps == 0
        self.f = self._at_start(self.train.X)
        self.value = float(self._scores(self.f, self.train).sum())
        self.f_held_out: Tensor | None = None
        if valid is not None:
            self._at_valid = self._at_start(valid.X)
            self.f_held_out = self._at_valid.clone()
            reached = float(self._scores(self._at_valid, valid).mean())
            self.held_out_scores = [math.inf] * self.taken_before + [reached]

    def _at_start(self, X: Tensor) -> Tensor:
        """Return the functions [L, n] before the first stage of this fit."""
        f = self.start[:, None].expand(-1, len(X)).clone()
        if self.before:
            f += self.settings.learner.predict(self.before, X).to(f)
        return f

    def _scores(self, f: Tensor, rows: Rows) -> Tensor:
        s = self.settings
        return s.likelihood.score(
            {}, s.likelihood.completed(f), rows.y, s.kind, right_censored=rows.censored
        )

    def advance(self) -> None:
        """Fit one more stage; set ``ended`` if it is the last."""
        s, rows = self.settings, self.train
        full = s.likelihood.completed(self.f)
        direction = -s.likelihood.natural({}, full, rows.y, s.kind, right_censored=rows.censored)
        weights = None
        if s.metric_weights:
            diagonal = s.likelihood.metric({}, full, s.kind).diagonal(dim1=-2, dim2=-1).mT
            weights = diagonal[: len(self.f)]
        output, at_valid = self.growing.add(direction[: len(self.f)], weights)
        length = self._length(output)
        if length < LEAST_STEP:
            self.ended = True
            if self.held_out is None:
                self.best = len(self.steps)
            return
        self._move(s.learning_rate * length, output, at_valid)

    def _move(self, step: float, output: Tensor, at_valid: Tensor | None) -> None:
        """Take a step of this length along the output of a stage."""
        self.steps.append(step)
        self.f += step * output
        self.value = float(self._scores(self.f, self.train).sum())
        if self.held_out is None:
            self.best = len(self.steps)
        else:
            assert at_valid is not None
            self._at_valid += step * at_valid
            self.held_out_scores.append(float(self._scores(self._at_valid, self.held_out).mean()))
            if self.held_out_scores[-1] < self.held_out_scores[self.best]:
                self.best, self.f_held_out = len(self.steps), self._at_valid.clone()
        waited = len(self.steps) - self.best
        taken = len(self.steps) - self.taken_before
        self.ended = taken >= self.settings.steps or waited >= self.settings.patience

    def _length(self, output: Tensor) -> float:
        """Return the relative length of the step along the output of a stage.

        Halving begins at 1 and ends where the total score does not rise; the exact search looks
        for its least value up to 1.
        """
        if self.settings.search is None:
            return 1.0

        def total(length: float) -> float:
            return float(self._scores(self.f + length * output, self.train).sum())

        if self.settings.search == "exact":
            found: Any = optimize.minimize_scalar(total, bounds=(0.0, 1.0), method="bounded")
            return float(found.x) if found.fun <= self.value else 0.0
        length = 1.0
        for _ in range(HALVINGS):
            reached = total(length)
            if math.isfinite(reached) and reached <= self.value:
                return length
            length /= 2
        return 0.0

    # -- results and checkpoints --------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors of the learner at the best number of stages."""
        return self.growing.tensors(torch.tensor(self.steps[: self.best], dtype=torch.float64))

    def state(self) -> dict[str, Tensor]:
        """Return what ``restore`` needs to continue to the same bits."""
        lengths = torch.tensor(self.steps, dtype=torch.float64)
        stages = self.growing.tensors(torch.ones(self.growing.stages, dtype=torch.float64))
        numbers = {
            "steps": lengths,
            "f": self.f,
            "start": self.start,
            "value": torch.tensor(self.value, dtype=torch.float64),
            "held_out_scores": torch.tensor(self.held_out_scores, dtype=torch.float64),
            "best": torch.tensor(self.best),
            "ended": torch.tensor(self.ended),
        }
        if self.f_held_out is not None:
            numbers |= {"at_valid": self._at_valid, "f_held_out": self.f_held_out}
        return {**{f"learner.{k}": v for k, v in stages.items()}, **numbers}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue where the fit that ``state`` came from was."""
        prefix = "learner."
        stages = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
        self.growing.restore(stages)
        self.steps = state["steps"].tolist()
        self.f, self.start, self.value = state["f"], state["start"], float(state["value"])
        self.held_out_scores = state["held_out_scores"].tolist()
        self.best, self.ended = int(state["best"]), bool(state["ended"])
        if "at_valid" in state:
            self._at_valid, self.f_held_out = state["at_valid"], state["f_held_out"]


def log_temperature(likelihood: Any, kind: str, f: Tensor, rows: Rows) -> float:
    """Return the log of the temperature of least score at rows that the fit has not learned from.

    It is 0 for a likelihood that has none. Distributions of classes, and of targets of which some
    are censored, are never sharpened: the score of rows that hold one class alone, or no event,
    falls as long as they are. Those of classes are widened by a score that half the square of the
    log temperature is added to, a standard normal prior.

    Args:
        likelihood: The likelihood.
        kind: The score.
        f: The functions [L, n] that boosting finds, at the rows.
        rows: The rows.
    """
    f = likelihood.completed(f)
    if likelihood.tempered(f, 0.1) is f:  # f itself: no temperature applies
        return 0.0
    of_classes = likelihood.takes_labels
    censored = rows.censored is not None and bool(rows.censored.any())
    least = 0.0 if of_classes or censored else LEAST_LOG_TEMPERATURE

    def total(value: float) -> float:
        rescaled = likelihood.tempered(f, value)
        scores = likelihood.score({}, rescaled, rows.y, kind, right_censored=rows.censored)
        return float(scores.sum()) + (0.5 * value * value if of_classes else 0.0)

    bounds = (least, MOST_LOG_TEMPERATURE)
    found: Any = optimize.minimize_scalar(total, bounds=bounds, method="bounded")
    return float(found.x)


#: spreads of y whose fourth power is a float
SMALLEST, LARGEST = 1e-75, 1e75


def unit_of(likelihood: Any, y: Tensor) -> float:
    """Return the power of two nearest to the sd of y, or to its geometric mean if y is positive.

    It is 1 for counts, classes and ``FromDistribution``. Boosting in this unit gives the same bits
    whatever power of two y is multiplied by.

    Raises:
        DataError: If the square of the sd, or of the mean, is no float.
    """
    if "y" in likelihood.scales:
        largest = float(y.abs().max())
        size = largest
        if largest > 0:  # the square of y itself may be no float
            size = largest * float((y / largest).std())
    elif likelihood.positive:
        size = float(y.log().mean().exp())
    else:
        return 1.0
    if not math.isfinite(size) or size <= 0:
        return 1.0
    if not SMALLEST < size < LARGEST:
        raise DataError(
            f"targets whose spread lies between {SMALLEST:g} and {LARGEST:g}",
            f"{size:.3g}",
            "change the unit of y",
        )
    return 2.0 ** round(math.log2(size))


def constants_of_data(likelihood: Any, start: Tensor, unit: float) -> Tensor:
    """Return the constants with the first of them in the units of the data."""
    moved = start.clone()
    if "y" in likelihood.scales:
        moved[0] = start[0] * unit
    elif unit != 1.0:
        moved[0] = start[0] + math.log(unit)
    return moved


def in_unit(likelihood: Any, start: Tensor, unit: float) -> Tensor:
    """Return the constants in the unit of the fit; the inverse of ``constants_of_data``."""
    moved = start.clone()
    if "y" in likelihood.scales:
        moved[0] = start[0] / unit
    elif unit != 1.0:
        moved[0] = start[0] - math.log(unit)
    return moved
