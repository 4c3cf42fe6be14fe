"""Options of the command line that say what the columns of a table are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from forked import ppgp

from ppgp import Dataset
from ppgp.cli.data_options import TableOptions, in_the_shell
from ppgp.data.files.loading import loaded
from ppgp.errors import UnknownName

N = 80
NGB = ["--no-progress", "--set", "ngb.steps=8", "--set", "ngb.folds=None"]
CENSORED = ["--model", "Boosted(LogNormal(noise=Predicted()))", "--how", "ngb"]
CENSORED += ["--set", "ngb.score=nll", "--right-censored", "alive"]
CODES = ["--missing", "keep", "--categories", "codes"]


def rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(N, 2)), columns=["a", "b"])
    frame["colour"] = rng.choice(["red", "green", "blue"], N)
    frame["time"] = np.exp(frame["a"] + 2.0 * (frame["colour"] == "red") + 0.1 * frame["b"])
    frame["alive"] = (rng.uniform(size=N) < 0.2).astype(int)
    frame.loc[::9, "b"] = np.nan
    frame.loc[4, "colour"] = None
    return frame


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.csv and new.csv."""
    folder = tmp_path_factory.mktemp("columns")
    rows()[:60].to_csv(folder / "train.csv", index=False)
    rows()[60:].to_csv(folder / "new.csv", index=False)
    return folder


def test_fit_takes_missing_values_categories_and_censored_targets(folder: Path) -> None:
    command = ["fit", "train.csv", "--target", "time", *CENSORED, *CODES, *NGB]
    done = ppgp(*command, "--out", "q.safetensors", cwd=folder)
    assert done.returncode == 0, done.stderr
    done = ppgp("predict", "q.safetensors", "new.csv", "--out", "p.csv", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = pd.read_csv(folder / "p.csv")["mean"].to_numpy()
    red = np.asarray(rows()["colour"] == "red")[60:]
    assert found[red].mean() > 1.5 * found[~red].mean()
    predicts, calibrates = ["predict", "--calibration", "new.csv"], ["calibrate"]
    for words in (predicts, calibrates):
        done = ppgp(*words, "q.safetensors", "new.csv", cwd=folder)
        assert done.returncode == 2
        assert "right-censored ones in column alive" in done.stderr


@pytest.mark.parametrize(
    ("drop", "more", "advice"),
    [
        (["colour", "alive"], [], "--missing keep for ngboost"),
        (["b", "alive"], [], "--categories codes"),
        (
            ["b", "alive"],
            [],
            "column colour: --drop it, make one column of 0 and 1 per category (with",
        ),
        (["b", "alive"], [], "(with --one-hot or --categories one-hot)"),
        (["alive"], [*CODES, "--model", "linear"], "to ngboost"),
        (["b", "alive"], ["--categories", "codes", "--model", "linear"], "--categories one-hot"),
    ],
)
def test_messages_speak_of_options(
    folder: Path, drop: list[str], more: list[str], advice: str
) -> None:
    frame = rows().fillna({"colour": "red"})
    frame.drop(columns=drop).to_csv(folder / "some.csv", index=False)
    done = ppgp("fit", "some.csv", "--target", "time", *more, *NGB[:1], cwd=folder)
    assert done.returncode == 2
    assert advice in done.stderr
    for python in ("one_hot=", "categories=", "missing=", "Dataset"):
        assert python not in done.stderr


def test_columns_with_roles_are_those_of_a_frame(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    names = ["east", "north", "y", "sd", "exposure", "n", "times"]
    frame = pd.DataFrame(rng.uniform(1, 2, size=(12, 7)).round(3), columns=names)
    frame["n"], frame["times"] = 3.0, 2.0
    frame["site"], frame["name"], frame["gone"] = list("abc") * 4, [f"r{i}" for i in range(12)], 0
    path = tmp_path / "roles.csv"
    frame.to_csv(path, index=False)
    roles: dict[str, Any] = {
        "noise_sd": "sd",
        "offset": "exposure",
        "trials": "n",
        "weights": "times",
    }
    roles |= {"ids": "name", "right_censored": "gone"}
    named = {role: column for role, column in roles.items() if role != "right_censored"}
    columns = TableOptions(coordinates="east,north", groups="site", **named)
    found = loaded(columns.look(str(path), "y", "gone"))
    places = ["east", "north"]
    expected = Dataset.from_frame(frame, "y", coordinates=places, groups=["site"], **roles)
    assert found.same_rows(expected)
    assert found.names_of_roles == expected.names_of_roles == roles
    assert found.coordinates == expected.coordinates
    assert found.columns_with_roles.keys() == {*roles, "groups"}
    with pytest.raises(UnknownName, match="exposure"):
        TableOptions(categories="one-hot", offset="exposur").look(str(path), "y")


def test_advice_about_new_rows() -> None:
    assert in_the_shell("got none: pass trials=, or a Dataset") == (
        "got none: add its column to the file"
    )
    assert in_the_shell("pass trials=, a Dataset, or a table with the column n") == (
        "add the column n to the file"
    )


def test_new_rows_need_the_offset(folder: Path) -> None:
    frame = pd.DataFrame({"a": np.linspace(-1.0, 1.0, 30), "e": 0.5, "k": [1, 2, 3] * 10})
    frame.to_csv(folder / "counts.csv", index=False)
    frame[["a"]].to_csv(folder / "without.csv", index=False)
    command = ["fit", "counts.csv", "--target", "k", "--offset", "e", "--how", "map"]
    done = ppgp(*command, "--model", "GLM(Poisson())", "--out", "g.safetensors", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert ppgp("predict", "g.safetensors", "counts.csv", cwd=folder).returncode == 0
    done = ppgp("predict", "g.safetensors", "without.csv", cwd=folder)
    assert done.returncode == 2
    assert "expected offset of the new rows" in done.stderr
    assert "add the column e to the file" in done.stderr
