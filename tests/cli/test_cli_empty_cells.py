"""Tables with empty cells on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import ppgp
from ppgp.cli.main import app
from ppgp.errors import DataError, DataWarning, SettingError

WEEKS = pd.date_range("2000-01-01", periods=60, freq="W")
BLANK = [3, 7, 50]  # rows without a target
UNDATED = 20  # the row without a date
FIT = ["fit", "weeks.csv", "--target", "co2", "--dates", "years", "--no-progress"]
FIT += ["--model", "state_space", "--how", "map"]


def weeks() -> pd.DataFrame:
    noise = np.random.default_rng(0).normal(0, 0.1, 60)
    co2 = 350.0 + np.sin(np.arange(60) / 8.0) + noise
    frame = pd.DataFrame({"date": WEEKS.strftime("%Y-%m-%d"), "co2": co2})
    frame.loc[BLANK, "co2"] = np.nan
    frame.loc[UNDATED, "date"] = None
    return frame


def run(*arguments: str) -> None:
    """Run a command, and raise what it raises."""
    CliRunner().invoke(app, [*arguments], catch_exceptions=False, standalone_mode=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with weeks.csv and the posterior of its complete rows."""
    folder = tmp_path_factory.mktemp("weeks")
    weeks().to_csv(folder / "weeks.csv", index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with pytest.warns(DataWarning, match="dropped 4 of 60 rows without a value in column date"):
            run(*FIT, "--missing", "drop")
    return folder


@pytest.fixture(autouse=True)
def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def test_dropped_rows_are_as_if_absent(folder: Path) -> None:
    with pytest.warns(DataWarning, match="column date, row 20; column co2, rows 3, 7, 50"):
        found = ppgp.load(folder / "weeks.csv", "co2", dates="years", missing="drop")
    whole = weeks().dropna()
    assert found.same_rows(ppgp.Dataset.from_frame(whole, "co2", dates="years"))
    assert found.missing == "refuse"
    posterior = ppgp.load_posterior(folder / "posterior.safetensors")
    assert posterior.data.n == found.n == 56


@pytest.mark.parametrize(
    "command", [FIT, ["compare", *FIT[1:], "--models", "state_space"], ["calibrate"], ["predict"]]
)
def test_one_sentence_names_column_rows_and_option(command: Sequence[str]) -> None:
    arguments = list(command)
    if "--model" in arguments and command[0] == "compare":
        at = arguments.index("--model")
        del arguments[at : at + 2]
    if len(command) == 1:
        arguments += ["posterior.safetensors", "weeks.csv"]
    if command[0] == "predict":
        weeks()[:3].to_csv("whole.csv", index=False)
        arguments[-1:] = ["whole.csv", "--calibration", "weeks.csv"]
    done = CliRunner().invoke(app, arguments)
    assert isinstance(done.exception, DataError)
    sentence = str(done.exception)
    assert "column co2, rows 3, 7, 50" in sentence
    assert "column date, row 20" in sentence
    assert "missing='drop'" in sentence


def test_a_new_row_without_an_input_keeps_its_place(folder: Path) -> None:
    with pytest.warns(DataWarning, match="1 of 60 rows have no value in column date, row 20"):
        run("predict", "posterior.safetensors", "weeks.csv", "--out", "p.csv")
    found = pd.read_csv(folder / "p.csv")
    posterior = ppgp.load_posterior(folder / "posterior.safetensors")
    rows = weeks()[["date"]]
    expected = posterior.predict(rows.drop(index=UNDATED)).mean.numpy()
    assert found.index[found["mean"].isna()].tolist() == [UNDATED]
    assert bool(found.loc[UNDATED].isna().all())
    np.testing.assert_allclose(found["mean"].drop(UNDATED), expected, rtol=1e-12)
    assert bool(found.loc[BLANK].notna().all(axis=None))  # a target is not needed


def test_calibration_rows_with_empty_cells_can_be_dropped() -> None:
    frame = weeks().assign(date=(WEEKS + pd.Timedelta(days=3)).strftime("%Y-%m-%d"))
    frame.to_csv("other.csv", index=False)
    with pytest.warns(DataWarning, match="dropped 3 of 60 rows"):
        run("calibrate", "posterior.safetensors", "other.csv", "--missing", "drop")


def test_labels_of_rows_with_empty_cells_are_empty(folder: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"a": rng.normal(size=30), "b": rng.normal(size=30), "y": ["low", "high"] * 15}
    )
    frame.to_csv("labels.csv", index=False)
    run(
        "fit",
        "labels.csv",
        "--target",
        "y",
        "--model",
        "logistic",
        "--how",
        "map",
        "--out",
        "l.safetensors",
    )
    frame.loc[4, "b"] = np.nan
    frame.loc[5, "y"] = None
    frame.to_csv("labels.csv", index=False)
    with pytest.warns(DataWarning):
        run("predict", "l.safetensors", "labels.csv", "--out", "l.csv")
    found = pd.read_csv("l.csv")
    assert found.index[found["p(low)"].isna()].tolist() == [4]


def test_nothing_left_and_other_words_are_refused() -> None:
    pd.DataFrame({"a": [1.0, None], "y": [None, 2.0]}).to_csv("none.csv", index=False)
    with pytest.raises(DataError, match="a row with a value in every cell"):
        ppgp.load("none.csv", "y", missing="drop")
    for command in ("fit", "compare", "calibrate", "predict", "report"):
        done = CliRunner().invoke(app, [command, "weeks.csv", "--drop-missing"])
        assert isinstance(done.exception, SettingError)
        assert "'--drop-missing': write --missing drop" in str(done.exception)
    done = CliRunner().invoke(app, ["calibrate", "a.safetensors", "b.csv", "--missing", "keep"])
    assert isinstance(done.exception, SettingError)
    assert "one of 'refuse', 'drop' as --missing, got 'keep'" in str(done.exception)
    pd.DataFrame({"date": [None, None]}).to_csv("undated.csv", index=False)
    done = CliRunner().invoke(app, ["predict", "posterior.safetensors", "undated.csv"])
    assert isinstance(done.exception, DataError)


def test_inputs_may_be_kept_but_targets_may_not() -> None:
    frame = pd.DataFrame({"a": [1.0, None, 3.0], "y": [1.0, 2.0, 3.0]})
    assert ppgp.Dataset.from_frame(frame, "y", missing="keep").n == 3
    frame.loc[2, "y"] = np.nan
    with pytest.raises(DataError, match="none in column y, row 2: drop those rows"):
        ppgp.Dataset.from_frame(frame, "y", missing="keep")
