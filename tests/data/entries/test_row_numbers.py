"""Messages name the row of the table that the user has, and the cell that is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from ppgp import Dataset
from ppgp.data import Outputs, as_tensor, load
from ppgp.errors import DataError, DataWarning

N = 12
BLANK, ODD = 1, 8  # the rows with an empty cell, and with a wrong one


def frame(**columns: Any) -> pd.DataFrame:
    """Return a table with an empty cell, whose index is not the numbers of its rows."""
    table = pd.DataFrame({"x": np.arange(N) / 7, "y": np.sin(np.arange(N))})
    table.loc[BLANK, "x"] = np.nan
    return table.assign(**columns).set_index(np.arange(N) + 100)


def one(usual: Any, odd: Any) -> list[Any]:
    return [odd if row == ODD else usual for row in range(N)]


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ({"z": one(1.0, np.inf)}, {}, "infinity in row 8, column z: correct them"),
        ({"y": one(1.0, np.inf)}, {}, "infinity in row 8 of y: correct them"),
        ({"z": one("1", "bad")}, {}, "correct 'bad' in row 8"),
        ({"z": one("1", "1,5")}, {}, "'1,5' in row 8 has a decimal comma"),
        ({"y": one("1.5", "oops")}, {}, "'oops' in row 8"),
        ({"w": one(1.0, -1.0)}, {"weights": "w"}, "others in row 8"),
        ({"e": one(1.0, -1.0)}, {"noise_sd": "e"}, "others in row 8"),
        ({"f": one(0, 2)}, {"right_censored": "f"}, "others in row 8"),
        ({"f": one("0", "no")}, {"right_censored": "f"}, "'no' in row 8"),
        ({"d": one("2024-05-31", "soon")}, {"dates": "days"}, "'soon' in row 8"),
    ],
)
def test_rows_are_counted_before_others_are_dropped(
    columns: dict[str, Any], options: dict[str, str], words: str
) -> None:
    with (
        pytest.warns(DataWarning, match="column x, row 1"),
        pytest.raises(DataError, match=words),
    ):
        Dataset.from_frame(frame(**columns), "y", missing="drop", **options)


def test_a_table_without_rows_to_drop_counts_its_own() -> None:
    table = frame(z=one(1.0, np.inf)).fillna(0.0)
    for missing in ("drop", "refuse"):
        with pytest.raises(DataError, match="row 8, column z"):
            Dataset.from_frame(table, "y", missing=missing)


def test_the_word_among_booleans_is_named() -> None:
    with pytest.raises(DataError, match="got 'maybe' in row 2"):
        as_tensor(np.array(["True", "false", "maybe"]), "column flag")
    with pytest.raises(DataError, match="got 'True' in row 0"):
        as_tensor(np.array(["True", "false"]), "column flag")
    table = pd.DataFrame({"flag": ["True", "False", "maybe"], "y": [1.0, 2.0, 3.0]})
    with pytest.raises(DataError, match="correct 'maybe' in row 2"):
        Dataset.from_frame(table, "y")


@pytest.mark.parametrize("options", [{}, {"one_hot": True}])
def test_the_word_among_dates_is_named(options: dict[str, Any]) -> None:
    table = pd.DataFrame({"d": ["2020-01-01"] * 3 + ["x"], "y": [1.0, 2.0, 3.0, 4.0]})
    with pytest.raises(DataError, match="dates YYYY-MM-DD in column d, got 'x' in row 3") as raised:
        Dataset.from_frame(table, "y", dates="years", **options)
    assert "dates='years'" not in str(raised.value)


def test_what_is_no_frame_is_refused() -> None:
    array: Any = np.ones((3, 2))
    words = r"a pandas DataFrame, got an array: pass Dataset\(X, y\)"
    with pytest.raises(DataError, match=words):
        Dataset.from_frame(array, "y")
    with pytest.raises(DataError, match=words):
        Outputs.from_frame(array, ["y"])


@pytest.mark.usefixtures("types_unchecked")
def test_a_table_in_place_of_a_name_is_not_printed() -> None:
    table: Any = pd.DataFrame({"a": [1.0], "y": [2.0]})
    with pytest.raises(DataError, match=r"got a DataFrame: pass it to ppgp\.Dataset\.from_frame"):
        load(table, "y")
