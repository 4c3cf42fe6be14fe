"""The way of a new user: a wheel, an empty environment, a table, predictions."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.core import TyperGroup
from typer.main import get_command

import ppgp
from ppgp.cli.main import app
from ppgp.experiments import experiment, options_of

ROOT = Path(__file__).parents[2]
PAGES = ("your-own-table", "command-line")
TEXT = "".join((ROOT / "docs" / f"{name}.md").read_text() for name in PAGES)
PATH = re.search(r"```sh\n(.*?)```", TEXT, re.DOTALL)
LINES = r"^(?: {4}ppgp|ppgp(?= (?:compare|fit|calibrate|predict) )) .+"
COMMANDS = [line.strip() for line in re.findall(LINES, TEXT, re.MULTILINE)]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the commands read, in which they have run.

    The new environment finds the installed libraries, ppgp apart, by PYTHONPATH: to install all of
    them again takes minutes and the network. Pip then installs the wheel alone.
    """
    pytest.importorskip("hatchling")
    folder, libraries = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("libraries")
    for name in ("README.md", "LICENSE", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    pinned = "constraints.txt" if sys.version_info < (3, 12) else "constraints-newest.txt"
    shutil.copy(ROOT / pinned, folder / "constraints.txt")
    for name in ("ppgp", "docs", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "ppgp" not in entry.name:
            (libraries / entry.name).symlink_to(entry)
    assert PATH is not None
    environment = {
        **os.environ,
        "PYTHONPATH": str(libraries),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip reads 0 as --no-build-isolation
    }
    done = subprocess.run(
        ["bash", "-e", "-c", PATH.group(1)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (folder / "printed").write_text(done.stdout)
    (folder / "messages").write_text(done.stderr)
    return folder


@pytest.mark.slow
def test_the_commands_of_the_readme_lead_to_predictions(checkout: Path) -> None:
    installed = list((checkout / "env").rglob("site-packages/ppgp/__init__.py"))
    assert len(installed) == 1
    printed = (checkout / "printed").read_text()
    messages = (checkout / "messages").read_text()
    assert "dropped 2 of 140 rows without a value in column depth, rows 5, 100" in messages
    assert "calibrate, 28 to test; 90% intervals" in printed
    assert "40 rows to calibrate, 40 to test" in printed
    assert "guarantee: marginal coverage >= 0.9" in printed
    assert "kernel.lengthscale" in printed
    page = (checkout / "report" / "index.html").read_text()
    assert all(word in page for word in ("gp", "linear", "laplace", "verdict"))
    new, found = pd.read_csv(checkout / "new.csv"), pd.read_csv(checkout / "predictions.csv")
    assert list(found.columns) == ["well", "rock", "mean", "sd", "lower", "upper"]
    pd.testing.assert_frame_equal(found[["well", "rock"]], new[["well", "rock"]])
    blank = new["depth"].isna()
    assert blank.sum() == 1
    assert bool((found["mean"].isna() == blank).all())
    assert bool((found["lower"] < found["mean"])[~blank].all())
    posterior = ppgp.load_posterior(checkout / "wells.safetensors")
    expected = posterior.predict(new[~blank].drop(columns="well")).mean
    np.testing.assert_allclose(found["mean"][~blank], expected, rtol=1e-9)


@pytest.mark.slow
def test_the_wheel_holds_the_package_alone(checkout: Path) -> None:
    (wheel,) = (checkout / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    about = {name for name in names if name.partition("/")[0].endswith(".dist-info")}
    package = {str(path.relative_to(ROOT)) for path in (ROOT / "ppgp").rglob("*") if path.is_file()}
    assert names - about == {name for name in package if "__pycache__" not in name}
    assert "ppgp/py.typed" in names  # checkers of types then read the annotations
    assert {Path(name).suffix for name in names - about} <= {".py", ".json", ".typed"}
    assert wheel.stat().st_size < 2_000_000


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_readme_has_options_that_exist(command: str) -> None:
    name, *arguments = shlex.split(command)[1:]
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    context = group.commands[name].make_context(name, arguments)
    if name == "reproduce":  # which takes the options of its experiment
        options_of(experiment(context.params["name"]), context.args)


def test_the_readme_has_commands() -> None:
    assert len(COMMANDS) > 15
    assert sum(one in (PATH.group(1) if PATH else "") for one in COMMANDS) == 4
