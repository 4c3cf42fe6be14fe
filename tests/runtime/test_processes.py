"""Child processes end with their parent, and the terminal's Ctrl-C does not reach them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ppgp.runtime import processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")

PARENT = """
import os, signal, sys, time
from concurrent.futures import ProcessPoolExecutor
from ppgp.runtime import processes

def begin(by_the_kernel):
    if not by_the_kernel:
        processes._killed_by_the_kernel = lambda: False
    processes.end_with_parent()

def work(_):
    assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    os.write(1, f"{os.getpid()}\\n".encode())  # at once: print may mix the lines of two workers
    time.sleep(600)

if __name__ == "__main__":
    pool = ProcessPoolExecutor(
        2, mp_context=processes.Spawned(), initializer=begin, initargs=(sys.argv[1] == "kernel",)
    )
    with processes.without_interrupts():
        waiting = [pool.submit(work, i) for i in range(2)]
    waiting[0].result()
"""


def alive(pid: int) -> bool:
    """Return whether a process still runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone(pids: list[int], seconds: float = 30.0) -> bool:
    end = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    return not any(map(alive, pids))


@pytest.mark.parametrize("way", ["kernel", "watch"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda s: s.name)
def test_a_pool_ends_with_its_parent(number: signal.Signals, way: str, tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    root = str(Path(processes.__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root}
    with subprocess.Popen(
        [sys.executable, str(script), way],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    ) as parent:
        assert parent.stdout is not None
        workers = [int(parent.stdout.readline()) for _ in range(2)]
        assert all(map(alive, workers))
        parent.send_signal(number)
        parent.wait()
        assert gone(workers)


def test_a_process_without_a_multiprocessing_parent_continues() -> None:
    processes.end_with_parent()


def test_a_process_that_has_not_started_can_be_killed() -> None:
    processes.kill_all([processes.Spawned().Process(target=time.sleep, args=(0,))])
