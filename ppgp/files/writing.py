"""One writer for every file: beside the target, to the disk, and then in its place."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from .output_paths import check_mode, descriptor_of, explained, fresh, is_stream, kind_of, target_of


@contextmanager
def replacing(path: str | Path) -> Iterator[IO[bytes]]:
    """A file to write bytes to, which takes the place of ``path`` once it is whole and on the disk.

    If the block raises, ``path`` is as it was. A symbolic link stays, and the file that it leads to is replaced; permissions
    stay. A pipe or a device is written through.

    Raises:
        StorageError: if the operating system will not write it.
    """
    if is_stream(path):
        with explained(path), _through(target_of(path)) as file:
            yield file
        return
    with replacing_path(path) as new, new.open("r+b") as file:
        yield file


@contextmanager
def replacing_path(path: str | Path) -> Iterator[Path]:
    """The same for writers that ask for a path: that of an empty file with the same suffix."""
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


def write(path: str | Path, *content: bytes | memoryview | str, folder: bool = False) -> Path:
    """Put bytes, or text in UTF-8, in the place of a file; returns the path. ``folder``: make the folder, if it is missing."""
    if folder:
        _make_folder(path)
    with replacing(path) as file:
        for part in content:
            file.write(part.encode() if isinstance(part, str) else part)
    return Path(path)


def write_figure(path: str | Path, figure: Any, **options: Any) -> Path:
    """A figure of matplotlib, in the format that the suffix names; the folder is made."""
    _make_folder(path)
    with replacing(path) as file:
        figure.savefig(file, format=Path(path).suffix.removeprefix(".") or "png", **options)
    return Path(path)


def append(path: str | Path, text: str) -> None:
    """Add lines to a file, all of them or none; what a killed process left of a line is ended first. The folder is made.

    Raises:
        StorageError: if the operating system will not write them.
    """
    with explained(path):
        target = target_of(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        begun = target.exists()
        with open(
            target, "ab", buffering=0
        ) as file:  # a buffer would write its rest when it is closed
            before = file.tell()
            torn = before > 0 and not _ends_a_line(target)
            rest = memoryview(("\n" * torn + text).encode())
            try:
                while rest:
                    rest = rest[file.write(rest) :]
            except BaseException:
                with suppress(OSError):
                    os.ftruncate(file.fileno(), before)
                    if not begun:
                        target.unlink()
                raise


def _make_folder(path: str | Path) -> None:
    with explained(path):
        target_of(path).parent.mkdir(parents=True, exist_ok=True)


def _ends_a_line(target: Path) -> bool:
    with target.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _create(new: Path, target: Path, mode: int | None) -> None:
    """An empty file, with the owner and the permissions of the one that it will replace."""
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        if mode is not None:
            there = os.stat(target)
            with suppress(OSError, AttributeError):  # another's file, or a system without owners
                os.fchown(descriptor, there.st_uid, there.st_gid)
            os.chmod(new, stat.S_IMODE(mode))
    finally:
        os.close(descriptor)


def _through(target: Path) -> IO[bytes]:
    """A pipe, a device or a descriptor: one of our own is written where it stands, which opening it again would not do."""
    number = descriptor_of(target)
    if number is None:
        return target.open("wb")
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    return open(os.dup(number), "wb")
