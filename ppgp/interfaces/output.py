"""The standard output to its last byte: a disk that is full, or a pipe that nobody reads, is one sentence."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def whole_output() -> Iterator[None]:
    """What cannot be written is found here, not when the interpreter ends.

    Raises:
        SystemExit: with code 1, if the operating system refuses what was printed.
    """
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except OSError as error:  # files have sentences of their own
        with suppress(OSError):
            print(f"ppgp: {error.strerror or error}", file=sys.stderr, flush=True)
        for stream in (sys.stdout, sys.stderr):
            _silence(stream)
        raise SystemExit(1) from None


def _silence(stream: object) -> None:
    """What is left in the buffer of a stream that takes nothing goes nowhere, rather than into a traceback."""
    try:
        stream.flush()  # type: ignore[attr-defined]
    except OSError:
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())  # type: ignore[attr-defined]
            os.close(nowhere)
    except (AttributeError, ValueError):  # no stream, or one that is closed
        pass
