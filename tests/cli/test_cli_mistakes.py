"""What the command line says of mistakes in the use of a saved posterior, and of results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

import ppgp
from ppgp import Dataset, inference, models
from ppgp.cli.data_options import in_the_shell
from ppgp.cli.main import app, main
from ppgp.cli.output import NotWritten
from ppgp.display.json_values import json_value
from ppgp.errors import DataError, DataWarning, SettingError, StorageError, UnknownName

POINT = inference.MAP()
FIT = ["fit", "wells.csv", "--target", "y", "--model", "linear", "--how", "map", "--no-progress"]
FULL = Path("/dev/full")
needs_a_full_disk = pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")


def wells(n: int = 40) -> pd.DataFrame:
    rng = np.random.default_rng(n)
    frame = pd.DataFrame({"depth": rng.uniform(1, 30, n), "age": rng.uniform(0, 9, n)})
    frame["rock"] = rng.choice(["chalk", "sand"], n)
    return frame.assign(y=3.0 - frame["depth"] / 4 + rng.normal(size=n))


def run(*arguments: str, input: str | None = None) -> Result:
    """Run a command, and raise what it raises."""
    return CliRunner().invoke(
        app, [*arguments], input=input, catch_exceptions=False, standalone_mode=False
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with wells.csv, the posterior of its rows, new rows and known rows."""
    folder = tmp_path_factory.mktemp("mistakes")
    wells().to_csv(folder / "wells.csv", index=False)
    wells(30).drop(columns="y").to_csv(folder / "new.csv", index=False)
    wells(31).to_csv(folder / "known.csv", index=False)
    data = Dataset.from_frame(wells(), "y", one_hot=True)
    model = models.LinearRegression()
    ppgp.fit(model, data, POINT, progress=False).save(folder / "q.safetensors")
    return folder


@pytest.fixture(autouse=True)
def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


@pytest.mark.parametrize("column", ["depth", "rock"])
@pytest.mark.parametrize(
    "command",
    [["calibrate", "q.safetensors", "known.csv"], ["predict", "q.safetensors", "new.csv"]],
)
def test_an_input_of_the_fit_is_no_target(command: list[str], column: str) -> None:
    if command[0] == "predict":
        command = [*command, "--calibration", "known.csv"]
    with pytest.raises(SettingError, match=f"the target of the fit, 'y', .* got '{column}', which"):
        run(*command, "--target", column)


def test_the_target_may_have_another_name_elsewhere() -> None:
    wells(31).rename(columns={"y": "nitrate"}).to_csv("renamed.csv", index=False)
    found = run("calibrate", "q.safetensors", "renamed.csv", "--target", "nitrate", "--json")
    own = run("calibrate", "q.safetensors", "known.csv", "--json")
    assert json.loads(found.stdout)["rows"] == json.loads(own.stdout)["rows"]


def test_a_file_without_the_target_is_named() -> None:
    with pytest.raises(DataError, match="the column y, the target of the fit, in new"):
        run("calibrate", "q.safetensors", "new.csv")
    with pytest.raises(UnknownName, match="did you mean 'y'"):
        run("calibrate", "q.safetensors", "known.csv", "--target", "Y")


def test_diagnose_states_the_scale() -> None:
    assert (
        "scalars, the worst first (standardised scale)" in run("diagnose", "q.safetensors").stdout
    )
    data = Dataset.from_frame(wells(), "y", one_hot=True)
    fit = ppgp.fit(models.LinearRegression(), data, POINT, standardise=False, progress=False)
    fit.save("unscaled.safetensors")
    printed = run("diagnose", "unscaled.safetensors").stdout
    assert "(units of the data)" in " ".join(printed.split())


@pytest.mark.parametrize("worst", ["0", "-3"])
def test_diagnose_shows_one_scalar_at_least(worst: str) -> None:
    with pytest.raises(SettingError, match=f"of at least 1 as --worst, got {worst}"):
        run("diagnose", "q.safetensors", "--worst", worst)


def test_scalars_have_the_names_of_columns() -> None:
    printed = run("diagnose", "q.safetensors").stdout
    assert all(f"weight[{name}]" in printed for name in ("depth", "age", "rock=chalk"))
    printed = run(*FIT, "--drop", "rock").stdout
    assert "weight[depth]" in printed


