"""The code of README, the pages of docs, CONTRIBUTING and the notebooks runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import forked
import jupytext
import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PAGES = ("contents", "estimators", "guarantees")
TEXTS = [README, *((ROOT / "docs" / f"{name}.md").read_text() for name in PAGES)]
BLOCKS = [block for text in TEXTS for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL)]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.py"))
#: notebooks that read a published data set, and run on simulated data without it
READERS = {
    "02_gaussian_processes": "bike/day.csv",
    "03_kriging": "kriging/meuse.csv",
    "13_shift": "beijing_air/beijing_air_clean.npz",
}
#: notebooks that take a minute -> what makes them shorter here; all of their asserts hold
SHORTER = {
    "03_kriging": {"draws=150, warmup=150": "draws=60, warmup=80"},
    "05_deep_kernels": {
        "steps=160, hold_out": "steps=80, hold_out",
        "steps=1000, draws=100": "steps=400, draws=100",
    },
    "09_mixtures": {"NUTS(draws=2000)": "NUTS(draws=500)"},
    "10_mcmc_versus_vi": {"draws=1000, warmup=500, target_accept=0.95": "draws=500"},
    "11_diagnostics_with_arviz": {
        "draws=500, warmup=500)": "draws=300, warmup=300)",
        "draws=500, warmup=500, target": "draws=300, warmup=300, target",
    },
    "15_glm": {
        "bliss, inference.NUTS()": "bliss, inference.NUTS(draws=400, warmup=400)",
        "train, inference.NUTS()": "train, inference.NUTS(draws=400, warmup=400)",
    },
    "16_ordinal_and_multilevel": {
        "wine, inference.NUTS()": "wine, inference.NUTS(draws=400, warmup=400)",
        "dyestuff, inference.NUTS()": "dyestuff, inference.NUTS(draws=400, warmup=400)",
        "inference.NUTS(draws=2000, target": "inference.NUTS(draws=800, target",
        "houses, inference.NUTS()": "houses, inference.NUTS(draws=400, warmup=400)",
    },
    "18_large_spatial": {"TRAIN, REST = 16_000, 3_000": "TRAIN, REST = 6_000, 2_000"},
    "19_scaling_out": {".iloc[:6000]": ".iloc[:1000]", "steps=500": "steps=200"},
    "20_hierarchical_models": {"draws=500, warmup=500": "draws=300, warmup=300"},
}


def run(code: str, cwd: Path, **environment: str) -> str:
    done = forked.run(code, cwd=cwd, seconds=1500, environment=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_first_lines_run_and_print_what_is_shown(tmp_path: Path) -> None:
    """Numbers agree to two digits, as the last ones depend on the processor."""
    shown = re.search(r"```text\n(.*?)```", README, re.DOTALL)
    assert shown is not None
    number = re.compile(r"-?\d+\.\d+")
    printed, wanted = run(BLOCKS[0], tmp_path), shown.group(1)
    assert number.sub("#", printed).split() == number.sub("#", wanted).split()
    pairs = zip(number.findall(printed), number.findall(wanted), strict=True)
    assert all(abs(float(a) - float(b)) <= 0.01 * abs(float(b)) + 0.02 for a, b in pairs)


@pytest.mark.parametrize("block", BLOCKS[1:])
def test_the_other_blocks_run(block: str, tmp_path: Path) -> None:
    assert run(block, tmp_path)


def test_the_first_two_commands_are_demo_and_test() -> None:
    commands = re.findall(r"^    (.+?)(?:\s{2,}#.*)?$", README, re.MULTILINE)
    assert commands[:2] == ["make demo", "make test"]


def test_the_skeletons_of_contributing_are_python() -> None:
    for block in re.findall(
        r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL
    ):
        compile(block, "CONTRIBUTING.md", "exec")


def notebook(source: Path) -> Any:
    """Return the source, marked with the data set that it needs."""
    file = READERS.get(source.stem)
    marks = [pytest.mark.data(file)] if file else []
    return pytest.param(source, marks=marks, id=source.stem)


def shorter(source: Path) -> str:
    """Return the text of a notebook with shorter runs."""
    text = source.read_text()
    for long, short in SHORTER.get(source.stem, {}).items():
        assert text.count(long) == 1
        text = text.replace(long, short)
    return text


@pytest.mark.slow
@pytest.mark.parametrize("source", [notebook(source) for source in NOTEBOOKS])
def test_a_notebook_runs_to_its_last_assert(source: Path, tmp_path: Path, data_dir: Path) -> None:
    text = shorter(source)
    assert text.rstrip().splitlines()[-1].startswith("assert ")
    assert ("PPGP_DATA" in text) == (source.stem in READERS)
    assert "the rows are simulated" not in run(text, tmp_path, PPGP_DATA=str(data_dir))


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_a_notebook_without_its_data_set_runs_on_simulated_data(name: str, tmp_path: Path) -> None:
    text = shorter(ROOT / "notebooks" / f"{name}.py")
    printed = run(text, tmp_path, PPGP_DATA=str(tmp_path / "empty"))
    assert f"{READERS[name]} is missing: the rows are simulated" in printed


@pytest.mark.parametrize("source", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_built_notebook_is_that_of_its_source(source: Path) -> None:
    """The built notebook has the same cells, and outputs: run ``make notebooks`` after a change."""
    built, wanted = jupytext.read(source.with_suffix(".ipynb")), jupytext.read(source)
    assert [(c.cell_type, c.source) for c in built.cells] == [
        (c.cell_type, c.source) for c in wanted.cells
    ]
    assert any(c.get("outputs") for c in built.cells)
