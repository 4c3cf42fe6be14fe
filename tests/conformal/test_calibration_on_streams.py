"""Calibration on the rows of files: the scores are those in memory, and nothing else is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ppgp
from ppgp import Dataset, Posterior, conformal, inference, kernels, models
from ppgp.conformal import split
from ppgp.conformal.split import rank
from ppgp.errors import DataError, DataWarning, NotApplicable, SettingError
from tests.parquet_tables import columns_of, regression, write

N, M = 300, 20_000
X, Y = regression(N + M)
LABELS = np.where(Y > 22, "high", np.where(Y > 20, "middle", "low"))
NAMES = ["x0", "x1", "x2"]


def fitted(y: Any, model: Any, how: Any) -> Posterior:
    data = Dataset(X[:N], y, feature_names=NAMES, target_name="y")
    return ppgp.fit(model, data, how, progress=False)


@pytest.fixture(scope="module")
def of_numbers() -> Posterior:
    return fitted(Y[:N], models.SGPR(kernels.RBF(), 20), inference.MAP())


@pytest.fixture(scope="module")
def of_labels() -> Posterior:
    return fitted(LABELS[:N], models.SoftmaxRegression(), inference.Laplace(draws=10))


def held_out(folder: Path, y: Any = Y, rows: slice = slice(N, None)) -> ppgp.data.Stream:
    path = write(folder / "held_out.parquet", 3_000, **columns_of(X[rows], y[rows]))
    return ppgp.stream(path, "y")


SCORES = [
    conformal.Absolute(),
    conformal.Normalized(),
    conformal.Signed(),
    conformal.Quantile(),
    conformal.PIT(),
]


@pytest.mark.parametrize("score", SCORES, ids=repr)
def test_scores_and_sets_equal_those_in_memory(
    of_numbers: Posterior, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, score: Any
) -> None:
    # chunks of two blocks of 8,192 rows, in which SGPR predicts: sums are rounded alike
    monkeypatch.setattr(split, "ROWS_AT_ONCE", 2 * 8_192)
    streamed = ppgp.calibrate(score, of_numbers, held_out(tmp_path))
    known = ppgp.calibrate(score, of_numbers.predict(X[N:]), Y[N:])
    new = of_numbers.predict(X[:50] + 0.01)
    for level in (0.9, 0.5):
        assert torch.equal(streamed.scores(level), known.scores(level))
        found, expected = streamed(new, level=level), known(new, level=level)
        assert torch.equal(found.lower, expected.lower)
        assert torch.equal(found.upper, expected.upper)
        assert found.guarantee == expected.guarantee
        assert streamed.identity(level) == known.identity(level)
    assert len(streamed) == M


def test_the_threshold_is_the_order_statistic(of_numbers: Posterior, tmp_path: Path) -> None:
    streamed = ppgp.calibrate(conformal.Absolute(), of_numbers, held_out(tmp_path))
    prediction = of_numbers.predict(X[:1])
    lower, upper = streamed(prediction, level=0.95)
    k = rank(M, 0.95)
    assert k == 19_001
    q = float(np.sort(np.abs(Y[N:] - of_numbers.predict(X[N:]).mean.numpy()))[k - 1])
    np.testing.assert_allclose(float(upper - prediction.mean), q, rtol=1e-12)
    np.testing.assert_allclose(float(prediction.mean - lower), q, rtol=1e-12)


@pytest.mark.parametrize("score", [conformal.LAC(), conformal.APS()], ids=repr)
def test_labels(of_labels: Posterior, tmp_path: Path, score: Any) -> None:
    some = np.flatnonzero(LABELS[N:] != "high")[:5_000] + N
    path = write(tmp_path / "a.parquet", **columns_of(X[some], LABELS[some]))
    streamed = ppgp.calibrate(score, of_labels, ppgp.stream(path, "y"))
    classes = of_labels.data.classes
    codes = [float(classes.index(label)) for label in LABELS[some]]
    known = ppgp.calibrate(score, of_labels.predict(X[some]), codes)
    assert torch.equal(streamed.scores(0.9), known.scores(0.9))


def test_a_score_of_the_level_takes_one_pass_for_each(
    of_numbers: Posterior, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[int] = []
    whole = ppgp.data.Stream.chunks

    def chunks(self: ppgp.data.Stream, rows: int) -> Any:
        passes.append(rows)
        return whole(self, rows)

    monkeypatch.setattr(ppgp.data.Stream, "chunks", chunks)
    rows = held_out(tmp_path)
    for score, expected in ((conformal.Normalized(), 1), (conformal.Quantile(), 2)):
        passes.clear()
        calibrator = ppgp.calibrate(score, of_numbers, rows, level=0.8)
        for level in (0.8, 0.8, 0.6):
            calibrator(of_numbers.predict(X[:3]), level=level)
        assert len(passes) == expected


def test_training_rows_are_recognised(of_numbers: Posterior, tmp_path: Path) -> None:
    rows = held_out(tmp_path, rows=slice(N - 100, N + 400))
    with pytest.warns(DataWarning, match="100 of 500 calibration rows were also used in the fit"):
        calibrator = ppgp.calibrate(conformal.Absolute(), of_numbers, rows)
    assert calibrator.n_in_training == 100
    guarantee = calibrator(of_numbers.predict(X[N:])).guarantee
    assert guarantee.startswith("heuristic: 100 of 500 calibration rows")


def test_another_fit_is_heuristic(
    of_numbers: Posterior, of_labels: Posterior, tmp_path: Path
) -> None:
    calibrator = ppgp.calibrate(conformal.Absolute(), of_numbers, held_out(tmp_path))
    other = fitted(Y[:N], models.LinearRegression(), inference.MAP())
    assert "by another fit" in calibrator(other.predict(X[N:])).guarantee


def test_what_does_not_fit(of_numbers: Posterior, of_labels: Posterior, tmp_path: Path) -> None:
    rows, score = held_out(tmp_path), conformal.Absolute()
    with pytest.raises(NotApplicable, match=r"the posterior .* to predict the rows of a stream"):
        ppgp.calibrate(score, of_numbers.predict(X[:5]), rows)
    with pytest.raises(NotApplicable, match="a stream without groups and weights, got groups"):
        ppgp.calibrate(score, of_numbers, rows, groups=LABELS[N:])
    with pytest.raises(NotApplicable, match="for Absolute, got classes"):
        ppgp.calibrate(score, of_labels, held_out(tmp_path, LABELS))
    with pytest.raises(DataError, match="numbers in y, as in the training rows, got labels"):
        ppgp.calibrate(score, of_numbers, held_out(tmp_path, LABELS))
    with pytest.raises(DataError, match=r"labels 0\.\.2 as y, got "):
        ppgp.calibrate(conformal.LAC(), of_labels, held_out(tmp_path, Y))
    strange = np.where(Y > 25, "other", LABELS)
    with pytest.raises(DataError, match="labels among high, low, middle, got other"):
        ppgp.calibrate(conformal.LAC(), of_labels, held_out(tmp_path, strange))
    with pytest.raises(SettingError, match="a level in"):
        ppgp.calibrate(score, of_numbers, held_out(tmp_path), level=2)
    path = write(tmp_path / "w.parquet", **columns_of(X[N:], Y[N:]), w=np.ones(M))
    with pytest.raises(NotApplicable, match="a stream without groups and weights, got weights"):
        ppgp.calibrate(score, of_numbers, ppgp.stream(path, "y", weights="w"))


def test_predictions_and_targets_are_not_kept(of_numbers: Posterior, tmp_path: Path) -> None:
    calibrator = ppgp.calibrate(conformal.Absolute(), of_numbers, held_out(tmp_path))
    for name in ("prediction", "y"):
        with pytest.raises(NotApplicable, match="of calibration rows in memory, got a stream"):
            getattr(calibrator, name)
    low, high = calibrator.coverage_band(0.9)
    assert 0.89 < low < 0.9 < high < 0.91
    assert repr(calibrator) == "<StreamCalibrator Absolute() on 20000 rows>"
