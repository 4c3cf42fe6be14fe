"""A small comparison, and the report of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

import ppgp
from ppgp import Dataset, Posterior, inference, models
from ppgp.diagnostics.comparison import Comparison, compare
from ppgp.report.report import write_report

LEVEL = 0.8


def rows(n: int, seed: int) -> Dataset:
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    noise = torch.randn(n, generator=generator, dtype=torch.float64)
    return Dataset(X, 2 * X[:, 0] + noise, feature_names=["depth", "age"], target_name="y")


def parts() -> tuple[Dataset, Dataset, Dataset]:
    """Return rows to fit, to calibrate and to test."""
    return rows(60, 0), rows(40, 1), rows(50, 2)


def as_chains(posterior: Posterior, diverging: int) -> Posterior:
    """Return independent draws as those of four chains of NUTS."""
    draws = {
        name: value.reshape(4, -1, *value.shape[2:]) for name, value in posterior.draws.items()
    }
    shape = next(iter(draws.values())).shape[:2]
    flags = torch.zeros(shape, dtype=torch.bool)
    flags[0, :diverging] = True
    stats = {"diverging": flags}
    return replace(posterior, draws=draws, how=inference.NUTS(), stats=stats)


def fits(train: Dataset, diverging: int = 0) -> dict[str, Posterior]:
    """Return chains of a line, its Laplace approximation and its point, and another line."""
    model = models.LinearRegression()
    exact = ppgp.fit(model, train, inference.Exact(draws=2000), progress=False)
    other = models.LinearRegression(weight=ppgp.priors.Normal(0.0, 0.01))
    return {
        "line nuts": as_chains(exact, diverging),
        "line laplace": ppgp.fit(model, train, inference.Laplace(), progress=False),
        "line map": ppgp.fit(model, train, inference.MAP(), progress=False),
        "flat map": ppgp.fit(other, train, inference.MAP(), progress=False),
    }


def pairs_of(posteriors: dict[str, Posterior]) -> dict[str, tuple[str, str]]:
    """Return the pair ``(model, method)`` of each posterior."""
    pairs = {}
    for name in posteriors:
        model, _, how = name.partition(" ")
        pairs[name] = model, how
    return pairs


def compared(posteriors: dict[str, Posterior], calibrated: bool = True) -> Comparison:
    _, calibration, test = parts()
    return compare(
        posteriors, test=test, calibration=calibration if calibrated else None, level=LEVEL
    )


def written(folder: Path, comparison: Comparison, posteriors: dict[str, Posterior]) -> str:
    """Write the report to a folder, and return its page."""
    names = pairs_of(posteriors)
    *_, test = parts()
    about = {"data": "rows of a line", "level": LEVEL}
    page, problems = write_report(folder, comparison, posteriors, names, test, **about)
    assert not problems
    return page.read_text()
