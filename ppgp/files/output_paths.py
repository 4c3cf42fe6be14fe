"""Checks, before the work, of whether a file or a folder can be written or read at a path.

The module also resolves the links of paths and explains errors of the operating system.
"""

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

SAVED = "a file that ppgp fit or posterior.save wrote"
NEW = ".new"  # the end of the name of a file that is being written
LINKS = 40  # symbolic links that are followed at most, as by the kernel
LONGEST = 180  # bytes of a name that a hidden file repeats in its own name; longer ones are hashed
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
    """Return the file that a path leads to, with symbolic links resolved.

    A link to an open descriptor (/dev/stdout) is left as it is.

    Raises:
        OSError: If links form a circle.
    """
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
    """Return the number of this process's open descriptor that a target names, or None."""
    folder = str(target.parent)
    own = folder in ("/dev/fd", "/proc/self/fd", f"/proc/{os.getpid()}/fd")
    if own and target.name.isdigit():
        return int(target.name)
    return None


def is_stream(path: str | Path) -> bool:
    """Return whether a path leads to a pipe, a device or an open descriptor.

    Such a target is written through and never replaced.
    """
    with explained(path):
        target = target_of(path)
        if _DESCRIPTORS.fullmatch(str(target.parent)):
            return True
        kind = kind_of(target)
    return kind is not None and not stat.S_ISREG(kind) and not stat.S_ISDIR(kind)


def beside(target: Path, tail: str) -> Path:
    """Return a hidden name in the folder of a file, derived from its name."""
    name, whole = target.name, os.fsencode(target.name)
    if len(whole) > LONGEST:
        name = hashlib.sha256(whole).hexdigest()[:32]
    return target.with_name(f".{name}.{tail}")


def fresh(target: Path, suffix: str = "") -> Path:
    """Return an unused name beside a file."""
    return beside(target, f"{secrets.token_hex(8)}{NEW}{suffix}")


def sweep(target: Path) -> None:
    """Remove the incomplete files that killed processes have left beside a file.

    Only the holder of the file's lock may call it.
    """
    hidden, new = re.escape(beside(target, "").name), re.escape(NEW)
    left = re.compile(rf"{hidden}[0-9a-f]{{16}}{new}(\..*)?")
    with suppress(OSError):
        for name in os.listdir(target.parent):
            if left.fullmatch(name):
                target.with_name(name).unlink(missing_ok=True)


def check_file(path: str | Path) -> Path:
    """Return the path if a file can be written there.

    Raises:
        StorageError: For a folder, a read-only file or folder, a missing folder, or a name that is
            too long.
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
    """Return the path if a file written there can be read again.

    The path leads to a regular file, or to nothing yet.

    Raises:
        StorageError: For a folder, a device, a name that is too long, or a path below a file.
    """
    path = Path(path)
    with explained(path):
        target = target_of(path)
        kind = kind_of(target)
        above = next(folder for folder in target.parents if kind_of(folder) is not None)
    if kind is not None and stat.S_ISDIR(kind):
        raise _not_readable(f"{path}, a folder")
    if kind is not None and not stat.S_ISREG(kind):
        raise _not_readable(f"{path}, which is no regular file")
    if not above.is_dir():
        raise StorageError(f"a folder to write {path}", f"the file {above}", "choose another path")
    return path


def _not_readable(got: str) -> StorageError:
    """Return the error for a path that cannot be read again."""
    return StorageError("a file that can be read again", got, "choose another path")


def check_folder(path: str | Path) -> Path:
    """Return the path if it is a folder, or can become one, in which files can be written.

    Raises:
        StorageError: For a file, a read-only folder, or a name that is too long.
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
    name = missing[-1] if missing else "file"
    _probe(path, there / name)
    return path


def no_file(path: str | Path) -> str:
    """Return the words for a path that should lead to a file and does not."""
    return f"the folder {path}" if os.path.isdir(path) else f"no file {path}"


def check_saved(path: str | Path) -> None:
    """Raise StorageError if there is no file at a path that should hold a saved posterior."""
    try:
        found = Path(path).is_file()
    except OSError as error:  # a name that is too long, or a folder that may not be read
        got = error.strerror or type(error).__name__
        raise StorageError(SAVED, f"{str(path)[:60]!r}: {got}", "check the path") from None
    if not found:
        raise StorageError(SAVED, no_file(path), "check the path")


@contextmanager
def explained(path: str | Path, deed: str = "write") -> Iterator[None]:
    """Raise errors of the operating system inside the block as StorageError.

    A broken pipe is left to the caller.

    Args:
        path: The path that is used.
        deed: What is done to it, as a verb.

    Raises:
        StorageError: If the operating system raises an error.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = (error.strerror or str(error) or type(error).__name__).lower()
        raise StorageError(f"to {deed} {path}", reason, _advice(path, error)) from error


def _advice(path: str | Path, error: OSError) -> str:
    """Return what the user can do about an error of the operating system."""
    if error.errno in _FULL:
        return f"make room{_free(path)}, or choose another disk"
    if error.errno in _LOCKED:
        return "choose another path, or make this one writable"
    return _DO.get(error.errno or 0, "choose another path")


def _free(path: str | Path) -> str:
    """Return how many bytes are free on the disk of a path, in parentheses."""
    for folder in Path(os.path.abspath(path)).parents:
        try:
            return f" ({shutil.disk_usage(folder).free:,} bytes are free)"
        except OSError:  # the folder does not exist: try the one above
            continue
    return ""


def kind_of(target: Path) -> int | None:
    """Return the mode of the file at a path, or None if there is none.

    Nothing can be below a file.

    Raises:
        OSError: If the operating system cannot access the path.
    """
    try:
        return os.stat(target).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None


def _check_part(path: Path, folder: Path, do: str) -> None:
    """Raise StorageError if ``folder``, in which ``path`` is to be written, is not a folder.

    Args:
        path: The path to write.
        folder: Its folder.
        do: What to do about a folder that is missing.
    """
    with explained(path):
        kind = kind_of(folder)
        existing = folder
        if kind is None:
            existing = next(p for p in folder.parents if kind_of(p) is not None)
    if kind is None and existing.is_dir():
        raise StorageError(f"a folder for {path}", f"no folder {path.parent}", do)
    if kind is None or not stat.S_ISDIR(kind):
        raise StorageError(
            f"a folder to write {path}", f"the file {existing}", "choose another path"
        )


def check_mode(path: Path, target: Path, kind: int | None) -> None:
    """Raise StorageError for a file marked read-only.

    Such a file is not replaced, even if its folder or the superuser's rights would allow it.
    """
    if kind is not None and (not kind & 0o222 or not os.access(target, os.W_OK)):
        raise StorageError(
            "a file to write",
            f"{path}, which is read-only",
            "choose another path, or make it writable",
        )


def _probe(path: Path, target: Path) -> None:
    """Create an empty file beside the target and remove it.

    Permissions alone do not reveal a read-only disk.
    """
    new = fresh(target)
    with explained(path):
        try:
            os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        finally:
            new.unlink(missing_ok=True)
