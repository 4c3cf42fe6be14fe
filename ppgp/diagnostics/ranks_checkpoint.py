"""The checkpoint of simulation-based calibration: ranks in a file of JSON lines."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

from .. import files
from ..errors import StorageError, StorageWarning


class RanksCheckpoint:
    """The ranks of finished simulations in a file of JSON lines.

    The first line holds the fingerprint of the call. Without a path, nothing is stored.
    """

    def __init__(self, path: str | Path | None, identity: str) -> None:
        self.path = None if path is None else files.check_regular(path)
        self.identity = identity
        self._saves = files.Saves(self.path)
        self._lines: list[str] = [json.dumps({"sbc": self.identity})]
        self._written = 0  # of the lines

    def read(self) -> dict[int, dict[str, int]]:
        """Return ``{simulation: {scalar: rank}}`` from the file.

        Raises:
            StorageError: if the file is not a checkpoint of this call, or cannot be read.
        """
        if self.path is None:
            return {}
        text = self._text(self.path)
        if not text:
            return {}
        lines = text.splitlines()
        try:
            head = json.loads(lines[0])["sbc"]
        except (json.JSONDecodeError, KeyError, TypeError):
            head = None
        if head != self.identity:
            got, do = f"{self.path.name}, of another", "choose another path, or delete it"
            raise StorageError("a checkpoint of this call", got, do)
        ranks = {}
        for line in lines[1:]:
            try:
                entry = json.loads(line)
                ranks[int(entry["i"])] = dict(entry["ranks"])
            except (ValueError, KeyError, TypeError):
                continue  # a damaged line: its simulation is run again
        self._lines, self._written = lines, len(lines)
        return ranks

    def _text(self, path: Path) -> str:
        try:
            with files.explained(path, "read"):
                return path.read_text() if path.exists() else ""
        except UnicodeDecodeError:
            got, do = f"{path.name}, another kind of file", "choose another path"
            raise StorageError("a checkpoint of this call", got, do) from None

    def add(self, i: int, ranks: dict[str, int]) -> None:
        """Write the ranks of one simulation."""
        if self.path is not None:
            self._lines.append(json.dumps({"i": i, "ranks": ranks}))
            self._write(self.path)

    def finish(self) -> None:
        """Try once more to write what is missing, and warn if it fails."""
        if self.path is None or self._written == len(self._lines) or self._write(self.path):
            return
        for sentence in self._saves.notes():
            warnings.warn(sentence, StorageWarning, stacklevel=3)

    def _write(self, path: Path) -> bool:
        """Append the lines that are not in the file; all of them, if it is gone."""
        if not path.exists():
            self._written = 0
        waiting = self._lines[self._written :]
        text = "".join(f"{line}\n" for line in waiting)
        written = self._saves.attempt(lambda: files.append(path, text))
        if written:
            self._written = len(self._lines)
        return written
