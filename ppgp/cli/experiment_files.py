"""Experiment files: the options of ``ppgp compare`` and ``ppgp fit`` in TOML.

The names of options are keys; ``[set]`` holds what ``--set`` gives, and ``[compare]`` and ``[fit]``
the options of one command alone. Lists stand for commas.
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from typer import BadParameter
from typer.core import TyperCommand

from .. import files
from ..errors import DataError, SettingError, UnknownName
from .data_options import refuse_drop_missing
from .fit_commands import compare, fit

__all__ = ["ExperimentCommand", "words_of"]

COMMANDS = ("compare", "fit")  # that read experiment files
SUFFIX = ".toml"
PATHS = (".csv", ".tsv", ".txt", ".parquet", ".xlsx")  # of data that are files


class ExperimentCommand(TyperCommand):
    """A command that takes an experiment file in place of its data.

    Options beside the file come after those of the file, and so override them.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of the command, with those of the file in place of its name."""
        refuse_drop_missing(self.name, args)
        found = [word for word in args if word.endswith(SUFFIX)]
        if found:
            at = args.index(found[0])
            args = [*words_of(Path(found[0]), self), *args[:at], *args[at + 1 :]]
        try:
            return super().parse_args(ctx, args)
        except BadParameter as error:
            absent = ctx.params.get("data") is None
            if not found or not absent or getattr(error.param, "name", "") != "data":
                raise
            wanted = f"the key data in {Path(found[0]).name}"
            do = 'write data = "table.csv", or the name of a data set, before any [table]'
            raise DataError(wanted, "no such key", do) from None


def words_of(path: Path, command: Any) -> list[str]:
    """Return the words of the command line that an experiment file stands for.

    Paths in the file are relative to its folder.

    Args:
        path: The file.
        command: The command, whose options the keys name.

    Raises:
        DataError: If the file cannot be read.
        UnknownName: If a key is no option of the command.
        SettingError: If the value of a key is of the wrong kind, or the key is an option of the
            other command.
    """
    content = _read(path)
    own = content.get(command.name, {})
    keys = {key: value for key, value in content.items() if key not in COMMANDS} | own
    options = {
        name.removeprefix("--"): parameter
        for parameter in command.params
        for name in parameter.opts
        if name != "--json"
    }
    words: list[str] = []
    for key, value in keys.items():
        name = key.replace("_", "-")
        if name not in options:
            _refuse_of_another(name, command.name, path)
            known = [*options, *COMMANDS] if isinstance(value, Mapping) else options
            raise UnknownName(f"key in {path.name}", key, known)
        if name in ("data", "out"):
            value = _located(path.parent, name, str(value))
        if name == "data":
            words.insert(0, value)
        else:
            words += _words(name, value, options[name])
    return words


def _refuse_of_another(name: str, command: str, path: Path) -> None:
    """Raise SettingError for a key that is an option of the other command alone."""
    for other in (compare, fit):
        own = [one.replace("_", "-") for one in inspect.signature(other).parameters]
        if other.__name__ != command and name in own:
            wanted = f"options of {command}, or of both commands, as keys in {path.name}"
            do = f"write it under [{other.__name__}]"
            raise SettingError(wanted, f"{name!r}, an option of {other.__name__}", do)


def _read(path: Path) -> dict[str, Any]:
    """Return the content of a file."""
    if not path.is_file():
        raise DataError("a .toml file of options to read", files.no_file(path), "check the path")
    try:
        with path.open("rb") as file:
            content = tomllib.load(file)
    except (OSError, ValueError) as error:
        raise DataError("a readable .toml file", f"{path.name} ({error})", "check it") from None
    for name in COMMANDS:
        if not isinstance(content.get(name, {}), Mapping):
            raise SettingError(f"a table [{name}] in {path.name}", repr(content[name]), "write one")
    return content


def _located(folder: Path, name: str, value: str) -> str:
    """Return a path relative to the current folder; the name of a data set as it is."""
    is_file = name == "out" or Path(value).suffix.lower() in PATHS
    return str(folder / value) if is_file else value


def _words(name: str, value: Any, option: Any) -> list[str]:
    """Return an option and its value as words of the command line."""
    flag = getattr(option, "is_flag", False)
    if flag != isinstance(value, bool):
        wanted = "true or false" if flag else "a text, a number or a list"
        raise SettingError(f"{wanted} as {name}", repr(value), "correct the file")
    if flag:
        return [f"--{name}"] if value else list(option.secondary_opts)
    if isinstance(value, Mapping):
        if name != "set":
            raise SettingError(f"a value as {name}", "a table", "write its options under [set]")
        return [word for setting in _settings(value) for word in ("--set", setting)]
    if isinstance(value, Sequence) and not isinstance(value, str):
        if name == "set":
            return [word for setting in value for word in ("--set", str(setting))]
        value = ",".join(map(str, value))
    return [f"--{name}={value}"]


def _settings(table: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield ``option=value`` for each entry of a table, whose names dots may separate."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _settings(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}={value}"
