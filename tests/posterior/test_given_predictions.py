"""Predictions of other libraries: points, quantiles, probabilities and samples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from ppgp import Prediction, calibrate, conformal, metrics
from ppgp.conformal.predictive_systems import predictive_system
from ppgp.errors import DataError, NotApplicable

RNG = np.random.default_rng(0)
X = RNG.normal(size=400)
Y = np.sin(X) + (0.2 + 0.2 * np.abs(X)) * RNG.normal(size=400)
OLD, NEW = slice(0, 200), slice(200, 400)
Z95 = 1.6448536269514722


def kth(scores: np.ndarray, level: float) -> float:
    return float(np.sort(scores)[math.ceil((len(scores) + 1) * level) - 1])


def test_points_give_split_intervals_of_the_absolute_residuals() -> None:
    at = np.sin(X)
    calibrator = calibrate(conformal.Absolute(), Prediction.from_points(at[OLD]), Y[OLD])
    region = calibrator(Prediction.from_points(at[NEW]), level=0.9)
    q = kth(np.abs(Y - at)[OLD], 0.9)
    np.testing.assert_allclose(region.lower, at[NEW] - q, rtol=0, atol=1e-14)
    np.testing.assert_allclose(region.upper, at[NEW] + q, rtol=0, atol=1e-14)
    assert region.guarantee == "marginal coverage >= 0.9 (exchangeable rows)"


def test_points_with_an_sd_are_normal() -> None:
    prediction = Prediction.from_points(np.sin(X), 0.2 + 0.2 * np.abs(X))
    np.testing.assert_allclose(prediction.std, 0.2 + 0.2 * np.abs(X), rtol=1e-15)
    np.testing.assert_allclose(
        prediction.quantile(0.95), np.sin(X) + Z95 * (0.2 + 0.2 * np.abs(X)), rtol=1e-12
    )
    assert torch.equal(
        Prediction.from_points([1.0, 2.0], 0.5).std, torch.tensor([0.5, 0.5]).double()
    )


@pytest.mark.parametrize(
    "statistic",
    [
        lambda p: p.std,
        lambda p: p.quantile(0.1),
        lambda p: p.cdf(Y),
        lambda p: p.log_prob(Y),
        lambda p: p.sample(3),
        lambda p: p.interval(0.9),
        lambda p: p.crps(Y),
        lambda p: conformal.Normalized().score(p, torch.as_tensor(Y), 0.9),
        lambda p: conformal.Density().score(p, torch.as_tensor(Y), 0.9),
    ],
)
def test_what_points_do_not_know_is_refused_in_one_sentence(statistic: Any) -> None:
    with pytest.raises(NotApplicable, match=r"got points: use conformal\.Absolute\(\)"):
        statistic(Prediction.from_points(np.sin(X)))


def test_quantiles_give_conformalised_quantile_regression() -> None:
    """Romano, Patterson & Candes (2019), algorithm 1, written out."""
    low, high = np.sin(X) - 0.3, np.sin(X) + 0.2 + 0.1 * np.abs(X)
    both = np.stack([low, high], 1)
    calibrator = calibrate(
        conformal.Quantile(), Prediction.from_quantiles(both[OLD], [0.05, 0.95]), Y[OLD]
    )
    region = calibrator(Prediction.from_quantiles(both[NEW], [0.05, 0.95]), level=0.9)
    q = kth(np.maximum(low - Y, Y - high)[OLD], 0.9)
    np.testing.assert_allclose(region.lower, low[NEW] - q, rtol=0, atol=1e-14)
    np.testing.assert_allclose(region.upper, high[NEW] + q, rtol=0, atol=1e-14)
    with pytest.raises(NotApplicable, match=r"a quantile at 0\.025, got quantiles at 0\.05, 0\.95"):
        calibrator(Prediction.from_quantiles(both[NEW], [0.05, 0.95]), level=0.95)


def test_quantiles_are_interpolated_and_sorted() -> None:
    prediction = Prediction.from_quantiles([[0.0, 1.0, 5.0], [4.0, 2.0, 3.0]], [0.1, 0.5, 0.9])
    assert prediction.quantile(0.5).tolist() == [1.0, 3.0]
    assert prediction.quantile(0.3).tolist() == pytest.approx([0.5, 2.5], abs=1e-12)
    each = torch.tensor([[0.9, 0.1]], dtype=torch.float64)
    assert prediction.quantile(each).tolist() == [[5.0, 2.0]]
    assert prediction.centre.tolist() == [1.0, 3.0]
    assert len(prediction[:1]) == 1


def test_probabilities_give_label_sets() -> None:
    p = RNG.dirichlet([1.0, 1.0, 1.0], size=200)
    labels = np.array([RNG.choice(3, p=row) for row in p])
    prediction = Prediction.from_probabilities(p, classes=["a", "b", "c"])
    np.testing.assert_allclose(prediction.probabilities, p, rtol=1e-14)
    calibrator = calibrate(conformal.LAC(), prediction[:100], labels[:100])
    q = kth(1 - p[np.arange(100), labels[:100]], 0.8)
    found = calibrator(prediction[100:], level=0.8).labels
    assert found is not None
    assert np.array_equal(found.numpy(), p[100:] >= 1 - q - 1e-12)


def test_samples_keep_their_mean_and_variance_and_have_every_statistic() -> None:
    draws = RNG.gamma(2.0, size=(2, 300, 5))
    prediction = Prediction.from_samples(draws)
    flat = draws.reshape(-1, 5)
    np.testing.assert_allclose(prediction.mean, flat.mean(0), rtol=1e-12)
    np.testing.assert_allclose(prediction.variance, flat.var(0), rtol=1e-10)
    # a kernel estimate of a cdf has a bias of order h^2 = O(S^-2/5), and an sd below 0.5 / sqrt(S)
    error = 0.5 * 600**-0.4 + 4 * 0.5 / math.sqrt(600)
    np.testing.assert_allclose(prediction.cdf(np.full(5, 2.0)), 1 - 3 * math.exp(-2), atol=error)
    assert bool(torch.isfinite(prediction.log_prob(np.ones(5))).all())


@pytest.mark.parametrize(
    "score",
    [
        conformal.Absolute(),
        conformal.Normalized(),
        conformal.Signed(),
        conformal.Quantile(),
        conformal.PIT(),
        conformal.Density(),
    ],
    ids=repr,
)
def test_every_score_takes_samples_and_covers(score: conformal.Score) -> None:
    draws = np.sin(X) + (0.2 + 0.2 * np.abs(X)) * RNG.normal(size=(50, 400))
    prediction = Prediction.from_samples(draws)
    region = calibrate(score, prediction[OLD], Y[OLD])(prediction[NEW], level=0.8)
    # the sd of the coverage of 200 rows, given 200 calibration rows
    error = 4 * math.sqrt(0.8 * 0.2 * (1 / 200 + 1 / 202))
    assert abs(float(region.covers(Y[NEW]).double().mean()) - 0.8) < error + 2 / 201


def test_integer_samples_are_counts() -> None:
    draws = RNG.poisson(3.0, size=(500, 2))
    prediction = Prediction.from_samples(draws)
    assert prediction.kind == "count"
    np.testing.assert_allclose(
        prediction.cdf([2.0, 4.0]), [np.mean(draws[:, 0] <= 2), np.mean(draws[:, 1] <= 4)]
    )
    for p in (0.05, 0.5, 0.9):
        ranked = np.sort(draws, axis=0)[math.ceil(500 * p - 1e-9) - 1]
        assert np.array_equal(prediction.quantile(p), ranked)
    np.testing.assert_allclose(prediction.variance, draws.var(0))
    np.testing.assert_allclose(
        prediction.log_prob([1.0, 2.0]),
        np.log([np.mean(draws[:, 0] == 1), np.mean(draws[:, 1] == 2)]),
    )


def test_tensors_of_single_precision_with_a_gradient() -> None:
    tensor = torch.tensor([1.0, 2.0], requires_grad=True)
    assert Prediction.from_points(tensor).mean.tolist() == [1.0, 2.0]
    assert Prediction.from_points(tensor).dtype == torch.float32
    assert not Prediction.from_points(tensor).mean.requires_grad


def test_arrays_of_jax() -> None:
    jnp = pytest.importorskip("jax.numpy")
    assert Prediction.from_points(jnp.array([1.0, 2.0])).mean.tolist() == [1.0, 2.0]
    assert Prediction.from_samples(jnp.array([[1.0], [3.0]])).mean.tolist() == [2.0]
    assert Prediction.from_samples(jnp.array([[1], [3]])).kind == "count"


MISTAKES: dict[str, tuple[Any, str]] = {
    "a column": (lambda: Prediction.from_points([[1.0], [2.0]]), r"points with shape \[n\]"),
    "NaN": (
        lambda: Prediction.from_points([1.0, math.nan]),
        "finite points, got NaN or infinity in row 1",
    ),
    "no rows": (lambda: Prediction.from_points([]), "at least one row"),
    "sd": (lambda: Prediction.from_points([1.0, 2.0], [0.5, 0.0]), "an sd above 0.*row 1"),
    "two sds": (lambda: Prediction.from_points([1.0, 2.0, 3.0], [1.0, 1.0]), "one sd per row"),
    "one quantile": (lambda: Prediction.from_quantiles([[1.0]], [0.5]), "two or more prob"),
    "transposed": (
        lambda: Prediction.from_quantiles(np.ones((2, 5)), [0.1, 0.9]),
        r"\[2\] for quantiles of shape \[2, 5\]",
    ),
    "percents": (lambda: Prediction.from_quantiles(np.ones((5, 2)), [5, 95]), "between 0 and 1"),
    "decreasing": (lambda: Prediction.from_quantiles(np.ones((5, 2)), [0.9, 0.1]), "increase"),
    "logits": (lambda: Prediction.from_probabilities([[3.0, -1.0]]), "apply softmax to logits"),
    "one class": (lambda: Prediction.from_probabilities([[1.0], [1.0]]), "stack 1 - p and p"),
    "names": (lambda: Prediction.from_probabilities([[0.4, 0.6]], "a"), "one name per class"),
    "one draw": (lambda: Prediction.from_samples([[1.0, 2.0]]), "two or more draws"),
    "constant": (lambda: Prediction.from_samples(np.ones((5, 2))), "differ within each row"),
    "negative": (lambda: Prediction.from_samples(-np.ones((5, 2), dtype=int)), "counts of 0 or"),
    "text": (lambda: Prediction.from_points(["a", "b"]), "got"),
}


@pytest.mark.parametrize(("call", "sentence"), MISTAKES.values(), ids=MISTAKES)
def test_bad_input_gets_one_sentence(call: Any, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence) as raised:
        call()
    assert len(str(raised.value)) < 250


def test_draws_at_one_point_keep_their_quantiles() -> None:
    generator = torch.Generator().manual_seed(0)
    rain = torch.rand(1000, 1, generator=generator, dtype=torch.float64).sub(0.8).clamp_min(0) * 50
    prediction = Prediction.from_samples(rain)
    assert float(prediction.cdf(torch.tensor([-0.1], dtype=torch.float64))) < 1e-3
    lower, upper = prediction.interval(0.5)
    assert abs(float(lower)) < 0.1
    assert abs(float(upper)) < 0.1
    torch.testing.assert_close(prediction.mean, rain.mean(0))
    torch.testing.assert_close(prediction.std, rain.std(0, correction=0))


TARGETS: dict[str, tuple[Any, str]] = {
    "points": (lambda: Prediction.from_points(np.zeros((5, 3))), "points"),
    "quantiles": (
        lambda: Prediction.from_quantiles(np.zeros((5, 3, 2)), [0.1, 0.5, 0.9]),
        "quantiles",
    ),
    "probabilities": (
        lambda: Prediction.from_probabilities(np.full((5, 2, 2), 0.5)),
        "probabilities",
    ),
    "samples": (lambda: Prediction.from_samples(np.zeros((2, 9, 5, 3))), "samples"),
}


@pytest.mark.parametrize(("make", "what"), TARGETS.values(), ids=TARGETS)
def test_predictions_of_several_targets_are_made_one_by_one(make: Any, what: str) -> None:
    with pytest.raises(DataError, match=rf"for each target, such as of {what}\[\.\.\., 0\]$"):
        make()


@pytest.mark.parametrize("shape", [(5, 1), (1, 5), ()], ids=str)
def test_points_of_one_target_in_another_shape_are_reshaped(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match=r"reshape it to \[n\]$"):
        Prediction.from_points(np.zeros(shape))


def test_the_y_of_several_targets_is_taken_one_by_one() -> None:
    prediction = Prediction.from_points(np.zeros(5), sd=1.0)
    y = np.zeros((5, 3))
    uses: list[Any] = [
        *(getattr(prediction, name) for name in ("log_prob", "cdf", "crps", "pit")),
        prediction.in_training_with,
        prediction.interval(0.9).covers,
        lambda y: calibrate(conformal.Absolute(), prediction, y),
        lambda y: predictive_system(prediction, y),
        lambda y: metrics.rmse(prediction, y),
    ]
    for use in uses:
        with pytest.raises(DataError, match=r"of the one target .*, such as y\[:, 0\]$"):
            use(y)
