"""Streams of 10^7 rows of 10 columns: statistics, reading and shuffling, memory of an SVGP."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import memory_children as children
import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

ROWS = 10_000_000
EPOCH = -(-ROWS // 1024)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stream") / "rows.parquet"


def test_statistics_equal_those_of_numpy(benchmark: Any, path: Path) -> None:
    of_means, of_sds = benchmark.pedantic(
        lambda: children.run("write_stream", path, ROWS), rounds=1
    )
    print(f"\nstatistics of {ROWS:,} rows: means within {of_means:.1e} sd, sds within {of_sds:.1e}")
    # NumPy's own sum of 10^7 numbers near 10^6 is rounded at 1e-10
    assert of_means < 1e-9
    assert of_sds < 1e-12


def test_reading_and_shuffling(benchmark: Any, path: Path) -> None:
    processor, clock = benchmark.pedantic(lambda: children.run("read_stream", path, 3000), rounds=1)
    print(f"\n1,024 rows: {processor:.2f} ms of the processor, {clock:.2f} ms of the clock")
    assert processor <= 0.5


def test_an_epoch_of_an_svgp_fits_in_memory(benchmark: Any, path: Path) -> None:
    megabytes, seconds = benchmark.pedantic(
        lambda: children.run("svgp_of_a_stream", path, EPOCH), rounds=1
    )
    print(f"\nSVGP m = 256, {EPOCH:,} steps: {megabytes:.0f} MB, {1000 * seconds:.1f} ms a step")
    assert megabytes < 1500
