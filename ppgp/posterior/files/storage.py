"""One record and its tensors in a file: safetensors, with the record as JSON in its header.

The header holds a digest of header and data, which is compared before anything is built. It finds
damage; it is not a signature. Size and depth of the header are bounded before it is parsed.

The format is "ppgp-2". Numbers inside ``posterior.model`` are on the model's scale, not in the
user's units.

Every init field of the record is written; ``loading.py`` checks those of a Posterior.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from ... import files
from ...errors import StorageError
from .encoding import DEEPEST, Source, Written, encode

FORMAT = "ppgp-2"
LONGEST = 2**25  # the most bytes in the header, which holds the record
CHUNK = 2**20  # bytes that are read at a time for the digest
BLANK = "0" * 64  # in place of the digest while it is computed
DIGEST = re.compile(rb'"checksum":"([0-9a-f]{64})"')
_TEXT = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


def save(path: str | Path, record: Any) -> Path:
    """Write one record (a dataclass of plain values, tensors and records) to ``path``.

    The file is written beside ``path`` and then renamed, so that a file that was there stays
    until everything is written. Returns the path.

    Raises:
        StorageError: Naming the part of the record that no file can hold, or the reason why the
            operating system cannot write the file.
    """
    written = Written()
    return write(path, encode(record, written, type(record).__name__), written.tensors)


def write(path: str | Path, tree: Any, tensors: Mapping[str, Tensor]) -> Path:
    """Write a JSON tree and tensors with the digest of both. Returns the path.

    Raises:
        StorageError: If a tensor cannot be written, or the header is too long.
    """
    metadata = {"format": FORMAT, "record": json.dumps(tree), "checksum": BLANK}
    try:
        content = to_bytes(dict(tensors), metadata)
    except (SafetensorError, RuntimeError, ValueError, KeyError) as error:
        wanted = "tensors that a file can hold"
        raise StorageError(wanted, first_line(error), "convert them to float64") from None
    end = 8 + int.from_bytes(content[:8], "little")
    if end > LONGEST:
        wanted, got = f"a header of at most {LONGEST:,} bytes", f"a header of {end:,} bytes"
        raise StorageError(wanted, got, "give long lists as tensors or arrays")
    place = DIGEST.search(content, 8, end)
    assert place is not None, "safetensors writes its metadata as compact JSON"
    digest = hashlib.sha256(content).hexdigest().encode()
    rest = memoryview(content)[place.end(1) :]
    return files.write(path, content[: place.start(1)], digest, rest, folder=True)


def load(
    path: str | Path,
    table: Mapping[str, type],
    given: Mapping[str, Any] | None = None,
) -> Any:
    """Read a record back.

    Args:
        path: The file.
        table: The classes that may be built, by name.
        given: The objects that no file can hold, by name.

    Raises:
        StorageError: If the file is missing, foreign, damaged, of another version, or names a
            class that is not in the table.
    """
    path = Path(path)
    files.check_saved(path)
    try:
        header = _header_of(path)
        with safe_open(str(path), "pt") as file:
            metadata = file.metadata() or {}
            _check_digest(path, header, metadata)
            tree = _parsed(metadata["record"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        return Source(tensors, table, dict(given or {})).decode(tree)
    except StorageError:
        raise
    except Exception as error:  # the constructor of a record may raise anything on foreign numbers
        raise _damaged(path, first_line(error)) from None


def first_line(error: BaseException) -> str:
    """Return the first line of the message of an error, or the name of its class."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _damaged(path: Path, reason: str) -> StorageError:
    """Return the error for a file that cannot be read."""
    got = f"{path.name}, unreadable ({reason})"
    do = "it is damaged or foreign; save again"
    return StorageError(files.SAVED, got, do)


def _foreign(path: Path) -> StorageError:
    do = "pass the file that ppgp fit or posterior.save wrote"
    return StorageError("a saved posterior", f"{path.name}, another kind of file", do)


def _header_of(path: Path) -> bytes:
    """Return the header with its length; it is read only if that length is possible."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = file.read(8)
        start = 8 + int.from_bytes(length, "little")
        if len(length) == 8 and start > 8 and file.read(1) != b"{":
            raise _foreign(path)
        file.seek(8)
        if len(length) < 8 or start > min(size, LONGEST):
            raise _damaged(path, f"a header of {start:,} bytes in {size:,}")
        return length + file.read(start - 8)


def _check_digest(path: Path, header: bytes, metadata: Mapping[str, str]) -> None:
    """Check the format of a file and its digest.

    Raises:
        StorageError: If it is not a file of this library, or differs from what was written.
    """
    if metadata.get("format") != FORMAT or "record" not in metadata:
        raise _foreign(path)
    places = list(DIGEST.finditer(header))
    if len(places) != 1:
        raise _damaged(path, "its header must hold one checksum")
    if places[0][1].decode() != digest_of(path, places[0].span(1)):
        raise _damaged(path, "its checksum does not match")


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


def _parsed(text: str) -> Any:
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
