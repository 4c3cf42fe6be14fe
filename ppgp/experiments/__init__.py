"""Published experiments that ``ppgp reproduce`` runs again, one per module.

Each module has a function ``run(out, *, seed, quick) -> rows``, which may take further options as
strings. A module is imported only when its experiment is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any

from ..errors import SettingError, UnknownName

#: name -> (module, what it shows)
EXPERIMENTS: dict[str, tuple[str, str]] = {
    "iris": (
        "iris",
        "three species of iris: least squares on labels beside softmax regression, "
        "fitted eight ways",
    ),
    "latent-intervals": (
        "latent_intervals",
        "intervals for y need the noise: coverage with and without it, and after calibration",
    ),
    "ne-gp": (
        "ne_gp",
        "neural-enhanced Gaussian processes, exact and sparse: coverage and width before and "
        "after calibration (--data-dir: UCI)",
    ),
    "olivetti": (
        "olivetti",
        "the angle of a rotated face by six models, under three protocols "
        "(--data-dir: a local copy)",
    ),
    "uci": (
        "uci",
        "the UCI regression sets on published splits: exact and sparse GPs beside MC dropout "
        "and SVGP: needs --data-dir DIR",
    ),
}


def options_of(run: Callable[..., Any], arguments: Sequence[str]) -> dict[str, str]:
    """Read the options that only this experiment has.

    Args:
        run: The ``run`` function of the experiment.
        arguments: Words such as ``--data-dir DIR`` or ``--data-dir=DIR``.

    Returns:
        The options by parameter name, such as ``{"data_dir": "DIR"}``.

    Raises:
        UnknownName: If the experiment has no such option.
        SettingError: If an option has no value, or a word belongs to no option.
    """
    known = [name for name in signature(run).parameters if name not in ("out", "seed", "quick")]
    options: dict[str, str] = {}
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
        options[name] = value if equals else waiting.pop(0)
    return options


def experiment(name: str) -> Callable[..., list[dict[str, Any]]]:
    """Return the ``run`` function of an experiment.

    Raises:
        UnknownName: If there is no experiment of that name.
    """
    if name not in EXPERIMENTS:
        raise UnknownName("experiment", name, EXPERIMENTS)
    from ..numerics.libraries import imported  # it takes a second

    return imported(f"{__name__}.{EXPERIMENTS[name][0]}").run
