"""Code in processes forked from one that has imported ppgp, so that only the first one imports it.

Such a process begins like a fresh one: the parent has computed nothing and started no thread. It
lacks what a process of its own would test about imports.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import types
import warnings
from collections.abc import Mapping
from multiprocessing.context import ForkServerProcess
from pathlib import Path

IMPORTED = [
    *("ppgp", "torch", "torch._dynamo", "torch.fx.experimental.proxy_tensor", "pyro"),
    *("arviz", "nutpie", "matplotlib.pyplot", "pandas", "pyarrow.parquet", "sklearn.datasets"),
    *(
        "rich.console",
        "rich.table",
        "ppgp.conformal",
        "ppgp.diagnostics.comparison",
        "ppgp.inference",
    ),
    *("ppgp.cli.main", "ppgp.report.report", "ppgp.models", "ppgp.plots"),
    *("ppgp.posterior.loading", "ppgp.posterior.arviz"),
]


def start(
    code: str,
    *arguments: str,
    cwd: Path | None = None,
    out: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> ForkServerProcess:
    """Start code as ``python -W ignore -c code *arguments`` would.

    Args:
        code: The code.
        *arguments: Its ``sys.argv[1:]``.
        cwd: Its working directory; None for that of this process.
        out: The folder of its files ``out`` and ``err``, the outputs; None discards them.
        environment: Additional environment variables.
    """
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(IMPORTED)
    process = server.Process(
        target=_run,
        args=(code, arguments, str(cwd or Path.cwd()), out and str(out), dict(environment or {})),
    )
    process.start()
    return process


def _run(
    code: str, arguments: tuple[str, ...], cwd: str, out: str | None, environment: dict[str, str]
) -> None:
    os.setsid()  # so that all of its children can be killed with it
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(environment)
    os.chdir(cwd)
    for number, name in ((1, "out"), (2, "err")):
        path = os.path.join(out, name) if out else os.devnull
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
        os.close(file)
    warnings.simplefilter("ignore")
    sys.argv = ["-c", *arguments]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(code, "<forked>", "exec"), main.__dict__)


def run(
    code: str,
    *arguments: str,
    cwd: Path,
    seconds: float = 300,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run code as ``start`` does, and return how it ended.

    Raises:
        AssertionError: If it exceeds the time limit; it is killed with its children.
    """
    with tempfile.TemporaryDirectory() as folder:
        process = start(code, *arguments, cwd=cwd, out=Path(folder), environment=environment)
        process.join(seconds)
        code_of_exit = process.exitcode
        if code_of_exit is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid or 0, signal.SIGKILL)
            raise AssertionError(f"not ended after {seconds} s")
        out, err = (Path(folder, name).read_text() for name in ("out", "err"))
    return subprocess.CompletedProcess(list(arguments), code_of_exit, out, err)


COMMAND = """
import runpy, sys
sys.argv[0] = "ppgp"
runpy.run_module("ppgp", run_name="__main__")
"""


def ppgp(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of ppgp as ``python -W ignore -m ppgp *arguments`` would."""
    return run(COMMAND, *arguments, cwd=cwd)
