"""One run of a method on a Target, and Ctrl-C in fits.

A run is made again if the compiled graph of a program was wrong. The first Ctrl-C ends a fit, and a
second one soon after it ends the caller's loop.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from ..density.target import Target
from ..errors import NotApplicable
from ..posterior.posterior import Posterior
from ..posterior.summary import cut_short
from ..runtime.seeding import seeded
from .base import Inference, at_the_mode, attempted, from_draws

__all__ = ["TWICE", "raise_if_interrupted", "run", "second_goes_to_the_caller"]


def run(how: Inference, target: Target, options: dict[str, Any]) -> Posterior:
    """Run the method; run it again if the compiled graph of a program proves wrong afterwards.

    Args:
        how: The method.
        target: The density.
        options: Keyword arguments of the method, ``seed`` among them.
    """
    with nullcontext() if target.random is None else seeded(options["seed"]):
        posterior = how(target, **options) if target.dim else _only_draw(how, target)
    if target.data.is_table or not target.dim:
        return posterior
    notes: list[str] = []

    def was_wrong() -> bool:
        return target.graph_was_wrong(_unconstrained_draws(target, posterior))

    if not attempted(target, notes, "the comparison of graph and program", was_wrong, False):
        return replace(posterior, warnings=(*posterior.warnings, *notes))
    if "checkpoint" in options:  # it holds results of the wrong graph
        Path(options["checkpoint"]).unlink(missing_ok=True)
    raise_if_interrupted(posterior)
    return how(target, **options)


def _unconstrained_draws(target: Target, posterior: Posterior) -> Tensor | None:
    """Return the draws of a posterior as z [n, p]; None if they cannot be mapped back."""
    draws = {name: value.flatten(0, 1) for name, value in posterior.draws.items()}
    size = max((len(value) for value in draws.values()), default=1)
    params = {
        name: value[None].expand(size, *value.shape)
        for name, value in posterior.params.items()
        if name in target.slices
    }
    try:
        return target.unconstrain({**params, **draws})
    except NotApplicable:  # a support that depends on another site
        return None


def _only_draw(how: Inference, target: Target) -> Posterior:
    """Return the Posterior of a target with ``dim`` 0: one draw of no sites.

    Its stats hold ``log_density`` (log p(y) at these numbers, on the scale of the model), the same
    value under the name that the model gives it (``log_evidence``, or ``elbo`` if it is a bound),
    and what BIC and AIC are made of, with 0 free parameters.
    """
    started = time.perf_counter()
    z = target.origin()
    with torch.no_grad():
        value = float(target.log_density(z))
    notes: list[str] = []
    stats: dict[str, Any] = {"log_density": value, **at_the_mode(target, z, notes)}
    name = target.model.density_at_numbers
    if name is not None:
        stats[name] = value
    return from_draws(how, target, {}, started, stats, notes)


TOGETHER = 2.0  # seconds within which a second Ctrl-C is the caller's
#: Seconds within which two signals are one Ctrl-C. A terminal signals every process of its group,
#: and a launcher such as torchrun passes on its own signal as well.
SAME_PRESS = 0.05
TWICE = "Ctrl-C twice within two seconds ends a loop of fits"

_last = -math.inf  # when the last Ctrl-C came during a fit, by the monotonic clock


def raise_if_interrupted(posterior: Posterior) -> Posterior:
    """Return the posterior itself, for a caller that goes on to another fit.

    Raises:
        KeyboardInterrupt: If Ctrl-C ended the fit early.
    """
    if cut_short(posterior.stats):
        raise KeyboardInterrupt("a fit was stopped before its end")
    return posterior


@dataclass(eq=False)
class _Handler:
    """A handler of SIGINT that notes when the signal comes, and then calls the handler before it.

    Attributes:
        before: The handler before it.
        again: Whether a Ctrl-C came within two seconds of the one before it.
    """

    before: Callable[[int, Any], Any]
    again: bool = False

    def __call__(self, number: int, frame: Any) -> None:
        global _last
        now = monotonic()
        since = now - _last
        if since >= SAME_PRESS:
            self.again = self.again or since < TOGETHER
            _last = now
        self.before(number, frame)


@contextmanager
def second_goes_to_the_caller() -> Iterator[None]:
    """Raise KeyboardInterrupt at the end if Ctrl-C came within two seconds of the one before it.

    The one before it may have come during this block or during an earlier one, such as the last
    fit of a loop. What the block does at Ctrl-C is the same for both: it saves its checkpoint, and
    ends its processes. A block inside another one adds nothing. Threads other than the main one
    receive no signals, and a process that ignores Ctrl-C still does.

    Raises:
        KeyboardInterrupt: If such a Ctrl-C came, and the block did not raise it.
    """
    before = signal.getsignal(signal.SIGINT)
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or not callable(before) or isinstance(before, _Handler):
        yield
        return
    handler = _Handler(before)
    signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is handler:
            signal.signal(signal.SIGINT, before)
    if handler.again:
        raise KeyboardInterrupt("a second Ctrl-C came within two seconds of the first")
