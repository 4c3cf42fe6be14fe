"""The fault campaign: interrupts, full disks, hostile tables and pairs of runs.

Run ``python -m tests.faults.campaign --seed 0 --interrupts 200 --disks 100 --tables 200 --pairs
50``. It prints a table of counts and a line for each failure, and exits with 1 if there is one.
"""

from __future__ import annotations

import argparse
import importlib
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from . import disks, interrupts, pairs, tables
from .counts import table

NEEDED = (
    *("matplotlib.pyplot", "pandas", "pyarrow.parquet", "rich.console", "rich.table"),
    *(
        "ppgp.diagnostics.comparison",
        "ppgp.cli.main",
        "ppgp.report.report",
        "ppgp.posterior.loading",
    ),
)
PARTS = {
    "interrupts": interrupts.campaign,
    "disks": disks.campaign,
    "tables": tables.campaign,
    "pairs": pairs.campaign,
}


def main(arguments: list[str] | None = None) -> int:
    """Run the campaign and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    for name, count in {"interrupts": 200, "disks": 100, "tables": 200, "pairs": 50}.items():
        parser.add_argument(f"--{name}", type=int, default=count)
    options = parser.parse_args(arguments)
    warm()
    # exit normally, so that disks are unmounted
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    results = []
    # a TemporaryDirectory would be removed when the first forked child ends
    folder = tempfile.mkdtemp(prefix="ppgp-faults-")
    try:
        for name, part in PARTS.items():
            count = getattr(options, name)
            if count:
                started = time.monotonic()
                results.append(part(options.seed, count, Path(folder)))
                print(
                    f"{name}: {count} cases, {time.monotonic() - started:.0f} s",
                    file=sys.stderr,
                    flush=True,
                )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(table(results))
    slowest = max((part.slowest_stop for part in results), default=0.0)
    print(f"the slowest end after a signal took {slowest:.1f} s")
    return int(any(part.bad for part in results))


def warm() -> None:
    """Import what the commands import, without computation.

    No thread may have started when cases are forked.
    """
    for name in NEEDED:
        importlib.import_module(name)


if __name__ == "__main__":
    sys.exit(main())
