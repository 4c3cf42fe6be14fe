"""Fit every model by every method, stopping early on Ctrl-C."""

from __future__ import annotations

import sys
from typing import Any

import typer

from ..data.dataset import Dataset
from ..errors import NotApplicable, NotEnoughMemory
from ..inference.fitting import fit
from ..inference.interrupts import raise_if_interrupted

__all__ = ["fit_grid"]


def fit_grid(
    models: dict[str, Any],
    methods: dict[str, Any],
    pairs: list[tuple[str, str]],
    train: Dataset,
    seed: int,
    progress: bool,
) -> tuple[dict[str, Any], dict[str, tuple[str, str]], list[str], bool]:
    """Fit models by methods; after Ctrl-C no further fit begins.

    Args:
        models: Models by name.
        methods: Inference records by name.
        pairs: The names of each model and method to fit, in order.
        train: The training rows.
        seed: Seed of every fit.
        progress: Whether to report progress.

    Returns:
        The posteriors by name, the pair ``(model, method)`` of each posterior, one sentence for
        each pair that does not go together or in memory, and whether Ctrl-C ended the loop.

    Raises:
        KeyboardInterrupt: If Ctrl-C comes before there is a posterior.
    """
    posteriors: dict[str, Any] = {}
    names: dict[str, tuple[str, str]] = {}
    refused: list[str] = []
    interrupted = False
    try:
        for model_name, method_name in pairs:
            name = f"{model_name} {method_name}"
            _announce(f"{model_name} by {method_name}", progress)
            names[name] = (model_name, method_name)
            try:
                posteriors[name] = fit(
                    models[model_name], train, methods[method_name], seed=seed, progress=progress
                )
            except (NotApplicable, NotEnoughMemory) as error:
                refused.append(f"{model_name} by {method_name}: {error}")
                continue
            raise_if_interrupted(posteriors[name])
    except KeyboardInterrupt:
        if not posteriors:
            raise
        interrupted = True
    return posteriors, {name: names[name] for name in posteriors}, refused, interrupted


def _announce(text: str, show: bool) -> None:
    """Print which fit begins, unless a terminal already shows its progress bar."""
    if show and not sys.stderr.isatty():
        typer.echo(text, err=True)
