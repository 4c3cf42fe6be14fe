"""Results that the operating system refuses to write, as one sentence and exit status 1."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from ..errors import StorageError


class NotWritten(StorageError):
    """A result could not be written; its path had passed the checks before the work."""


@contextmanager
def results() -> Iterator[None]:
    """Write results inside the block.

    Raises:
        NotWritten: If the operating system refuses it.
    """
    try:
        yield
    except StorageError as error:
        raise NotWritten(error.expected, error.got, error.do) from error


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
            print(f"ppgp: {_not_printed(error)}", file=sys.stderr, flush=True)
        for stream in (sys.stdout, sys.stderr):
            _silence(stream)
        raise SystemExit(1) from None


def _not_printed(error: OSError) -> NotWritten:
    """Return the error for what the standard output does not take."""
    reason = (error.strerror or str(error) or type(error).__name__).lower()
    return NotWritten("to write the standard output", reason, "send it to another file or disk")


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
