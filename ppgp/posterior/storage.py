"""Records and tensors to one file and back: safetensors, with the records as JSON in its header. No pickle, no code.

A class is looked up by name, and only in the table that the caller gives. What cannot be written as data (a
network, a function) is written as its name alone; reading it back needs the thing itself.

A digest of header and data stands in the header and is compared before anything is built. It finds damage; it is
no signature. Size and depth of the header are bounded before it is parsed.

Formats: ``save`` writes "ppgp-2". "ppgp-1" has no digest, arrays of NumPy come back from it as tensors, and keys of
mappings as text. In both, a plain number in a prepared model is on the scale that the model saw.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pyro.nn import PyroModule
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from .. import files
from ..errors import StorageError, an

FORMAT = "ppgp-2"
UNCHECKED = "ppgp-1"  # the format before, without a digest
DEEPEST = 400  # brackets within brackets
LONGEST = 2**25  # bytes of the header, which holds the record
CHUNK = 2**20  # bytes at a time under the digest
BLANK = "0" * 64  # in place of the digest while it is computed
OWN = __name__.partition(".")[0]
_DIGEST = re.compile(rb'"checksum":"([0-9a-f]{64})"')
_TEXT = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def class_name(kind: type) -> str:
    """``family.Class`` for a class of this library, the whole path for any other: a kernel and a prior may both be called
    Exponential, and a user's module may be called kernels."""
    head, *parts = kind.__module__.split(".")
    if head == OWN and parts:
        return f"{parts[0]}.{kind.__name__}"
    return f"{kind.__module__}.{kind.__qualname__}"


def _class_name_before(kind: type) -> str:
    """What "ppgp-1" called it."""
    parts = kind.__module__.split(".")
    return f"{(parts[1:] or parts)[0]}.{kind.__name__}"


class NotSupplied(StorageError):
    """What no file can hold is not among what the caller gives."""


