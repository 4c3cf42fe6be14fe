"""Memory of fits and predictions, each measured in a process of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import memory_children as children
import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

FITS = 200


@pytest.fixture(scope="module")
def growths() -> Iterator[dict[str, Future[list[float]]]]:
    """Measure the growth under every method, one process per core, as no time is measured."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield {m: pool.submit(children.run, "growth", m, FITS) for m in children.METHODS}


@pytest.mark.parametrize("method", children.METHODS)
def test_repeated_fits_do_not_grow_the_process(
    method: str, benchmark: Any, growths: dict[str, Future[list[float]]]
) -> None:
    (each,) = benchmark.pedantic(growths[method].result, rounds=1)
    print(f"\n{method}: {1000 * each:.0f} kB per fit over {FITS} fits of 60 rows")
    assert each < 0.1


def test_an_svgp_of_a_million_rows(benchmark: Any) -> None:
    (megabytes,) = benchmark.pedantic(lambda: children.run("svgp", 1_000_000), rounds=1)
    print(f"\nSVGP, 1,000,000 x 10: {megabytes:.0f} MB beside import")
    assert megabytes < 1000


def test_memory_of_predictions_per_row(benchmark: Any) -> None:
    (per_row,) = benchmark.pedantic(lambda: children.run("predictions", 200_000, 1000), rounds=1)
    print(f"\n200,000 rows under 1,000 draws: {per_row / 1000:.2f} kB per row")
    assert per_row < 9000


def test_the_advised_number_of_rows_fits_in_memory(benchmark: Any) -> None:
    refused, rows = benchmark.pedantic(
        lambda: children.run("advice", 1_000_000, 1000, 1500), rounds=1
    )
    print(f"\nin 1.5 GB more of address space: {rows:,.0f} of 1,000,000 rows per call")
    assert refused
    assert rows >= 50_000


def test_figures_of_a_million_rows_on_demand(benchmark: Any) -> None:
    """Mean, sd, 90 % interval, log score and CRPS of 1,000,000 rows under 200 draws."""
    seconds, megabytes = benchmark.pedantic(
        lambda: children.run("bulk", 1_000_000, 200, 1500), rounds=1
    )
    print(
        f"\n1,000,000 rows, 200 draws: {seconds:.0f} s of one core, {megabytes:.0f} MB at the peak"
    )
    assert seconds < 120  # 60 s on two cores
    assert megabytes < 2000


def test_intervals_of_a_linear_model_by_nuts(benchmark: Any) -> None:
    """90 % intervals of 100,000 rows under 1,000 draws."""
    seconds, megabytes = benchmark.pedantic(
        lambda: children.run("intervals", 100_000, 1000), rounds=1
    )
    print(f"\n100,000 intervals, 1,000 draws: {seconds:.1f} s of the processor, {megabytes:.0f} MB")
    assert seconds < 10
    assert megabytes < 1200


@pytest.mark.parametrize("selection", ["kmeans", "bound"])
def test_a_deep_kernel_of_a_thousand_images(selection: str, benchmark: Any) -> None:
    """The activations of the network for all rows take 760 MB, and as many more with gradients."""
    (megabytes,) = benchmark.pedantic(lambda: children.run("deep", 1000, selection), rounds=1)
    print(f"\nSGPR of a CNN, 1,000 images, {selection}: {megabytes:.0f} MB at the peak")
    assert megabytes < 1200
