"""Writers of bytes, text, figures and lines: a file is written as a whole or not at all.

The new content is written beside the target and flushed to the disk before it replaces the target.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from ..display.user_warnings import warn
from ..errors import StorageError, StorageWarning
from .output_paths import check_mode, descriptor_of, explained, fresh, is_stream, kind_of, target_of


def write(path: str | Path, *content: bytes | memoryview | str, folder: bool = False) -> Path:
    """Replace a file with bytes or text, and return its path.

    Args:
        path: The file.
        *content: Bytes, or text, which is written in UTF-8.
        folder: Whether to make the file's folder if it is missing.

    Raises:
        StorageError: If the operating system does not allow it.
    """
    if folder:
        _make_folder(path)
    with replacing(path) as file:
        for part in content:
            if isinstance(part, str):
                part = part.encode()
            file.write(part)
    return Path(path)


def write_figure(path: str | Path, figure: Any, **options: Any) -> Path:
    """Save a figure of matplotlib in the format of the suffix, and return its path.

    The folder is made if it is missing.

    Args:
        path: The file.
        figure: The figure.
        **options: Further arguments of ``savefig``.
    """
    _make_folder(path)
    with replacing(path) as file:
        figure.savefig(file, format=Path(path).suffix.removeprefix(".") or "png", **options)
    return Path(path)


def append(path: str | Path, text: str) -> None:
    """Add lines to a file, all of them or none.

    A line that a killed process left incomplete is ended first. The folder is made if it is
    missing.

    Raises:
        StorageError: If the operating system does not allow it.
    """
    with explained(path):
        target = target_of(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        existed = target.exists()
        # without a buffer, which would write its rest when the file is closed
        with open(target, "ab", buffering=0) as file:
            before = file.tell()
            incomplete = before > 0 and not _ends_a_line(target)
            rest = memoryview(("\n" * incomplete + text).encode())
            try:
                while rest:
                    rest = rest[file.write(rest) :]
            except BaseException:
                with suppress(OSError):
                    os.ftruncate(file.fileno(), before)
                    if not existed:
                        target.unlink()
                raise


def _make_folder(path: str | Path) -> None:
    """Make the folder of a file if it is missing."""
    with explained(path):
        target_of(path).parent.mkdir(parents=True, exist_ok=True)


def _ends_a_line(target: Path) -> bool:
    """Return whether the last byte of a file ends a line."""
    with target.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


@contextmanager
def replacing(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a file for bytes that replaces ``path`` once it is complete and on the disk.

    If the block raises, ``path`` is unchanged. A symbolic link is kept, and the file it leads to is
    replaced; permissions are kept. A pipe or a device is written through.

    Raises:
        StorageError: If the operating system does not allow it.
    """
    if is_stream(path):
        with explained(path), _through(target_of(path)) as file:
            yield file
        return
    with replacing_path(path) as new, new.open("r+b") as file:
        yield file


@contextmanager
def replacing_path(path: str | Path) -> Iterator[Path]:
    """Provide a path to write to, in place of the open file of ``replacing``.

    It is that of an empty file with the same suffix as ``path``.

    Raises:
        StorageError: If the operating system does not allow it.
    """
    path = Path(path)
    if is_stream(path):
        with explained(path):
            yield path
        return
    with explained(path):
        target = target_of(path)
        mode = kind_of(target)
        if mode is not None and stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        check_mode(path, target, mode)
        new = fresh(target, target.suffix[:16])
        try:
            _create(new, target, mode)
            yield new
            with new.open("r+b") as file:
                os.fsync(file.fileno())
            os.replace(new, target)
        except BaseException:
            with suppress(OSError):
                new.unlink()
            raise


def _create(new: Path, target: Path, mode: int | None) -> None:
    """Create an empty file with the owner and the permissions of the file it will replace."""
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        if mode is not None:
            there = os.stat(target)
            with suppress(
                OSError, AttributeError
            ):  # the file belongs to another user, or the system has no owners
                os.fchown(descriptor, there.st_uid, there.st_gid)
            os.chmod(new, stat.S_IMODE(mode))
    finally:
        os.close(descriptor)


def _through(target: Path) -> IO[bytes]:
    """Open a pipe, a device or a descriptor for writing.

    A descriptor of this process is duplicated, so that writing continues at its position; opening
    it anew would start at the beginning.
    """
    number = descriptor_of(target)
    if number is None:
        return target.open("wb")
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    return open(os.dup(number), "wb")


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
