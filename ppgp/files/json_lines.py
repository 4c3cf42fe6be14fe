"""Logs of JSON lines that a stopped run continues from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..display.user_warnings import warn
from ..errors import StorageError, StorageWarning
from .locks import locked
from .output_paths import check_regular, explained
from .writing import Saves, append

PATIENCE = 60.0  # seconds that an append waits for those of other processes


class JsonLines:
    """A file with one record per line, to which several processes may append.

    Lines are added whole or not at all. If the file is gone, the next append writes the header and
    all records again. A damaged line, which a killed process leaves, is skipped.

    Args:
        path: The file; None stores nothing.
        header: The first line, which says what the records belong to; None: there is no header.
        what: What the file is, for error messages.

    Raises:
        StorageError: If a file at the path could not be read again.
    """

    def __init__(
        self,
        path: str | Path | None,
        header: Mapping[str, Any] | None = None,
        what: str = "a file of JSON lines",
    ) -> None:
        self.path = None if path is None else check_regular(path)
        self.what = what
        self._header = [] if header is None else [json.dumps(header)]
        self._stored: list[str] = []
        self._waiting: list[str] = []
        self._saves = Saves(self.path)
        self._is_held = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep all other runs away from the file inside the block.

        Raises:
            StorageError: If another run uses it.
        """
        with locked(self.path):
            self._is_held = True
            try:
                yield
            finally:
                self._is_held = False

    def read(self, *keys: str) -> list[dict[str, Any]]:
        """Return the records that have all these keys.

        Raises:
            StorageError: If the file has another header, or cannot be read.
        """
        if self.path is None:
            return []
        lines = self._lines(self.path)
        if lines:
            self._check_header(self.path, lines[0])
        self._stored = lines[len(self._header) :]
        records = []
        for line in self._stored:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and all(key in record for key in keys):
                records.append(record)
        return records

    def append(self, *records: Mapping[str, Any]) -> None:
        """Add records, after those that an earlier call could not write.

        Raises:
            StorageError: If the operating system does not allow it, or the file has another header.
        """
        self._waiting += [json.dumps(record) for record in records]
        if self.path is None or not self._waiting:
            return
        with self._turn():
            lines = self._waiting
            first = self._first_line(self.path)
            if first:
                self._check_header(self.path, first)
            else:
                lines = [*self._header, *self._stored, *self._waiting]
            append(self.path, "".join(f"{line}\n" for line in lines))
        self._stored, self._waiting = [*self._stored, *self._waiting], []

    def save(self, *records: Mapping[str, Any]) -> None:
        """Add records; if that fails, warn and let the next call try again."""
        self._saves.attempt(lambda: self.append(*records))

    def finish(self) -> None:
        """Try once more to write what ``save`` could not, and warn if it fails."""
        self.save()
        for sentence in self._saves.notes():
            warn(sentence, StorageWarning)

    def clear(self) -> None:
        """Remove the file and forget its records."""
        self._stored, self._waiting = [], []
        if self.path is not None:
            with explained(self.path, "remove"):
                self.path.unlink(missing_ok=True)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait until no other process appends."""
        if self._is_held:
            yield
            return
        with locked(self.path, PATIENCE):
            yield

    def _check_header(self, path: Path, line: str) -> None:
        """Raise StorageError if the first line of the file is not the header."""
        if not self._header:
            return
        try:
            same = json.loads(line) == json.loads(self._header[0])
        except ValueError:
            same = False
        if not same:
            got, do = f"{path.name}, of another", "choose another path, or delete it"
            raise StorageError(self.what, got, do)

    def _lines(self, path: Path) -> list[str]:
        try:
            with explained(path, "read"):
                text = path.read_text(encoding="utf-8") if path.exists() else ""
        except UnicodeDecodeError:
            got, do = f"{path.name}, another kind of file", "choose another path"
            raise StorageError(self.what, got, do) from None
        return text.removesuffix("\n").split("\n") if text else []

    def _first_line(self, path: Path) -> str:
        """Return the first line, with its end; "" if there is no file, or an empty one."""
        with explained(path, "read"):
            if not path.exists():
                return ""
            with path.open(encoding="utf-8", errors="replace") as file:
                return file.readline()
