"""``ppgp report``: the report of saved posteriors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from small_reports import fits, parts
from typer.testing import CliRunner, Result

import ppgp
from ppgp import Dataset, inference, models
from ppgp.cli.main import app
from ppgp.cli.report_command import _models_and_methods, rows_for_all
from ppgp.errors import DataError, SettingError
from ppgp.report import report as report_module
from ppgp.tables.table_files import table_file

ROCKS = ["chalk", "sand", "clay"]


def run(*arguments: str) -> Result:
    """Run the command, and raise what it raises."""
    return CliRunner().invoke(
        app, ["report", *arguments], catch_exceptions=False, standalone_mode=False
    )


def frame(data: Dataset) -> pd.DataFrame:
    table = pd.DataFrame(data.X.numpy(), columns=["depth", "age"])
    table["rock"] = [ROCKS[i % 3] for i in range(len(table))]
    return table.assign(y=data.y.numpy())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    train, calibration, test = parts()
    frame(calibration).to_csv(folder / "calibration.csv", index=False)
    frame(test).to_csv(folder / "test.csv", index=False)
    for name, posterior in fits(train).items():
        posterior.save(folder / f"{name.replace(' ', '-')}.safetensors")
    rocks = Dataset.from_frame(frame(train), "y", one_hot=True)
    point = ppgp.fit(models.LinearRegression(), rocks, inference.MAP(), progress=False)
    point.save(folder / "rocks.safetensors")
    other = Dataset(train.X, train.y, feature_names=["depth", "age"], target_name="z")
    ppgp.fit(models.LinearRegression(), other, inference.MAP(), progress=False).save(
        folder / "other.safetensors"
    )
    return folder


@pytest.fixture(autouse=True)
def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(report_module, "figures_of", lambda *_: [])  # they take most of the time


@pytest.mark.parametrize(
    ("options", "terminal", "shown"),
    [([], True, [1, 2, 3]), ([], False, []), (["--no-progress"], True, [])],
)
def test_the_progress_is_shown_in_a_terminal(
    options: list[str], terminal: bool, shown: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []

    @contextmanager
    def bar(_: str, total: int, show: bool) -> Iterator[Callable[[int], None]]:
        assert total == 3
        yield lambda step: steps.append(step) if show else None

    class Stderr(StringIO):
        def isatty(self) -> bool:
            return terminal

    monkeypatch.setattr("ppgp.runtime.progress.bar", bar)
    monkeypatch.setattr("ppgp.cli.report_command.sys", SimpleNamespace(stderr=Stderr()))
    run("line-map.safetensors", "--test", "test.csv", "--out", "shown", *options)
    assert steps == shown


def test_it_reports_what_compare_finds() -> None:
    names = ["line-nuts", "line-map", "flat-map"]
    paths = [f"{name}.safetensors" for name in names]
    options = ["--test", "test.csv", "--calibration", "calibration.csv", "--level", "0.8"]
    printed = json.loads(run(*paths, *options, "--out", "made", "--json").stdout)
    assert printed["command"] == "report"
    assert printed["split"] == "40 to calibrate, 50 to test"
    rows = {row["posterior"]: row for row in printed["rows"]}
    assert set(rows) == set(names)
    assert (rows["line-map"]["model"], rows["line-map"]["how"]) == ("LinearRegression", "MAP")
    assert rows["line-nuts"]["verdict"] == "reference"
    assert rows["flat-map"]["model"] == "LinearRegression 2"
    *_, test = parts()
    posterior = ppgp.load_posterior("line-map.safetensors")
    expected = ppgp.metrics.rmse(posterior.predict(test.X), test.y)
    assert rows["line-map"]["rmse"] == pytest.approx(expected, rel=1e-9)
    written = json.loads(Path("made/results.json").read_text())
    assert written["rows"] == printed["rows"]
    page = Path("made/index.html").read_text()
    assert "LinearRegression by NUTS" in page
    assert Path("made/line-nuts.nc").stat().st_size > 0


def test_it_prints_the_table_and_the_place() -> None:
    done = run("line-map.safetensors", "--test", "test.csv", "--out", "printed")
    assert "test.csv: 50 to test; 90% intervals" in done.stdout
    assert "report: printed" in done.stdout
    assert "Nothing is guaranteed" in Path("printed/index.html").read_text()


def test_rows_with_an_empty_cell_are_dropped_on_demand() -> None:
    table = pd.read_csv("test.csv")
    table.loc[3, "rock"] = None
    table.loc[4, "age"] = None
    table.to_csv("gaps.csv", index=False)
    rocks = ppgp.load_posterior("rocks.safetensors")
    with pytest.raises(DataError, match="column age, row 4; column rock, row 3"):
        rows_for_all(table_file("gaps.csv"), {"rocks": rocks}, None, drop_missing=False)
    with pytest.warns(match="dropped 2 of 50 rows"):
        found = rows_for_all(table_file("gaps.csv"), {"rocks": rocks}, None, drop_missing=True)
    assert found.n == 48
    assert found.feature_names == ("depth", "age", "rock=chalk", "rock=clay", "rock=sand")
    complete = table.dropna()
    assert torch.equal(found.X[:, 0], torch.tensor(complete["depth"].to_numpy()))
    prediction = rocks.predict(complete.drop(columns="y"))
    assert torch.equal(rocks.predict(found).mean, prediction.mean)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["line-map.safetensors", "line-map.safetensors", "--test", "test.csv"], "twice"),
        (["line-map.safetensors", "--test", "-"], "got the standard input"),
        (["line-map.safetensors", "other.safetensors", "--test", "test.csv"], "of one target"),
        (
            ["line-map.safetensors", "rocks.safetensors", "--test", "test.csv"],
            "age, depth of line-map and age, depth, rock=chalk, rock=clay, rock=sand of rocks",
        ),
        (["line-map.safetensors", "--test", "test.csv", "--level", "90"], r"write 0\.9"),
    ],
)
def test_what_cannot_be_reported_is_one_sentence(arguments: list[str], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        run(*arguments)


def test_a_file_without_the_target_is_refused() -> None:
    pd.read_csv("test.csv").drop(columns="y").to_csv("blind.csv", index=False)
    with pytest.raises(DataError, match="the column y, the target of the fit, in blind"):
        run("line-map.safetensors", "--test", "blind.csv")


def test_files_of_one_name_are_told_apart_by_their_folders(folder: Path) -> None:
    (folder / "again").mkdir()
    (folder / "again" / "rocks.safetensors").write_bytes(Path("rocks.safetensors").read_bytes())
    paths = ["rocks.safetensors", "again/rocks.safetensors"]
    rows = json.loads(run(*paths, "--test", "test.csv", "--json").stdout)["rows"]
    assert {row["posterior"] for row in rows} == {"rocks", "again/rocks"}
    assert {row["how"] for row in rows} == {"MAP", "MAP 2"}


def test_models_are_told_apart() -> None:
    fitted = {name: ppgp.load_posterior(f"{name}.safetensors") for name in ("line-map", "flat-map")}
    assert _models_and_methods(fitted) == {
        "line-map": ("LinearRegression", "MAP"),
        "flat-map": ("LinearRegression 2", "MAP"),
    }
