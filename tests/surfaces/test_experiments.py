"""Every experiment runs, is documented with a source, and gives flat rows."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import pytest
import torch

from ppgp import Dataset
from ppgp.experiments import EXPERIMENTS, experiment

FETCHED = ("olivetti",)  # experiments whose data come from elsewhere


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.data if n in FETCHED else ()) for n in EXPERIMENTS])
def test_a_quick_run_gives_flat_rows(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    run = experiment(name)
    needs = "data_dir" in inspect.signature(run).parameters
    given = {"data_dir": request.getfixturevalue("data_dir")} if needs else {}
    rows = run(tmp_path, seed=0, quick=True, **given)
    assert rows
    for row in rows:
        assert {"model", "how", "seconds"} <= set(row)
        assert all(value is None or isinstance(value, str | int | float | bool) for value in row.values())
    module = importlib.import_module(f"ppgp.experiments.{EXPERIMENTS[name][0]}")
    assert any(str(year) in (module.__doc__ or "") for year in range(1900, 2030))


def test_noise_is_what_makes_intervals_cover_y(tmp_path: Path) -> None:
    coverage = {r["protocol"]: r["coverage"] for r in experiment("latent-intervals")(tmp_path, seed=0, quick=False)}
    assert coverage["sd of f alone"] < 0.6
    assert abs(coverage["sd of y, noise included"] - 0.95) < 0.03
    assert abs(coverage["calibrated"] - 0.95) < 0.03


def test_faces_are_turned_by_the_angle_and_parts_do_not_share_what_they_must_not() -> None:
    """A disc of one grey does not change; no row, and under "strict" no photograph, is in two parts; a mirror turns the sign."""
    from ppgp.experiments import faces

    side = 16
    flat = faces.disc(side).double().expand(20, side, side)
    images, angles = faces.turned(torch.ones(20, side, side, dtype=torch.float64), 0)
    assert images.shape == (100, side, side)
    assert float(angles.abs().max()) <= 45
    torch.testing.assert_close(images[:20] * faces.disc(side), flat, rtol=1e-12, atol=1e-12)  # no corner comes into the disc
    stripe = torch.zeros(1, side, side, dtype=torch.float64)
    stripe[:, :, side // 2 :] = 1.0
    turned, by = faces.turned(stripe, 3)
    for image, angle in zip(turned, by, strict=True):  # the line between black and white stands at the angle: its mean gradient
        rows, columns = torch.gradient(image[3:-3, 3:-3])
        assert abs(float(torch.rad2deg(torch.atan2(-rows.sum(), columns.sum()))) - float(angle)) < 3

    numbered = torch.arange(100.0, dtype=torch.float64)[:, None, None].expand(100, side, side)
    for protocol in faces.PROTOCOLS:
        data = faces.parts(protocol, numbered, torch.arange(100.0, dtype=torch.float64), 0)
        each = [{round(float(a) * faces.SCALE) for a in part.y} for part in (data.train, data.calibration, data.test)]
        assert [len(part) for part in each] == [70, 10, 20]
        assert len(set.union(*each)) == 100
        if protocol == "strict":
            assert not {i // 5 for i in each[0]} & {i // 5 for i in each[2]}
            assert not {i // 5 for i in each[1]} & ({i // 5 for i in each[0]} | {i // 5 for i in each[2]})
    both = faces.mirrored(Dataset(stripe.flatten(1), torch.ones(1)))
    assert both.y.tolist() == [1.0, -1.0]
    torch.testing.assert_close(both.X[1].reshape(side, side), stripe[0].flip(1))
