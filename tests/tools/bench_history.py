"""Append the ratios of a run of the benchmarks to tests/bench/history.jsonl.

    .venv/bin/python -m pytest tests/bench --benchmark-only -p no:xdist --benchmark-json=run.json
    .venv/bin/python tests/tools/bench_history.py run.json

``make bench-history`` does both. A line is one run, as JSON: the commit, whether files differed
from it, the date, the machine, versions of libraries, and {name of the benchmark: ratio}. A ratio
is ppgp's figure over that of its best peer: of times the smaller is the better, of effective draws
a second the larger. Benchmarks without a ratio, or that did not reach it, have no entry.
"""

from __future__ import annotations

import argparse
import json
import math
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

HISTORY = Path(__file__).parents[1] / "bench" / "history.jsonl"
FOLDER = "tests/bench/"
LIBRARIES = [
    "ppgp",
    "torch",
    "pyro-ppl",
    "numpy",
    "scipy",
    "nutpie",
    "scikit-learn",
    "gpytorch",
    "numpyro",
    "jax",
    "gpboost",
    "ngboost",
    "tinygp",
    "mapie",
    "statsmodels",
]


def versions(libraries: list[str]) -> dict[str, str]:
    """Return {library: version} of those that are installed."""
    found = {}
    for library in libraries:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            continue
    return found


def ratios(run: dict[str, Any]) -> dict[str, float]:
    """Return {name of the benchmark: ratio} of those that are finite numbers, sorted by name."""
    found = {}
    for benchmark in run["benchmarks"]:
        ratio = benchmark["extra_info"].get("ratio")
        if isinstance(ratio, int | float) and math.isfinite(ratio):
            name = benchmark["fullname"].removeprefix(FOLDER)
            found[name] = float(f"{ratio:.4g}")
    return dict(sorted(found.items()))


def record(run: dict[str, Any]) -> dict[str, Any]:
    """Return the line of a run, given the JSON of pytest-benchmark."""
    commit, machine = run["commit_info"], run["machine_info"]
    return {
        "commit": commit.get("id"),
        "dirty": commit.get("dirty"),
        "date": run["datetime"],
        "machine": {
            "cpu": machine["cpu"].get("brand_raw", machine.get("processor")),
            "cores": machine["cpu"].get("count"),
        },
        "versions": {"python": machine["python_version"], **versions(LIBRARIES)},
        "ratios": ratios(run),
    }


def main() -> None:
    """Append the line of the run whose JSON is named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="the file of --benchmark-json")
    parser.add_argument("--history", type=Path, default=HISTORY)
    options = parser.parse_args()
    if not options.run.exists():
        parser.error(f"there is no {options.run}: the benchmarks stopped before their end")
    line = record(json.loads(options.run.read_text()))
    if not line["ratios"] or not line["commit"]:
        parser.error(f"{options.run} holds no ratio, or no commit")
    with options.history.open("a", encoding="utf-8") as history:
        history.write(json.dumps(line) + "\n")
    print(f"{len(line['ratios'])} ratios of {line['commit']} added to {options.history}")


if __name__ == "__main__":
    main()
