"""Predictions of 10^7 rows from Parquet to Parquet with conformal intervals: memory and time."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import memory_children as children
import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

ROWS = 10_000_000
CALIBRATION = 1_000_000
FEW = 500_000


def test_predictions_of_more_rows_than_memory(benchmark: Any, tmp_path: Path) -> None:
    children.run("write_stream", tmp_path / "rows.parquet", ROWS)
    children.run("write_stream", tmp_path / "held_out.parquet", CALIBRATION, 1)
    paths = [tmp_path / name for name in ("rows.parquet", "held_out.parquet", "out.parquet")]
    megabytes, processor, alone = benchmark.pedantic(
        lambda: children.run("predict_a_file", *paths, FEW), rounds=1
    )
    print(
        f"\n{ROWS:,} rows, m = 256: {megabytes:.0f} MB, {processor:.1f} us of the processor a row; "
        f"{alone:.1f} for {FEW:,} rows in memory"
    )
    assert megabytes < 1500
    assert processor <= 15
    assert processor <= 2 * alone  # the rest reads and writes files
