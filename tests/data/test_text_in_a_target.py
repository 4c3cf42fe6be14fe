"""A target of numbers with a few cells of text is no target of labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ppgp.cli.data_options import in_the_shell
from ppgp.data.targets import encode
from ppgp.errors import DataError

NUMBERS = [str(i / 8) for i in range(40)]


def with_text(*words: str, values: Sequence[str] = NUMBERS) -> list[str]:
    return [*values[:7], *words, *values[7:]]


@pytest.mark.parametrize(
    ("y", "cell"),
    [
        (with_text("oops"), "'oops' in row 7"),
        (with_text("n/a ", "n/a ", "-"), "'n/a ' in row 7"),
        (with_text("oops", values=["1", "2", "3"] * 10), "'oops' in row 7"),  # repeated numbers
        (with_text("1,5"), "'1,5' in row 7"),
        (with_text("1,5", "oops"), "'oops' in row 8"),
        ([number.replace(".", ",") for number in NUMBERS], "'0,0' in row 0"),
        (np.array([*range(30), "oops"], dtype=object), "'oops' in row 30"),
    ],
)
def test_the_cell_is_named(y: Any, cell: str) -> None:
    with pytest.raises(DataError, match=f"expected numbers in y, got {cell}") as raised:
        encode(y, None)
    assert "; or, if y holds labels, name them in order with --classes" in in_the_shell(
        str(raised.value)
    )
    assert ("decimal comma" in str(raised.value)) == ("," in cell)


@pytest.mark.parametrize(
    "y",
    [
        ["3", "1", "2"] * 9,  # numbers written as text, all of them
        ["1", "2", "3", "4 or more"] * 9,
        ["low", "high"] * 9 + ["1"],
        [True, False] * 9,
        np.array([True, False, "unknown"], dtype=object).astype(str),
    ],
)
def test_labels_remain_labels(y: Any) -> None:
    assert encode(y, None)[1] == tuple(sorted(set(np.asarray(y).tolist())))


def test_ordered_categories_hold_any_labels() -> None:
    y = with_text("none", values=["1", "2"] * 20)
    categories = pd.Series(pd.Categorical(y, ["none", "1", "2"], ordered=True))
    assert encode(categories, None)[1] == ("none", "1", "2")
