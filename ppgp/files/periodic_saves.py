"""Saves during a run.

A save that fails is reported once and tried again at the next save, and the run continues.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..display.user_warnings import warn
from ..errors import StorageError, StorageWarning


class Saves:
    """The saves of one run to one file.

    Args:
        path: The file.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._failed: StorageError | None = None
        self._warned = False

    def attempt(self, write: Callable[[], object]) -> bool:
        """Write, and warn the first time that it fails.

        Args:
            write: Writes the file.

        Returns:
            Whether the file was written.
        """
        try:
            write()
        except StorageError as error:
            self._failed = error
            if not self._warned:
                self._warned = True
                warn(
                    f"the checkpoint could not be written: {error}; the run goes on, and tries "
                    "again at the next save",
                    StorageWarning,
                )
            return False
        self._failed = None
        return True

    def notes(self) -> tuple[str, ...]:
        """Return the notes for the end of the run: whether the last save failed."""
        if self._failed is None:
            return ()
        return (f"the checkpoint {self.path} does not hold the end of this run: {self._failed}",)
