"""One record and its tensors in a file: safetensors, with the record as JSON in its header.

The header holds a digest of header and data, which is compared before anything is built. It finds
damage; it is not a signature. Size and depth of the header are bounded before it is parsed.

The format is "ppgp-2". Numbers inside ``posterior.model`` are on the model's scale, not in the
user's units.

Every init field of the record is written; ``loaded_checks.py`` checks those of a Posterior.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from ... import files
from ...errors import StorageError
from .encoding import Source, Written, encode
from .file_checks import (
    BLANK,
    DIGEST,
    FORMAT,
    LONGEST,
    SAVED,
    check_digest,
    damaged,
    header_of,
    parsed,
)


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
    try:
        found = path.is_file()
    except OSError as error:  # a name that is too long, or a folder that may not be read
        got = error.strerror or first_line(error)
        raise StorageError(SAVED, f"{str(path)[:60]!r}: {got}", "check the path") from None
    if not found:
        raise StorageError(SAVED, files.no_file(path), "check the path")
    try:
        header = header_of(path)
        with safe_open(str(path), "pt") as file:
            metadata = file.metadata() or {}
            check_digest(path, header, metadata)
            tree = parsed(metadata["record"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        return Source(tensors, table, dict(given or {})).decode(tree)
    except StorageError:
        raise
    except Exception as error:  # the constructor of a record may raise anything on foreign numbers
        raise damaged(path, first_line(error)) from None


def first_line(error: BaseException) -> str:
    """Return the first line of the message of an error, or the name of its class."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__
