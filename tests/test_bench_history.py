"""A run of the benchmarks is one line of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tool_modules import FOLDER, tool

script = tool("bench_history")


def benchmark(name: str, **extra: Any) -> dict[str, Any]:
    return {"name": name, "fullname": f"tests/bench/{name}", "extra_info": extra}


RUN = {
    "commit_info": {"id": "abc123", "dirty": True, "branch": "main"},
    "machine_info": {
        "python_version": "3.11.9",
        "processor": "x86_64",
        "cpu": {"brand_raw": "A Processor @ 2.10GHz", "count": 2},
    },
    "datetime": "2026-01-02T03:04:05+00:00",
    "benchmarks": [
        benchmark("test_b.py::test_two[1000]", ratio=0.123456, seconds=3.0),
        benchmark("test_a.py::test_one", ratio=2),
        benchmark("test_c.py::test_without", seconds=3.0),
        benchmark("test_d.py::test_never_there", ratio=float("inf")),
    ],
}


def test_the_line_of_a_run() -> None:
    line = script.record(RUN)
    assert line["ratios"] == {"test_a.py::test_one": 2.0, "test_b.py::test_two[1000]": 0.1235}
    assert list(line["ratios"]) == sorted(line["ratios"])
    assert (line["commit"], line["dirty"], line["date"]) == ("abc123", True, RUN["datetime"])
    assert line["machine"] == {"cpu": "A Processor @ 2.10GHz", "cores": 2}
    assert line["versions"]["python"] == "3.11.9"
    assert line["versions"]["torch"]


def test_a_processor_without_a_name_has_its_architecture() -> None:
    machine = RUN["machine_info"] | {"cpu": {"count": 8}}
    line = script.record(RUN | {"machine_info": machine})
    assert line["machine"] == {"cpu": "x86_64", "cores": 8}


def test_libraries_that_are_missing_have_no_version() -> None:
    assert list(script.versions(["numpy", "no-such-library"])) == ["numpy"]


def test_each_run_appends_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, history = tmp_path / "run.json", tmp_path / "history.jsonl"
    run.write_text(json.dumps(RUN))
    for _ in range(2):
        monkeypatch.setattr(sys, "argv", ["bench_history.py", str(run), "--history", str(history)])
        script.main()
    first, second = map(json.loads, history.read_text().splitlines())
    assert first == second == script.record(RUN)


def test_the_json_of_pytest_benchmark_is_read(tmp_path: Path) -> None:
    """The plugin writes the fields that the script reads."""
    test, run, history = (tmp_path / name for name in ("test_x.py", "run.json", "history.jsonl"))
    test.write_text(
        "def test_x(benchmark):\n"
        "    benchmark.extra_info['ratio'] = 0.5\n"
        "    benchmark.pedantic(int, rounds=1)\n"
    )
    options = ["--benchmark-only", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    # the plugin measures nothing in a worker of pytest-xdist
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    for words in (
        ["-m", "pytest", *options, f"--rootdir={tmp_path}", f"--benchmark-json={run}", str(test)],
        [str(FOLDER / "bench_history.py"), str(run), "--history", str(history)],
    ):
        subprocess.run(
            [sys.executable, *words], check=True, cwd=tmp_path, capture_output=True, env=alone
        )
    line = json.loads(history.read_text())
    assert line["ratios"] == {"test_x.py::test_x": 0.5}
    assert line["machine"]["cores"] >= 1
    assert line["date"]


def test_the_kept_history_is_what_the_script_writes() -> None:
    lines = script.HISTORY.read_text().splitlines() if script.HISTORY.is_file() else []
    fields = set(script.record(RUN))
    assert all(set(json.loads(line)) == fields for line in lines)
