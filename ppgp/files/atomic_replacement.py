"""Files that are replaced as a whole.

The new content is written beside the target and flushed to the disk before it replaces the target.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from .output_paths import check_mode, descriptor_of, explained, fresh, is_stream, kind_of, target_of


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
