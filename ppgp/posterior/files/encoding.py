"""Python values as a JSON tree and tensors, and back. There is no pickle, and no code is run.

A class is looked up by its name, and only in the table that the caller gives. What cannot be
written as data (a network, a function) is written as its name alone, and reading it back needs
the object itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np
import torch
from pyro.nn import PyroModule
from torch import Tensor, nn
from torch.distributions import Distribution

from ...data.dataset import IdentityScaler
from ...display.overrides import OF_THE_RUN
from ...errors import StorageError, an
from ...provenance.found_on import Found, Origin, mark, origin_of

DEEPEST = 400  # the most brackets within brackets
PACKAGE = __name__.partition(".")[0]
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


class NotSupplied(StorageError):
    """An object that no file can hold is not among those that the caller gives."""


def class_name(kind: type) -> str:
    """Return the name of a class in a file.

    It is ``family.Class`` for a class of this library, where a kernel and a prior may both be
    called Exponential. Networks are of the family "kernels". It is the whole path for any other
    class, because a module of the user's may be called kernels.
    """
    head, *parts = kind.__module__.split(".")
    if head == PACKAGE and parts:
        family = "kernels" if parts[0] == "networks" else parts[0]
        return f"{family}.{kind.__name__}"
    return f"{kind.__module__}.{kind.__qualname__}"


# -- writing -----------------------------------------------------------------------------------


@dataclass
class Written:
    """What ``encode`` collects beside the JSON tree.

    Attributes:
        tensors: The tensors, by the key that the tree has in their place.
        classes: The classes in the value, by name.
        things: The objects that no file can hold, by name.
    """

    tensors: dict[str, Tensor] = field(default_factory=dict)
    classes: dict[str, type] = field(default_factory=dict)
    things: dict[str, Any] = field(default_factory=dict)


def by_name(value: Any) -> tuple[dict[str, type], dict[str, Any]]:
    """Return the classes in a value and the objects that no file can hold, by their names."""
    written = Written()
    encode(value, written, "what is given", 0)
    return written.classes, written.things


def encode(value: Any, written: Written, where: str, depth: int = 0) -> Any:
    """Return a value as a JSON tree; its tensors, classes and objects go to ``written``.

    Args:
        value: A number, text, array, tensor, list, tuple, mapping or dataclass, and nested ones.
        written: Receives the tensors, the classes and the objects that are stored by name.
        where: The path to the value, for error messages.
        depth: How deep the value is nested in the record.

    Raises:
        StorageError: If a file cannot hold the value, or the value contains itself.
    """
    if depth > DEEPEST // 4:
        got = f"{where}, which holds itself"
        raise StorageError("a record that ends", got, "take the circle out")
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | str | int | float):
        return _scalar(value, _tables(value, written, where, depth))
    if isinstance(value, np.ndarray):
        return {"array": _stored(_tensor_of(value, where), written, where)}
    if isinstance(value, Tensor):
        return {"tensor": _stored(value, written, where)}
    if isinstance(value, tuple | list | Mapping):
        return _container(value, written, where, depth)
    if is_dataclass(value) and not isinstance(value, type):
        return _record(value, written, where, depth)
    if isinstance(value, type):
        written.classes[class_name(value)] = value
    if callable(value) or _is_estimator(value) or isinstance(value, Distribution):
        return _named(value, written, where, depth)
    do = "give numbers, text, arrays, tensors, lists or mappings of them"
    raise StorageError("what a file can hold", f"{where}, {an(type(value).__name__)}", do)


def _scalar(value: bool | str | int | float | None, tables: dict[str, Any]) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if math.isfinite(value) and not tables:
        return float(value)
    return {"number": repr(float(value))} | tables


def _tables(value: Any, written: Written, where: str, depth: int) -> dict[str, Any]:
    """Return the entry of the tables that a number or a network was computed from, if any."""
    tables = origin_of(value).tables
    if not tables:
        return {}
    return {"found_on": encode(tables, written, f"{where}.found_on", depth + 1)}


def _container(value: Any, written: Written, where: str, depth: int) -> Any:
    # loops, because a comprehension adds a frame to each level of the recursion
    parts: list[Any] = []
    if isinstance(value, Mapping):
        for k, v in value.items():
            key = encode(k, written, f"{where}.key", depth + 1)
            parts.append([key, encode(v, written, f"{where}.{k}", depth + 1)])
        return {"map": parts}
    for i, part in enumerate(value):
        parts.append(encode(part, written, f"{where}.{i}", depth + 1))
    if isinstance(value, tuple):
        return {"tuple": parts}
    return parts


def _record(value: Any, written: Written, where: str, depth: int) -> dict[str, Any] | None:
    if isinstance(value, IdentityScaler):  # a Posterior reads None as one
        return None
    name = class_name(type(value))
    written.classes[name] = type(value)
    own = {}
    for f in fields(value):
        if f.init and not f.metadata.keys() >= OF_THE_RUN.keys():
            own[f.name] = encode(getattr(value, f.name), written, f"{where}.{f.name}", depth + 1)
    return {"class": name, "fields": own}


def _tensor_of(array: np.ndarray, where: str) -> Tensor:
    try:
        return torch.from_numpy(np.ascontiguousarray(array).reshape(array.shape))
    except (TypeError, ValueError):
        got = f"{where}, an array of {array.dtype}"
        do = "convert it to numbers, or to a list"
        raise StorageError("numbers in every array", got, do) from None


def _stored(tensor: Tensor, written: Written, where: str) -> str:
    """Put a tensor aside and return its key."""
    if tensor.layout is not torch.strided:
        raise StorageError("dense tensors", f"{where} as {tensor.layout}", "call to_dense() first")
    key = str(len(written.tensors))
    written.tensors[key] = tensor.detach().cpu().clone().contiguous()
    return key


def _named(value: Any, written: Written, where: str, depth: int) -> dict[str, Any]:
    """Return the entry of an object stored by its name, with the layers if it is a network."""
    name = str(getattr(value, "__name__", type(value).__name__))
    held = written.things.setdefault(name, value)
    layers = _layers(value)
    if held is not value and held != value and (layers is None or layers != _layers(held)):
        wanted = "one object per name among those that no file can hold"
        do = "define it by def, or as a class, under a name of its own"
        raise StorageError(wanted, f"a second object named {name} in {where}", do)
    entry = {"missing": name} | _tables(value, written, where, depth)
    if layers is not None:
        entry["layers"] = layers
    return entry


def _layers(value: Any) -> str | None:
    """Return the printed layers of a network, or the options of an estimator or a distribution.

    None for anything else, and for a Pyro guide, which builds its layers on use.
    """
    network = isinstance(value, nn.Module) and not isinstance(value, PyroModule)
    if network or _is_estimator(value) or isinstance(value, Distribution):
        return _ADDRESS.sub("", repr(value))
    return None


def _is_estimator(value: Any) -> bool:
    """Return whether a value is an estimator with the interface of scikit-learn."""
    return hasattr(value, "get_params") and not isinstance(value, type)


# -- reading -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """What a JSON tree is read with.

    Attributes:
        tensors: The tensors by key.
        table: The classes that may be built, by name.
        given: The objects that no file can hold, by name.
    """

    tensors: Mapping[str, Tensor]
    table: Mapping[str, type]
    given: Mapping[str, Any] = field(default_factory=dict)

    def decode(self, tree: Any) -> Any:
        """Return the value of a JSON tree.

        Raises:
            StorageError: If the tree names a class or an object that is not supplied.
        """
        if isinstance(tree, list):
            return [self.decode(part) for part in tree]
        if not isinstance(tree, dict):
            return tree
        for tag, read in _READERS.items():
            if tag in tree:
                return read(self, tree)
        return self._built(tree)

    def _tuple(self, tree: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(self.decode(part) for part in tree["tuple"])

    def _map(self, tree: Mapping[str, Any]) -> dict[Any, Any]:
        return {self.decode(key): self.decode(value) for key, value in tree["map"]}

    def _supplied(self, tree: Mapping[str, Any]) -> Any:
        """Return an object that is stored by its name, checked against its layers."""
        name = tree["missing"]
        if name not in self.given:
            do = f"pass it: load_posterior(path, model={_in_words(name, tree)})"
            raise NotSupplied(f"{name!r}, which no file can hold", "no model", do)
        layers = tree.get("layers")
        if layers is not None and isinstance(self.given[name], type):
            do = f"pass the instance that was fitted: model={_in_words(name, tree)}"
            raise StorageError(f"an instance of {name}", "the class itself", do)
        if layers is not None and layers != _layers(self.given[name]):
            what = "layers" if isinstance(self.given[name], nn.Module) else "options"
            wanted = f"{name} with the {what} in the file"
            raise StorageError(wanted, f"other {what}", "pass the recipe that was fitted")
        thing, tables = self.given[name], self.decode(tree.get("found_on"))
        if tables and isinstance(thing, nn.Module) and not origin_of(thing).tables:
            mark(thing, *tables)
        return thing

    def _number(self, tree: Mapping[str, Any]) -> float:
        number, tables = float(tree["number"]), self.decode(tree.get("found_on"))
        return Found.on(number, Origin(*tables)) if tables else number

    def _built(self, tree: Mapping[str, Any]) -> Any:
        """Return a record of a class in the table."""
        name = str(tree.get("class"))
        if name not in self.table:
            do = (
                "the class is yours: pass the recipe with it, load_posterior(path, model=...), "
                "or the file is foreign or newer"
            )
            raise StorageError("a class of ppgp in the file", repr(name), do)
        kind = self.table[name]
        _refuse_unknown_fields(kind, tree["fields"])
        return kind(**{key: self.decode(value) for key, value in tree["fields"].items()})


def _in_words(name: str, tree: Mapping[str, Any]) -> str:
    """Return how an object that is stored by its name is written: an instance as a call."""
    layers = tree.get("layers")
    if layers is None:
        return name
    if layers.startswith(f"{name}(") and "\n" not in layers:
        return str(layers)
    return f"{name}(...)"


def _refuse_unknown_fields(kind: type, own: Mapping[str, Any]) -> None:
    """Raise StorageError for fields that a class lacks, such as those of a newer version."""
    known = {f.name for f in fields(kind) if f.init} if is_dataclass(kind) else own.keys()
    unknown = [name for name in own if name not in known]
    if not unknown:
        return
    do = "a newer version of ppgp wrote the file: upgrade ppgp"
    if kind.__module__.partition(".")[0] != __name__.partition(".")[0]:
        do = "pass the recipe with the class that was fitted: load_posterior(path, model=...)"
    expected = f"fields of {kind.__name__} that this version knows"
    raise StorageError(expected, ", ".join(map(repr, unknown)), do)


_READERS: dict[str, Callable[[Source, Mapping[str, Any]], Any]] = {
    "number": Source._number,
    "tensor": lambda source, tree: source.tensors[tree["tensor"]],
    "array": lambda source, tree: source.tensors[tree["array"]].numpy(),
    "tuple": Source._tuple,
    "map": Source._map,
    "missing": Source._supplied,
}
