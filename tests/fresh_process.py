"""Code in its own process, with all threads of the machine; this suite uses one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

LIMITS = ("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "TORCHINDUCTOR_")


def printed(code: str, seconds: float = 900, **environment: str) -> list[str]:
    """Return the words that the code prints.

    The process and all its children are killed after the given time.

    Args:
        code: The code.
        seconds: The time limit.
        **environment: Additional environment variables.

    Raises:
        AssertionError: If the code fails or exceeds the time limit.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(LIMITS)}
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=kept | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise AssertionError(f"not ended after {seconds} s") from None
    assert process.returncode == 0, err
    return out.split()
