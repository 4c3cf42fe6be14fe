"""Errors of the standard output, such as a full disk or a closed pipe, as one sentence."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO


@contextmanager
def whole_output() -> Iterator[None]:
    """Flush the standard output at the end, so that an error is not met later at exit.

    Raises:
        SystemExit: With status 1, if the operating system refuses what was printed.
    """
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except OSError as error:  # errors of other files are StorageErrors
        with suppress(OSError):
            print(f"ppgp: {error.strerror or error}", file=sys.stderr, flush=True)
        for stream in (sys.stdout, sys.stderr):
            _silence(stream)
        raise SystemExit(1) from None


def _silence(stream: TextIO | None) -> None:
    """Discard the buffer of a stream that cannot be written, so that exit raises no traceback."""
    if stream is None:
        return
    try:
        stream.flush()
    except OSError:
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
    except (AttributeError, ValueError):  # a replacement without flush, or a closed stream
        pass
