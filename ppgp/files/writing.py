"""Writers of bytes, text, figures and lines."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from .atomic_replacement import replacing
from .output_paths import explained, target_of


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
