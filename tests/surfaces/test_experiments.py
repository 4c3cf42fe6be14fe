"""Every experiment runs, is documented with a source, and gives flat rows."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from ppgp.experiments import EXPERIMENTS, experiment


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_quick_run_gives_flat_rows(name: str, tmp_path: Path) -> None:
    rows = experiment(name)(tmp_path, seed=0, quick=True)
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
