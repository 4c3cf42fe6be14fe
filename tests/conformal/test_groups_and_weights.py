"""Groups (Mondrian conformal prediction), weights for covariate shift, and decay."""

from __future__ import annotations

import math

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

from ppgp.conformal import Absolute, Decay, Signed, calibrate, shift_weights
from ppgp.conformal.split import threshold, weighted_threshold
from ppgp.errors import DataError, SettingError
from ppgp.posterior.prediction import Prediction


def standard(n: int) -> Prediction:
    zeros = torch.zeros(1, n, dtype=torch.float64)
    return Prediction(dist.Normal(zeros, torch.ones_like(zeros)))


def test_groups_have_the_thresholds_they_would_have_alone() -> None:
    y = torch.cat(
        [torch.linspace(0, 1, 30), torch.linspace(0, 10, 40), torch.linspace(0, 5, 5)]
    ).double()
    labels = ["a"] * 30 + ["b"] * 40 + ["c"] * 5
    region = calibrate(Absolute(), standard(75), y, groups=labels)(
        standard(4), level=0.9, groups=["b", "a", "c", "b"]
    )
    alone = {g: threshold(y[[label == g for label in labels]], 0.9) for g in "abc"}
    assert region.upper is not None
    assert region.upper.tolist() == pytest.approx([float(alone[g]) for g in "bacb"], rel=1e-13)
    assert math.isinf(float(alone["c"]))
    assert "given the group" in region.guarantee
    assert "infinite in c" in region.guarantee


def test_each_group_is_covered() -> None:
    """Two groups have very different spreads; each is covered, over 2,000 repetitions.

    The groups of a repetition are its own, so that one call calibrates a hundred of them.
    """
    rng = np.random.default_rng(0)
    rows = []
    for repetition in range(2000):
        groups = rng.integers(0, 2, 61)
        y = torch.as_tensor(rng.normal(size=61) * np.where(groups == 0, 1.0, 5.0))
        if min(np.bincount(groups[:60], minlength=2)) < 4:
            continue
        rows.append((groups + 2 * repetition, y))
    hits = []
    for start in range(0, len(rows), 100):
        labels = np.stack([groups for groups, _ in rows[start : start + 100]])
        y = torch.stack([y for _, y in rows[start : start + 100]])
        n = len(y)
        region = calibrate(
            Absolute(), standard(60 * n), y[:, :60].flatten(), groups=labels[:, :60].flatten()
        )(standard(n), level=0.8, groups=labels[:, 60])
        hits += zip(labels[:, 60] % 2, region.covers(y[:, 60]).tolist(), strict=True)
    for g in (0, 1):
        covered = [hit for group, hit in hits if group == g]
        assert np.mean(covered) >= 0.8 - 3 * math.sqrt(0.16 / len(covered))


def test_equal_weights_give_the_exact_rank() -> None:
    for n in (9, 10, 49, 99, 100, 1000, 33333):
        scores = torch.arange(1.0, n + 1, dtype=torch.float64)
        for level in (0.5, 0.7, 0.8, 0.9, 0.95):
            for weight in (1.0, 0.1, 3.7):
                w = torch.full((n,), weight, dtype=torch.float64)
                new = torch.full((1,), weight, dtype=torch.float64)
                assert float(weighted_threshold(scores, level, w, new)) == float(
                    threshold(scores, level)
                ), (n, level, weight)


def test_the_weighted_threshold_equals_its_definition() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        n = int(rng.integers(3, 30))
        s, w, new = rng.normal(size=n), rng.exponential(size=n), rng.exponential(size=4)
        found = weighted_threshold(
            *(torch.as_tensor(v) for v in (s,)), 0.8, torch.as_tensor(w), torch.as_tensor(new)
        )
        for j in range(4):
            mass = np.append(w, new[j]) / (w.sum() + new[j])
            points = np.append(s, np.inf)
            order = np.argsort(points)
            wanted = points[order][np.searchsorted(np.cumsum(mass[order]), 0.8)]
            assert float(found[j]) == wanted


def tilted(rng: np.random.Generator, n: int) -> tuple[Tensor, Tensor]:
    """Return x ~ N(0, 1) and y whose spread rises with x; N(1, 1) is N(0, 1) tilted by exp(x)."""
    x = torch.as_tensor(rng.normal(size=n))
    return x, torch.as_tensor(rng.normal(size=n)) * torch.exp(x / 2)


def test_weights_cover_under_a_known_tilt_and_equal_weights_do_not() -> None:
    """Over 2,000 repetitions; each is a group, so that one call calibrates a hundred of them."""
    rng = np.random.default_rng(2)
    drawn = []
    for _ in range(2000):
        x, y = tilted(rng, 100)
        new = torch.as_tensor(rng.normal(size=1)) + 1.0
        truth = torch.as_tensor(rng.normal(size=1)) * torch.exp(new / 2)
        drawn.append((x, y, new, truth))
    x, y, new, truth = (torch.stack(values) for values in zip(*drawn, strict=True))
    plain, weighted, upper = [], [], []
    for some in torch.arange(2000).split(100):
        n, groups = len(some), some.numpy()
        calibrator = calibrate(
            Absolute(), standard(100 * n), y[some].flatten(), groups=groups.repeat(100)
        )
        region = calibrator(standard(n), level=0.8, groups=groups)
        plain += region.covers(truth[some, 0]).tolist()
        pair = (torch.exp(x[some]).flatten(), torch.exp(new[some, 0]))
        region = calibrator(standard(n), level=0.8, groups=groups, weights=pair)
        weighted += region.covers(truth[some, 0]).tolist()
        upper += region.upper.tolist()
    assert np.mean(weighted) >= 0.8 - 3 * math.sqrt(0.16 / 2000)
    assert np.mean(plain) < 0.8 - 3 * math.sqrt(0.16 / 2000)
    for i in range(20):  # without groups
        region = calibrate(Absolute(), standard(100), y[i])(
            standard(1), level=0.8, weights=(torch.exp(x[i]), torch.exp(new[i]))
        )
        assert float(region.upper) == pytest.approx(upper[i], rel=1e-13)
    assert "if the weights are exact" in region.guarantee
    assert "n_eff" in region.guarantee


