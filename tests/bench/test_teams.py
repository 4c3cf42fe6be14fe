"""Two processes beside one, one thread each: the bound of SGPR and the step of SVGP."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.team.test_team import launch

CHILD = Path(__file__).with_name("team_children.py")


def seconds(what: str, size: int, folder: Path) -> dict[str, float]:
    path = folder / f"{what} {size}.json"
    done = launch(CHILD, size, what, str(path), limit=1200)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(path.read_text())


@pytest.mark.parametrize(("what", "least"), [("collapsed", 1.85), ("stochastic", 1.7)])
def test_two_processes(benchmark, tmp_path, what, least):
    one, two = benchmark.pedantic(
        lambda: [seconds(what, size, tmp_path) for size in (1, 2)], rounds=1
    )
    ratios = {clock: one[clock] / two[clock] for clock in ("wall", "cpu")}
    print(f"\n{what}: one process {one}, two {two}, ratios {ratios}")
    benchmark.extra_info.update(ratios)
    if what == "collapsed":
        m, p = 512, two["p"]
        assert two["bytes"] == 8 * (m * (m + 1) // 2 + m + 3 + p + 1)
    assert ratios["wall"] >= least
