"""Ctrl-C once ends a fit; twice within two seconds it ends the caller's loop of fits."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import pytest

from ppgp.inference import runs
from ppgp.inference.runs import second_goes_to_the_caller

LOOP = """
import signal
import warnings

import torch

import ppgp
from ppgp import inference, models
from ppgp.runtime.torch_optimisers import Adam

signal.signal(signal.SIGINT, signal.default_int_handler)
warnings.simplefilter("ignore")
step = Adam.step
searching = []


def told(self, *args):
    if not searching:
        searching.append(True)
        print("searching", flush=True)
    return step(self, *args)


Adam.step = told
X = torch.randn(300, 2, generator=torch.Generator().manual_seed(0))
data = ppgp.Dataset(X, X[:, 0])
while True:
    posterior = ppgp.fit(models.LinearRegression(), data, {how}, progress=False{options})
    print("interrupted" if posterior.stats["interrupted"] else "whole", flush=True)
    searching.clear()
"""
ADAM = "inference.MAP('adam', steps=10**8)"
MEMBERS = "inference.Ensemble(inference.MAP('adam', steps=10**8), members=50)"


@contextmanager
def loop(how: str, options: str = "") -> Iterator[subprocess.Popen[str]]:
    """Run a loop of fits in a process of its own; enter the block once the first fit searches."""
    process = subprocess.Popen(
        [sys.executable, "-c", LOOP.format(how=how, options=options)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    with process:
        try:
            assert line(process) == "searching"
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    """Return the next line that the process prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def press(process: subprocess.Popen[str], *gaps: float) -> None:
    """Send the signal of Ctrl-C, and again after each of the gaps in seconds."""
    process.send_signal(signal.SIGINT)
    for gap in gaps:
        time.sleep(gap)
        process.send_signal(signal.SIGINT)


@pytest.mark.parametrize("how", [ADAM, MEMBERS])
def test_two_soon_after_each_other_end_a_loop_of_fits(how: str) -> None:
    with loop(how) as process:
        press(process, 0.5)
        out, err = process.communicate(timeout=300)
    assert "whole" not in out
    assert process.returncode == -signal.SIGINT  # of an uncaught KeyboardInterrupt
    assert err.rstrip().rpartition("\n")[2].startswith("KeyboardInterrupt")


def test_two_far_apart_end_a_fit_each() -> None:
    with loop(ADAM) as process:
        press(process)
        assert (line(process), line(process)) == ("interrupted", "searching")
        time.sleep(3.0)
        press(process)
        assert (line(process), line(process)) == ("interrupted", "searching")
        assert process.poll() is None


def test_the_checkpoint_of_a_loop_that_ended_continues(tmp_path: Path) -> None:
    path = tmp_path / "fit.checkpoint"
    with loop(ADAM, f", checkpoint={str(path)!r}") as process:
        press(process, 0.5)
        process.communicate(timeout=300)
    assert process.returncode == -signal.SIGINT
    with loop(ADAM, f", checkpoint={str(path)!r}") as again:
        press(again)
        assert line(again) == "interrupted"


def test_the_handler_is_the_callers_again_after_a_block() -> None:
    before = signal.getsignal(signal.SIGINT)
    with second_goes_to_the_caller():
        pass
    assert signal.getsignal(signal.SIGINT) is before


def swallow() -> None:
    """Be a fit that is sent Ctrl-C and returns what it has."""
    with second_goes_to_the_caller(), suppress(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1.0)


@pytest.mark.usefixtures("listening")
@pytest.mark.parametrize(("gap", "ends"), [(0.01, False), (0.5, True), (1.9, True), (2.1, False)])
def test_the_gap_decides(gap: float, ends: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two signals within a twentieth of a second are one Ctrl-C that was sent twice."""
    clock = iter([100.0, 100.0 + gap])
    monkeypatch.setattr(runs, "monotonic", lambda: next(clock))
    monkeypatch.setattr(runs, "_last", -math.inf)
    swallow()
    with pytest.raises(KeyboardInterrupt) if ends else nullcontext():
        swallow()


@pytest.mark.usefixtures("listening")
def test_a_block_around_others_ends_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ensemble or a cross-validation catches what a fit inside it raises."""
    clock = iter([100.0, 101.0])
    monkeypatch.setattr(runs, "monotonic", lambda: next(clock))
    monkeypatch.setattr(runs, "_last", -math.inf)
    swallow()
    with (
        pytest.raises(KeyboardInterrupt, match="second"),
        second_goes_to_the_caller(),
        suppress(KeyboardInterrupt),
    ):
        swallow()
