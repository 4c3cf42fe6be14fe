"""Chains in forked processes: same draws, errors raised in the parent, no child left behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import ppgp
from ppgp.errors import DataError, PpgpError, UnknownName
from ppgp.inference import NUTS
from ppgp.inference.mcmc import forked_workers, nutpie_chains
from ppgp.inference.mcmc.forked_workers import WorkerPool

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="processes are forked on Linux alone"
)


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_forked_chains_equal_those_of_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    data = ppgp.load("diabetes").rows(slice(0, 60))
    how = NUTS(draws=50, warmup=50, chains=3)
    posteriors = []
    for fork in (True, False):
        monkeypatch.setattr(nutpie_chains, "can_fork", lambda fork=fork: fork)
        monkeypatch.setattr(nutpie_chains, "available_cores", lambda: 2)
        posteriors.append(
            ppgp.fit(ppgp.models.LinearRegression(), data, how, seed=3, progress=False)
        )
    for name, draws in posteriors[0].draws.items():
        assert torch.equal(draws, posteriors[1].draws[name])
    assert torch.equal(posteriors[0].stats["n_steps"], posteriors[1].stats["n_steps"])


def own_children() -> list[Any]:
    """Return the child processes that run, without those that loky keeps for other sweeps."""
    children = multiprocessing.active_children()
    return [child for child in children if type(child).__name__ != "LokyProcess"]


def gone(pids: list[int], seconds: float = 30.0) -> bool:
    """Whether processes end; a zombie counts as ended."""

    def alive(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        except (FileNotFoundError, ProcessLookupError):
            return False

    end = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    return not any(map(alive, pids))


def pool(
    work: Callable[..., object],
    jobs: list[int],
    heard: list[tuple[int, tuple[int, int]]] | None = None,
) -> dict[int, object]:
    told = [] if heard is None else heard
    one = WorkerPool(work, 2, lambda job, figures: told.append((job, figures)))
    try:
        return dict(one.results(jobs))
    finally:
        one.close()
        assert not own_children()


def test_every_job_is_done_and_reports() -> None:
    heard: list[tuple[int, tuple[int, int]]] = []

    def work(job: int, report: Callable[[int, int], None]) -> int:
        report(job, os.getpid())
        return job**2

    assert pool(work, [1, 2, 3], heard) == {1: 1, 2: 4, 3: 9}
    assert len({pid for _, (_, pid) in heard}) == 3
    assert os.getpid() not in {pid for _, (_, pid) in heard}


@pytest.mark.parametrize(
    "error",
    [
        DataError("a", "b", "c"),
        UnknownName("model", "gq", ["gp"]),
        ValueError("plain"),
        KeyError(torch.zeros(1)),
    ],
    ids=repr,
)
def test_errors_of_a_child_are_raised_in_the_parent(error: Exception) -> None:
    def work(job: int, report: object) -> None:
        raise error

    kind = type(error) if isinstance(error, PpgpError | ValueError) else RuntimeError
    with pytest.raises(kind) as caught:
        pool(work, [0])
    assert type(error).__name__ in str(caught.value) or str(caught.value) == str(error)


def test_a_dead_child_raises() -> None:
    def work(job: int, report: object) -> None:
        os._exit(3)

    with pytest.raises(RuntimeError, match="the process of chain 0 died"):
        pool(work, [0])


@pytest.mark.parametrize("way", ["kernel", "pipe"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda s: s.name)
def test_no_child_outlives_its_parent(
    number: signal.Signals, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent reads one report of each child and then stops, so that the children block."""
    if way == "pipe":
        monkeypatch.setattr(forked_workers, "end_with_parent", lambda: None)
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)

    def work(job: int, report: Callable[[int, int], None]) -> None:
        while True:
            report(job, os.getpid())

    def parent() -> None:
        told: set[int] = set()

        def heard(job: int, figures: tuple[int, int]) -> None:
            told.add(figures[1])
            if len(told) == 2:
                there.send(sorted(told))
                time.sleep(600)

        list(WorkerPool(work, 2, heard).results([0, 1]))

    between = context.Process(target=parent)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        between.start()
    there.close()
    pids: list[int] = here.recv()
    os.kill(between.pid or 0, number)
    between.join()
    here.close()
    assert gone(pids)


@pytest.mark.usefixtures("listening")
@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_ctrl_c_keeps_the_draws_of_forked_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nutpie_chains, "can_fork", lambda: True)
    monkeypatch.setattr(nutpie_chains, "available_cores", lambda: 2)
    started, pressed = time.monotonic(), list[float]()
    counts = dict.fromkeys(range(2), 0)

    class Listening(WorkerPool):
        def __init__(
            self, work: Callable[..., object], cores: int, heard: Callable[..., None]
        ) -> None:
            def both(chain: int, figures: tuple[int, int]) -> None:
                counts[chain] = figures[0]
                heard(chain, figures)

            super().__init__(work, cores, both)

    monkeypatch.setattr(nutpie_chains, "WorkerPool", Listening)

    def press() -> None:
        while (
            min(counts.values()) < 100 and time.monotonic() < started + 120
        ):  # 50 of warm-up, then some draws
            time.sleep(0.1)
        pressed.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press).start()
    posterior = ppgp.fit(
        ppgp.models.LinearRegression(),
        ppgp.load("diabetes").rows(slice(0, 60)),
        NUTS(draws=10**6, warmup=50, chains=2),
        progress=False,
    )
    assert time.monotonic() - pressed[0] < 60
    assert 0 < next(iter(posterior.draws.values())).shape[1] < 10**6
    assert posterior.stats["interrupted"] is True
    assert not own_children()
