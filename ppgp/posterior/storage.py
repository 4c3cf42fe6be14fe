"""Records and tensors to one file and back: safetensors, with the records as JSON in its header. No pickle, no code.

A class is looked up by name, and only in the table that the caller gives. What cannot be written as data (a
network, a function) is written as its name alone; reading it back needs the thing itself.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..errors import StorageError

FORMAT = "ppgp-1"


def class_name(kind: type) -> str:
    """``family.Class``, as files and tables name it: a kernel and a prior may both be called Exponential."""
    parts = kind.__module__.split(".")
    return f"{(parts[1:] or parts)[0]}.{kind.__name__}"


def save(path: str | Path, record: Any) -> Path:
    """Write one record (a dataclass of plain values, tensors and records) to ``path``; returns the path."""
    tensors: dict[str, Tensor] = {}
    tree = _encode(record, tensors)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, str(path), metadata={"format": FORMAT, "record": json.dumps(tree)})
    return path


def load(path: str | Path, table: Mapping[str, type], given: Mapping[str, Any] | None = None) -> Any:
    """Read a record back; ``table`` names the classes that may be built, ``given`` replaces what could not be stored.

    Raises:
        StorageError: if the file is missing, foreign, damaged, of another version, or names a class not in the table.
    """
    path = Path(path)
    if not path.is_file():
        raise StorageError("a file written by posterior.save", f"no file {path}", "check the path")
    try:
        with safe_open(str(path), "pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT or "record" not in metadata:
                raise StorageError(
                    "a file written by posterior.save", f"{path.name}, another kind of file", "save the posterior again"
                )
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        return _decode(json.loads(metadata["record"]), tensors, table, dict(given or {}))
    except StorageError:
        raise
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise StorageError(
            "a file written by posterior.save", f"{path.name}, unreadable ({reason})", "it is damaged or foreign; save again"
        ) from None


def _encode(value: Any, tensors: dict[str, Tensor]) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"number": repr(value)}
    if isinstance(value, np.ndarray):
        value = torch.from_numpy(np.ascontiguousarray(value))
    if isinstance(value, Tensor):
        key = str(len(tensors))
        tensors[key] = value.detach().cpu().clone().contiguous()
        return {"tensor": key}
    if isinstance(value, tuple):
        return {"tuple": [_encode(v, tensors) for v in value]}
    if isinstance(value, list):
        return [_encode(v, tensors) for v in value]
    if isinstance(value, Mapping):
        return {"map": [[str(k), _encode(v, tensors)] for k, v in value.items()]}
    if is_dataclass(value) and not isinstance(value, type):
        return {
            "class": class_name(type(value)),
            "fields": {f.name: _encode(getattr(value, f.name), tensors) for f in fields(value)},
        }
    return {"missing": getattr(value, "__name__", type(value).__name__)}


def _decode(tree: Any, tensors: Mapping[str, Tensor], table: Mapping[str, type], given: dict[str, Any]) -> Any:
    if isinstance(tree, list):
        return [_decode(v, tensors, table, given) for v in tree]
    if not isinstance(tree, dict):
        return tree
    if "number" in tree:
        return float(tree["number"])
    if "tensor" in tree:
        return tensors[tree["tensor"]]
    if "tuple" in tree:
        return tuple(_decode(v, tensors, table, given) for v in tree["tuple"])
    if "map" in tree:
        return {k: _decode(v, tensors, table, given) for k, v in tree["map"]}
    if "missing" in tree:
        name = tree["missing"]
        if name in given:
            return given[name]
        raise StorageError(f"{name!r}, which no file can hold", "no model", f"pass it: load_posterior(path, model={name})")
    name = str(tree.get("class"))
    if name not in table:
        raise StorageError("a class of ppgp in the file", repr(name), "the file is foreign, or of a newer version")
    return table[name](**{k: _decode(v, tensors, table, given) for k, v in tree["fields"].items()})