@dataclass
class Written:
    """A value as JSON and tensors, and what of it is found by name alone."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    classes: dict[str, type] = field(default_factory=dict)
    things: dict[str, Any] = field(default_factory=dict)


def by_name(value: Any) -> tuple[dict[str, type], dict[str, Any]]:
    """The classes in a value, and the things in it that no file can hold, by the names that a file gives them."""
    written = Written()
    _encode(value, written, "what is given", 0)
    return written.classes, written.things


def save(path: str | Path, record: Any) -> Path:
    """Write one record (a dataclass of plain values, tensors and records) to ``path``; returns the path.

    The file is written beside ``path`` and then renamed: what stood there stays until all is written.

    Raises:
        StorageError: naming what in the record no file can hold, or what the operating system says against writing it.
    """
    written = Written()
    return write(path, _encode(record, written, type(record).__name__, 0), written.tensors)


def write(path: str | Path, tree: Any, tensors: Mapping[str, Tensor]) -> Path:
    """Write JSON and tensors with the digest of both; returns the path."""
    metadata = {"format": FORMAT, "record": json.dumps(tree), "checksum": BLANK}
    try:
        content = to_bytes(dict(tensors), metadata)
    except (SafetensorError, RuntimeError, ValueError, KeyError) as error:
        raise StorageError(
            "tensors that a file can hold", _first_line(error), "convert them to float64"
        ) from None
    end = 8 + int.from_bytes(content[:8], "little")
    if end > LONGEST:
        got = f"a header of {end:,} bytes"
        raise StorageError(
            f"a header of at most {LONGEST:,} bytes", got, "give long lists as tensors or arrays"
        )
    place = _DIGEST.search(content, 8, end)
    assert place is not None, "safetensors writes its metadata as compact JSON"
    digest = hashlib.sha256(content).hexdigest().encode()
    return files.write(
        path, content[: place.start(1)], digest, memoryview(content)[place.end(1) :], folder=True
    )


def load(
    path: str | Path,
    table: Mapping[str, type],
    given: Mapping[str, Any] | None = None,
    unchecked: bool = False,
) -> Any:
    """Read a record back; ``table`` names the classes that may be built, ``given`` replaces what could not be stored.

    Raises:
        StorageError: if the file is missing, foreign, damaged, of another version, or names a class not in the table; and for
            a file of the format before, which has no checksum, unless ``unchecked``.
    """
    path = Path(path)
    if not path.is_file():
        raise StorageError("a file written by posterior.save", f"no file {path}", "check the path")
    try:
        header = _header(path)
        with safe_open(str(path), "pt") as file:
            metadata = file.metadata() or {}
            before = _believed(path, header, metadata, unchecked)
            tree = _parsed(metadata["record"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        known = (
            {**{_class_name_before(kind): kind for kind in table.values()}, **table}
            if before
            else table
        )
        return _decode(tree, tensors, known, dict(given or {}))
    except StorageError:
        raise
    except Exception as error:  # a record may raise anything from numbers that are not its own
        raise _damaged(path, _first_line(error)) from None


def is_of_the_format_before(path: str | Path) -> bool:
    """Whether a file that ``load`` has read is of "ppgp-1"."""
    with safe_open(str(path), "pt") as file:
        return (file.metadata() or {}).get("format") == UNCHECKED


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _damaged(path: Path, reason: str) -> StorageError:
    do = "it is damaged or foreign; save again"
    return StorageError(
        "a file written by posterior.save", f"{path.name}, unreadable ({reason})", do
    )


def _foreign(path: Path) -> StorageError:
    do = "pass the file that ppgp fit or posterior.save wrote"
    return StorageError("a saved posterior", f"{path.name}, another kind of file", do)


def _header(path: Path) -> bytes:
    """The header with its length, read only where that length is possible."""
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


def _believed(path: Path, header: bytes, metadata: Mapping[str, str], unchecked: bool) -> bool:
    """Whether the file is of the format before.

    Raises:
        StorageError: if it is no file of ours, or not as it was written.
    """
    kind = metadata.get("format")
    if kind not in (FORMAT, UNCHECKED) or "record" not in metadata:
        raise _foreign(path)
    if kind == UNCHECKED and "checksum" not in metadata:
        if not unchecked:
            got = f"{path.name} of format {UNCHECKED}, which has none"
            do = "load_posterior(path, unchecked=True) opens it and notices no damage; then save it again"
            raise StorageError("a file with a checksum", got, do)
        return True
    places = list(_DIGEST.finditer(header))
    if kind == UNCHECKED or len(places) != 1:
        raise _damaged(path, "one checksum belongs in its header")
    if places[0][1].decode() != _digest(path, places[0].span(1)):
        raise _damaged(path, "its checksum is another")
    return False


def _digest(path: Path, where: tuple[int, int]) -> str:
    """Of the whole file, the place of the digest itself left blank."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        digest.update(file.read(where[0]))
        digest.update(BLANK.encode())
        file.seek(where[1])
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _parsed(text: str) -> Any:
    """JSON that is not too deep to be walked."""
    depth = 0
    for bracket in re.finditer(r"[\[\]{}]", _TEXT.sub("", text)):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > DEEPEST:
            raise ValueError(f"brackets more than {DEEPEST} deep")
    return json.loads(text)


