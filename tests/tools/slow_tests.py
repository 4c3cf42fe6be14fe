"""Write tests/slow_tests.txt, the tests that ``make test`` leaves to ``make test-slow``.

    .venv/bin/python -m pytest -n 2 --durations=0 --durations-min=0.05 > durations.txt
    .venv/bin/python tests/tools/slow_tests.py durations.txt --seconds 600

The longest tests are listed, until the tests that are left take so many seconds of one core.
Tests that are marked ``slow`` in their file are not listed.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from pathlib import Path

LIST = Path(__file__).parents[1] / "slow_tests.txt"
LINE = re.compile(r"^([\d.]+)s (call|setup|teardown) +(tests/.*)$")
HEADER = """\
# Tests that make test leaves to make test-slow, one name per line.
# Made by tests/tools/slow_tests.py from the durations of a whole run.
"""


def durations(text: str) -> dict[str, float]:
    """Return {name of a test: seconds} from the output of ``pytest --durations``."""
    seconds: dict[str, float] = defaultdict(float)
    for line in text.splitlines():
        match = LINE.match(line)
        if match:
            seconds[match[3].strip()] += float(match[1])
    return dict(seconds)


def main() -> None:
    """Choose the tests and write their names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("durations", type=Path)
    parser.add_argument("--seconds", type=float, default=600.0)
    options = parser.parse_args()
    seconds = durations(options.durations.read_text())
    left = sum(seconds.values())
    slow = []
    for name in sorted(seconds, key=lambda name: -seconds[name]):
        if left <= options.seconds:
            break
        slow.append(name)
        left -= seconds[name]
    LIST.write_text(HEADER + "".join(f"{name}\n" for name in sorted(slow)))
    shortest = seconds[slow[-1]] if slow else 0.0
    print(f"{len(slow)} tests of {shortest:.1f} s and more are slow; the others take {left:.0f} s")


if __name__ == "__main__":
    main()
