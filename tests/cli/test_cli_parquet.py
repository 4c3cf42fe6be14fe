"""``ppgp predict`` from Parquet to Parquet goes in chunks, and equals that of other tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyarrow import parquet
from typer.testing import CliRunner, Result

from ppgp.cli.main import app
from ppgp.errors import SettingError, UnknownName
from ppgp.posterior import predicting_to_files

N = 90
FIT = ["--how", "map", "--no-progress", "--id", "well"]


def wells() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"well": [f"w{i:02d}" for i in range(N)]})
    frame["rock"] = rng.choice(["chalk", "granite", "sand"], N)
    frame["depth"] = rng.uniform(1.0, 30.0, N).round(2)
    frame["y"] = 5.0 * (frame["rock"] == "chalk") - frame["depth"] + rng.normal(size=N)
    frame["wet"] = np.where(frame["y"] + rng.normal(size=N) * 5 > -10, "yes", "no")
    return frame


def run(*arguments: str) -> Result:
    """Run a command, and raise what it raises."""
    return CliRunner().invoke(
        app, [*map(str, arguments)], catch_exceptions=False, standalone_mode=False
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two fits to the first 40 wells, and the others as both kinds of file."""
    folder = tmp_path_factory.mktemp("parquet")
    frame = wells()
    frame[:40].drop(columns="wet").to_csv(folder / "y.csv", index=False)
    frame[:40].drop(columns="y").to_csv(folder / "wet.csv", index=False)
    frame[40:65].to_csv(folder / "held_out.csv", index=False)
    for name in ("csv", "parquet"):
        write = getattr(frame[65:], f"to_{name}")
        write(folder / f"new.{name}", index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for target, model in (("y", "linear"), ("wet", "logistic")):
            table = f"{target}.csv"
            options = ["--target", target, "--model", model, "--one-hot", "rock"]
            run("fit", table, *options, *FIT, "--out", f"{target}.safetensors")
    return folder


@pytest.fixture(autouse=True)
def chunks_of_ten_rows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(predicting_to_files, "ROWS_AT_ONCE", 10)


def both(posterior: str, *options: str) -> tuple[pd.DataFrame, pd.DataFrame, Result]:
    """Return the predictions from Parquet to Parquet and those from and to text."""
    run("predict", posterior, "new.csv", *options, "--out", "p.csv")
    done = run("predict", posterior, "new.parquet", *options, "--out", "p.parquet")
    return pd.read_parquet("p.parquet"), pd.read_csv("p.csv"), done


@pytest.mark.parametrize("options", [[], ["--calibration", "held_out.csv", "--level", "0.8"]])
def test_numbers(options: list[str]) -> None:
    found, expected, done = both("y.safetensors", "--keep", "rock,wet", *options)
    assert list(found) == ["well", "rock", "wet", "mean", "sd", "lower", "upper"]
    pd.testing.assert_frame_equal(found, expected, check_dtype=False, rtol=1e-12)
    assert done.stdout.splitlines()[0] == "wrote: 25 rows to p.parquet"
    guarantee = done.stdout.splitlines()[1]
    words = "coverage >= 0.8" if options else "none beyond the model"
    assert words in guarantee
    assert parquet.read_metadata("p.parquet").num_row_groups == 3


def test_labels() -> None:
    found, expected, done = both("wet.safetensors", "--calibration", "held_out.csv")
    assert list(found) == ["well", "p(no)", "p(yes)", "set"]
    sets = found["set"].map(" ".join)
    text = expected["set"].fillna("")
    assert sets.tolist() == text.tolist()
    np.testing.assert_allclose(found["p(no)"], expected["p(no)"], rtol=1e-12)
    assert "guarantee: " in done.stdout


def test_a_row_with_an_empty_cell_keeps_its_place() -> None:
    frame = wells()[65:]
    frame.iloc[[3, *range(10, 20)], 2] = np.nan
    frame.iloc[4, 1] = None
    frame.to_parquet("holes.parquet", index=False)
    with pytest.warns(UserWarning, match="12 of 25 rows have an input without a value"):
        run("predict", "y.safetensors", "holes.parquet", "--out", "h.parquet")
    found, whole = pd.read_parquet("h.parquet"), both("y.safetensors")[0]
    blank = [3, 4, *range(10, 20)]
    assert np.flatnonzero(found["mean"].isna()).tolist() == blank
    assert np.flatnonzero(found["upper"].isna()).tolist() == blank
    pd.testing.assert_frame_equal(found.drop(index=blank), whole.drop(index=blank), rtol=1e-12)
    assert found["well"].tolist() == frame["well"].tolist()


def test_a_folder_of_files(tmp_path: Path) -> None:
    frame = wells()[65:]
    frame[:7].to_parquet(tmp_path / "a.parquet", index=False)
    frame[7:].to_parquet(tmp_path / "b.parquet", index=False)
    run("predict", "y.safetensors", str(tmp_path), "--out", "f.parquet")
    pd.testing.assert_frame_equal(
        pd.read_parquet("f.parquet"), both("y.safetensors")[0], rtol=1e-12
    )


def test_json() -> None:
    done = run("predict", "y.safetensors", "new.parquet", "--out", "j.parquet", "--json")
    printed: dict[str, Any] = json.loads(done.stdout)
    assert len(printed["rows"]) == 25
    assert list(printed["rows"][0]) == ["well", "mean", "sd", "lower", "upper"]


def test_mistakes() -> None:
    predict = ("predict", "y.safetensors", "new.parquet", "--out", "m.parquet")
    with pytest.raises(UnknownName, match="column to keep, got 'stone'"):
        run(*predict, "--keep", "stone")
    with pytest.raises(SettingError, match="sep of a text file"):
        run(*predict, "--sep", ";")
    with pytest.raises(SettingError, match=r"a level in \(0, 1\)"):
        run(*predict, "--level", "90")
    wells()[65:].drop(columns="depth").to_parquet("no_depth.parquet", index=False)
    with pytest.raises(UnknownName, match="no column depth"):
        run("predict", "y.safetensors", "no_depth.parquet", "--out", "m.parquet")
    wells()[65:].assign(mean=1.0).to_parquet("twice.parquet", index=False)
    with pytest.raises(SettingError, match="differ from those of the predictions, got column mean"):
        run("predict", "y.safetensors", "twice.parquet", "--out", "t.parquet", "--keep", "mean")
    assert not Path("m.parquet").exists()
    Path("folder").mkdir()
    Path("folder/a.parquet").touch()
    words = r"got the folder folder: write to a \.parquet file: --out predictions\.parquet"
    with pytest.raises(SettingError, match=words):
        run("predict", "y.safetensors", "folder", "--out", "m.csv")
