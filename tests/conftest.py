"""Fixtures of every test: shapes checked at run time, global state unchanged, data sets."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typecheck

# benchmarks time the code that users run; slow tests leave the checks to the fast ones
if "--benchmark-only" not in sys.argv and os.environ.get("PPGP_CHECK_TYPES") != "0":
    typecheck.install("ppgp")

import ppgp  # noqa: F401, I001  (before torch, so that waiting threads sleep)

import data_sets
import hypothesis
import jaxtyping
import pyro
import pytest
import torch
from collected import COLLECTED
from shared_graphs import graphs_kept

#: seconds since 1970, after which no test begins
UNTIL = float(os.environ.get("PPGP_TESTS_UNTIL", "inf"))
SLOW_TESTS = Path(__file__).with_name("slow_tests.txt")

torch.set_num_threads(1)  # xdist starts one process per core
hypothesis.settings.register_profile(
    "laws", derandomize=True, deadline=None, max_examples=25, database=None
)
hypothesis.settings.load_profile("laws")


def global_state() -> dict[str, Any]:
    """Return the global settings that a library call may never change for its caller."""
    return {
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "threads": torch.get_num_threads(),
        "validation of arguments": torch.distributions.Distribution._validate_args,
        "validation by Pyro": pyro.settings.get("validate_distributions_pyro"),
        "gradients enabled": torch.is_grad_enabled(),
        "param store": tuple(sorted(pyro.get_param_store().keys())),
        "handler stack": len(pyro.poutine.runtime._PYRO_STACK),
    }


@pytest.fixture(autouse=True)
def untouched_global_state() -> Iterator[None]:
    """Fail any test that leaves the global state changed."""
    before = global_state()
    yield
    after = global_state()
    changed = [
        f"{name}: {before[name]!r} became {after[name]!r}"
        for name in before
        if before[name] != after[name]
    ]
    torch.set_default_dtype(before["default dtype"])
    torch.set_num_threads(before["threads"])
    pyro.clear_param_store()
    assert not changed, "; ".join(changed)


def pytest_collectstart() -> None:
    """Look for no garbage among modules and tests, which all stay until the end."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Look for garbage again, but not among what is there now."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Skip a test that would begin too late, before its fixtures are made."""
    if time.time() > UNTIL:
        pytest.skip("the time of PPGP_TESTS_UNTIL has passed: run it by itself, or unset it")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let one worker run tests that share a costly set-up."""
    from workers import scheduler  # where pytest-xdist is installed

    return scheduler(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark slow tests, and skip tests marked ``data`` whose files are missing."""
    config.stash[COLLECTED] = {item.nodeid for item in items}
    slow = set(SLOW_TESTS.read_text().splitlines()) if SLOW_TESTS.exists() else set()
    for item in items:
        if item.nodeid in slow:
            item.add_marker(pytest.mark.slow)
        marker = item.get_closest_marker("data")
        if marker is None:
            continue
        lacking = data_sets.missing(marker.args)
        if lacking:
            reason = f"{item.name} needs {', '.join(lacking)}: {data_sets.ADVICE}"
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def types_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switch off the run-time type checks of the test suite, which users do not have."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of the published data sets; tests that need its files are marked ``data``."""
    return data_sets.FOLDER


@pytest.fixture(scope="module")
def shared_graphs() -> Iterator[None]:
    """Trace the same density once for all fits of a module."""
    with graphs_kept():
        yield


@pytest.fixture
def listening() -> Iterator[None]:
    """Handle SIGINT, which processes started in the background by xdist or a shell ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
