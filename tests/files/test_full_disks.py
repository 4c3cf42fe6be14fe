"""A disk that becomes full at any byte of a write leaves the old file unchanged."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure
from small_disks import PAGE, Limited, Mounted, contents, mounted

import ppgp
from ppgp import files, inference, models
from ppgp.cli import main as cli
from ppgp.density.target import Target
from ppgp.diagnostics.comparison import compare
from ppgp.errors import StorageError, StorageWarning
from ppgp.experiments.animations import animate
from ppgp.inference.checkpoint import Checkpoint
from ppgp.report import report
from ppgp.report.report_figures import ReportFigure

ROWS = 1500
Disk = Limited | Mounted
Writer = Callable[[Path], object]


@pytest.fixture(scope="module")
def data() -> ppgp.Dataset:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(40, 2, generator=generator, dtype=torch.float64)
    return ppgp.Dataset(
        X, X.sum(1) + 0.1 * torch.randn(40, generator=generator, dtype=torch.float64)
    )


@pytest.fixture(scope="module")
def posterior(data: ppgp.Dataset) -> ppgp.Posterior:
    return ppgp.fit(models.LinearRegression(), data, inference.Exact(draws=1500), progress=False)


@pytest.fixture(params=["limited", "mounted"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    if request.param == "limited":
        (tmp_path / "files").mkdir()
        yield Limited(tmp_path / "files")
    else:
        with mounted(tmp_path) as disk:
            yield disk


def picture() -> Figure:
    figure = Figure(figsize=(4, 3))
    figure.add_subplot().imshow(np.random.default_rng(0).random((60, 80)))
    return figure


def checkpoint(path: Path, data: ppgp.Dataset) -> None:
    """Write a checkpoint, and raise where a run would only warn."""
    kept = Checkpoint(path, inference.SVI(), Target(models.LinearRegression(), data), 0)
    with warnings.catch_warnings(), kept:
        warnings.simplefilter("error", StorageWarning)
        kept.save({"z": torch.arange(10_000.0)})


def predict(path: Path, folder: Path) -> None:
    cli.predict(folder / "q.safetensors", folder / "new.csv", out=path)


@pytest.fixture(scope="module")
def writers(
    data: ppgp.Dataset, posterior: ppgp.Posterior, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Writer]:
    tmp_path = tmp_path_factory.mktemp("inputs")
    ppgp.fit(models.LinearRegression(), data, inference.MAP(), progress=False).save(
        tmp_path / "q.safetensors"
    )
    pd.DataFrame(np.random.default_rng(0).normal(size=(ROWS, 2))).to_csv(
        tmp_path / "new.csv", index=False
    )
    rows = [{"model": "linear", "rmse": i / 7} for i in range(2500)]
    figure = picture()
    netcdf = report.netcdf(posterior.to_arviz())
    return {
        "posterior.safetensors": posterior.save,
        "run.ckpt": lambda path: checkpoint(path, data),
        "ranks.jsonl": lambda path: files.append(path, "1234567\n" * 10_000),
        "predictions.csv": lambda path: predict(path, tmp_path),
        "predictions.parquet": lambda path: predict(path, tmp_path),
        "results.json": lambda path: report.write_results(path.parent, rows),
        "index.html": lambda path: files.write(path, "<p>page</p>" * 9000),
        "figure.png": lambda path: files.write_figure(path, figure, dpi=130),
        "posterior.nc": lambda path: files.write(path, netcdf),
        "points.gif": lambda path: animate(path, figure, lambda i: None, 1, 1),
    }


NAMES = [
    *("posterior.safetensors", "run.ckpt", "ranks.jsonl", "predictions.csv", "predictions.parquet"),
    *("results.json", "index.html", "figure.png", "posterior.nc", "points.gif"),
]


@pytest.mark.parametrize("name", NAMES)
def test_the_old_file_stays_until_the_new_one_is_complete(
    name: str, disk: Disk, writers: dict[str, Writer]
) -> None:
    path, write = disk.folder / name, writers[name]
    write(path)
    size = path.stat().st_size
    old = b"old\n" * 100
    path.write_bytes(old)
    for room in np.linspace(0, size - 1 - disk.slack, disk.points).astype(int):
        with (
            disk.with_room_for(int(room)),
            pytest.raises((StorageError, StorageWarning), match=name),
        ):
            write(path)
        assert contents(disk.folder) == {name: old}, f"room for {room} of {size} bytes"
    with disk.with_room_for(size + 4 * PAGE):
        write(path)
    assert list(contents(disk.folder)) == [name]
    assert path.stat().st_size >= size


def test_a_new_file_is_complete_or_absent(disk: Disk, writers: dict[str, Writer]) -> None:
    for name, write in writers.items():
        with disk.with_room_for(3 * PAGE), pytest.raises((StorageError, StorageWarning)):
            write(disk.folder / name)
        assert not contents(disk.folder)


def test_a_report_keeps_what_can_be_written(
    disk: Disk, posterior: ppgp.Posterior, data: ppgp.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With any amount of free space, each file is complete or the output names it as missing."""
    new = ppgp.Dataset(data.X[:10] + 0.5, data.y[:10] + 1.0)
    comparison = compare({"linear exact": posterior}, test=new)
    figure = ReportFigure("random", "Random numbers", picture())
    monkeypatch.setattr(report, "figures_of", lambda *_: [figure])
    wanted = {"results.json", "index.html", "figures/random.png", "linear-exact.nc"}

    def written() -> list[str]:
        names = {"linear exact": ("linear", "exact")}
        return report.write_report(
            disk.folder, comparison, {"linear exact": posterior}, names, new
        )[1]

    assert written() == []
    whole = contents(disk.folder)
    assert set(whole) == wanted
    kept = []
    for room in np.linspace(0, 2 * sum(map(len, whole.values())), 7).astype(int):
        for name in whole:
            (disk.folder / name).unlink(missing_ok=True)
        with disk.with_room_for(int(room)):
            problems = written()
        found = contents(disk.folder)
        assert set(found) <= wanted
        for name in wanted - set(found):
            assert any(name in sentence for sentence in problems)
        for name in set(found) & {"results.json", "figures/random.png"}:
            assert found[name] == whole[name]
        if "index.html" in found:
            assert found["index.html"].endswith(b"</html>\n")
        kept.append(len(found))
    assert kept[0] == 0
    assert kept[-1] == len(wanted)
    assert set(kept) & {2, 3}
    gc.collect()  # a buffer that is freed before a view of it would be reported here
