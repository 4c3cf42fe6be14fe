"""Where a path leads, and whether a file or a folder can be written there: asked before the work, not after it."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import StorageError

NEW = ".new"  # ends the name of a file that is being written
LINKS = 40  # followed at most, as the kernel does
LONGEST = 180  # bytes of a name that stands in the name of the file beside it; a longer one is stood for by its digest
_DESCRIPTORS = re.compile(r"(/proc/[^/]+(/task/[^/]+)?/fd|/dev/fd)")
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_LOCKED = {errno.EACCES, errno.EPERM, errno.EROFS}
_DO = {
    errno.ENOENT: "make its folder first, or choose another path",
    errno.ENOTDIR: "a part of the path is a file: choose another path",
    errno.EISDIR: "it is a folder: name a file in it",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ELOOP: "the link leads in a circle: choose another path",
}


def target_of(path: str | Path) -> Path:
    """The file that a path leads to, symbolic links followed; a link to an open descriptor (/dev/stdout) is left as it is."""
    here = os.path.join(os.getcwd(), path)
    for _ in range(LINKS):
        folder, name = os.path.split(here)
        if name in ("", ".", ".."):
            return Path(os.path.realpath(here))
        folder = os.path.realpath(folder)
        here = os.path.join(folder, name)
        if _DESCRIPTORS.fullmatch(folder) or not os.path.islink(here):
            return Path(here)
        here = os.path.join(folder, os.readlink(here))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def descriptor_of(target: Path) -> int | None:
    """The number of this process's open descriptor that a target names."""
    folder = str(target.parent)
    own = folder in ("/dev/fd", "/proc/self/fd", f"/proc/{os.getpid()}/fd")
    return int(target.name) if own and target.name.isdigit() else None


def is_stream(path: str | Path) -> bool:
    """Whether a path leads to a pipe, a device or an open descriptor, which is written through and never replaced."""
    with explained(path):
        target = target_of(path)
        if _DESCRIPTORS.fullmatch(str(target.parent)):
            return True
        kind = kind_of(target)
    return kind is not None and not stat.S_ISREG(kind) and not stat.S_ISDIR(kind)


def beside(target: Path, tail: str) -> Path:
    """A hidden name in the folder of a file."""
    name, whole = target.name, os.fsencode(target.name)
    if len(whole) > LONGEST:
        name = hashlib.sha256(whole).hexdigest()[:32]
    return target.with_name(f".{name}.{tail}")


def fresh(target: Path, suffix: str = "") -> Path:
    """A name beside a file that nothing bears."""
    return beside(target, f"{secrets.token_hex(8)}{NEW}{suffix}")


def sweep(target: Path) -> None:
    """Remove what killed writers of a file have left beside it. Only for the holder of its lock."""
    left = re.compile(
        re.escape(beside(target, "").name) + r"[0-9a-f]{16}" + re.escape(NEW) + r"(\..*)?"
    )
    with suppress(OSError):
        for name in os.listdir(target.parent):
            if left.fullmatch(name):
                target.with_name(name).unlink(missing_ok=True)


def check_file(path: str | Path) -> Path:
    """The path, if a file can be written there.

    Raises:
        StorageError: for a folder, a read-only file or folder, a folder that is missing, a name that is too long.
    """
    path = Path(path)
    with explained(path):
        target = target_of(path)
        kind = kind_of(target)
    if kind is not None and stat.S_ISDIR(kind):
        raise StorageError("a file to write", f"{path}, a folder", "name a file in it")
    _check_part(path, target.parent, "make it first, or choose another path")
    if not is_stream(path) and (kind is None or stat.S_ISREG(kind)):
        check_mode(path, target, kind)
        _probe(path, target)
    elif not os.access(target, os.W_OK):
        raise StorageError("a file to write", f"{path}, which is read-only", "choose another path")
    return path


def check_regular(path: str | Path) -> Path:
    """The path, if a file stands there, or nothing yet: what is asked of a file that is read again.

    Raises:
        StorageError: for a folder, a device, a name that is too long, a path below a file.
    """
    path = Path(path)
    with explained(path):
        target = target_of(path)
        kind = kind_of(target)
        above = next(folder for folder in target.parents if kind_of(folder) is not None)
    if kind is not None and not stat.S_ISREG(kind):
        what = "a folder" if stat.S_ISDIR(kind) else "which is no regular file"
        raise StorageError(
            "a file that can be read again", f"{path}, {what}", "choose another path"
        )
    if not above.is_dir():
        raise StorageError(f"a folder to write {path}", f"the file {above}", "choose another path")
    return path


def check_folder(path: str | Path) -> Path:
    """The path, if a folder is there or can be made there, and files can be written in it.

    Raises:
        StorageError: for a file, a read-only folder, a name that is too long.
    """
    path = Path(path)
    with explained(path):
        target = Path(os.path.realpath(path))
        there, missing = target, []
        while kind_of(there) is None:
            missing.append(there.name)
            there = there.parent
    _check_part(path, there, "choose another path")
    with explained(path):
        longest = os.pathconf(there, "PC_NAME_MAX") if hasattr(os, "pathconf") else 255
        if any(len(os.fsencode(name)) > longest for name in missing):
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), str(path))
    _probe(path, there / (missing[-1] if missing else "file"))
    return path


@contextmanager
def explained(path: str | Path, deed: str = "write") -> Iterator[None]:
    """What the operating system says against writing a path, as a StorageError. A pipe that nobody reads is left to the caller."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = (error.strerror or str(error) or type(error).__name__).lower()
        raise StorageError(f"to {deed} {path}", reason, _advice(path, error)) from error


def _advice(path: str | Path, error: OSError) -> str:
    if error.errno in _FULL:
        return f"make room{_free(path)}, or choose another disk"
    if error.errno in _LOCKED:
        return "choose another path, or make this one writable"
    return _DO.get(error.errno or 0, "choose another path")


def _free(path: str | Path) -> str:
    for folder in Path(os.path.abspath(path)).parents:
        try:
            return f" ({shutil.disk_usage(folder).free:,} bytes are free)"
        except OSError:  # a folder that is gone: ask the one above
            continue
    return ""


def kind_of(target: Path) -> int | None:
    """The mode of what stands there; None for nothing. What is below a file cannot be there either.

    Raises:
        OSError: for what the operating system will not look at.
    """
    try:
        return os.stat(target).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None


def _check_part(path: Path, folder: Path, do: str) -> None:
    with explained(path):
        kind = kind_of(folder)
        above = (
            None if kind is not None else next(p for p in folder.parents if kind_of(p) is not None)
        )
    if kind is None and above is not None and above.is_dir():
        raise StorageError(f"a folder for {path}", f"no folder {path.parent}", do)
    if kind is None or not stat.S_ISDIR(kind):
        raise StorageError(
            f"a folder to write {path}", f"the file {above or folder}", "choose another path"
        )


def check_mode(path: Path, target: Path, kind: int | None) -> None:
    """A file marked read-only is not replaced, though its folder would allow it, and the superuser may do all."""
    if kind is not None and (not kind & 0o222 or not os.access(target, os.W_OK)):
        raise StorageError(
            "a file to write",
            f"{path}, which is read-only",
            "choose another path, or make it writable",
        )


def _probe(path: Path, target: Path) -> None:
    """An empty file beside the target, and away again: permissions alone do not tell of read-only disks."""
    new = fresh(target)
    with explained(path):
        try:
            os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        finally:
            new.unlink(missing_ok=True)
