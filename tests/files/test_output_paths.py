"""Output paths: links, permissions, pipes, and paths that cannot be written."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ppgp import files
from ppgp.errors import StorageError


def test_the_target_of_a_link_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    link, second, real = (
        tmp_path / "link.csv",
        tmp_path / "second.csv",
        tmp_path / "far" / "real.csv",
    )
    real.write_text("old")
    link.symlink_to("far/real.csv")
    second.symlink_to(link)
    files.write(second, "new")
    assert second.is_symlink()
    assert link.is_symlink()
    assert real.read_text() == "new"
    real.unlink()
    files.write(link, "again")  # a link to nothing yet
    assert link.is_symlink()
    assert real.read_text() == "again"
    assert sorted(p.name for p in (tmp_path / "far").iterdir()) == ["real.csv"]


def test_circular_links_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "round"
    path.symlink_to(path)
    for ask in (files.check_file, files.is_stream, lambda p: files.write(p, "x")):
        with pytest.raises(StorageError, match="circle"):
            ask(path)


def test_permissions_stay_and_new_files_have_the_usual_ones(tmp_path: Path) -> None:
    old, new, usual = (tmp_path / name for name in ("old", "new", "usual"))
    old.write_text("")
    old.chmod(0o640)
    files.write(old, "x")
    assert stat.S_IMODE(old.stat().st_mode) == 0o640
    files.write(new, "x")
    usual.write_text("x")
    assert new.stat().st_mode == usual.stat().st_mode


def test_an_error_during_writing_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def stopped() -> None:
        with files.replacing(path) as file:
            file.write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_the_longest_file_name_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 251 + ".csv")
    with files.locked(path):
        files.write(path, "x")
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_pipe_is_written_through(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    files.check_file(pipe)  # does not wait for a reader
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()), daemon=True)
    reader.start()
    files.write(pipe, "a,b\n")
    reader.join(60)
    assert got == [b"a,b\n"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="no /dev/stdout here")
@pytest.mark.parametrize("there", ["file", "pipe"])
def test_the_standard_output_is_written_at_its_position(there: str, tmp_path: Path) -> None:
    """A file opened by a shell is not replaced, and earlier output is kept."""
    code = (
        "from ppgp import files; print('first'); "
        "files.write('/dev/stdout', 'second\\n'); print('third')"
    )
    if there == "pipe":
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True
        )
        assert done.stdout == "first\nsecond\nthird\n"
        return
    path = tmp_path / "out"
    with path.open("w") as out:
        before = path.stat().st_ino
        subprocess.run([sys.executable, "-c", code], stdout=out, timeout=600, check=True)
    assert path.read_text() == "first\nsecond\nthird\n"
    assert path.stat().st_ino == before


def test_an_incomplete_line_is_ended_before_the_next(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "log"
    files.append(path, "1\n")
    path.write_text("1\n2")
    files.append(path, "3\n")
    assert path.read_text() == "1\n2\n3\n"


@pytest.mark.parametrize(
    ("where", "fact"),
    [
        ("folder", "a folder"),
        ("missing/x.csv", "no folder"),
        ("file/x.csv", "the file"),
        ("n" * 300, "shorter"),
        ("read-only.csv", "read-only"),
        ("", "a folder"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_beforehand(
    where: str, fact: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("file", "read-only.csv"):
        (tmp_path / name).write_text("old")
    (tmp_path / "read-only.csv").chmod(0o444)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(StorageError, match=fact):
        files.check_file(where)
    with pytest.raises(StorageError):
        files.write(where, "new")
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "read-only.csv").read_text() == "old"


@pytest.mark.parametrize(
    ("where", "fact"),
    [("file", "the file"), ("file/below", "the file"), ("a/" + "n" * 300 + "/b", "shorter")],
)
def test_a_folder_that_cannot_be_made_is_refused_beforehand(
    where: str, fact: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=fact):
        files.check_folder(tmp_path / where)
    for fine in (".", "new", "new/and/newer"):
        files.check_folder(tmp_path / fine)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_folder_that_cannot_hold_files_is_refused_beforehand() -> None:
    """Nobody can write files in /proc."""
    if not Path("/proc/self").is_dir():
        pytest.skip("no /proc here")
    for ask in (
        lambda: files.check_folder("/proc/report"),
        lambda: files.check_file("/proc/x.csv"),
    ):
        with pytest.raises(StorageError, match="choose another path"):
            ask()
