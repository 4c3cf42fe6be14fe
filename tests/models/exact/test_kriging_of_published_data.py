"""Kriging against the published answers of GSLIB's KT3D, and on the Meuse data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.interpolate import RegularGridInterpolator

import ppgp
from ppgp import inference, models, priors
from ppgp.data import Dataset
from ppgp.kernels import Anisotropy, Exponential, Spherical


def grid(path: Path) -> tuple[dict[str, float], np.ndarray]:
    """Return the header and the rows, north first, of an ESRI ascii grid; skip trailing notes."""
    head, rows = {}, []
    for line in path.read_text().splitlines():
        words = line.split()
        if words and words[0] == "PROJECTION":
            break
        if words and words[0][0].isalpha():
            head[words[0].upper()] = float(words[1])
        elif words:
            rows.extend(map(float, words))
    return head, np.array(rows).reshape(int(head["NROWS"]), int(head["NCOLS"]))


def centres(head: dict[str, float]) -> tuple[np.ndarray, np.ndarray]:
    """Return the east and north coordinates of the cells, north ascending."""
    dx, dy = head.get("DX", head.get("CELLSIZE", 0.0)), head.get("DY", head.get("CELLSIZE", 0.0))
    x = head["XLLCENTER"] if "XLLCENTER" in head else head["XLLCORNER"] + dx / 2
    y = head["YLLCENTER"] if "YLLCENTER" in head else head["YLLCORNER"] + dy / 2
    return x + dx * np.arange(int(head["NCOLS"])), y + dy * np.arange(int(head["NROWS"]))


@pytest.mark.data("kriging/kt3d")
@pytest.mark.parametrize(("test", "drift"), [(1, "constant"), (2, 1)])
def test_kt3d_of_gslib(test: int, drift: models.exact.drift.Drift, data_dir: Path) -> None:
    """KT3D prints 8 digits, and its exponential is exp(-3 h / range)."""
    folder = data_dir / "kriging" / "kt3d"
    table = np.loadtxt(folder / "test_data.txt")
    data = Dataset(table[:, :2], table[:, 2])
    head, answer = grid(folder / f"test{test}_answer.asc")
    east, north = centres(head)
    places = torch.tensor([[x, y] for y in north[::-1] for x in east], dtype=torch.float64)
    distribution = (
        models.Kriging(Exponential(500.0, 3000.0 / 3), 0.0, drift)
        .prepare(data)
        .predict({}, places, data)
    )
    assert float(np.abs(distribution.mean[0].numpy() - answer.ravel()).max()) < 1e-4


@pytest.mark.data("kriging/kt3d")
def test_an_external_drift_from_an_elevation_model(data_dir: Path) -> None:
    """Heights between the centres of the cells are interpolated bilinearly."""
    folder = data_dir / "kriging" / "kt3d"
    table = np.loadtxt(folder / "test_data.txt")
    head, heights = grid(folder / "test3_dem.asc")
    east, north = centres(head)
    height = RegularGridInterpolator((north, east), heights[::-1])
    data = Dataset(np.column_stack([table[:, :2], height(table[:, [1, 0]])]), table[:, 2])
    head, answer = grid(folder / "test3_answer.asc")
    east, north = centres(head)
    places = np.array([[x, y] for y in north[::-1] for x in east])
    rows = torch.from_numpy(np.column_stack([places, height(places[:, ::-1])]))
    distribution = (
        models.Kriging(Spherical(500.0, 3000.0), 0.0, (2,)).prepare(data).predict({}, rows, data)
    )
    assert float(np.abs(distribution.mean[0].numpy() - answer.ravel()).max()) < 1e-4


@pytest.mark.data("kriging/meuse.csv")
def test_the_meuse_data_vary_less_along_the_river_than_across(data_dir: Path) -> None:
    """By REML on 155 samples, the range across the bank is about half the range along it.

    The bank runs to the north-east. The maximised likelihood is some 6 nats above that of no
    anisotropy (ratio 1), which the other angle returns to.
    """
    import pandas as pd

    frame = pd.read_csv(data_dir / "kriging" / "meuse.csv")
    data = Dataset(frame[["x", "y"]].to_numpy(float), np.log(frame["zinc"].to_numpy(float)))
    inner = Exponential(priors.LogNormal(-0.7, 1.0), priors.LogNormal(7.0, 0.5))
    along, across = (
        ppgp.fit(models.Kriging(Anisotropy(inner, angle)), data, inference.MAP(), progress=False)
        for angle in (30.0, 120.0)
    )
    assert 0.3 < float(along.draws["variogram.ratio"]) < 0.6
    assert float(across.draws["variogram.ratio"]) > 0.95
    assert along.stats["log_likelihood"] > across.stats["log_likelihood"] + 3
