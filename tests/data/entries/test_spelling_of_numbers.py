"""Numbers that are spelt in another way: with thousands, commas, units and signs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import ppgp
from ppgp.data import Dataset
from ppgp.errors import DataError
from ppgp.tables.entries import misspelt, spelling

BOTH = ("separates thousands", "thousands=','", "decimal comma", "decimal=','")
COLUMNS = {
    "thousands or decimals": (["1,486", "2,500", "12,000"], "1,486", BOTH),
    "decimals": (["1,5", "2,75"], "1,5", ("has a decimal comma", "decimal=','")),
    "decimals by another row": (["1,486", "2,5"], "2,5", ("has a decimal comma",)),
    "decimals below one": (["0,125", "0,250"], "0,125", ("has a decimal comma",)),
    "an exponent": (["1,5e3", "2,5"], "1,5e3", ("has a decimal comma",)),
    "millions": (["1,486,000", "2,000,000"], "1,486,000", ("commas that separate thousands",)),
    "millions by another row": (["1,486", "2,000,000"], "2,000,000", ("thousands=','",)),
    "thousands and a point": (["1,486.50", "3.5"], "1,486.50", ("thousands=','",)),
    "both": (["1,5", "2,000,000"], "2,000,000", ("and '1,5' a decimal comma", "alike")),
    "German": (["1.486,50", "2.000,00"], "1.486,50", ("thousands='.', decimal=','",)),
    "Swiss": (["1'486", "12'000.50"], "1'486", ("separators of thousands",)),
    "spaces": (["1 486", "12 000"], "1 486", ("separators of thousands",)),
    "narrow spaces": (["1\u202f486", "12\u00a0000"], "1\\u202f486", ("separators of thousands",)),
    "underscores": (["1_486", "12_000"], "1_486", ("separators of thousands",)),
    "a unit": (["12 kg", "13.5 kg", "7"], "12 kg", ("has a unit", "header")),
    "dollars": (["$1,200", "$900"], "$1,200", ("sign of a currency",)),
    "euros": (["12 \u20ac", "13,5 \u20ac"], "12 \u20ac", ("sign of a currency",)),
    "percent": (["12%", "13.5 %"], "12%", ("sign of percent",)),
    "parentheses": (["(12)", "13"], "(12)", ("negative number in parentheses",)),
    "a minus sign": (["\u221212", "13"], "\u221212", ("minus sign",)),
    "a word": (["12", "unknown", "14"], "unknown", ("leave the cell empty",)),
}


def refused(call: Any) -> str:
    with pytest.raises(DataError) as raised:
        call()
    return str(raised.value)


@pytest.mark.parametrize(("cells", "named", "words"), COLUMNS.values(), ids=COLUMNS)
def test_a_column_is_refused_with_what_is_odd_about_it(
    cells: list[str], named: str, words: tuple[str, ...]
) -> None:
    frame = pd.DataFrame({"price": cells, "y": np.arange(len(cells))})
    message = refused(lambda: Dataset.from_frame(frame, "y"))
    assert "column price" in message
    assert named in message
    for word in words:
        assert word in message
    rows = cells.index(named.replace("\\u202f", "\u202f"))
    assert f"in row {rows}" in message


@pytest.mark.parametrize(
    "cells", [["1,486", "2,500", "3,000"], ["1.486,50", "2,5", "3,1"], ["$1", "$2", "$4"]]
)
def test_a_target_is_no_set_of_labels(cells: list[str]) -> None:
    X = np.arange(3.0)[:, None]
    message = refused(lambda: Dataset(X, cells))
    assert "expected numbers in y" in message
    assert "in row 0" in message


def test_labels_with_units_and_other_texts_remain_labels() -> None:
    doses = ["5 mg", "10 mg"] * 6
    assert Dataset(np.arange(12.0)[:, None], doses).classes == ("10 mg", "5 mg")
    for text in ("oak", "A12", "2024-05-31", "10.0.0.1", "1,2,3", "3 or more", "1,48,6", "", "e,5"):
        assert spelling(text) is None
    assert misspelt(["1st", "2nd", "3rd"]) is None
    assert misspelt([["1,5"], "2"]) is None


def test_all_faults_of_a_table_are_in_one_message() -> None:
    frame = pd.DataFrame(
        {
            "price": ["1,486", "2,500", "3,000"],
            "share": ["12%", "13%", "14%"],
            "sort": ["oak", "ash", "oak"],
            "width": [1.0, np.nan, 2.0],
            "y": ["1,5", "2,5", "3,5"],
        }
    )
    message = refused(lambda: Dataset.from_frame(frame, "y"))
    for words in (
        "none in column width, row 1",
        "text or dates in columns price, share, sort",
        "'1,486' in row 0 of column price has a comma that separates thousands",
        "'12%' in row 0 of column share has a sign of percent",
        "drop column sort",
        "correct 'oak' in row 0 of column sort",
        "numbers in y",
        "'1,5' in row 0",
    ):
        assert words in message
    with pytest.warns(ppgp.errors.DataWarning, match="dropped 1 of 3 rows"):
        later = refused(lambda: Dataset.from_frame(frame, "y", missing="drop"))
    assert "column price" in later
    assert "numbers in y" in later


def test_rows_of_all_faults_are_those_of_the_table() -> None:
    frame = pd.DataFrame(
        {"a": ["1", "2", "3,5"], "b": ["4", "5", "6%"], "c": [np.nan, 1.0, 2.0], "y": [1, 2, 3]}
    )
    with pytest.warns(ppgp.errors.DataWarning, match="dropped 1 of 3 rows"):
        message = refused(lambda: Dataset.from_frame(frame, "y", missing="drop"))
    assert "'3,5' in row 2 of column a" in message
    assert "'6%' in row 2 of column b" in message


def test_the_shell_says_so_without_a_traceback(tmp_path: Path) -> None:
    rows = "\n".join(f'"{1000 + 37 * i:,}",{i}' for i in range(30))
    (tmp_path / "t.csv").write_text(f"price,y\n{rows}\n")
    options = ["--target", "y", "--how", "map", "--out", "p.safetensors"]
    command = [sys.executable, "-m", "ppgp", "fit", "t.csv", *options]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "separates thousands" in run.stderr
    assert "Traceback" not in run.stderr
