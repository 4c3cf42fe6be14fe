"""Separation is detected for all combinations of flat, nearly flat, proper and fixed priors."""

from __future__ import annotations

import pytest
import torch

import ppgp
from ppgp.data import Dataset
from ppgp.errors import ConvergenceWarning
from ppgp.inference import MAP
from ppgp.models import LogisticRegression, SoftmaxRegression
from ppgp.priors import Flat, Normal, PriorLike, StudentT

AROUND_0 = Dataset([[-2.0], [-1.0], [1.0], [2.0]], [0.0, 0.0, 1.0, 1.0])
ABOVE_3 = Dataset(
    [[1.0], [2.0], [4.0], [5.0]], [0.0, 0.0, 1.0, 1.0]
)  # a weight alone cannot separate them
OVERLAP = Dataset([[-1.0], [1.0], [-0.5], [2.0], [0.3]], [0.0, 0.0, 1.0, 1.0, 0.0])
PROPER, WIDE = Normal(0.0, 1.0), Normal(0.0, 1e4)


@pytest.mark.parametrize(
    ("data", "weight", "bias", "noticed"),
    [
        (AROUND_0, Flat(), Flat(), True),
        (AROUND_0, Flat(), PROPER, True),
        (AROUND_0, Flat(), 0.0, True),
        (AROUND_0, WIDE, PROPER, True),
        (AROUND_0, StudentT(1.0, 0.0, 1e4), PROPER, True),
        (AROUND_0, PROPER, Flat(), False),
        (AROUND_0, PROPER, PROPER, False),
        (AROUND_0, StudentT(1.0), PROPER, False),
        (ABOVE_3, Flat(), Flat(), True),
        (ABOVE_3, WIDE, WIDE, True),
        (ABOVE_3, Flat(), PROPER, False),  # the bias bounds the weight
        (ABOVE_3, Flat(), 0.0, False),
        (OVERLAP, Flat(), Flat(), False),
        (OVERLAP, WIDE, WIDE, False),
    ],
)
@pytest.mark.parametrize("kind", [LogisticRegression, SoftmaxRegression])
def test_only_free_coefficients_count_as_separating(
    kind: type[LogisticRegression | SoftmaxRegression],
    data: Dataset,
    weight: PriorLike,
    bias: PriorLike,
    noticed: bool,
) -> None:
    result = kind(weight, bias).prepare(data).check_identifiability(data)
    assert bool(result) is noticed
    if noticed:
        assert "perfectly" in result[0]


@pytest.mark.parametrize(("scales", "noticed"), [((1e4, 1.0), True), ((1.0, 1e4), False)])
def test_coefficients_are_checked_one_by_one(scales: tuple[float, ...], noticed: bool) -> None:
    """The first column separates the classes, the second does not."""
    data = Dataset(
        torch.cat([AROUND_0.X, torch.tensor([[1.0], [-1.0], [1.0], [-1.0]])], 1), AROUND_0.y
    )
    assert bool(LogisticRegression(Normal(0.0, scales)).check_identifiability(data)) is noticed


def test_the_scale_of_a_column_matters() -> None:
    """A prior with sd 1 on the weight of a column in the thousands is nearly flat."""
    assert LogisticRegression().check_identifiability(Dataset(1000 * AROUND_0.X, AROUND_0.y))
    assert not LogisticRegression().check_identifiability(AROUND_0)


def test_one_of_three_classes_is_separated() -> None:
    X = torch.tensor([[-1.0], [1.0], [-0.5], [2.0], [30.0], [31.0]], dtype=torch.float64)
    data = Dataset(X, [0.0, 0.0, 1.0, 1.0, 2.0, 2.0])
    result = SoftmaxRegression(WIDE, WIDE, classes=3).check_identifiability(data)
    assert result
    assert "in part" in result[0]


def test_a_fit_warns_about_separation() -> None:
    with pytest.warns(ConvergenceWarning, match="separate the classes perfectly"):
        ppgp.fit(
            LogisticRegression(Flat(), PROPER), AROUND_0, MAP(), standardise=False, progress=False
        )
