"""Checks of a file before anything is built from it: its kind, its header and its digest."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import StorageError
from .encoding import DEEPEST

SAVED = "a file that ppgp fit or posterior.save wrote"
FORMAT = "ppgp-2"
LONGEST = 2**25  # the most bytes in the header, which holds the record
CHUNK = 2**20  # bytes that are read at a time for the digest
BLANK = "0" * 64  # in place of the digest while it is computed
DIGEST = re.compile(rb'"checksum":"([0-9a-f]{64})"')
_TEXT = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


def damaged(path: Path, reason: str) -> StorageError:
    """Return the error for a file that cannot be read."""
    got = f"{path.name}, unreadable ({reason})"
    do = "it is damaged or foreign; save again"
    return StorageError(SAVED, got, do)


def _foreign(path: Path) -> StorageError:
    do = "pass the file that ppgp fit or posterior.save wrote"
    return StorageError("a saved posterior", f"{path.name}, another kind of file", do)


def header_of(path: Path) -> bytes:
    """Return the header with its length; it is read only if that length is possible."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = file.read(8)
        start = 8 + int.from_bytes(length, "little")
        if len(length) == 8 and start > 8 and file.read(1) != b"{":
            raise _foreign(path)
        file.seek(8)
        if len(length) < 8 or start > min(size, LONGEST):
            raise damaged(path, f"a header of {start:,} bytes in {size:,}")
        return length + file.read(start - 8)


def check_digest(path: Path, header: bytes, metadata: Mapping[str, str]) -> None:
    """Check the format of a file and its digest.

    Raises:
        StorageError: If it is not a file of this library, or differs from what was written.
    """
    if metadata.get("format") != FORMAT or "record" not in metadata:
        raise _foreign(path)
    places = list(DIGEST.finditer(header))
    if len(places) != 1:
        raise damaged(path, "its header must hold one checksum")
    if places[0][1].decode() != digest_of(path, places[0].span(1)):
        raise damaged(path, "its checksum does not match")


def digest_of(path: Path, where: tuple[int, int]) -> str:
    """Return the digest of the whole file, with the bytes of the digest itself left blank."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        digest.update(file.read(where[0]))
        digest.update(BLANK.encode())
        file.seek(where[1])
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def parsed(text: str) -> Any:
    """Parse JSON.

    Raises:
        ValueError: If its brackets are nested too deep to be walked recursively.
    """
    depth = 0
    for bracket in re.finditer(r"[\[\]{}]", _TEXT.sub("", text)):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > DEEPEST:
            raise ValueError(f"brackets more than {DEEPEST} deep")
    return json.loads(text)
