"""The built notebooks show the library's warnings, and no notices of the machine."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
STDERR = (
    "/home/me/tqdm/auto.py:21: TqdmWarning: IProgress not found.\n"
    "  from .autonotebook import tqdm as notebook_tqdm\n"
    "fit:  50%|#####     | 5/10\r"
    "fit: 100%|##########| 10/10\n"
    "/tmp/ipykernel_1/2.py:11: ConvergenceWarning: R-hat is 1.02 for scale (wanted at most 1.01): "
    "the four chains do not agree; raise warmup and draws, or reparametrise\n"
    "  posterior = ppgp.fit(model, samples, inference.NUTS(draws=150), progress=False)\n"
    "/tmp/ipykernel_1/2.py:12: DataWarning: column a of X constant\n"
    "/tmp/ipykernel_1/2.py:13: DataWarning: column a of X constant\n"
)


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the module that builds the notebooks."""
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    return importlib.import_module("notebooks.build")


def test_own_warnings_stay_once_without_paths_in_lines_that_fit_a_page(build: ModuleType) -> None:
    lines = build.own_warnings(STDERR).splitlines()
    assert " ".join(lines) == (
        "ConvergenceWarning: R-hat is 1.02 for scale (wanted at most 1.01): the four chains do not "
        "agree; raise warmup and draws, or reparametrise DataWarning: column a of X constant"
    )
    assert len(lines) == 3
    assert max(map(len, lines)) <= 100


def test_other_outputs_stay_and_notices_of_the_machine_go(build: ModuleType) -> None:
    printed = {"name": "stdout", "text": "3\n"}
    table = {"output_type": "execute_result", "data": {"text/plain": "3"}}
    bars = {"name": "stderr", "text": "fit: 100%|##########| 10/10\n"}
    assert build.shown([bars, printed, table]) == [printed, table]
    assert [o["name"] for o in build.shown([{"name": "stderr", "text": STDERR}])] == ["stderr"]
