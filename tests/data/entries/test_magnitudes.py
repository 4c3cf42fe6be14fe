"""Columns of any magnitude are standardised, and fits in any unit predict the same."""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
import pytest
import torch

import ppgp
from ppgp import Dataset, inference, kernels, models
from ppgp.data.entries import magnitudes
from ppgp.errors import DataError, DataWarning

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(2.0, 3.0, (40, 2))
Y = np.sin(X[:, 0]) + 0.1 * RANDOM.normal(size=40)
POWERS = (-1000, -560, -300, 0, 300, 520, 1015)
EXTREME = (-560, 560)


@pytest.mark.parametrize("power", POWERS)
def test_a_power_of_two_changes_no_bit_of_the_scale(power: int) -> None:
    factor = np.ldexp(1.0, power)
    plain, scaler = Dataset(X, Y).standardised()
    scaled, own = Dataset(X * factor, Y * factor).standardised()
    assert torch.equal(scaled.X, plain.X)
    assert torch.equal(scaled.y, plain.y)
    assert torch.equal(own.x_sd, scaler.x_sd * factor)
    assert torch.equal(own.y_mean, scaler.y_mean * factor)


def test_the_largest_floats_of_both_signs_have_a_mean_and_an_sd() -> None:
    largest = np.finfo(float).max
    y = np.array([largest, -largest, largest, -largest])
    scaled, scaler = Dataset(y[:, None], y).standardised()
    assert scaled.X[:, 0].tolist() == scaled.y.tolist() == [1.0, -1.0, 1.0, -1.0]
    assert float(scaler.y_sd) == largest


def test_float32_has_the_same_range_within_its_own() -> None:
    for power in (-110, -70, 70, 110):
        factor = np.float32(np.ldexp(1.0, power))
        scaled, _ = Dataset(np.float32(X) * factor, Y).standardised()
        assert torch.equal(scaled.X, Dataset(np.float32(X), Y).standardised()[0].X)


def test_coordinates_of_any_magnitude_have_one_factor() -> None:
    for power in POWERS:
        _, scaler = Dataset(X * np.ldexp(1.0, power), Y, coordinates=[0, 1]).standardised()
        one = np.sqrt(X.var(0).mean())
        assert np.ldexp(scaler.x_sd.numpy(), -power) == pytest.approx([one, one], rel=1e-12)


@pytest.mark.parametrize("offset", [1e15, -1e15, 3e9, 1e290])
def test_constancy_is_relative_to_rounding_of_the_column(offset: float) -> None:
    step = np.spacing(abs(offset))
    x = offset + step * np.arange(16.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scaled, scaler = Dataset(x[:, None], Y[:16]).standardised()
    wanted = (np.arange(16.0) - 7.5) / np.arange(16.0).std()
    half = 0.5 * step / float(scaler.x_sd[0])  # the mean is itself rounded
    assert scaled.X[:, 0].numpy() == pytest.approx(wanted, abs=half * 1.001)
    noise = offset + step * np.array([0.0, 1.0, 2.0, 1.0] * 4)
    with pytest.warns(DataWarning, match="constant"):
        Dataset(noise[:, None], Y[:16]).standardised()


@pytest.mark.parametrize("value", [0.0, 0.1, 1e-320, 1e300, -7.0])
def test_a_repeated_number_is_constant(value: float) -> None:
    with pytest.warns(DataWarning, match="constant"):
        scaled, scaler = Dataset(np.full((9, 1), value), Y[:9]).standardised()
    assert scaled.X.tolist() == [[0.0]] * 9
    assert float(scaler.x_sd[0]) == 1.0


MODELS = {
    "gp by MAP": (models.GP(), inference.MAP(starts=1)),
    "linear by Laplace": (models.LinearRegression(), inference.Laplace(draws=20)),
    "conjugate by Exact": (models.LinearRegression(conjugate=True), inference.Exact(draws=20)),
    "sgpr by MAP": (models.SGPR(inducing=8), inference.MAP(starts=1)),
}


@cache
def fitted(name: str, factor: float) -> ppgp.Posterior:
    model, how = MODELS[name]
    return ppgp.fit(model, Dataset(X * factor, Y * factor), how, progress=False)


@pytest.mark.parametrize("power", EXTREME)
@pytest.mark.parametrize("name", MODELS)
def test_a_fit_predicts_the_same_in_any_unit(name: str, power: int) -> None:
    factor = np.ldexp(1.0, power)
    plain = fitted(name, 1.0).predict(X[:5] + 0.1)
    posterior = fitted(name, factor)
    found = posterior.predict((X[:5] + 0.1) * factor)
    ends = zip(
        (found.mean, found.std, *found.interval(0.9)),
        (plain.mean, plain.std, *plain.interval(0.9)),
        strict=True,
    )
    for ours, theirs in ends:
        assert (ours / factor).numpy() == pytest.approx(theirs.numpy(), rel=1e-9)
    assert posterior.summary() is not None


def test_rows_too_far_for_a_float_are_refused() -> None:
    posterior = ppgp.fit(
        models.LinearRegression(), Dataset(X * 1e-200, Y), inference.MAP(), progress=False
    )
    with pytest.raises(DataError, match="row 1"):
        posterior.predict(np.array([[0.0, 0.0], [1e200, 0.0]]))
    narrow = Dataset(np.float32(X), Y)
    posterior = ppgp.fit(models.LinearRegression(), narrow, inference.MAP(), progress=False)
    with pytest.raises(DataError, match="row 1"):
        posterior.predict(np.array([[0.0, 0.0], [1e200, 0.0]]))
    with pytest.raises(DataError, match="float32"):
        Dataset(np.float32(X), Y * 1e60)


def test_the_root_mean_square_has_the_range_of_its_values() -> None:
    for factor in (1e-300, 1.0, 1e300):
        values = torch.tensor([3.0, 4.0], dtype=torch.float64) * factor
        assert float(magnitudes.root_mean_square(values)) == pytest.approx(12.5**0.5 * factor)


def test_rows_far_away_give_the_prior_or_are_refused() -> None:
    posterior = ppgp.fit(
        models.GP(kernels.Matern(1.5)), Dataset(X, Y), inference.MAP(starts=1), progress=False
    )
    far = posterior.predict(np.array([[1e60, 0.0], [1e70, 1e70]]))
    assert bool(torch.isfinite(far.std).all())
    with pytest.raises(DataError, match="row 1"):
        posterior.predict(np.array([[1.0, 0.0], [1e160, 0.0]]))
