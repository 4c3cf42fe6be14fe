"""Every experiment runs, states its source, and returns flat rows."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ppgp import Dataset
from ppgp.errors import SettingError, UnknownName
from ppgp.experiments import EXPERIMENTS, experiment, league, options_of, uci

#: experiments that read a published data set -> its file
PUBLISHED = {"olivetti": "olivetti/olivetti_py3.pkz"}


def case(name: str) -> Any:
    """Return the name of an experiment, marked with the data set that it needs."""
    marks = [pytest.mark.data(PUBLISHED[name])] if name in PUBLISHED else []
    return pytest.param(name, marks=marks)


def table(folder: Path, n: int = 60) -> Path:
    """Write simulated rows in the format of the published splits."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    masks = rng.permuted(np.arange(n) < n // 10, axis=0)[None].repeat(2, 0)
    masks[1] = ~masks[0] & (np.arange(n) % 7 == 0)
    y = 50 + 20 * np.sin(X[:, 0]) + rng.normal(size=n)
    np.savez(folder / "boston.npz", X=X, y=y, n=n, splits=2, test_mask=np.packbits(masks, axis=1))
    return folder


def test_uci_is_in_the_units_of_y_and_resumes_a_stopped_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = experiment("uci")
    options = {"data_dir": str(table(tmp_path)), "sets": "boston", "models": "gp"}
    (first,) = run(tmp_path / "out", splits="1", **options)
    assert first["n"] == 60
    assert 0.5 < first["rmse"] < 3.0  # the sd of the noise is 1, the range of y 40
    assert 1.0 < first["nll"] < 3.0
    line = (tmp_path / "out" / "splits.jsonl").read_text()
    calls: list[int] = []
    evaluate = uci._evaluate
    monkeypatch.setattr(uci, "_evaluate", lambda *a: calls.append(1) or evaluate(*a))
    (second,) = run(tmp_path / "out", **options)
    assert len(calls) == 1
    assert second["splits"] == 2
    records = [json.loads(r) for r in (tmp_path / "out" / "splits.jsonl").read_text().splitlines()]
    assert json.dumps(records[0]) + "\n" == line
    assert second["nll"] == pytest.approx(sum(r["nll"] for r in records) / 2)
    assert second["rmse_se"] == pytest.approx(abs(records[0]["rmse"] - records[1]["rmse"]) / 2)


def test_uci_names_the_files_that_it_expects(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"pass --data-dir DIR: one NAME\.npz per set, with X"):
        experiment("uci")(tmp_path)
    with pytest.raises(SettingError, match=r"boston\.npz"):
        experiment("uci")(tmp_path, data_dir=str(tmp_path))
    with pytest.raises(SettingError, match="1 to 2 splits of boston"):
        experiment("uci")(tmp_path, data_dir=str(table(tmp_path)), sets="boston", splits="3")
    with pytest.raises(UnknownName, match="model of this experiment"):
        experiment("uci")(tmp_path, data_dir=str(tmp_path), models="forest")


def test_the_league_ranks_methods_and_resumes_a_stopped_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = experiment("league")
    options = {"data_dir": str(table(tmp_path)), "sets": "boston", "quick": True}
    linear, ensemble = run(tmp_path / "out", methods="linear,deep-ensemble", **options)
    assert {linear["rank"], ensemble["rank"]} == {1, 2}
    assert (linear["rank"] == 1) == (linear["nll"] < ensemble["nll"])
    assert linear["n"] == 60
    assert ensemble["published_rmse"] == 3.28
    assert linear["published_rmse"] is None
    for row in (linear, ensemble):
        assert {"set", "splits", "crps", "coverage", "width", "coverage_cv", "width_cv"} <= set(row)
        assert 0 <= row["coverage_cv"] <= 1
        assert row["width_cv"] > 0
    calls: list[str] = []
    measured = league._measured
    monkeypatch.setattr(league, "_measured", lambda *a: calls.append(a[0]) or measured(*a))
    again = run(tmp_path / "out", methods="linear,deep-ensemble", **options)
    assert calls == []
    assert again == [linear, ensemble]


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
def test_the_stack_of_the_league_is_no_worse_than_its_parts_on_a_line(tmp_path: Path) -> None:
    """Its weights go to the line, whose out-of-fold density is the largest by far."""
    from ppgp.experiments.league_methods import Calibration, Fits, Setting

    generator = torch.Generator().manual_seed(0)
    X = torch.randn(120, 2, generator=generator, dtype=torch.float64)
    noise = torch.randn(120, generator=generator, dtype=torch.float64)
    data = Dataset(X, 3 * X[:, 0] - X[:, 1] + 0.3 * noise)
    train, test = data.rows(torch.arange(90)), data.rows(torch.arange(90, 120))
    calibration = Calibration(Fits(train, Setting(quick=True)))
    nll = {
        name: -float(calibration.fits.of(name).predict(test.X).log_prob(test.y).mean())
        for name in ("stack", "linear", "ngb")
    }
    assert nll["stack"] < nll["linear"] + 0.1
    assert nll["linear"] < nll["ngb"] - 0.5
    left_out = calibration.fits.of("linear").left_out
    assert left_out is not None
    assert float((left_out().mean - train.y).square().mean().sqrt()) == pytest.approx(0.3, rel=0.3)
    seconds = [calibration.fits.of(name).seconds for name in ("stack", "linear", "ngb")]
    assert seconds[0] > seconds[1] + seconds[2]


