"""Checkpoints: the whole state of a long run in one file.

A kill at any moment leaves the last complete save.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from .. import files
from ..density.target import Target
from ..errors import StorageError
from ..posterior.posterior import Posterior
from ..runtime.fingerprint import fingerprint
from ..runtime.seeding import standard_normal

FORMAT = "ppgp-checkpoint-4"
EVERY = 2.0  # seconds between saves
ROUNDING = {torch.float64: 1e-6}  # by how much processes and machines may differ in a density
IN_SINGLE = 1e-3  # the same for other dtypes
SHOWN = 60  # characters of a setting in a message
SHARE = 0.05  # of the run's time that saves take at most; slow saves are further apart


class Checkpoint:
    """A file for the tensors of one run, locked inside the block.

    A file of another run (another method, model, seed or data) is refused, not overwritten. The
    first save that fails issues a warning, and the run goes on. In a team rank 0 writes and reads
    the file, and the other ranks get from it what it holds.

    Args:
        path: The file. None: nothing is ever written or read.
        how: The method.
        target: The density.
        seed: The seed of the run.

    Raises:
        NotApplicable: If no file can hold a fit of the model.
    """

    def __init__(self, path: str | Path | None, how: Any, target: Target, seed: int) -> None:
        self.path: Path | None = None
        self._team = target.team
        self._identity: dict[str, Any] = {}
        self._density = ""
        if path is not None:
            target.model.check_storable()
            self.path = Path(path)
            self._identity = _identity(how, target, seed)
            self._density = _density(target)
            self._rounding = ROUNDING.get(target.origin().dtype, IN_SINGLE)
        self._next = time.monotonic() + EVERY
        own = self.path if self._team.rank == 0 else None
        self._saves = files.Saves(own)
        self._lock: AbstractContextManager[None] = files.locked(own)

    def __enter__(self) -> Checkpoint:
        """Raise StorageError if another run holds the lock, or no file can be at the path."""
        with self._team.all_or_none():
            if self.path is not None and self._team.rank == 0:
                files.check_regular(self.path)
            self._lock.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._lock.__exit__(*error)

    def with_notes(self, posterior: Posterior) -> Posterior:
        """Return the posterior of the run, with a warning if the last save failed."""
        notes = self._saves.notes()
        if not notes:
            return posterior
        return replace(posterior, warnings=(*posterior.warnings, *notes))

    def found(self) -> dict[str, Tensor] | None:
        """Return the tensors of the last save; None if there is no file.

        Raises:
            StorageError: If the file is damaged, no checkpoint, or of another run.
        """
        if self.path is None:
            return None
        tensors = None
        with self._team.all_or_none():
            if self._team.rank == 0:
                tensors = self._read(self.path)
        return self._team.tensors_of_rank_zero(tensors)

    def _read(self, path: Path) -> dict[str, Tensor] | None:
        """Return the tensors of the file; None if there is none."""
        with files.explained(path, "read"):
            if not path.exists():
                return None
            path.open("rb").close()  # a missing permission is no damage
        try:
            with safe_open(str(path), "pt") as file:
                metadata = file.metadata() or {}
                # copies: where the file puts a tensor in memory decides the last digits of sums
                tensors = {key: file.get_tensor(key).clone() for key in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError, ValueError, RuntimeError, TypeError, OverflowError):
            do = "choose another path; delete it only if it is a damaged checkpoint"
            raise StorageError(
                "a checkpoint of this run", f"{path.name}, which cannot be read as one", do
            ) from None
        if metadata.get("format") != FORMAT:
            raise StorageError(
                "a checkpoint of this run",
                f"{path.name}, another kind of file",
                "choose another path",
            )
        same = _agree(metadata.get("density", ""), self._density, self._rounding)
        others = _differences(metadata.get("identity", ""), self._identity)
        if not others and not same:
            others = ["another density of the program, which reads other data"]
        if others:
            raise StorageError(
                "a checkpoint of this run",
                f"{path.name}, of a run with {', '.join(others)}",
                "choose another path, or delete it",
            )
        if metadata.get("checksum") != _checksum(tensors):
            raise StorageError(
                "a checkpoint of this run",
                f"{path.name}, damaged: its checksum does not match",
                "delete it",
            )
        return tensors

    def due(self) -> bool:
        """Whether it is time for the next save."""
        writes = self.path is not None and self._team.rank == 0
        return writes and time.monotonic() >= self._next

    def save(self, tensors: Mapping[str, Tensor]) -> None:
        """Replace the file.

        The new one is written beside it and renamed, which the operating system does at once or
        not at all.
        """
        path = self.path
        if path is None or self._team.rank:
            return
        started = time.monotonic()
        clones = {
            name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()
        }
        about = {"format": FORMAT, "identity": json.dumps(self._identity)}
        about |= {"checksum": _checksum(clones), "density": self._density}
        content = to_bytes(clones, about)
        del clones
        self._saves.attempt(lambda: files.write(path, content, folder=True))
        self._next = time.monotonic() + max(EVERY, (time.monotonic() - started) / SHARE)


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    """Return a digest of names, types, shapes and numbers."""
    return fingerprint(*sorted(tensors.items()))


def _identity(how: Any, target: Target, seed: int) -> dict[str, Any]:
    """Return digests of all that the result depends on, with names for messages."""
    settings = {field.name: f"{getattr(how, field.name)!r:.{SHOWN}}" for field in fields(how)}
    return {
        "method": type(how).__name__,
        "settings": settings,
        "how": fingerprint(how),
        "model": fingerprint(target.model),
        "name": type(target.model).__name__,
        "seed": int(seed),
        "data": fingerprint(target.data.content),
    }


def _differences(identity: str, here: Mapping[str, Any]) -> list[str]:
    """Return in words how the run of a file differs from this one; [] if it is this one.

    A recipe that is made ready for other data may be another one for that reason alone.

    Args:
        identity: What the file says of its run.
        here: Of this run.
    """
    try:
        there = json.loads(identity)
    except ValueError:
        there = None
    if not isinstance(there, dict) or there.keys() != here.keys():
        return ["another method, model, seed or data"]
    found = []
    if there["method"] != here["method"]:
        found.append(f"the method {there['method']}, not {here['method']}")
    elif there["how"] != here["how"]:
        changed = [
            f"{name}={there['settings'].get(name)}, not {value}"
            for name, value in here["settings"].items()
            if there["settings"].get(name) != value
        ]
        found += changed or [f"other settings of {here['method']}"]
    if there["seed"] != here["seed"]:
        found.append(f"seed={there['seed']}, not {here['seed']}")
    if there["name"] != here["name"]:
        found.append(f"the model {there['name']}, not {here['name']}")
    if there["data"] != here["data"]:
        found.append("other data")
    elif there["name"] == here["name"] and there["model"] != here["model"]:
        kind = here["name"]
        found.append("another program" if kind == "Program" else f"another recipe of {kind}")
    return found


def _density(target: Target) -> str:
    """Return the density of a program and two numbers of its gradient at three fixed points.

    A program may read data that no digest of its code shows: a dict around it, the fields of an
    object, or a handler that conditions it. "" for the models of the library.
    """
    if target.data.is_table:
        return ""
    generator = torch.Generator().manual_seed(0)
    moves = standard_normal(generator, 4, target.dim)
    origin = target.origin()
    numbers: list[float] = []
    with target.same_noise(0):
        for step in (torch.zeros_like(moves[0]), 0.5 * moves[0], 0.5 * moves[1]):
            try:
                value, gradient = target.value_and_grad(origin + step.to(origin), compile=False)
            except (RuntimeError, ValueError, ArithmeticError):  # no density there
                numbers += [math.nan] * 3
                continue
            slope = gradient.double().cpu()
            numbers += [float(value), float(slope @ moves[2]), float(slope @ moves[3])]
    return " ".join(map(repr, numbers))


def _agree(stored: str, here: str, rounding: float) -> bool:
    """Return whether two results of ``_density`` are the same up to ``rounding``.

    Files without one agree with any.
    """
    if not stored or not here:
        return True
    a, b = (np.array(text.split(), dtype=float) for text in (stored, here))
    return bool(np.allclose(a, b, rtol=rounding, atol=rounding, equal_nan=True))
