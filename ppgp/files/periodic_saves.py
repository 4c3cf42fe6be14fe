"""Saves along the way: one that fails is told once and tried again, and the work goes on."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

from ..errors import StorageError, StorageWarning


class Saves:
    """The saves of one run to one file."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._failed: StorageError | None = None
        self._warned = False

    def attempt(self, write: Callable[[], object]) -> bool:
        """Write, or warn the first time that it fails; whether it is written."""
        try:
            write()
        except StorageError as error:
            self._failed = error
            if not self._warned:
                self._warned = True
                sentence = f"the checkpoint could not be written: {error}; the run goes on, and tries again at the next save"
                warnings.warn(sentence, StorageWarning, stacklevel=3)
            return False
        self._failed = None
        return True

    def notes(self) -> tuple[str, ...]:
        """What is to be said at the end: whether the last save failed."""
        if self._failed is None:
            return ()
        return (f"the checkpoint {self.path} does not hold the end of this run: {self._failed}",)
