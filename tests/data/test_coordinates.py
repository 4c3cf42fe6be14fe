"""Coordinates are scaled by one factor and kept by every operation on a Dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import ppgp
from ppgp import inference, kernels, models
from ppgp.data import Dataset
from ppgp.errors import DataWarning, SettingError, UnknownName

RANDOM = np.random.default_rng(3)
PLACES = RANDOM.uniform(0.0, 1.0, (40, 2)) * [9000.0, 600.0]
DEPTH = RANDOM.normal(5.0, 0.1, 40)
Y = np.sin(PLACES[:, 0] / 900.0) + np.cos(PLACES[:, 1] / 300.0) + DEPTH
FRAME = pd.DataFrame({"east": PLACES[:, 0], "depth": DEPTH, "north": PLACES[:, 1], "z": Y})
NAMES = ("east", "north")


def framed() -> Dataset:
    return Dataset.from_frame(FRAME, "z", coordinates=NAMES)


def test_coordinates_have_one_factor_and_other_columns_their_own() -> None:
    scaled, scaler = framed().standardised()
    sds = FRAME[["east", "depth", "north"]].to_numpy().std(0)
    one = np.sqrt((sds[0] ** 2 + sds[2] ** 2) / 2)
    assert scaler.x_sd.numpy() == pytest.approx([one, sds[1], one], rel=1e-12)
    assert scaled.X.mean(0).abs().max() < 1e-12
    turned = scaler.back(scaled)
    assert torch.allclose(turned.X, framed().X, rtol=1e-12)


@pytest.mark.parametrize("how", ["rows", "split", "to", "standardised", "back", "save"])
def test_every_operation_keeps_the_coordinates(how: str, tmp_path: Path) -> None:
    data = framed()
    scaled, scaler = data.standardised()
    made: dict[str, Any] = {
        "rows": lambda: data.rows([0, 1, 2]),
        "split": lambda: data.split(0.5)[1],
        "to": lambda: data.to(torch.float32),
        "standardised": lambda: scaled,
        "back": lambda: scaler.back(scaled),
    }
    if how == "save":
        posterior = ppgp.fit(
            models.LinearRegression(0.1, 0.0, 1.0), data, inference.MAP(), progress=False
        )
        found = ppgp.load_posterior(posterior.save(tmp_path / "file")).data
    else:
        found = made[how]()
    assert found.coordinates == NAMES
    assert found.together == [0, 2]
    assert "coordinates east, north" in repr(found)


def test_a_file_is_read_with_its_coordinates(tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "places.csv", index=False)
    data = ppgp.load(tmp_path / "places.csv", "z", coordinates=list(NAMES))
    assert (data.coordinates, data.together) == (NAMES, [0, 2])
    assert data.feature_names == ("east", "depth", "north")


def test_numbers_become_names_where_columns_have_names() -> None:
    assert Dataset(PLACES, Y, coordinates=[1, 0]).together == [1, 0]
    assert Dataset(PLACES, Y, ["a", "b"], coordinates=[1]).coordinates == ("b",)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (["east", "nroth"], UnknownName),
        ("east", SettingError),
        ([], SettingError),
        (["east", "east"], SettingError),
        (["east", 0], SettingError),
        ([3], SettingError),
        ([-1], SettingError),
        ([True], SettingError),
    ],
)
def test_invalid_coordinates_are_refused(given: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        Dataset.from_frame(FRAME, "z", coordinates=given)


def test_a_constant_coordinate_does_not_affect_the_factor() -> None:
    flat = np.column_stack([PLACES[:, 0], np.full(40, 7.0)])
    with pytest.warns(DataWarning, match="constant"):
        _, scaler = Dataset(flat, Y, coordinates=[0, 1]).standardised()
    assert scaler.x_sd.numpy() == pytest.approx([flat[:, 0].std() / 2**0.5] * 2)
    with pytest.warns(DataWarning, match="constant"):
        _, scaler = Dataset(np.full((40, 2), 7.0), Y, coordinates=[0, 1]).standardised()
    assert scaler.x_sd.tolist() == [1.0, 1.0]


def test_an_isotropic_gp_of_coordinates_is_invariant_to_rotation() -> None:
    """Without coordinates, scaling each column stretches the map and changes the GP."""
    angle = np.deg2rad(35.0)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    model, new = models.GP(kernels.Matern(1.5)), PLACES[:6] + 40.0

    def predicted(coordinates: list[int] | None, M: np.ndarray) -> np.ndarray:
        data = Dataset(PLACES @ M, Y, coordinates=coordinates)
        return ppgp.fit(model, data, inference.MAP(), progress=False).predict(new @ M).mean.numpy()

    assert predicted([0, 1], turn) == pytest.approx(predicted([0, 1], np.eye(2)), abs=1e-4)
    assert np.abs(predicted(None, turn) - predicted(None, np.eye(2))).max() > 1e-2
