"""Experiment files, shell completion and the exit status of commands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from ppgp.cli.experiment_files import words_of
from ppgp.cli.main import app
from ppgp.errors import DataError, SettingError, UnknownName

TYPED = "study/wells.csv --target y --id well --one-hot rock,site --level 0.8 --how map,nuts"
TYPED += " --models gp,linear --out study/report --set kernel.lengthscale=2 --set nuts.draws=50"
TYPED += " --no-progress --missing drop"
WRITTEN = """
data = "wells.csv"
target = "y"
id = "well"
one-hot = ["rock", "site"]
level = 0.8
how = ["map", "nuts"]
progress = false
missing = "drop"

[set]
kernel.lengthscale = 2
nuts.draws = 50

[compare]
models = "gp,linear"
out = "report"

[fit]
model = "gp"
"""


def command(name: str) -> Any:
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    return group.commands[name]


def parsed(name: str, *words: str) -> dict[str, Any]:
    """Return the options that a command takes from its words."""
    return command(name).make_context(name, [*words]).params


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An experiment file in a folder below the current one."""
    monkeypatch.chdir(tmp_path)
    file = Path("study/experiment.toml")
    file.parent.mkdir()
    file.write_text(WRITTEN)
    return file


def test_a_file_stands_for_the_words_that_it_names(study: Path) -> None:
    expected = parsed("compare", *TYPED.split())
    assert parsed("compare", str(study)) == expected
    assert expected["missing"] == "drop"
    assert expected["progress"] is False


def test_words_beside_the_file_override_it(study: Path) -> None:
    found = parsed("compare", "--level", "0.5", str(study), "--set", "noise=1", "--progress")
    settings = ["kernel.lengthscale=2", "nuts.draws=50", "noise=1"]
    expected = parsed("compare", *TYPED.split())
    changes = {"level": 0.5, "settings": settings, "progress": True}
    found["settings"] = list(found["settings"])  # typer before 0.29 gives a tuple
    assert found == {**expected, **changes}


def test_each_command_has_options_of_its_own(study: Path) -> None:
    study.write_text(WRITTEN.replace("level = 0.8", ""))
    assert parsed("fit", str(study))["model"] == "gp"
    assert parsed("fit", str(study))["out"] == Path("posterior.safetensors")
    assert words_of(study, command("fit"))[0] == "study/wells.csv"
    study.write_text('data = "iris"\nhow = "map"\nset = ["noise=1"]')
    assert words_of(study, command("fit")) == ["iris", "--how=map", "--set", "noise=1"]


@pytest.mark.parametrize(
    ("content", "error", "sentence"),
    [
        ("targt = 'y'", UnknownName, "key in experiment.toml, got 'targt': did you mean 'target'"),
        ("models = 'gp'\n[compare]\nhow = 'map'", SettingError, r"write it under \[compare\]"),
        ("level = 0.8", SettingError, r"'level', an option of compare: write it under \[compare\]"),
        ("[fits]\nhow = 'map'", UnknownName, "did you mean 'fit'"),
        ("json = true", UnknownName, "got 'json'"),
        ("progress = 'no'", SettingError, "expected true or false as progress, got 'no'"),
        ("target = true", SettingError, "a text, a number or a list as target, got True"),
        ("fit = 3", SettingError, r"a table \[fit\]"),
        ("[how]\nmap = 3", SettingError, r"got a table: write its options under \[set\]"),
        ("target = ", DataError, r"a readable \.toml file, got experiment\.toml"),
    ],
)
def test_mistakes_in_a_file(study: Path, content: str, error: type, sentence: str) -> None:
    study.write_text(content)
    with pytest.raises(error, match=sentence):
        words_of(study, command("fit"))
    with pytest.raises(DataError, match=r"no file absent\.toml"):
        parsed("fit", "absent.toml")


def test_a_file_without_data_is_told_its_key(study: Path) -> None:
    study.write_text("target = 'y'")
    with pytest.raises(DataError, match=r'the key data in experiment\.toml, .*write data = "'):
        parsed("fit", str(study))
    assert parsed("fit", str(study), "iris")["data"] == "iris"


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("fi", ["fit"]),
        ("fit --model sv", ["svgp", "svdkl"]),
        ("compare --models gp,ngb", ["gp,ngboost", "gp,ngboost-classifier"]),
        ("fit --how nu", ["nuts"]),
        ("fit --likelihood pois", ["poisson"]),
        ("calibrate --scores absolute,nor", ["absolute,normalized"]),
        ("fit --one", ["--one-hot"]),
    ],
)
def test_the_shell_completes_names(typed: str, offered: list[str]) -> None:
    words = {"COMP_WORDS": f"ppgp {typed}", "COMP_CWORD": str(len(typed.split()))}
    environment = {"_PPGP_COMPLETE": "complete_bash", **words}
    done = CliRunner().invoke(app, [], prog_name="ppgp", env=environment)
    assert sorted(done.stdout.split()) == sorted(offered)


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("list --json", 0),
        ("list > /dev/full", 1),
        ("fit", 2),
        ("fit absent.toml", 2),
        ("nonsense", 2),
    ],
)
def test_the_exit_status_says_how_a_command_ended(words: str, status: int) -> None:
    """That of interrupted commands is a test of its own."""
    if "/dev/full" in words and not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    line = f"{sys.executable} -W ignore -m ppgp {words}"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=300)
    assert done.returncode == status
    assert "Traceback" not in done.stderr
    if status == 0:
        assert json.loads(done.stdout)["command"] == "list"


def test_the_help_states_the_exit_status() -> None:
    text = " ".join(CliRunner().invoke(app, ["--help"]).stdout.split())
    assert all(
        part in text for part in ("0 done;", "1 a file", "2 the command", "130 after Ctrl-C")
    )