def test_the_columns_of_the_table_are_named() -> None:
    wells(30)[["depth"]].assign(x=1.0).to_csv("less.csv", index=False)
    words = "columns depth, age, rock of the training rows, got no columns age, rock among columns "
    with pytest.raises(UnknownName, match=f"{words}depth, x"):
        run("predict", "q.safetensors", "less.csv")
    posterior = ppgp.load_posterior("q.safetensors")
    with pytest.raises(UnknownName, match=f"{words}depth, x"):
        posterior.predict(pd.read_csv("less.csv"))


def test_an_index_in_the_file_is_warned_of() -> None:
    wells().drop(columns="rock").to_csv("index.csv")
    with pytest.warns(DataWarning, match="input column Unnamed: 0 without a name") as found:
        ppgp.load("index.csv", "y")
    assert "leave out with --drop 'Unnamed: 0'" in in_the_shell(str(found[0].message))
    assert ppgp.load("index.csv", "y", drop=["Unnamed: 0"]).d == 2
    assert ppgp.load("index.csv", "y", ids="Unnamed: 0").d == 2


@pytest.mark.parametrize("out", ["o.pt", "o.csv"])
def test_a_posterior_is_saved_under_its_suffix(out: str) -> None:
    with pytest.raises(SettingError, match=r"that ends in \.safetensors, got .*--out o\.safetens"):
        run(*FIT, "--drop", "rock", "--out", out)
    assert not Path(out).exists()


def test_a_folder_is_no_file() -> None:
    with pytest.raises(StorageError, match=r"got the folder \.: check the path"):
        run("diagnose", ".")
    with pytest.raises(DataError, match=r"got the folder \.: check the path"):
        run("predict", "q.safetensors", ".")


def test_predictions_on_the_standard_output_are_said_to_be_there() -> None:
    done = run("predict", "q.safetensors", "new.csv", "--out", "-")
    assert "wrote: 30 rows to the standard output" in done.stderr
    assert (
        "wrote: 30 rows to p.csv"
        in run("predict", "q.safetensors", "new.csv", "--out", "p.csv").stdout
    )


@pytest.mark.parametrize(
    ("python", "shell"),
    [
        (
            "use conformal.Absolute(), Normalized() or Quantile()",
            "--scores absolute, normalized or",
        ),
        ("use conformal.LAC()", "pass --scores lac"),
        (
            "pass the file that ppgp fit or posterior.save wrote",
            "pass the file that ppgp fit wrote",
        ),
        ("name every label once in classes", "name every label once in --classes"),
    ],
)
def test_messages_have_the_words_of_the_shell(python: str, shell: str) -> None:
    assert in_the_shell(python).endswith(shell) or shell in in_the_shell(python)


def status(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[Any, str]:
    """Return the exit status of a command, and its last sentence."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["ppgp", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
    return ended.value.code, capsys.readouterr().err.strip().splitlines()[-1]


@needs_a_full_disk
def test_results_that_cannot_be_written_have_their_exit_status(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("full.csv", "full.safetensors"):
        Path(name).symlink_to(FULL)
    predict = ["predict", "q.safetensors", "new.csv", "--out"]
    for command in ([*predict, "full.csv"], [*FIT, "--drop", "rock", "--out", "full.safetensors"]):
        code, sentence = status(capsys, *command)
        assert code == 1
        assert f"expected to write {command[-1]}, got no space left on device" in sentence
    code, sentence = status(capsys, *predict, "missing/full.csv")
    assert (code, "no folder missing" in sentence) == (2, True)
    with pytest.raises(NotWritten):
        run(*predict, "full.csv")


def test_infinity_is_no_text_in_json() -> None:
    rows = [{"width": np.float64("inf"), "low": -np.inf, "mean": 1.5, "sd": np.nan}]
    assert json_value(rows) == [{"width": None, "low": None, "mean": 1.5, "sd": None}]
    wells(8).to_csv("few.csv", index=False)
    command = ["predict", "q.safetensors", "new.csv", "--calibration", "few.csv"]
    found = json.loads(run(*command, "--json").stdout)
    assert {row["upper"] for row in found["rows"]} == {None}
    assert all(isinstance(row["mean"], float) for row in found["rows"])


@pytest.mark.parametrize("name", ["state_space.", ".kernel", "noise.", "kernel..lengthscale", ""])
def test_a_setting_with_a_dot_beside_no_name_is_refused(name: str) -> None:
    with pytest.raises(SettingError, match=r"a name on both sides of each dot, got .*=1': for"):
        run(*FIT, "--set", f"{name}=1")


def test_a_setting_without_an_equals_sign_is_refused() -> None:
    with pytest.raises(SettingError, match=r"expected --set option=value, got 'state_space\.'"):
        run(*FIT, "--set", "state_space.")
