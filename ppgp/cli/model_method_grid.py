"""Fit every model by every method, stopping early on Ctrl-C."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import typer

from ..data.dataset import Dataset
from ..errors import NotApplicable, NotEnoughMemory
from ..inference.fitting.fit import fit
from ..inference.jobs import each, in_parallel
from ..inference.runs import raise_if_interrupted
from ..posterior.posterior import Posterior

__all__ = ["fit_grid"]


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
    _announce(f"{pair.model_name} by {pair.method_name}", progress)
    try:
        return fit(pair.model, train, pair.method, seed=seed, progress=progress)
    except (NotApplicable, NotEnoughMemory) as error:
        return str(error)


def _announce(text: str, show: bool) -> None:
    """Print which fit begins, unless a terminal already shows its progress bar."""
    if show and not sys.stderr.isatty():
        typer.echo(text, err=True)
