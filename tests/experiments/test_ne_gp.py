"""The neural-enhanced experiment: its rows, its files, and its calibrated intervals."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from ppgp.errors import DataWarning
from ppgp.experiments import experiment
from ppgp.experiments.heteroscedastic_data import table, uneven

COVERAGES = ("coverage", "latent_coverage", "calibrated_coverage", "widened_coverage")


def write_table(folder: Path, name: str) -> None:
    generator = np.random.default_rng(0)
    X = generator.normal(size=(100, 2))
    X[7] = X[3]
    folder.mkdir(exist_ok=True)
    np.savez(folder / f"{name}.npz", X=X, y=X[:, 0] + 0.1 * generator.normal(size=100))


def test_without_tables_the_synthetic_set_is_run_and_the_missing_files_are_named(
    tmp_path: Path,
) -> None:
    with pytest.warns(DataWarning, match=r"concrete\.npz and power\.npz.*--data-dir"):
        rows = experiment("ne-gp")(tmp_path, quick=True)
    assert {row["set"] for row in rows} == {"uneven"}
    assert [(row["model"], row["level"]) for row in rows] == [
        (m, a) for m in ("ne-gp", "ne-svgp") for a in (0.9, 0.95)
    ]
    for row in rows:
        assert all(0 <= row[name] <= 1 for name in COVERAGES)
        assert row["latent_coverage"] <= row["coverage"]
        assert row["widened_width"] == pytest.approx(max(row["width"], row["calibrated_width"]))
        assert row["coverage_se"] is None
    for name in ("points.gif", "conformal.gif"):
        with Image.open(tmp_path / name) as animation:
            assert animation.n_frames > 1
    assert (tmp_path / "ne-gp.png").stat().st_size > 0


def test_an_available_table_is_run(tmp_path: Path) -> None:
    write_table(tmp_path, "concrete")
    with pytest.warns(DataWarning, match=r"power\.npz not found"):
        rows = experiment("ne-gp")(tmp_path / "out", quick=True, data_dir=tmp_path)
    assert [row["set"] for row in rows] == ["uneven"] * 4 + ["concrete"] * 4


@pytest.mark.parametrize("inside", [".", "uci"])
def test_a_table_is_read_from_the_folder_or_its_folder_uci(inside: str, tmp_path: Path) -> None:
    write_table(tmp_path / inside, "power")
    data = table(tmp_path, "power")
    assert data is not None
    with np.load(tmp_path / inside / "power.npz") as arrays:
        once = np.arange(100) != 7
        assert np.array_equal(data.X.numpy(), arrays["X"][once])
        assert np.array_equal(data.y.numpy(), arrays["y"][once])
    assert table(tmp_path, "concrete") is None
    assert table(None, "power") is None


def test_the_noise_of_the_synthetic_set_has_the_stated_variance() -> None:
    data = uneven(40_000, 0)
    x = data.X[:, 0]
    e = (data.y - torch.sin(3 * x)) / (0.1 + 0.2 * x.square())
    for part in (x.abs() < 1, x.abs() >= 1):
        n = int(part.sum())
        assert abs(float(e[part].mean())) < 4 / math.sqrt(n)
        assert abs(float(e[part].var()) - 1) < 4 * math.sqrt(2 / n)
