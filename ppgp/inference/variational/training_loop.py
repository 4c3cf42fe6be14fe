"""The options and the training loop of stochastic fits; ``Plateau`` is the rule that ends it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...runtime.process_group import at_step
from ...runtime.progress import bar
from ..optimise.schedules import factors, scheduled
from .stopping_rule import Plateau


@dataclass(frozen=True)
class SVIOptions:
    """The options of ``SVI`` without its guide, by the same names; ``SVI`` documents them."""

    method: str
    steps: int
    learning_rate: float | Mapping[str, float]
    schedule: str
    optimizer: str
    gradient: str
    particles: int
    batch_size: int | None
    patience: int
    draws: int

    @property
    def rate(self) -> float:
        """The learning rate; the largest one if there are several."""
        if isinstance(self.learning_rate, Mapping):
            return max(self.learning_rate.values())
        return self.learning_rate


Step = Callable[[float], float]


@dataclass(frozen=True)
class Training:
    """The ELBO at each step of a training, its warnings, and whether Ctrl-C ended it."""

    history: list[float]
    notes: list[str]
    interrupted: bool


def train(
    options: SVIOptions,
    step: Step,
    progress: bool,
    *,
    interrupted: bool = False,
    history: list[float] | None = None,
    after_step: Callable[[list[float]], None] = lambda history: None,
) -> Training:
    """Take steps until the ELBO has stopped rising.

    That is the plateau of ``stopping_rule.py``. The learning rate then falls to nothing over
    ``patience`` more steps, and the training ends.

    Args:
        options: The steps, the patience, the learning rate and its schedule.
        step: ``step(rate)`` takes one step and returns an estimate of the ELBO.
        progress: Whether to show a progress bar.
        interrupted: Ctrl-C came before the first step, so none is taken.
        history: The ELBOs of earlier steps, from a checkpoint.
        after_step: Called with the history after each step.
    """
    history = [] if history is None else history
    notes: list[str] = []
    plateau = Plateau(options.patience)
    falling = factors(options.schedule, options.steps)
    for elbo in history:
        plateau.add(elbo)
    try:
        taken = at_step(lambda: len(history))
        with bar("SVI", options.steps, progress) as update, taken:
            if interrupted:
                raise KeyboardInterrupt
            while len(history) < plateau.last_step(options.steps):
                factor = falling[len(history)]
                if plateau.reached_at is not None:
                    # the noise of the last rate is still in the guide; a falling rate takes it out
                    since = len(history) - plateau.reached_at
                    factor *= scheduled("cosine", since, options.patience)
                elbo = step(options.rate * factor)
                history.append(elbo)
                plateau.add(elbo)
                update(len(history), elbo=plateau.average)
                after_step(history)
            if plateau.still_rising(options.steps):
                notes.append(
                    f"the ELBO was still rising after {options.steps} steps: "
                    "raise steps or the learning rate"
                )
    except KeyboardInterrupt:
        interrupted = True
        notes.append(
            f"stopped by Ctrl-C after {len(history)} of {options.steps} steps; "
            "this is the guide reached"
        )
    last = history[-options.patience :]
    everywhere, lately = _not_finite(history), _not_finite(last)
    if everywhere > lately:
        notes.append(
            f"the ELBO was not finite in {everywhere} of {len(history)} steps, "
            f"{lately} of them among the last {len(last)}: "
            "they do not count in the rule that ends the fit; check the priors"
        )
    elif lately:
        notes.append(
            f"the ELBO was not finite in {lately} of the last {len(last)} steps: check the priors"
        )
    return Training(history, notes, interrupted)


def _not_finite(elbos: list[float]) -> int:
    """Return how many ELBOs are not finite."""
    return sum(not math.isfinite(elbo) for elbo in elbos)
