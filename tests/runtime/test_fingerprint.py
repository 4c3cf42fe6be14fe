"""A fingerprint changes with numbers and code, and is the same in every process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import nn

from ppgp import kernels, models
from ppgp.runtime.fingerprint import fingerprint

SCALE = 2.0


def table(k: float) -> torch.Tensor:
    return torch.arange(2000.0) * k


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 3), nn.Tanh())


def around(k: float) -> Callable[[], float]:
    def program() -> float:
        return SCALE * k

    return program


def nested(k: float) -> Callable[[], float]:
    inner = around(k)
    return lambda: inner()


PAIRS = {
    "tables in a list": ([table(1.0)], [table(1.5)]),
    "tables in a dict": ({"a": table(1.0)}, {"a": table(1.5)}),
    "names of tables": ({"a": table(1.0)}, {"b": table(1.0)}),
    "an array and its copy in single precision": (table(1.0).double(), table(1.0)),
    "what a function holds": (around(1.0), around(2.0)),
    "what a function of a function holds": (nested(1.0), nested(2.0)),
    "code": (lambda x: x + 1, lambda x: x + 2),
    "other code": (lambda x: x + 1, lambda x: x - 1),
    "priors": (models.GP(kernels.RBF(variance=1.0)), models.GP(kernels.RBF(variance=2.0))),
    "one string or two": (["ab"], ["a", "b"]),
    "where a list ends": ([[1], 2], [[1, 2]]),
    "one byte of a number that NumPy has not": (
        torch.ones(3, dtype=torch.bfloat16),
        torch.zeros(3, dtype=torch.bfloat16),
    ),
}


@pytest.mark.parametrize(("one", "other"), PAIRS.values(), ids=PAIRS)
def test_different_values_differ(one: object, other: object) -> None:
    assert fingerprint(one) != fingerprint(other)
    assert fingerprint(one) == fingerprint(one)


def test_weights_of_a_network_matter() -> None:
    with torch.random.fork_rng():
        one, same, other = network(0), network(0), network(1)
    assert fingerprint(one) == fingerprint(same) != fingerprint(other)


def test_a_constant_of_the_module_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint(around(1.0))
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert fingerprint(around(1.0)) != before


def test_a_list_that_a_function_writes_to_does_not_matter() -> None:
    calls: list[int] = []

    def program() -> None:
        calls.append(1)

    before = fingerprint(program)
    program()
    assert fingerprint(program) == before


def test_a_self_referring_function_terminates() -> None:
    def program() -> object:
        return program

    assert fingerprint(program) == fingerprint(program)


def test_it_is_the_same_in_every_process() -> None:
    code = (
        "import torch\nfrom ppgp import models\nfrom ppgp.runtime.fingerprint import fingerprint\n"
        "f = lambda x: {x, 'a', 'b'} | {2.5}\n"
        "print(fingerprint(models.SVGP(), {'x': torch.ones(3)}, f, {'c', 'd'}, object))"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert runs[0].stdout == runs[1].stdout
    assert len(runs[0].stdout.strip()) == 64
