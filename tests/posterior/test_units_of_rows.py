"""Predictions whose rows have an offset and a scale of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.distributions import Independent, MultivariateNormal, Normal

import ppgp
from ppgp import Prediction, conformal
from ppgp.distributions import blocks
from ppgp.errors import DataError
from ppgp.posterior.prediction import covariance

pytestmark = pytest.mark.usefixtures("types_unchecked")

F64 = torch.float64
LOC = torch.tensor([[0.3, -1.0, 0.0, 2.0], [0.5, 1.0, -0.2, 1.0]], dtype=F64)
SD = torch.tensor([[1.0, 0.5, 2.0, 1.0], [0.7, 1.5, 1.0, 0.3]], dtype=F64)
OFFSET = torch.tensor([0.0, 10.0, -20.0, 30.0], dtype=F64)
SCALE = torch.tensor([1.0, 2.0, 0.5, 3.0], dtype=F64)
Y = torch.tensor([0.4, 9.0, -20.5, 36.0], dtype=F64)
ROWS = Prediction(Normal(LOC, SD), OFFSET, SCALE)
#: the same distributions in the units of each row
SAME = Prediction(Normal(OFFSET + SCALE * LOC, SCALE * SD))


FIGURES = ("mean", "variance", "std", "centre", "spread", "epistemic", "aleatoric")
OF_Y = ("cdf", "cdf_by_draw", "log_prob", "crps", "pit")


@pytest.mark.parametrize(
    "index",
    [
        [1, 2],
        [False, True, True, False],
        np.array([False, True, True, False]),
        torch.tensor([3, 0]),
        pd.Series([True, False, False, True]),
        slice(1, 3),
        slice(None, None, -2),
        -1,
        2,
    ],
    ids=repr,
)
def test_some_rows_keep_their_own_units(index: Any) -> None:
    some, same = ROWS[index], SAME[index]
    kept = np.arange(4)[index].reshape(-1).tolist()
    for figure in FIGURES:
        torch.testing.assert_close(getattr(some, figure), getattr(same, figure))
    for figure in OF_Y:
        found, exact = (getattr(p, figure)(Y[kept]) for p in (some, same))
        torch.testing.assert_close(found, exact)
    torch.testing.assert_close(some.quantile([0.1, 0.7]), same.quantile([0.1, 0.7]))


def test_every_figure_is_that_of_the_distribution_in_these_units() -> None:
    for figure in FIGURES:
        torch.testing.assert_close(getattr(ROWS, figure), getattr(SAME, figure))
    for figure in OF_Y:
        torch.testing.assert_close(getattr(ROWS, figure)(Y), getattr(SAME, figure)(Y))
    torch.testing.assert_close(ROWS.sample(6, seed=1), SAME.sample(6, seed=1))
    pd.testing.assert_frame_equal(ROWS.to_frame(), SAME.to_frame())


def test_many_rows_in_blocks_keep_their_own_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "ROW_BLOCK", 4)  # two rows in a block
    torch.testing.assert_close(ROWS.log_prob(Y), SAME.log_prob(Y))
    torch.testing.assert_close(ROWS.crps(Y), SAME.crps(Y))


def test_a_loop_over_the_rows_ends() -> None:
    assert [float(row.mean) for row in ROWS] == ROWS.mean.tolist()


@pytest.mark.parametrize("joint", ["independent", "correlated"])
def test_the_joint_density_and_covariance_have_the_scale_of_each_row(joint: str) -> None:
    K = torch.diag(SD[0].square()) + 0.1
    law = Independent(Normal(LOC[:1], SD[:1]), 1)
    if joint == "correlated":
        law = MultivariateNormal(LOC[:1], K)
    D = torch.diag(SCALE)
    C = D @ (K if joint == "correlated" else torch.diag(SD[0].square())) @ D
    exact = MultivariateNormal(OFFSET + SCALE * LOC[0], C)
    prediction = Prediction(law, OFFSET, SCALE)
    torch.testing.assert_close(prediction.log_prob(Y), exact.log_prob(Y))
    torch.testing.assert_close(covariance(prediction), C)


@pytest.mark.parametrize("draws", [1, 2])
def test_sets_of_high_density_are_those_of_each_row(draws: int) -> None:
    one, other = (
        Prediction(Normal(p.distribution.loc[:draws], p.distribution.scale[:draws]), *units)
        for p, units in ((ROWS, (OFFSET, SCALE)), (SAME, (0.0, 1.0)))
    )
    # y at quantiles of each row, which are calibration rows of a prediction of 20 * 4 rows
    index = torch.arange(4).repeat(20)
    y = other[index].sample(1, seed=0)[0]
    regions = [ppgp.calibrate(conformal.Density(), p[index], y)(p, level=0.8) for p in (one, other)]
    for ends in zip(*regions, strict=True):
        torch.testing.assert_close(*ends)


@pytest.mark.parametrize("name", ["offset", "scale"])
@pytest.mark.parametrize(
    "given",
    [
        [1.0, 2.0, 0.5, 3.0],
        np.array([1.0, 2.0, 0.5, 3.0]),
        np.array([1.0, 2.0, 0.5, 3.0], np.float32),
        pd.Series([1.0, 2.0, 0.5, 3.0]),
        2,
        np.float32(2.0),
        torch.tensor([2.0]),
    ],
    ids=repr,
)
def test_numbers_of_any_kind_are_taken_and_the_dtype_stays(name: str, given: Any) -> None:
    prediction = Prediction(Normal(LOC.float(), SD.float()), **{name: given})
    numbers = torch.tensor(np.asarray(given).tolist()).expand(4)
    moved = {"offset": torch.zeros(4), "scale": torch.ones(4), name: numbers}
    exact = moved["offset"] + moved["scale"] * LOC.float().mean(0)
    assert prediction.mean.dtype == prediction.std.dtype == torch.float32
    torch.testing.assert_close(prediction.mean, exact)


@pytest.mark.parametrize(
    ("units", "message"),
    [
        ({"offset": torch.zeros(3)}, r"one offset, or one for each of 4 rows, got shape \[3\]"),
        ({"scale": torch.ones(2, 4)}, r"one scale, or one for each of 4 rows, got shape \[2, 4\]"),
        ({"offset": float("nan")}, "a finite offset, got nan"),
        ({"offset": [0.0, 1.0, float("inf"), 0.0]}, "a finite offset, got others in row 2"),
        ({"scale": 0.0}, "a finite scale above 0, got 0"),
        ({"scale": [1.0, -1.0, 1.0, 1.0]}, "above 0, got others in row 1"),
        ({"offset": "a"}, "numbers in offset, got 'a'"),
    ],
    ids=str,
)
def test_units_that_no_row_can_have_are_refused(units: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Prediction(Normal(LOC, SD), **units)


def test_flags_of_training_rows_are_of_any_kind_and_follow_the_rows() -> None:
    flags = [True, False, True, False]
    for given in (flags, np.array(flags), torch.tensor(flags), pd.Series(flags)):
        some = Prediction(Normal(LOC, SD), in_training=given)[[0, 1]]
        assert some.in_training_with(Y[:2]).tolist() == [True, False]
    with pytest.raises(DataError, match=r"one flag per row \(4\), got shape \[2\]"):
        Prediction(Normal(LOC, SD), in_training=[True, False])


def test_the_gradient_of_an_offset_is_kept() -> None:
    offset = torch.zeros(4, dtype=F64, requires_grad=True)
    (gradient,) = torch.autograd.grad(Prediction(Normal(LOC, SD), offset).mean.sum(), offset)
    assert gradient.tolist() == [1.0] * 4
