"""Cases: work in a forked process with a fault, and how it ended.

The parent has imported ppgp and computed nothing, so that a case costs no import. The child is a
session of its own; processes of that session that outlive its leader are orphans.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing.util
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PATIENCE = 180.0  # seconds after which a case counts as a hang; none takes 20 on an idle machine
LAST = 5.0  # seconds within which children must end after their parent
SHORT = 0.005


@dataclass
class Outcome:
    """How a case ended.

    Attributes:
        code: The exit code, as in a shell: 128 + signal after a signal.
        out: What it wrote to the standard output.
        err: What it wrote to the standard error.
        seconds: How long it took.
        hung: Whether it exceeded ``PATIENCE``.
        orphans: Processes that outlived it.
        after_signal: Seconds from the signal to the end.
    """

    code: int
    out: str
    err: str
    seconds: float
    hung: bool = False
    orphans: list[int] = field(default_factory=list)
    after_signal: float = 0.0

    @property
    def raw(self) -> bool:
        """Whether a traceback was shown, or the interpreter crashed."""
        crashes = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGXFSZ)
        crashed = self.code in {128 + s for s in crashes}
        return crashed or "Traceback (most recent call last)" in self.err + self.out


@dataclass
class Fault:
    """A signal to a case.

    Attributes:
        number: The signal.
        after: Seconds from the start of the case.
        group: Whether it goes to the whole process group, as Ctrl-C in a terminal.
    """

    number: int
    after: float
    group: bool = False


def run(
    work: Callable[[], Any],
    folder: Path,
    fault: Fault | None = None,
    file_limit: int | None = None,
    environment: Mapping[str, str] | None = None,
    outputs: Path | None = None,
) -> Outcome:
    """Run ``work`` in a process of its own and return how it ended.

    Args:
        work: The work.
        folder: Its working directory.
        fault: A signal to send.
        file_limit: The size in bytes of the largest file that it may write.
        environment: Additional environment variables.
        outputs: Where its output is kept; None for ``folder``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    out, err = ((outputs or folder) / name for name in (".out", ".err"))
    started = time.monotonic()
    pid = fork(work, folder, out, err, file_limit, dict(environment or {}))
    found = watch(pid, started, fault)
    found.out, found.err = (
        path.read_text(errors="replace") if path.exists() else "" for path in (out, err)
    )
    return found


def fork(
    work: Callable[[], Any],
    folder: Path,
    out: Path,
    err: Path,
    file_limit: int | None,
    environment: dict[str, str],
) -> int:
    """Start ``work`` in a session of its own and return the id of its process."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.environ.update(environment)
        os.chdir(folder)
        for target, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), target)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if file_limit is not None:
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, hard))
        code = _coded(work)
        code = _coded(_end) or code
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _end() -> None:
    """Wait for threads and children, as the interpreter does when it exits."""
    threads: Any = threading
    children: Any = multiprocessing.util
    threads._shutdown()
    children._exit_function()


def _coded(work: Callable[[], Any]) -> int:
    """Run the work and return the exit code that Python would have."""
    try:
        work()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # in a script, Python shows the exception, as intended
        print("KeyboardInterrupt", file=sys.stderr)
        return 128 + signal.SIGINT
    except BaseException:
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))  # it holds for this file as well
        traceback.print_exc()
        return 1
    return 0


def watch(pid: int, started: float, fault: Fault | None) -> Outcome:
    """Wait for the end of a case, send its signal, and count what remains of its session."""
    sent = 0.0
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        now = time.monotonic()
        if done:
            code = os.waitstatus_to_exitcode(status)
            break
        if fault is not None and not sent and now - started >= fault.after:
            sent = now
            with contextlib.suppress(ProcessLookupError):
                (os.killpg if fault.group else os.kill)(pid, fault.number)
        if now - max(started, sent) > PATIENCE:
            kill_session(pid)
            os.waitpid(pid, 0)
            return Outcome(-1, "", "", now - started, hung=True)
        time.sleep(SHORT)
    ended = time.monotonic()
    while (left := session(pid)) and time.monotonic() < ended + LAST:
        time.sleep(10 * SHORT)
    kill_session(pid)
    if code < 0:
        code = 128 - code
    after_signal = ended - sent if sent else 0.0
    return Outcome(code, "", "", ended - started, orphans=left, after_signal=after_signal)


def session(leader: int) -> list[int]:
    """Return the running processes of a session, from /proc."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != leader:
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == leader and fields[0] not in "ZX":
                found.append(int(entry))
    return found


def kill_session(leader: int) -> None:
    """Kill what a case has left, so that no later case runs beside it."""
    for pid in [*session(leader), leader]:
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(pid) == leader:
                os.kill(pid, signal.SIGKILL)


def answer(work: Callable[[], Any], folder: Path) -> Any:
    """Return what ``work`` returns in a process of its own, through JSON; None if it failed."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ".answer"
    path.unlink(missing_ok=True)
    found = run(lambda: path.write_text(json.dumps(work())), folder)
    return json.loads(path.read_text()) if found.code == 0 and path.exists() else None


def command(*words: str) -> Callable[[], None]:
    """Return work that runs ``ppgp`` with these arguments, as its script does."""

    def work() -> None:
        from ppgp.cli.main import main

        sys.argv = ["ppgp", *words]
        main()

    return work
