"""Delimited files: rows of wrong length, repeated names, invalid text, kinds of line ends."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import ppgp
from ppgp.data import read_frame
from ppgp.errors import DataError, PpgpError


def written(folder: Path, content: str | bytes, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


WRONG = {
    "a separator at the end of every row": (
        "a,b,y\n1,2,3,\n4,5,6,\n",
        "row 0 (line 2); 2 such rows",
    ),
    "a separator at the end of one row": ("a,b,y\n1,2,3\n4,5,6,\n7,8,9\n", "row 1 (line 3)"),
    "a field too few": ("a,b,y\n1,2,3\n\n4,5\n", "row 1 (line 4)"),
    "a decimal comma": ("a,y\n1,2\n1,5,2\n", "row 1 (line 3)"),
    "old line ends": ("a,b,y\r1,2,3\r4,5\r", "row 1 (line 3)"),
    "within quotes": ('a,b,y\n"1",2,3\n"4\n",5\n', "row 1 (line 3)"),
    "after a quoted line end": ('a,b,y\n"one\ntwo",2,3\n4,5\n', "row 1 (line 4)"),
}


@pytest.mark.parametrize(("content", "place"), WRONG.values(), ids=WRONG)
def test_the_error_names_a_row_of_the_wrong_length(
    content: str, place: str, tmp_path: Path
) -> None:
    for path in (
        written(tmp_path, content),
        written(tmp_path, content.replace(",", "\t"), "t.tsv"),
    ):
        with pytest.raises(DataError) as error:
            read_frame(path)
        assert place in error.value.got
        assert "\n" not in str(error.value)


REFUSED: dict[str, tuple[str | bytes, str]] = {
    "two columns of one name": ("a,y,y\n1,2,3\n", "column y more than once"),
    "two quoted columns of one name": ('a,"y","y"\n1,2,3\n', "column y more than once"),
    "a header alone": ("a,b,y\n", "no rows"),
    "nothing": ("", "empty"),
    "blank lines": ("\n\n \n", "empty"),
    "a NUL byte": (b"a,y\n1,2\n3,\x004\n", "line 3"),
    "Latin-1": ("a,y\n1,2\n3,é\n".encode("latin-1"), "line 3"),
    "UTF-16": ("a,y\n1,2\n".encode("utf-16"), "line 1"),
    "a quote that never ends": ('a,y\n1,"2\n3,4\n', "row"),
    "a blank line among the rows of one column": ("x\n1\n\n3\n", "blank line 3"),
    "a blank line before the rows of one column": ("x\n\n1\n2\n", "blank line 2"),
}


@pytest.mark.parametrize(("content", "got"), REFUSED.values(), ids=REFUSED)
def test_invalid_files_raise_one_sentence(content: str | bytes, got: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        read_frame(written(tmp_path, content))
    assert got in str(error.value)
    assert "\n" not in str(error.value)


SAME = {
    "plain": "a,y\n1,2\n3,4\n",
    "no end": "a,y\n1,2\n3,4",
    "a mark": b"\xef\xbb\xbfa,y\n1,2\n3,4\n",
    "a mark and quotes": b'\xef\xbb\xbf"a","y"\n1,2\n3,4\n',
    "line ends of three kinds": "a,y\r\n1,2\r3,4\n",
    "blank lines": "\n\na,y\n1,2\n \n3,4\n\n\n",
    "blank lines and quotes": '\na,y\n"1",2\n\n3,"4"\n \n',
    "spaces": "a,y\n 1, 2\n3 ,4 \n",
}


@pytest.mark.parametrize("content", SAME.values(), ids=SAME)
def test_equivalent_files_give_the_same_table(content: str | bytes, tmp_path: Path) -> None:
    frame = read_frame(written(tmp_path, content))
    assert list(frame.columns) == ["a", "y"]
    assert frame.to_numpy(dtype=float).tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_numbers_come_back_to_the_last_bit(tmp_path: Path) -> None:
    exponents = np.random.default_rng(0).uniform(-300, 300, 200)
    frame = pd.DataFrame(
        {"x": 10.0**exponents, "y": [1.7976931348623157e308, 5e-324, -(2.0**-1074), 0.1] * 50}
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    pd.testing.assert_frame_equal(read_frame(tmp_path / "t.csv"), frame, check_exact=True)


def test_integers_beyond_64_bits_are_numbers(tmp_path: Path) -> None:
    data = ppgp.load(written(tmp_path, f"a,y\n{2**70},1\n{-(2**80)},2\n3,{2**90}\n"), "y")
    assert data.X[:, 0].tolist() == [2.0**70, -(2.0**80), 3.0]
    assert data.y.tolist() == [1.0, 2.0, 2.0**90]
    with pytest.raises(PpgpError, match="row 1"):
        ppgp.load(written(tmp_path, f"a,y\n1,1\n{10**400},2\n3,4\n"), "y")


def test_the_error_shows_a_stray_character_and_its_row(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"column b: .*'\?' in row 2"):
        ppgp.load(written(tmp_path, "a,b,y\n1,2,3\n4,5,6\n7,?,9\n"), "y")


def test_parquet_with_two_columns_of_one_name_or_none_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_arrays([pa.array([1.0, 2.0])] * 3, names=["a", "y", "y"])
    pq.write_table(table, tmp_path / "twice.parquet")
    pd.DataFrame({"a": [], "y": []}).to_parquet(tmp_path / "none.parquet")
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "none.parquet").read_bytes()[:60])
    for name in ("twice", "none", "cut"):
        with pytest.raises(DataError):
            read_frame(tmp_path / f"{name}.parquet")
