"""``--out`` is checked before the work, and other results are kept if one file fails."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import forked
import numpy as np
import pandas as pd
import pytest
from small_disks import contents, mounted

from ppgp.cli import main as cli

Run = Callable[..., int]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs the command line in its own folder and returns the exit code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)

    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["ppgp", *arguments])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(SystemExit) as end:
                cli.main()
        return int(end.value.code or 0)

    return run


@pytest.fixture
def table(tmp_path: Path) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"])
    frame["y"] = frame["a"] - 2 * frame["b"] + 0.1 * rng.normal(size=60)
    frame.to_csv(tmp_path / "train.csv", index=False)
    return frame


FIT = ("fit", "nowhere.csv", "--target", "y", "--model", "linear", "--how", "map", "--out")
PREDICT = ("predict", "nowhere.safetensors", "nowhere.csv", "--out")
COMPARE = ("compare", "nowhere.csv", "--target", "y", "--out")
DIAGNOSE = ("diagnose", "nowhere.safetensors", "--out")
TO_FILES, TO_FOLDERS = (FIT, PREDICT), (COMPARE, DIAGNOSE)
LONG = "n" * 300
BAD = [
    *(
        (command, out)
        for command in TO_FILES
        for out in ("folder", "missing/x.csv", "file/x.csv", LONG, "read-only", "/proc/x")
    ),
    *((command, out) for command in TO_FOLDERS for out in ("file", "file/below", LONG, "/proc/x")),
]


@pytest.mark.parametrize(("command", "out"), BAD, ids=lambda v: v if isinstance(v, str) else v[0])
def test_a_path_that_cannot_be_written_is_refused_before_the_data_are_read(
    command: tuple[str, ...], out: str, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The data are missing too, which would be reported later."""
    (tmp_path / "folder").mkdir()
    for name in ("file", "read-only"):
        (tmp_path / name).write_text("old")
    (tmp_path / "read-only").chmod(0o444)
    before = contents(tmp_path)
    assert run(*command, out) == 2
    message = capsys.readouterr().err
    assert out in message
    assert "nowhere" not in message
    assert message.count("\n") == 1
    assert contents(tmp_path) == before


def test_an_experiment_checks_its_output_before_it_begins(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    words = "reproduce uci --data-dir nowhere --out file"
    done = forked.ppgp(*words.split(), cwd=tmp_path)
    assert done.returncode == 2
    assert "the file" in done.stderr


def test_valid_paths_are_written(run: Run, table: pd.DataFrame, tmp_path: Path) -> None:
    """The path is a new file, an existing file, or a link to one."""
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to("far/q")
    for out in ("q.safetensors", "q.safetensors", "link"):
        assert (
            run(
                "fit",
                "train.csv",
                "--target",
                "y",
                "--model",
                "linear",
                "--how",
                "map",
                "--no-progress",
                "--out",
                out,
            )
            == 0
        )
    assert (tmp_path / "link").is_symlink()
    for out in ("p.csv", "p.parquet"):
        assert run("predict", "link", "train.csv", "--out", out) == 0
    read = pd.read_parquet(tmp_path / "p.parquet")
    np.testing.assert_allclose(pd.read_csv(tmp_path / "p.csv").to_numpy(), read.to_numpy())
    assert run("diagnose", "q.safetensors", "--out", "a/new/folder") == 0
    assert list((tmp_path / "a" / "new" / "folder").glob("*.png"))
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "ppgp",
            "predict",
            "link",
            "train.csv",
            "--out",
            "/dev/stdout",
        ],
        capture_output=True,
        text=True,
        timeout=6000,
        check=True,
    )
    assert done.stdout == (tmp_path / "p.csv").read_text()
    assert "wrote" in done.stderr


def test_compare_on_a_small_disk_keeps_the_rest_of_the_report(
    run: Run, table: pd.DataFrame, tmp_path: Path
) -> None:
    """It runs in its own process, since HDF5 has crashed it before."""
    with mounted(tmp_path, 200_000) as disk:
        words = "compare train.csv --target y --models linear --how exact --no-progress"
        words += f" --set exact.draws=8000 --out {disk.folder}"
        done = forked.ppgp(*words.split(), cwd=tmp_path)
        assert done.returncode == 1, done.stderr
        assert "Traceback" not in done.stderr
        assert "linear-exact.nc" in done.stderr
        assert "conf. width" in done.stdout  # the table
        written = contents(disk.folder)
    assert {"results.json", "index.html"} <= set(written)
    assert "linear-exact.nc" not in written
    assert not any(name.endswith(".new") for name in written)
    assert json.loads(written["results.json"])["rows"][0]["how"] == "exact"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("command", ["list", "--help", "--version"])
def test_a_full_standard_output_gives_one_sentence(command: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "ppgp", command],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=600,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    with open("/dev/full", "w") as full:  # nowhere to say it
        done = subprocess.run(
            [sys.executable, "-m", "ppgp", command],
            stdout=full,
            stderr=full,
            timeout=600,
            check=False,
        )
    assert done.returncode == 1