def test_estimated_weights_follow_the_density_ratio() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(4000, 2)), rng.normal(size=(4000, 2)) + np.array([1.0, 0.0])
    X = rng.normal(size=(500, 2))
    found = shift_weights(a, b, X).log().numpy()
    slope = np.polyfit(X[:, 0], found, 1)[0]
    assert slope == pytest.approx(1.0, abs=0.1)  # the log ratio is x_1 - 1/2


def test_decay_forgets_old_rows_and_states_the_cost() -> None:
    y = torch.cat([torch.full((200,), 10.0), torch.linspace(0, 1, 100)]).double()
    region = calibrate(Absolute(), standard(300), y, weights=Decay(0.9))(standard(1), level=0.8)
    assert region.upper is not None
    assert float(region.upper) < 1.5
    assert "drift" in region.guarantee
    equal = calibrate(Absolute(), standard(300), y, weights=Decay(1.0))(standard(1), level=0.8)
    assert equal.upper is not None
    assert float(equal.upper) == pytest.approx(10.0)


def test_weights_and_groups_work_on_both_sides_of_a_signed_score() -> None:
    y = torch.randn(200, generator=torch.Generator().manual_seed(0), dtype=torch.float64).exp()
    one = calibrate(Signed(), standard(200), y)(standard(3), level=0.8)
    same = calibrate(Signed(), standard(200), y, weights=torch.ones(200))(
        standard(3), level=0.8, weights=torch.ones(3)
    )
    for own, other in zip(one, same, strict=True):
        assert torch.equal(own, other)


BAD = {
    "an empty group": (
        lambda c: c(standard(1), groups=["z"]),
        "groups",
        r"calibration rows in every group, got none in z",
    ),
    "groups left out": (lambda c: c(standard(1)), "groups", "none for the new rows"),
    "negative": (
        lambda c: c(standard(1), weights=(-torch.ones(20), torch.ones(1))),
        None,
        "-1 in calibration row 0",
    ),
    "all zero": (
        lambda c: c(standard(1), weights=(torch.zeros(20), torch.ones(1))),
        None,
        "0 for all",
    ),
    "another length": (
        lambda c: c(standard(1), weights=(torch.ones(19), torch.ones(1))),
        None,
        r"one weight per calibration row \(20\)",
    ),
    "one of the two": (lambda c: c(standard(1), weights=torch.ones(1)), None, "one of the two"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_groups_and_weights_are_refused(case: str) -> None:
    call, with_groups, message = BAD[case]
    calibrator = calibrate(
        Absolute(), standard(20), torch.zeros(20), groups=["a"] * 20 if with_groups else None
    )
    with pytest.raises(DataError, match=message):
        call(calibrator)
    with pytest.raises(SettingError, match="rate in"):
        Decay(1.5)


@pytest.mark.parametrize(
    "labels", [["a", None, "b"], [1.0, math.nan, 2.0], ["a", 1, None]], ids=repr
)
def test_a_row_without_a_group_is_named(labels: list[object]) -> None:
    n = len(labels)
    row = next(i for i, label in enumerate(labels) if label is None or label != label)
    with pytest.raises(DataError, match=rf"row {row}"):
        calibrate(Absolute(), standard(n), torch.zeros(n), groups=labels)
    calibrator = calibrate(
        Absolute(), standard(20), torch.zeros(20), groups=["a"] * 10 + ["b"] * 10
    )
    with pytest.raises(DataError, match=rf"row {row}"):
        calibrator(standard(n), groups=np.array(labels, dtype=object))


def test_groups_of_mixed_types_are_compared_as_they_are() -> None:
    groups = np.array(["a", 1] * 15, dtype=object)
    y = torch.tensor([1.0, 5.0] * 15, dtype=torch.float64)
    region = calibrate(Absolute(), standard(30), y, groups=groups)(
        standard(2), level=0.8, groups=groups[:2]
    )
    assert region.upper is not None
    assert region.upper.tolist() == pytest.approx([1.0, 5.0])


def test_shift_weights_need_the_same_columns_and_some_rows() -> None:
    two, one = np.zeros((3, 2)), np.zeros((3, 1))
    for parts in ((two, one, two), (one, two, two), (two, two, one)):
        with pytest.raises(DataError, match="the same columns"):
            shift_weights(*parts)
    with pytest.raises(DataError, match="got 0 and 3 rows"):
        shift_weights(two[:0], two, two)
