"""What a table of the command line may look like, and that new rows are treated alike."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

import ppgp
from ppgp.cli.data_options import in_the_shell
from ppgp.cli.main import app
from ppgp.data import read_frame
from ppgp.errors import DataError, SettingError, UnknownName

N = 60
LINEAR = ["--target", "y", "--model", "linear", "--how", "map", "--no-progress"]
TREATED = ["--sep", ";", "--id", "well", "--one-hot", "rock,grade", "--dates", "days"]
TREATED += ["--drop", "note"]


def wells() -> pd.DataFrame:
    """Rows with a name, a date, text, numbers that are categories, and a remark."""
    rng = np.random.default_rng(0)
    days = rng.integers(0, 3000, N)
    frame = pd.DataFrame({"well": [f"w{i:02d}" for i in range(N)]})
    dates = np.datetime64("2015-01-01") + days.astype("timedelta64[D]")
    frame["sampled"] = pd.Series(dates).dt.strftime("%Y-%m-%d")
    frame["rock"] = rng.choice(["chalk", "granite", "sand"], N)
    frame["grade"] = rng.choice([1, 2, 5], N)
    frame["depth"] = rng.uniform(1.0, 30.0, N).round(2)
    frame["note"] = np.where(np.arange(N) % 2, None, "to be checked")
    frame["y"] = 5.0 * (frame["rock"] == "chalk") - frame["depth"] + days / 300 + frame["grade"]
    frame["y"] = (frame["y"] + rng.normal(size=N)).round(3)
    return frame


def run(*arguments: str, input: str | None = None) -> Result:
    """Run a command, and raise what it raises."""
    runner = CliRunner()
    return runner.invoke(
        app, [*arguments], input=input, catch_exceptions=False, standalone_mode=False
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wells, and a posterior fitted to the first 40."""
    folder = tmp_path_factory.mktemp("wells")
    wells()[:40].to_csv(folder / "wells.txt", index=False, sep=";")
    wells()[40:].drop(columns="y").to_csv(folder / "new.csv", index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = run("fit", "wells.txt", *LINEAR, *TREATED, "--json")
    assert json.loads(done.stdout)["n"] == 40
    return folder


@pytest.fixture(autouse=True)
def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def by_hand(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the inputs that the options stand for."""
    days = (pd.to_datetime(rows["sampled"]) - pd.Timestamp("2000-01-01")).dt.days
    frame = pd.DataFrame({"sampled (days)": days, "depth": rows["depth"]})
    for name in ("rock", "grade"):
        for level in sorted(set(wells()[name])):
            frame[f"{name}={level}"] = (rows[name] == level).astype(float)
    return frame


def test_the_options_give_the_columns_that_they_stand_for() -> None:
    found = ppgp.load(
        "wells.txt",
        "y",
        sep=";",
        ids="well",
        one_hot=["rock", "grade"],
        dates="days",
        drop=["note"],
    )
    expected = by_hand(wells()[:40])
    names = list(found.feature_names or ())
    assert set(names) == set(expected.columns)
    np.testing.assert_allclose(found.X, expected[names], rtol=1e-12)
    data = ppgp.load_posterior("posterior.safetensors").data
    assert data.feature_names == found.feature_names
    assert data.ids == found.ids == tuple(wells()["well"][:40])


def test_new_rows_are_treated_alike_and_keep_their_names() -> None:
    run("predict", "posterior.safetensors", "new.csv", "--keep", "rock,note", "--out", "p.csv")
    found = pd.read_csv("p.csv")
    rows = wells()[40:].reset_index(drop=True)
    names = ["well", "rock", "note", "mean", "sd", "lower", "upper"]
    assert list(found.columns) == names
    pd.testing.assert_frame_equal(found[["well", "rock"]], rows[["well", "rock"]])
    posterior = ppgp.load_posterior("posterior.safetensors")
    expected = posterior.predict(by_hand(rows)).mean
    np.testing.assert_allclose(found["mean"], expected, rtol=1e-10)


def test_grades_with_a_gap_are_the_same_categories() -> None:
    """A column with an empty cell is read as floats: 5.0 is the level 5."""
    rows = wells()[40:].reset_index(drop=True)
    rows["grade"] = rows["grade"].astype(float)
    rows.loc[3, "grade"] = np.nan
    rows.to_csv("gap.csv", index=False)
    with pytest.warns(UserWarning, match="column grade, row 3"):
        run("predict", "posterior.safetensors", "gap.csv", "--out", "gap_out.csv")
    run("predict", "posterior.safetensors", "new.csv", "--out", "all_out.csv")
    found, whole = pd.read_csv("gap_out.csv"), pd.read_csv("all_out.csv")
    assert found["mean"].isna().tolist() == [i == 3 for i in range(20)]
    assert found["well"].tolist() == whole["well"].tolist()
    np.testing.assert_allclose(found["mean"].drop(3), whole["mean"].drop(3), rtol=1e-12)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"rock": "basalt"}, "levels of rock among chalk, granite, sand, got level basalt"),
        ({"grade": 3}, "levels of grade among 1, 2, 5, got level 3"),
        ({"sampled": "soon"}, "dates YYYY-MM-DD in column sampled"),
        ({"depth": None}, "a row with a value in every cell"),
    ],
)
def test_new_rows_that_the_fit_does_not_know_are_refused(
    change: dict[str, Any], sentence: str
) -> None:
    wells()[40:].assign(**change).to_csv("odd.csv", index=False)
    with pytest.raises(DataError, match=sentence):
        run("predict", "posterior.safetensors", "odd.csv", "--out", "odd_out.csv")
    wells()[40:].drop(columns="depth").to_csv("less.csv", index=False)
    with pytest.raises(UnknownName, match="no column depth"):
        run("predict", "posterior.safetensors", "less.csv")


def test_columns_to_keep_exist_and_have_other_names() -> None:
    with pytest.raises(UnknownName, match="did you mean 'rock'"):
        run("predict", "posterior.safetensors", "new.csv", "--keep", "rok")
    wells()[40:].assign(mean=1.0).to_csv("mean.csv", index=False)
    with pytest.raises(SettingError, match="got column mean: rename"):
        run("predict", "posterior.safetensors", "mean.csv", "--keep", "mean")


def test_standard_input_and_output() -> None:
    text = Path("new.csv").read_text()
    run("predict", "posterior.safetensors", "new.csv", "--out", "file.csv")
    done = run("predict", "posterior.safetensors", "-", "--out", "-", input=text)
    assert done.stdout == Path("file.csv").read_text()
    assert "20 rows" in done.stderr
    train = Path("wells.txt").read_text()
    run("fit", "-", *LINEAR, *TREATED, "--out", "piped.safetensors", input=train)
    piped = ppgp.load_posterior("piped.safetensors")
    assert piped.data.same_rows(ppgp.load_posterior("posterior.safetensors").data)
    with pytest.raises(SettingError, match="one table on the standard input"):
        run("predict", "posterior.safetensors", "-", "--calibration", "-", input=text)
    with pytest.raises(DataError, match="the standard input, which is empty"):
        run("predict", "posterior.safetensors", "-", input="")


def test_json_holds_the_numbers_of_the_tables() -> None:
    wells()[40:].to_csv("known.csv", index=False)
    done = json.loads(run("calibrate", "posterior.safetensors", "known.csv", "--json").stdout)
    assert (done["command"], done["n_calibration"], done["n_test"]) == ("calibrate", 10, 10)
    assert done["rows"][0]["score"] == "(the model's own)"
    done = json.loads(run("predict", "posterior.safetensors", "new.csv", "--json").stdout)
    rows = pd.read_csv("predictions.csv")
    assert [row["well"] for row in done["rows"]] == rows["well"].tolist()
    np.testing.assert_allclose([row["mean"] for row in done["rows"]], rows["mean"], rtol=1e-12)
    assert done["guarantee"].startswith("none beyond the model")
    done = json.loads(run("diagnose", "posterior.safetensors", "--json").stdout)
    assert done["verdict"] == ppgp.diagnose(ppgp.load_posterior("posterior.safetensors")).verdict
    titles = [table["title"] for table in json.loads(run("list", "--json").stdout)["tables"]]
    assert "models" in titles


def test_a_column_to_leave_out_exists_and_is_not_the_target() -> None:
    with pytest.raises(UnknownName, match="did you mean 'note'"):
        ppgp.load("wells.txt", "y", sep=";", drop=["notes"])
    with pytest.raises(SettingError, match="other columns than the target"):
        ppgp.load("wells.txt", "y", sep=";", drop=["y"])
    with pytest.raises(SettingError, match=r"write \['note'\]"):
        ppgp.load("wells.txt", "y", sep=";", drop="note")
    with pytest.raises(UnknownName, match="did you mean 'rock'"):
        ppgp.load("wells.txt", "y", sep=";", one_hot=["rocks"])
    with pytest.raises(SettingError, match="leave one_hot out"):
        ppgp.load("iris", one_hot=["sepal length (cm)"])


def test_a_separator_is_one_character() -> None:
    with pytest.raises(DataError, match=r"got ';': pass sep=';'") as raised:
        read_frame(Path("wells.txt").rename("wells.csv"))
    assert "pass --sep ';', or save it with commas" in in_the_shell(str(raised.value))
    Path("wells.csv").rename("wells.txt")
    with pytest.raises(DataError, match="pass sep= for a text file"):
        read_frame("wells.txt")
    with pytest.raises(SettingError, match="one character as sep, got ';;'"):
        read_frame("wells.txt", ";;")
    Path("tabs.dat").write_text("a\tb\n1\t2\n")
    assert read_frame("tabs.dat", "\t").to_dict("list") == {"a": [1], "b": [2]}


def test_the_first_sheet_of_a_workbook() -> None:
    pytest.importorskip("openpyxl")
    frame = wells()[["well", "rock", "depth", "y"]].assign(day=pd.Timestamp("2024-05-31"))
    frame.to_excel("wells.xlsx", index=False)
    pd.testing.assert_frame_equal(read_frame("wells.xlsx"), frame, check_dtype=False)
    with pytest.raises(SettingError, match="sep of a text file"):
        read_frame("wells.xlsx", ";")
    pd.DataFrame([["a", "a"], [1, 2]]).to_excel("twice.xlsx", index=False, header=False)
    with pytest.raises(DataError, match="column a more than once"):
        read_frame("twice.xlsx")
    Path("broken.xlsx").write_bytes(b"no workbook")
    with pytest.raises(DataError, match=r"a readable \.xlsx file"):
        read_frame("broken.xlsx")


def test_a_workbook_without_openpyxl(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("some.xlsx").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(DataError, match=r'by pip install "ppgp\[excel\]", or save .* as \.csv'):
        read_frame("some.xlsx")


@pytest.mark.parametrize("unit", ["hours", "minutes", "seconds", "days"])
def test_dates_count_from_the_year_2000(unit: str) -> None:
    text = "t,y\n2000-01-01,1\n2000-01-02 06:30,2\n1999-12-31,3\n"
    frame = pd.read_csv(io.StringIO(text))
    data = ppgp.Dataset.from_frame(frame, "y", dates=unit)
    hours = {"days": 24.0, "hours": 1.0, "minutes": 1 / 60, "seconds": 1 / 3600}[unit]
    assert data.feature_names == (f"t ({unit})",)
    np.testing.assert_allclose(data.X[:, 0], np.array([0.0, 30.5, -24.0]) / hours, rtol=1e-12)