def _encode(value: Any, written: Written, where: str, depth: int) -> Any:
    if depth > DEEPEST // 4:
        raise StorageError(
            "a record that ends", f"{where}, which holds itself", "take the circle out"
        )
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"number": repr(float(value))}

    def inner(part: Any, name: Any) -> Any:
        return _encode(part, written, f"{where}.{name}", depth + 1)

    if isinstance(value, np.ndarray):
        return {"array": _stored(_tensor_of(value, where), written, where)}
    if isinstance(value, Tensor):
        return {"tensor": _stored(value, written, where)}
    if isinstance(value, tuple):
        return {"tuple": [inner(v, i) for i, v in enumerate(value)]}
    if isinstance(value, list):
        return [inner(v, i) for i, v in enumerate(value)]
    if isinstance(value, Mapping):
        return {"map": [[inner(k, "key"), inner(v, k)] for k, v in value.items()]}
    if is_dataclass(value) and not isinstance(value, type):
        name = class_name(type(value))
        written.classes[name] = type(value)
        own = {f.name: inner(getattr(value, f.name), f.name) for f in fields(value) if f.init}
        return {"class": name, "fields": own}
    if isinstance(value, type):
        written.classes[class_name(value)] = value
    if callable(value):
        return _named(value, written, where)
    do = "give numbers, text, arrays, tensors, lists or mappings of them"
    raise StorageError("what a file can hold", f"{where}, {an(type(value).__name__)}", do)


def _tensor_of(array: np.ndarray, where: str) -> Tensor:
    try:
        return torch.from_numpy(np.ascontiguousarray(array).reshape(array.shape))
    except (TypeError, ValueError):
        got = f"{where}, an array of {array.dtype}"
        raise StorageError(
            "numbers in every array", got, "convert it to numbers, or to a list"
        ) from None


def _stored(tensor: Tensor, written: Written, where: str) -> str:
    if tensor.layout is not torch.strided:
        raise StorageError("dense tensors", f"{where} as {tensor.layout}", "call to_dense() first")
    key = str(len(written.tensors))
    written.tensors[key] = tensor.detach().cpu().clone().contiguous()
    return key


def _named(value: Any, written: Written, where: str) -> dict[str, Any]:
    """A thing that stands in the file as its name, and a network also as its layers."""
    name = str(getattr(value, "__name__", type(value).__name__))
    held = written.things.setdefault(name, value)
    layers = _layers(value)
    if held is not value and held != value and (layers is None or layers != _layers(held)):
        do = "a function by def has a name of its own, and so has a network of a class of its own"
        raise StorageError(
            "one thing of a name among those that no file can hold",
            f"another {name} in {where}",
            do,
        )
    return {"missing": name} if layers is None else {"missing": name, "layers": layers}


def _layers(value: Any) -> str | None:
    """How a network is built, as it prints itself; None for a Pyro guide, which is built as it is used."""
    if not isinstance(value, nn.Module) or isinstance(value, PyroModule):
        return None
    return _ADDRESS.sub("", repr(value))


def _decode(
    tree: Any, tensors: Mapping[str, Tensor], table: Mapping[str, type], given: Mapping[str, Any]
) -> Any:
    def inner(part: Any) -> Any:
        return _decode(part, tensors, table, given)

    if isinstance(tree, list):
        return [inner(v) for v in tree]
    if not isinstance(tree, dict):
        return tree
    if "number" in tree:
        return float(tree["number"])
    if "tensor" in tree:
        return tensors[tree["tensor"]]
    if "array" in tree:
        return tensors[tree["array"]].numpy()
    if "tuple" in tree:
        return tuple(inner(v) for v in tree["tuple"])
    if "map" in tree:
        return {inner(k): inner(v) for k, v in tree["map"]}
    if "missing" in tree:
        return _supplied(tree, given)
    name = str(tree.get("class"))
    if name not in table:
        do = "the class is yours: pass the recipe with it, load_posterior(path, model=...), or the file is foreign or newer"
        raise StorageError("a class of ppgp in the file", repr(name), do)
    kind = table[name]
    now = getattr(kind, "renamed_fields", {})
    return kind(**{now.get(k, k): inner(v) for k, v in tree["fields"].items()})


def _supplied(tree: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    name = tree["missing"]
    if name not in given:
        raise NotSupplied(
            f"{name!r}, which no file can hold",
            "no model",
            f"pass it: load_posterior(path, model={name})",
        )
    layers = tree.get("layers")
    if layers is not None and layers != _layers(given[name]):
        raise StorageError(
            f"{name} with the layers in the file", "other layers", "pass the recipe that was fitted"
        )
    return given[name]
