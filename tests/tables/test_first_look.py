"""A table that cannot be used is refused before torch is imported, in the same words."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ppgp import Dataset
from ppgp.errors import DataWarning, PpgpError
from ppgp.tables import first_look
from ppgp.tables.first_look import Asked, look

WORDS = {"missing": "refuse", "categories": "refuse", "dates": "refuse"}
#: what is wrong -> (the file, words of the command line)
WRONG = {
    "no such file": (None, ["--target", "y"]),
    "no target": ("a,y\n1,2\n", []),
    "an unknown target": ("a,y\n1,2\n", ["--target", "z"]),
    "an unknown column with a role": ("a,y\n1,2\n", ["--target", "y", "--noise-sd", "sd"]),
    "a column with two roles": ("a,y\n1,2\n", ["--target", "y", "--offset", "y"]),
    "an unknown column to drop": ("a,y\n1,2\n", ["--target", "y", "--drop", "b"]),
    "an unknown column to turn": ("a,y\n1,2\n", ["--target", "y", "--one-hot", "b"]),
    "an unknown coordinate": ("a,y\n1,2\n", ["--target", "y", "--coordinates", "b"]),
    "an unknown word": ("a,y\n1,2\n", ["--target", "y", "--missing", "skip"]),
    "a field too many": ("a,y\n1,2,3\n", ["--target", "y"]),
    "a name twice": ("a,a,y\n1,2,3\n", ["--target", "y"]),
    "no rows": ("a,y\n", ["--target", "y"]),
    "nothing": ("", ["--target", "y"]),
    "text among the inputs": ("a,y\n1,2\noak,3\n", ["--target", "y"]),
    "a decimal comma": ('a,y\n"1,5",2\n2,3\n', ["--target", "y"]),
    "an empty cell": ("a,y\n1,2\n,3\n", ["--target", "y"]),
    "an empty target and text": ("a,y\noak,2\nash,\n", ["--target", "y"]),
    "a word in the target": ("a,y\n" + "1,2.5\n" * 20 + "2,bad\n", ["--target", "y"]),
    "an unknown model": ("a,y\n1,2\n", ["--target", "y", "--model", "gpp"]),
    "an unknown method": ("a,y\n1,2\n", ["--target", "y", "--how", "nutz"]),
    "an unknown likelihood": ("a,y\n1,2\n", ["--target", "y", "--likelihood", "poison"]),
    "a setting without a value": ("a,y\n1,2\n", ["--target", "y", "--set", "kernel"]),
}
CODE = """
import sys
from ppgp.__main__ import main
sys.argv = ["ppgp", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    print("status", end.code)
print([name for name in ("torch", "pandas", "scipy", "sklearn") if name in sys.modules])
"""


def ended(words: list[str], folder: Path) -> tuple[str, str]:
    """Return what a command prints, and the last line: the libraries that it imported."""
    run = subprocess.run(
        [sys.executable, "-c", CODE, *words], cwd=folder, capture_output=True, text=True
    )
    *_, status, imported = run.stdout.splitlines()
    assert status == "status 2", run.stderr
    return run.stderr, imported


@pytest.mark.parametrize("command", ["fit", "compare"])
@pytest.mark.parametrize("case", WRONG)
def test_a_refusal_imports_neither_torch_nor_pandas(
    case: str, command: str, tmp_path: Path
) -> None:
    content, options = WRONG[case]
    if command == "compare":
        options = ["--models" if word == "--model" else word for word in options]
    if content is not None:
        (tmp_path / "table.csv").write_text(content)
    said, imported = ended([command, "table.csv", *options], tmp_path)
    assert said.startswith("ppgp: expected ")
    assert imported == "[]"


@pytest.mark.parametrize(
    "words",
    [
        ["predict", "none.safetensors", "table.csv"],
        ["predict", "saved.safetensors", "none.csv"],
        ["predict", "saved.safetensors", "table.csv", "--level", "95"],
        ["calibrate", "saved.safetensors", "wrong.csv"],
        ["calibrate", "saved.safetensors", "table.csv", "--scores", "normal"],
        ["diagnose", "none.safetensors"],
        ["report", "saved.safetensors", "--test", "wrong.csv"],
        ["compare", "diabets"],
        ["fit", "diabetes", "--noise-sd", "sd"],
    ],
)
def test_refusals_of_other_paths_import_nothing(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "saved.safetensors").write_bytes(b"not looked at")
    (tmp_path / "table.csv").write_text("a,y\n1,2\n")
    (tmp_path / "wrong.csv").write_text("a,y\n1,2,3\n")
    said, imported = ended(words, tmp_path)
    assert said.startswith("ppgp: expected ")
    assert imported == "[]"


def looked(path: Path, **given: Any) -> None:
    options = {"target": "y", "roles": {}, "groups": (), "words": WORDS, "one_hot": (), "drop": ()}
    options |= {"classes": None, "coordinates": None, "sep": None, "time": None}
    look(path, Asked(**(options | given)))


def as_a_frame(path: Path, **words: str) -> PpgpError | None:
    """Return the error of the frame that pandas reads, which was not looked at."""
    try:
        Dataset.from_frame(pd.read_csv(path), "y", **words)
    except PpgpError as error:
        return error
    return None


CELLS = [
    "a,b,y\n1,2,3\n4,5,6\n",
    "a,b,y\n1,x,3\n4,y,6\n",
    "a,b,y\n1,,3\n,5,\n",
    "a,b,y\n1,NA,3\n4,x,6\n",
    'a,b,y\n"1,5",2,3\n"2,5",5,6\n',
    "a,b,y\n5 kg,2,3\n6 kg,5,6\n",
    "a,b,y\nTrue,2,3\nFalse,5,6\n",
    "a,b,y\nTrue,2,3\n1,5,6\n",
    "a,b,y\nTrue,2,3\n,5,6\n",
    "a,b,y\n1_000,2,3\n2,5,6\n",
    "a,b,y\n 1,2,3\n2 ,5,6\n",
    "a,b,y\n1e3,+2,.3\n2.,-5,6\n",
    "a,b,y\n\u0661,2,3\n2,5,6\n",
    "a,b,y\n1,2024-05-31,3\n4,2024-06-01,6\n",
    "a,b,y\n1,2,oak\n4,5,ash\n",
    "a,b,y\n1,2,\n4,x,ash\n",
    'a,b,y\n1,"x, y",3\n4,"two\nlines",6\n',
    "a,b,y\r\n1,2,3\r\n\r\n4,x,6\r\n",
    "a,b,y\n" + "1,2,3.5\n" * 30 + "4,5,six\n",
    "a,b,y\n" + "1,2,3.5\n" * 30 + "4,,six\n",
    "a,b,y\n1,nan,3\n4,inf,6\n",
    "a,b,y\n1,None,3\n4,null,6\n",
]
#: texts whose cells only pandas reads for certain, or that are refused as numbers
PANDAS_TELLS = [one for one in CELLS if re.search(r"True|_|\u0661|a,b,y\n 1|inf", one)]


@pytest.mark.parametrize("words", [{}, {"missing": "keep"}, {"missing": "drop"}], ids=str)
@pytest.mark.parametrize("content", CELLS)
def test_a_look_says_what_the_table_says(
    content: str, words: dict[str, str], tmp_path: Path
) -> None:
    """What is refused at once is what is refused later, in the same words."""
    path = tmp_path / "table.csv"
    path.write_bytes(content.encode())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        expected = as_a_frame(path, **words)
    found = None
    try:
        looked(path, words=WORDS | words)
    except PpgpError as error:
        found = error
    if found is not None or (not words and content not in PANDAS_TELLS):
        assert str(found) == str(expected)


@pytest.mark.parametrize("options", [{"categories": "one-hot"}, {"dates": "days"}], ids=str)
def test_text_that_is_turned_is_no_fault(options: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("a,b,y\n1,2024-05-31,3\n4,2024-06-01,6\n")
    looked(path, words=WORDS | options)


def test_the_first_lines_of_a_long_table_are_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault in them is told with those of all rows, as in a short table; none elsewhere is."""
    monkeypatch.setattr(first_look, "FIRST", 2_000)
    rows = np.arange(400)
    frame = pd.DataFrame({"a": rows / 7, "y": rows * 1.0})
    path = tmp_path / "table.csv"
    frame.assign(a=frame["a"].where(rows < 399)).to_csv(path, index=False)
    looked(path)  # found when the whole table is read
    frame.assign(a=frame["a"].where((rows > 0) & (rows < 399))).to_csv(path, index=False)
    with pytest.raises(PpgpError, match="column a, rows 0, 399"):
        looked(path)
    monkeypatch.setattr(first_look, "MOST", 3_000)
    looked(path)


def test_names_in_parquet_are_read_without_pandas(tmp_path: Path) -> None:
    pd.DataFrame({"a": [1.0], "y": [2.0]}).to_parquet(tmp_path / "table.parquet")
    said, imported = ended(["fit", "table.parquet", "--target", "z"], tmp_path)
    assert "known: a, y" in said
    assert imported == "[]"
