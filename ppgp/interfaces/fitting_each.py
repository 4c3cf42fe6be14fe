"""Every model by every method, until there are no more or Ctrl-C comes."""

from __future__ import annotations

import sys
from itertools import product
from typing import Any

import typer

from ..data.dataset import Dataset
from ..errors import NotApplicable
from ..inference.fitting import fit
from ..inference.interrupts import whole

__all__ = ["each_by_each"]


def each_by_each(
    models: dict[str, Any], ways: dict[str, Any], train: Dataset, seed: int, progress: bool
) -> tuple[dict[str, Any], dict[str, tuple[str, str]], list[str], bool]:
    """Posteriors, ``{posterior: (model, how)}``, what was not applicable, and whether Ctrl-C came: nothing is begun after it.

    Raises:
        KeyboardInterrupt: if there is no posterior yet.
    """
    posteriors: dict[str, Any] = {}
    names: dict[str, tuple[str, str]] = {}
    refused: list[str] = []
    try:
        for (m, model), (h, way) in product(models.items(), ways.items()):
            _say(f"{m} by {h}", progress)
            names[f"{m} {h}"] = (m, h)
            try:
                posteriors[f"{m} {h}"] = fit(model, train, way, seed=seed, progress=progress)
            except NotApplicable as error:
                refused.append(f"{m} by {h}: {error}")
                continue
            whole(posteriors[f"{m} {h}"])
    except KeyboardInterrupt:
        if not posteriors:
            raise
        interrupted = True
    else:
        interrupted = False
    return posteriors, {name: names[name] for name in posteriors}, refused, interrupted


def _say(text: str, show: bool) -> None:
    if show and not sys.stderr.isatty():
        typer.echo(text, err=True)
