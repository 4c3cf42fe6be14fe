"""Record which lines of ppgp are executed, in this and in all later processes.

Python imports this module at its start where its folder is in PYTHONPATH. Each line is written once
per process to the file that PPGP_EXECUTED names, as ``path:line``. Needs Python 3.12, whose
``sys.monitoring`` forgets a line after its first execution, so that programs hardly become slower.
"""

import contextlib
import os
import sys
from types import CodeType

PLACE = os.environ.get("PPGP_EXECUTED")
TOOL = 5  # none of those that Python gives a meaning

if PLACE and hasattr(sys, "monitoring"):
    out = os.open(PLACE, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    part = f"{os.sep}ppgp{os.sep}"

    def record(code: CodeType, line: int) -> object:
        """Write a line of ppgp, and ask for no further events of the line."""
        before, found, path = code.co_filename.rpartition(part)
        if found and not before.endswith("tests"):
            with contextlib.suppress(OSError):  # where a test limits the size of files
                os.write(out, f"{path}:{line}\n".encode())
        return sys.monitoring.DISABLE

    sys.monitoring.use_tool_id(TOOL, "executed lines")
    sys.monitoring.register_callback(TOOL, sys.monitoring.events.LINE, record)
    sys.monitoring.set_events(TOOL, sys.monitoring.events.LINE)