def test_the_league_names_what_it_knows(tmp_path: Path) -> None:
    run = experiment("league")
    with pytest.raises(SettingError, match=r"pass --data-dir DIR: one NAME\.npz per set, with X"):
        run(tmp_path)
    with pytest.raises(SettingError, match=r"boston\.npz"):
        run(tmp_path, data_dir=str(tmp_path))
    with pytest.raises(UnknownName, match="method of this experiment"):
        run(tmp_path, data_dir=str(tmp_path), methods="forest")
    with pytest.raises(UnknownName, match="set of this experiment"):
        run(tmp_path, data_dir=str(tmp_path), sets="bostn")
    with pytest.raises(SettingError, match="a number of epochs, or published"):
        run(tmp_path, data_dir=str(tmp_path), epochs="many")


def test_an_experiment_has_options_of_its_own() -> None:
    run = experiment("uci")
    assert options_of(run, ["--data-dir", "x", "--splits=2"]) == {"data_dir": "x", "splits": "2"}
    with pytest.raises(UnknownName, match="did you mean '--sets'"):
        options_of(run, ["--set", "boston"])
    with pytest.raises(UnknownName):
        options_of(experiment("iris"), ["--splits", "2"])
    with pytest.raises(SettingError, match="a value for --splits"):
        options_of(run, ["--splits"])
    with pytest.raises(SettingError, match="options as --name value"):
        options_of(run, ["boston"])


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
@pytest.mark.parametrize("name", [case(name) for name in EXPERIMENTS])
def test_a_quick_run_gives_flat_rows(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    run = experiment(name)
    given: dict[str, str] = {}
    if name == "uci":
        given = {"data_dir": str(table(tmp_path)), "sets": "boston"}
    elif name == "league":
        given = {"data_dir": str(table(tmp_path)), "sets": "boston", "methods": "ngb,linear"}
    elif name == "classification":
        given = {"sets": "wave"}
    elif name in PUBLISHED:
        given = {"data_dir": str(request.getfixturevalue("data_dir"))}
    rows = run(tmp_path, seed=0, quick=True, **given)
    assert rows
    for row in rows:
        assert {"model", "how", "seconds"} <= set(row)
        assert all(
            value is None or isinstance(value, str | int | float | bool) for value in row.values()
        )
    module = importlib.import_module(run.__module__)
    assert any(str(year) in (module.__doc__ or "") for year in range(1900, 2030))


def test_intervals_cover_y_only_with_the_noise(tmp_path: Path) -> None:
    coverage = {
        r["protocol"]: r["coverage"]
        for r in experiment("latent-intervals")(tmp_path, seed=0, quick=False)
    }
    assert coverage["sd of f alone"] < 0.6
    assert abs(coverage["sd of y, noise included"] - 0.95) < 0.03
    assert abs(coverage["calibrated"] - 0.95) < 0.03


def test_faces_are_rotated_by_the_angle_and_parts_are_disjoint() -> None:
    """Rotation, split and mirror image.

    A uniform disc does not change under rotation. No row is in two parts, and under "strict" no
    photograph. A mirror image changes the sign of the angle.
    """
    from ppgp.experiments import olivetti as faces
    from ppgp.experiments.olivetti_models import mirrored

    side = 16
    flat = faces.disc(side).double().expand(20, side, side)
    images, angles = faces.turned(torch.ones(20, side, side, dtype=torch.float64), 0)
    assert images.shape == (100, side, side)
    assert float(angles.abs().max()) <= 45
    # no corner of the frame moves into the disc
    torch.testing.assert_close(images[:20] * faces.disc(side), flat, rtol=1e-12, atol=1e-12)
    stripe = torch.zeros(1, side, side, dtype=torch.float64)
    stripe[:, :, side // 2 :] = 1.0
    turned, by = faces.turned(stripe, 3)
    # the mean gradient is perpendicular to the edge between black and white
    for image, angle in zip(turned, by, strict=True):
        rows, columns = torch.gradient(image[3:-3, 3:-3])
        assert abs(float(torch.rad2deg(torch.atan2(-rows.sum(), columns.sum()))) - float(angle)) < 3

    numbered = torch.arange(100.0, dtype=torch.float64)[:, None, None].expand(100, side, side)
    for protocol in faces.PROTOCOLS:
        data = faces.parts(protocol, numbered, torch.arange(100.0, dtype=torch.float64), 0)
        each = [
            {round(float(a) * faces.SCALE) for a in part.y}
            for part in (data.train, data.calibration, data.test)
        ]
        assert [len(part) for part in each] == [70, 10, 20]
        assert len(set.union(*each)) == 100
        if protocol == "strict":
            assert not {i // 5 for i in each[0]} & {i // 5 for i in each[2]}
            assert not {i // 5 for i in each[1]} & (
                {i // 5 for i in each[0]} | {i // 5 for i in each[2]}
            )
    both = mirrored(Dataset(stripe.flatten(1), torch.ones(1)))
    assert both.y.tolist() == [1.0, -1.0]
    torch.testing.assert_close(both.X[1].reshape(side, side), stripe[0].flip(1))


@pytest.mark.parametrize(
    ("n", "kind"), [(2000, "GP"), (2001, "SGPR"), (20_000, "SGPR"), (20_001, "SVGP")]
)
def test_the_model_of_uci_depends_on_the_number_of_rows(n: int, kind: str) -> None:
    assert {type(model).__name__ for model in uci.RECIPES["auto"](n)} == {kind}
