"""Regions: coverage, width, and empty or unbounded sets."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ppgp.errors import DataError, NumericalError, SettingError
from ppgp.posterior.region import Region
from ppgp.runtime.levels import exact_level

INF, NAN = float("inf"), float("nan")
LOWER = torch.tensor([0.0, 2.0, -INF, 5.0, INF, -INF], dtype=torch.float64)
UPPER = torch.tensor([1.0, 2.0, 3.0, 4.0, -INF, INF], dtype=torch.float64)
INTERVALS = Region(0.9, "marginal coverage >= 0.9", LOWER, UPPER, n_calibration=99)
LABELS = Region(
    0.9,
    "exact",
    labels=torch.tensor([[True, False, True], [False, False, False], [True, True, True]]),
)
PIECES = Region(
    0.8,
    "exact",
    torch.tensor([0.0, INF]),
    torch.tensor([5.0, -INF]),
    pieces=(((0.0, 1.0), (4.0, 5.0)), ()),
)


def test_both_ends_belong_to_the_interval() -> None:
    for y in (LOWER, UPPER):
        assert INTERVALS.covers(y).tolist() == [True, True, True, False, False, True]
    assert INTERVALS.covers([0.5, 2.1, -1e300, 4.5, 0.0, 0.0]).tolist() == [
        True,
        False,
        True,
        False,
        False,
        True,
    ]


def test_crossed_ends_are_empty_and_have_no_width() -> None:
    assert INTERVALS.empty.tolist() == [False, False, False, True, True, False]
    assert INTERVALS.width.tolist() == [1.0, 0.0, INF, 0.0, 0.0, INF]


def test_an_unbounded_interval_is_infinite() -> None:
    assert INTERVALS.infinite.tolist() == [False, False, True, False, False, True]


@given(
    ends=st.lists(
        st.tuples(st.floats(allow_nan=False), st.floats(allow_nan=False)), min_size=1, max_size=6
    ),
    y=st.floats(allow_nan=False, allow_infinity=False),
)
def test_an_empty_set_covers_nothing(ends: list[tuple[float, float]], y: float) -> None:
    lower, upper = torch.tensor(ends, dtype=torch.float64).mT
    region = Region(0.9, "", lower, upper)
    inside = region.covers(torch.full((len(ends),), y, dtype=torch.float64))
    assert inside.tolist() == [a <= y <= b for a, b in ends]
    assert not bool((inside & region.empty).any())
    assert not bool((region.empty & region.infinite).any())
    assert bool((region.width >= 0).all())


def test_an_end_that_is_nan_is_an_error() -> None:
    for lower, upper in (([0.0, NAN], [1.0, 1.0]), ([0.0, NAN], [1.0, NAN])):
        with pytest.raises(NumericalError, match="row 1"):
            Region(0.9, "", torch.tensor(lower), torch.tensor(upper))


def test_a_region_unpacks_into_its_ends() -> None:
    lower, upper = INTERVALS
    assert lower is LOWER
    assert upper is UPPER
    assert len(INTERVALS) == 6


def test_no_set_covers_nan() -> None:
    assert INTERVALS.covers([NAN] * 6).tolist() == [False] * 6


def test_label_sets_count_labels_and_cover_those_they_hold() -> None:
    assert LABELS.width.tolist() == [2, 0, 3]
    assert LABELS.empty.tolist() == [False, True, False]
    assert LABELS.infinite.tolist() == [False, False, True]
    for label, expected in (
        (0, [True, False, True]),
        (1, [False, False, True]),
        (2, [True, False, True]),
    ):
        assert LABELS.covers([label] * 3).tolist() == expected


@pytest.mark.parametrize("label", [-1, 3, 0.5, NAN, 99.0])
def test_an_unknown_label_is_in_no_set(label: float) -> None:
    assert LABELS.covers([label] * 3).tolist() == [False] * 3


def test_label_sets_have_no_ends() -> None:
    with pytest.raises(DataError, match=r"use region\.labels"):
        list(LABELS)


def test_the_gap_between_pieces_is_not_covered() -> None:
    assert PIECES.width.tolist() == [2.0, 0.0]
    assert [PIECES.covers([y, y]).tolist()[0] for y in (0.0, 1.0, 2.0, 4.0, 5.5)] == [
        True,
        True,
        False,
        True,
        False,
    ]
    assert PIECES.covers([1.0, 1.0]).tolist() == [True, False]
    assert PIECES.empty.tolist() == [False, True]


def test_another_number_of_targets_is_refused() -> None:
    for region, n in ((INTERVALS, 6), (LABELS, 3), (PIECES, 2)):
        with pytest.raises(DataError, match=rf"y with shape \[{n}\], got shape \[{n + 1}\]"):
            region.covers(np.zeros(n + 1))


def test_intervals_and_labels_together_or_neither_are_refused() -> None:
    with pytest.raises(SettingError, match="either lower and upper, or labels"):
        Region(0.9, "", LOWER, UPPER, labels=torch.ones(6, 2, dtype=torch.bool))
    for lower, upper in ((None, None), (LOWER, None)):
        with pytest.raises(SettingError, match="either lower and upper, or labels"):
            Region(0.9, "", lower, upper)


def test_repr_shows_the_level_the_guarantee_and_the_shares() -> None:
    assert repr(INTERVALS) == (
        "<Region 6 intervals at 0.9: marginal coverage >= 0.9, 99 calibration rows; "
        "33.3% infinite, 33.3% empty>"
    )
    assert "3 label sets" in repr(LABELS)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 1.5, 95.0, 100.0, INF, NAN, True])
def test_a_level_outside_0_1_is_refused(level: float) -> None:
    with pytest.raises(SettingError, match=r"a level in \(0, 1\)"):
        exact_level(level)


def test_a_percentage_is_refused_with_the_level_it_means() -> None:
    with pytest.raises(SettingError, match=r"write 0\.95 for 95 %"):
        exact_level(95.0)


@given(numerator=st.integers(1, 999), denominator=st.sampled_from([10, 100, 1000]))
def test_a_level_is_the_decimal_that_was_written(numerator: int, denominator: int) -> None:
    if numerator < denominator:
        assert exact_level(numerator / denominator) == Fraction(numerator, denominator)
