"""Published experiments that ``ppgp reproduce`` runs again, one per module.

Each module has a function ``run(out, *, seed, quick) -> rows``, which may take further options as
strings. A module is imported only when its experiment is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

from ..errors import SettingError, UnknownName
from ..files import JsonLines

#: one module per name, with ``_`` for ``-``
EXPERIMENTS = ("classification", "iris", "latent-intervals", "league", "ne-gp", "olivetti", "uci")


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
    from ..runtime.libraries import imported  # it takes a second

    return imported(f"{__name__}.{name.replace('-', '_')}").run


def start_rows(out: Path) -> JsonLines:
    """Return the log ``rows.jsonl`` of a folder, without the rows of an earlier run.

    Rows are written as they are complete, so that a stopped run keeps them.
    """
    log = JsonLines(out / "rows.jsonl")
    log.clear()
    return log
