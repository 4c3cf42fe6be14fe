"""The checks of types that every test runs under find what is wrong, wherever it is."""

from __future__ import annotations

import gc
import importlib
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import typecheck
from beartype.roar import BeartypeException
from jaxtyping import TypeCheckError, config

WRONG = (BeartypeException, TypeCheckError)
SOURCE = '''
"""A module with a docstring."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from jaxtyping import Float
from numpy import ndarray

if TYPE_CHECKING:
    from elsewhere import Unknown


def number(x: float, *, times: int = 1) -> float:
    return x * times if times else "none"


def unknown(x: Unknown, y: int) -> Unknown:
    return x


def product(a: Float[ndarray, "n m"], b: Float[ndarray, "m"]) -> Float[ndarray, "n"]:
    return a @ b if a.any() else b[:1]


def adder(k):
    def add(x: float) -> float:
        return x + k

    return add


@dataclass(frozen=True)
class Record:
    size: int

    @cached_property
    def half(self) -> int:
        return self.size / 2

    @staticmethod
    def of(size: int) -> Record:
        return Record(size)

    @classmethod
    def named(cls, size: str) -> Record:
        return cls(int(size))


@dataclass(frozen=True)
class Wider(Record):
    colour: str = "red"
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module under the checks, as it is compiled and then as it is read again."""
    (tmp_path / "one_with_types.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    typecheck.install("one_with_types")
    importlib.import_module("one_with_types")
    (kept,) = (tmp_path / "__pycache__").iterdir()
    assert kept.name.endswith(typecheck.COMPILED)
    del sys.modules["one_with_types"]
    yield importlib.import_module("one_with_types")
    del sys.modules["one_with_types"]


def test_arguments_and_what_is_returned(module: ModuleType) -> None:
    assert module.number(2) == 2.0  # an int is a float
    assert module.unknown("any", 3) == "any"
    for call in (
        lambda: module.number("2"),
        lambda: module.number(2.0, times=1.5),
        lambda: module.number(2.0, times=0),
        lambda: module.unknown("any", "3"),
    ):
        with pytest.raises(WRONG):
            call()


def test_shapes(module: ModuleType) -> None:
    a = np.ones((3, 2))
    assert module.product(a, np.ones(2)).shape == (3,)
    for call in (
        lambda: module.product(a, np.ones(3)),
        lambda: module.product(a, np.ones(2, dtype=int)),
        lambda: module.product(0 * a, np.ones(2)),
    ):
        with pytest.raises(WRONG):
            call()


def test_records_and_their_methods(module: ModuleType) -> None:
    record = module.Record(4)
    assert (module.Record.of(2), module.Record.named("2")) == (module.Record(2),) * 2
    assert module.Wider(3).colour == "red"
    for call in (
        lambda: module.Record("4"),
        lambda: module.Record.of("2"),
        lambda: module.Record.named(2),
        lambda: module.Wider(3, colour=None),
        lambda: record.half,
    ):
        with pytest.raises(WRONG):
            call()


def test_a_closure_is_checked_each_time_and_let_go(module: ModuleType) -> None:
    class Held(float):
        pass

    held = [Held(1.0), Held(2.0)]
    for k in held:
        add = module.adder(k)
        assert add(1) == 1 + k
        with pytest.raises(WRONG):
            add("1")
    alive = [weakref.ref(k) for k in held]
    del add, k, held
    gc.collect()
    assert [k() for k in alive] == [None, None]


def test_checks_are_switched_off_where_users_see_the_errors(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "jaxtyping_disable", True)
    x: Any = "2"
    assert module.number(x, times=2) == "22"
