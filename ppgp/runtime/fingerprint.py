"""A digest of everything that a result depends on.

It covers numbers, records, containers, networks, and the code of functions.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..display.overrides import OF_THE_RUN

ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # differs between processes
PLAIN = (bool, int, float, complex, str, bytes, type(None))
#: what a function may read from its surroundings as a constant; a list or a dict may be its own
#: storage
CONSTANT = (*PLAIN, tuple, frozenset, Tensor, np.ndarray, nn.Module, FunctionType)


def fingerprint(*values: Any) -> str:
    """Return a digest of the values, which is the same in every process.

    It differs where a number or the code of a function differs.
    """
    digest = hashlib.sha256()
    for part in _parts(values, set()):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def _parts(value: Any, inside: set[int]) -> Iterator[bytes | memoryview]:
    """Yield the bytes that represent a value.

    Args:
        value: Any object.
        inside: The ids of the functions and records around this one, which may refer to themselves.
    """
    yield type(value).__name__.encode()
    if isinstance(value, PLAIN):
        yield repr(value).encode()
    elif isinstance(value, Tensor):
        yield str((value.dtype, tuple(value.shape))).encode()
        flat = value.detach().cpu().resolve_conj().contiguous().reshape(-1)
        yield flat.view(torch.uint8).numpy().data
    elif isinstance(value, np.ndarray) and value.dtype.kind != "O":
        yield str((value.shape, value.dtype)).encode()
        yield np.ascontiguousarray(value).reshape(-1).view(np.uint8).data
    elif id(value) not in inside:
        members = list(_members(value))
        yield str(len(members)).encode()  # [[1], 2] is not [[1, 2]]
        for part in members:
            yield from _parts(part, inside | {id(value)})


def _members(value: Any) -> Iterator[Any]:
    """Yield the values that an object consists of."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield key
            yield each
    elif isinstance(value, set | frozenset):
        yield from sorted(map(repr, value))
    elif isinstance(value, list | tuple):
        yield from value
    elif isinstance(value, np.ndarray):
        yield from value.ravel().tolist()
    elif isinstance(value, FunctionType | CodeType | MethodType):
        yield from _of_callable(value)
    else:
        yield from _of_object(value)


def _of_callable(value: FunctionType | CodeType | MethodType) -> Iterator[Any]:
    """Yield what a function, a code object or a bound method consists of."""
    if isinstance(value, FunctionType):
        yield from _of_function(value)
    elif isinstance(value, CodeType):
        yield value.co_code
        yield value.co_names
        yield from value.co_consts
    else:
        yield value.__func__
        yield value.__self__


def _of_object(value: Any) -> Iterator[Any]:
    """Yield what a module of torch, a dataclass or any other object consists of."""
    if isinstance(value, nn.Module):
        yield ADDRESS.sub("", repr(value))
        yield dict(value.state_dict())
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            if not field.metadata.keys() >= OF_THE_RUN.keys():
                yield field.name
                yield getattr(value, field.name)
    else:
        yield ADDRESS.sub("", repr(value))


def _of_function(function: FunctionType) -> Iterator[Any]:
    """Yield a function's code, its defaults, and the constants that it reads from outside."""
    yield function.__qualname__
    yield function.__code__
    yield function.__defaults__
    yield function.__kwdefaults__
    for cell in function.__closure__ or ():
        try:
            held = cell.cell_contents
        except ValueError:  # the cell is empty so far
            continue
        if isinstance(held, CONSTANT):
            yield held
    for name in sorted(_names(function.__code__)):
        held = function.__globals__.get(name)
        own = not isinstance(held, FunctionType) or held.__module__ == function.__module__
        if isinstance(held, CONSTANT) and own:
            yield name
            yield held


def _names(code: CodeType) -> set[str]:
    nested = (const for const in code.co_consts if isinstance(const, CodeType))
    return set(code.co_names).union(*map(_names, nested))
