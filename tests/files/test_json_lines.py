"""Logs of JSON lines: whole lines, one header, and several processes that append."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ppgp import files
from ppgp.errors import StorageError, StorageWarning
from ppgp.files import json_lines

HEADER = {"of": "one call"}
APPENDS = """
import sys
from ppgp.files import JsonLines
log = JsonLines(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for i in range(int(sys.argv[3])):
    log.append({"by": sys.argv[2], "i": i, "padding": "x" * 10_000}, {"by": sys.argv[2], "i": -i})
"""


def log_with(path: Path, *numbers: int) -> None:
    files.JsonLines(path, HEADER).append(*({"i": i} for i in numbers))


def test_records_come_back_and_the_header_is_the_first_line(tmp_path: Path) -> None:
    path = tmp_path / "new" / "log.jsonl"
    log_with(path, 0, 1)
    log_with(path, 2)
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        HEADER,
        *({"i": i} for i in range(3)),
    ]
    assert files.JsonLines(path, HEADER).read("i") == [{"i": 0}, {"i": 1}, {"i": 2}]
    assert [p.name for p in path.parent.iterdir()] == ["log.jsonl"]


@pytest.mark.parametrize("rest", ['{"i": 2, "ra', "7\n", '{"j": 2}\n', "\n", "[]", '{"i": ['])
def test_a_damaged_line_is_skipped_and_the_next_one_is_whole(tmp_path: Path, rest: str) -> None:
    path = tmp_path / "log.jsonl"
    log_with(path, 0, 1)
    with path.open("a") as file:
        file.write(rest)
    log = files.JsonLines(path, HEADER)
    assert log.read("i") == [{"i": 0}, {"i": 1}]
    log.append({"i": 3})
    assert files.JsonLines(path, HEADER).read("i") == [{"i": 0}, {"i": 1}, {"i": 3}]


@pytest.mark.parametrize("content", [b'{"of": "another"}\n', b"\n", b"text", b"\xff\xfe\n"])
def test_a_file_of_another_kind_or_call_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(content)
    log = files.JsonLines(path, HEADER, "a log of this call")
    with pytest.raises(StorageError, match=r"a log of this call, got log\.jsonl, "):
        log.read()
    with pytest.raises(StorageError, match="of another"):
        log.append({"i": 0})
    assert path.read_bytes() == content


def test_without_a_path_nothing_is_stored(tmp_path: Path) -> None:
    log = files.JsonLines(None, HEADER)
    with log.held():
        log.save({"i": 0})
        assert log.read() == []
        log.finish()
        log.clear()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_gone_is_written_again_in_full(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    log_with(path, 0)
    log = files.JsonLines(path, HEADER)
    log.read()
    log.append({"i": 1})
    path.unlink()
    log.append({"i": 2})
    assert files.JsonLines(path, HEADER).read("i") == [{"i": 0}, {"i": 1}, {"i": 2}]
    log.clear()
    assert not path.exists()
    log.append({"i": 3})
    assert files.JsonLines(path, HEADER).read("i") == [{"i": 3}]


def test_what_could_not_be_saved_is_saved_by_the_next_call(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    log = files.JsonLines(path, HEADER)
    path.mkdir()
    with pytest.warns(StorageWarning, match="could not be written"):
        log.save({"i": 0})
    with pytest.warns(StorageWarning, match="does not hold the end"):
        log.finish()
    path.rmdir()
    log.save({"i": 1})
    log.finish()
    assert files.JsonLines(path, HEADER).read("i") == [{"i": 0}, {"i": 1}]


def test_a_held_file_is_that_of_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "PATIENCE", 0.05)
    path = tmp_path / "log.jsonl"
    log, other = files.JsonLines(path), files.JsonLines(path)
    with log.held():
        with pytest.raises(StorageError, match="no other run"), other.held():
            pass
        with pytest.raises(StorageError, match="no other run"):
            other.append({"i": 0})
        log.append({"i": 1})
    other.append()
    assert log.read("i") == [{"i": 1}, {"i": 0}]


def test_an_append_waits_for_its_turn(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    taken = threading.Event()

    def hold() -> None:
        with files.locked(path):
            taken.set()
            time.sleep(0.2)
            path.write_text('{"i": 0}\n')

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    log = files.JsonLines(path)
    log.append({"i": 1})
    thread.join()
    assert log.read("i") == [{"i": 0}, {"i": 1}]


def test_processes_append_whole_lines_at_once(tmp_path: Path) -> None:
    path, count = tmp_path / "log.jsonl", 100
    path.write_text('{"by": "a killed pro')
    started = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", APPENDS, str(path), name, str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("first", "second")
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in started:
        process.communicate()
        assert process.returncode == 0
    lines = path.read_text().splitlines()
    assert len(lines) == 1 + 4 * count
    records = files.JsonLines(path).read("by")
    for name in ("first", "second"):
        own = [record["i"] for record in records if record["by"] == name]
        assert own == [sign * i for i in range(count) for sign in (1, -1)]
