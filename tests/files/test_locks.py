"""One run at a time writes a file, and the message names the process that holds it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ppgp import files
from ppgp.errors import StorageError

HOLDS = """
import os, sys
from ppgp import files
with files.locked(sys.argv[1]):
    if sys.argv[2] == "fork" and os.fork() == 0:
        sys.stdin.read()  # outlives its parent
        os._exit(0)
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(path: Path, fork: bool = False) -> subprocess.Popen[str]:
    """Start a process that holds the lock of a file until it ends."""
    command = [sys.executable, "-W", "ignore", "-c", HOLDS, str(path), "fork" if fork else "alone"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_the_error_names_the_other_process_and_its_end_releases_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    link = tmp_path / "link.ckpt"
    link.symlink_to(path)
    process = holder(path)
    for name in (path, link):
        with pytest.raises(StorageError, match=rf"\b{process.pid}\b"), files.locked(name):
            pass
    with files.locked(tmp_path / "other.ckpt"):
        pass
    process.communicate("")
    with files.locked(path):
        pass
    assert list(tmp_path.iterdir()) == [link]


def test_a_killed_process_leaves_no_lock_and_its_incomplete_files_are_removed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.ckpt"
    rest, foreign = (
        tmp_path / ".run.ckpt.0123456789abcdef.new.ckpt",
        tmp_path / ".run.ckpt.mine.new",
    )
    for file in (rest, foreign):
        file.write_text("half")
    process = holder(path)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with files.locked(path):
        assert not rest.exists()
    assert list(tmp_path.iterdir()) == [foreign]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_forked_children_do_not_keep_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    process = holder(path, fork=True)
    with pytest.raises(StorageError, match=rf"\b{process.pid}\b"), files.locked(path):
        pass  # a child that has let go has not let go for its parent
    process.send_signal(signal.SIGKILL)
    process.wait()
    with files.locked(path, patience=20.0):  # while the child, which may be slow to start, reads on
        pass
    process.communicate("")


def test_a_second_run_in_the_same_process_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    with files.locked(path):
        with pytest.raises(StorageError, match="this process"), files.locked(path):
            pass
        with pytest.raises(StorageError), files.locked(path):  # the refused one has not freed it
            pass
    with files.locked(path):
        pass


def test_an_impossible_lock_is_skipped() -> None:
    with files.locked("/proc/run.ckpt"), files.locked(None):
        pass
