"""Published experiments, re-run: one a file, with ``run(out, *, seed, quick) -> rows`` and options of its own (strings). Named here, imported when asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any

from ..errors import SettingError, UnknownName

#: name -> (module, what it shows)
EXPERIMENTS: dict[str, tuple[str, str]] = {
    "iris": (
        "iris",
        "three species of iris: least squares on labels beside softmax regression, fitted eight ways",
    ),
    "latent-intervals": (
        "latent_intervals",
        "intervals for y need the noise: coverage with and without it, and after calibration",
    ),
    "ne-gp": (
        "ne_gp",
        "neural-enhanced Gaussian processes, exact and sparse: coverage and width before and after calibration (--data-dir: UCI)",
    ),
    "olivetti": (
        "olivetti",
        "the angle of a turned face by six models, under three protocols (--data-dir: a local copy)",
    ),
    "uci": (
        "uci",
        "the UCI regression sets on published splits: exact and sparse GPs beside MC dropout and SVGP: needs --data-dir DIR",
    ),
}


def options_of(run: Callable[..., Any], arguments: Sequence[str]) -> dict[str, str]:
    """``--data-dir DIR`` or ``--data-dir=DIR`` as ``{"data_dir": "DIR"}``: options that this experiment alone has.

    Raises:
        UnknownName: if it has no such option.
        SettingError: for one without a value, or a word that belongs to none.
    """
    known = [name for name in signature(run).parameters if name not in ("out", "seed", "quick")]
    found: dict[str, str] = {}
    waiting = list(arguments)
    while waiting:
        word, equals, value = waiting.pop(0).partition("=")
        name = word.removeprefix("--").replace("-", "_")
        if not word.startswith("--"):
            raise SettingError(
                "options as --name value", repr(word), "see `ppgp list` for the experiments"
            )
        if name not in known:
            raise UnknownName(
                "option of this experiment", word, ["--" + k.replace("_", "-") for k in known]
            )
        if not equals and not waiting:
            raise SettingError(f"a value for {word}", "none", f"write {word} VALUE")
        found[name] = value if equals else waiting.pop(0)
    return found


def experiment(name: str) -> Callable[..., list[dict[str, Any]]]:
    """The ``run`` of an experiment.

    Raises:
        UnknownName: if there is none of that name.
    """
    if name not in EXPERIMENTS:
        raise UnknownName("experiment", name, EXPERIMENTS)
    from ..numerics.libraries import imported  # it takes a second

    return imported(f"{__name__}.{EXPERIMENTS[name][0]}").run
