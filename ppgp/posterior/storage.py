"""One record and its tensors in a file: safetensors, with the record as JSON in its header.

The header holds a digest of header and data, which is compared before anything is built. It finds
damage; it is not a signature. Size and depth of the header are bounded before it is parsed.

``save`` writes format "ppgp-2". Format "ppgp-1" has no digest; NumPy arrays come back from it as
tensors, and keys of mappings as text. In both formats, numbers inside ``posterior.model`` are on
the model's scale, not in the user's units.

What differs in format 1 is handled by ``_is_format_1`` here, by ``class_name_in_format_1`` of
``encoding.py``, and by ``_marked_as_standardised`` of ``loading.py``. Names of classes that have
changed since are in ``RENAMED`` there, names of fields in ``errors.renamed_arguments``.
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

from .. import files
from ..errors import StorageError
from .encoding import DEEPEST, Source, Written, class_name_in_format_1, encode

FORMAT = "ppgp-2"
FORMAT_1 = "ppgp-1"  # without a digest
LONGEST = 2**25  # the most bytes in the header, which holds the record
CHUNK = 2**20  # bytes that are read at a time for the digest
BLANK = "0" * 64  # in place of the digest while it is computed
_DIGEST = re.compile(rb'"checksum":"([0-9a-f]{64})"')
_TEXT = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


def save(path: str | Path, record: Any) -> Path:
    """Write one record (a dataclass of plain values, tensors and records) to ``path``.

    The file is written beside ``path`` and then renamed, so that a file that was there stays
    until everything is written. Returns the path.

    Raises:
        StorageError: naming the part of the record that no file can hold, or the reason why the
            operating system cannot write the file.
    """
    written = Written()
    return write(path, encode(record, written, type(record).__name__), written.tensors)


def write(path: str | Path, tree: Any, tensors: Mapping[str, Tensor]) -> Path:
    """Write a JSON tree and tensors with the digest of both. Returns the path.

    Raises:
        StorageError: if a tensor cannot be written, or the header is too long.
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
    place = _DIGEST.search(content, 8, end)
    assert place is not None, "safetensors writes its metadata as compact JSON"
    digest = hashlib.sha256(content).hexdigest().encode()
    rest = memoryview(content)[place.end(1) :]
    return files.write(path, content[: place.start(1)], digest, rest, folder=True)


def load(
    path: str | Path,
    table: Mapping[str, type],
    given: Mapping[str, Any] | None = None,
    unchecked: bool = False,
) -> Any:
    """Read a record back.

    Args:
        path: the file.
        table: the classes that may be built, by name.
        given: the objects that no file can hold, by name.
        unchecked: whether to read a file of format "ppgp-1", which has no checksum.

    Raises:
        StorageError: if the file is missing, foreign, damaged, of another version, or names a
            class that is not in the table; and for a file of format "ppgp-1" unless
            ``unchecked``.
    """
    path = Path(path)
    if not path.is_file():
        raise StorageError("a file written by posterior.save", f"no file {path}", "check the path")
    try:
        header = _header(path)
        with safe_open(str(path), "pt") as file:
            metadata = file.metadata() or {}
            old = _is_format_1(path, header, metadata, unchecked)
            tree = _parsed(metadata["record"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        if old:
            table = {**{class_name_in_format_1(kind): kind for kind in table.values()}, **table}
        return Source(tensors, table, dict(given or {})).decode(tree)
    except StorageError:
        raise
    except Exception as error:  # the constructor of a record may raise anything on foreign numbers
        raise _damaged(path, first_line(error)) from None


def has_format_1(path: str | Path) -> bool:
    """Whether a file that ``load`` has read is of format "ppgp-1"."""
    with safe_open(str(path), "pt") as file:
        return (file.metadata() or {}).get("format") == FORMAT_1


def first_line(error: BaseException) -> str:
    """Return the first line of the message of an error, or the name of its class."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _damaged(path: Path, reason: str) -> StorageError:
    got = f"{path.name}, unreadable ({reason})"
    do = "it is damaged or foreign; save again"
    return StorageError("a file written by posterior.save", got, do)


def _foreign(path: Path) -> StorageError:
    do = "pass the file that ppgp fit or posterior.save wrote"
    return StorageError("a saved posterior", f"{path.name}, another kind of file", do)


def _header(path: Path) -> bytes:
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


def _is_format_1(path: Path, header: bytes, metadata: Mapping[str, str], unchecked: bool) -> bool:
    """Whether the file is of format "ppgp-1"; a file of format "ppgp-2" has its digest checked.

    Raises:
        StorageError: if it is not a file of this library, or differs from what was written.
    """
    kind = metadata.get("format")
    if kind not in (FORMAT, FORMAT_1) or "record" not in metadata:
        raise _foreign(path)
    if kind == FORMAT_1 and "checksum" not in metadata:
        if not unchecked:
            got = f"{path.name} of format {FORMAT_1}, which has none"
            do = (
                "load_posterior(path, unchecked=True) opens it and notices no damage; "
                "then save it again"
            )
            raise StorageError("a file with a checksum", got, do)
        return True
    places = list(_DIGEST.finditer(header))
    if kind == FORMAT_1 or len(places) != 1:
        raise _damaged(path, "one checksum belongs in its header")
    if places[0][1].decode() != _digest(path, places[0].span(1)):
        raise _damaged(path, "its checksum is another")
    return False


def _digest(path: Path, where: tuple[int, int]) -> str:
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
        ValueError: if its brackets are nested too deep to be walked recursively.
    """
    depth = 0
    for bracket in re.finditer(r"[\[\]{}]", _TEXT.sub("", text)):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > DEEPEST:
            raise ValueError(f"brackets more than {DEEPEST} deep")
    return json.loads(text)
