"""Long runs survive: their whole state in one file, written so that a kill at any moment leaves the last good one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from .. import files
from ..data.dataset import Dataset
from ..errors import StorageError
from ..numerics.fingerprint import fingerprint
from ..posterior.posterior import Posterior
from ..target.target import Target

FORMAT = "ppgp-checkpoint-3"
EVERY = 2.0  # seconds between saves
SHARE = 0.05  # of the time of the run at most: where a save takes long, saves are further apart


class Checkpoint:
    """A file for the tensors of one run, locked while the block lasts. ``None`` as path: nothing is ever written or found.

    A file of another run (another method, model, seed or data) is refused rather than overwritten. A save that fails is told
    once, and the run goes on.
    """

    def __init__(self, path: str | Path | None, how: Any, target: Target, seed: int) -> None:
        self.path = None if path is None else Path(path)
        self._identity = "" if path is None else _identity(how, target, seed)
        self._next = time.monotonic() + EVERY
        self._saves = files.Saves(self.path)
        self._lock: AbstractContextManager[None] = files.locked(self.path)

    def __enter__(self) -> Checkpoint:
        """Raises StorageError if another run holds the lock, or no file can stand at the path."""
        if self.path is not None:
            files.check_regular(self.path)
        self._lock.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._lock.__exit__(*error)

    def noted(self, posterior: Posterior) -> Posterior:
        """The posterior of the run, with what there is to say of the file."""
        notes = self._saves.notes()
        return replace(posterior, warnings=(*posterior.warnings, *notes)) if notes else posterior

    def found(self) -> dict[str, Tensor] | None:
        """The tensors of the last save, or None.

        Raises:
            StorageError: if the file is damaged, foreign, or of another run.
        """
        if self.path is None:
            return None
        with files.explained(self.path, "read"):
            if not self.path.exists():
                return None
            self.path.open("rb").close()  # what may not be read is not damaged
        try:
            with safe_open(str(self.path), "pt") as file:
                metadata = file.metadata() or {}
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError, ValueError, RuntimeError, TypeError, OverflowError):
            do = "choose another path; delete it only if it is a damaged checkpoint"
            raise StorageError(
                "a checkpoint of this run", f"{self.path.name}, which cannot be read as one", do
            ) from None
        if metadata.get("format") != FORMAT:
            raise StorageError(
                "a checkpoint of this run",
                f"{self.path.name}, another kind of file",
                "choose another path",
            )
        if metadata.get("identity") != self._identity:
            raise StorageError(
                "a checkpoint of this run",
                f"{self.path.name}, of another method, model, seed or data",
                "choose another path, or delete it",
            )
        if metadata.get("checksum") != _checksum(tensors):
            raise StorageError(
                "a checkpoint of this run",
                f"{self.path.name}, damaged: its checksum is another",
                "delete it",
            )
        return tensors

    def due(self) -> bool:
        """Whether it is time for the next save."""
        return self.path is not None and time.monotonic() >= self._next

    def save(self, tensors: Mapping[str, Tensor]) -> None:
        """Replace the file: written beside it and renamed, which the operating system does at once or not at all."""
        path = self.path
        if path is None:
            return
        started = time.monotonic()
        clones = {
            name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()
        }
        about = {"format": FORMAT, "identity": self._identity, "checksum": _checksum(clones)}
        content = to_bytes(clones, about)
        del clones
        self._saves.attempt(lambda: files.write(path, content, folder=True))
        self._next = time.monotonic() + max(EVERY, (time.monotonic() - started) / SHARE)


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    """A digest of names, types, shapes and numbers."""
    return fingerprint(*sorted(tensors.items()))


def _identity(how: Any, target: Target, seed: int) -> str:
    """A digest of all that the result depends on."""
    data = target.data
    arguments = (data.X, data.y, data.noise_sd) if isinstance(data, Dataset) else dict(data)
    return fingerprint(how, target.model, int(seed), arguments)
