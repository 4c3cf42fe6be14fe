"""What every test shares: shapes checked at run time, no global state left changed, the data folder beside the repository."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from jaxtyping import install_import_hook

if "--benchmark-only" not in sys.argv:  # what is timed is what users run
    install_import_hook("ppgp", "typecheck.checked")

import ppgp  # noqa: F401, I001  (before torch, so that threads that wait sleep)

import hypothesis
import pyro
import pytest
import torch

torch.set_num_threads(1)  # xdist starts one process a core
hypothesis.settings.register_profile(
    "laws", derandomize=True, deadline=None, max_examples=25, database=None
)
hypothesis.settings.load_profile("laws")


def global_state() -> dict[str, object]:
    """What a library call may never change for its caller."""
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
    """Fails any test that leaves the process in another state than it found it."""
    before = global_state()
    yield
    after = global_state()
    changed = [
        f"{name}: {before[name]!r} became {after[name]!r}"
        for name in before
        if before[name] != after[name]
    ]
    torch.set_default_dtype(before["default dtype"])  # type: ignore[arg-type]
    torch.set_num_threads(before["threads"])  # type: ignore[arg-type]
    pyro.clear_param_store()
    assert not changed, "; ".join(changed)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """``../shared/data``; tests that use it are marked ``data``."""
    folder = Path(__file__).parents[1].parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("needs ../shared/data, which is not there")
    return folder


@pytest.fixture
def listening() -> Iterator[None]:
    """Processes that pytest-xdist or a shell starts in the background turn a deaf ear to SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
