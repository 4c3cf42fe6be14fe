"""Published experiments, re-run: one a file, with ``run(out, *, seed, quick) -> rows``. Named here, imported when asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from ..errors import UnknownName

#: name -> (module, what it shows)
EXPERIMENTS: dict[str, tuple[str, str]] = {
    "iris": ("iris", "three species of iris: least squares on labels beside softmax regression, fitted eight ways"),
    "latent-intervals": (
        "latent_intervals",
        "intervals for y need the noise: coverage with and without it, and after calibration",
    ),
    "ne-gp": (
        "ne_gp",
        "neural-enhanced Gaussian processes, exact and sparse: coverage and width before and after calibration (--data-dir: UCI)",
    ),
}


def experiment(name: str) -> Callable[..., list[dict[str, Any]]]:
    """The ``run`` of an experiment.

    Raises:
        UnknownName: if there is none of that name.
    """
    if name not in EXPERIMENTS:
        raise UnknownName("experiment", name, EXPERIMENTS)
    return importlib.import_module(f"{__name__}.{EXPERIMENTS[name][0]}").run
