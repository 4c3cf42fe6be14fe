"""Teams of two and three against one process, on 60,000 rows of the air of Beijing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.team.test_team import launch, numbers

CHILD = Path(__file__).with_name("team_accuracy.py")
#: by how much, relatively, a team may differ from one process
TOLERANCES = {
    "bound": 1e-12,
    "gradient": 1e-10,
    "elbo before a natural step": 1e-12,
    "natural step": 1e-12,
    "elbo of a batch": 1e-12,
    "gradient of a batch": 1e-10,
}
END = 1e-6  # nats between the ends of a fit


@pytest.mark.data("beijing_air/beijing_air_clean.npz")
@pytest.mark.parametrize("size", [2, 3])
def test_as_one_process(data_dir: Path, tmp_path, benchmark, size):
    path = str(data_dir / "beijing_air" / "beijing_air_clean.npz")

    def both() -> list[dict]:
        for count in (1, size):
            done = launch(CHILD, count, path, str(size), str(tmp_path), limit=1500)
            assert done.returncode == 0, done.stderr[-2000:]
        names = [f"rank 0 of 1, {size}", *(f"rank {r} of {size}, {size}" for r in range(size))]
        return [json.loads((tmp_path / f"{name}.json").read_text()) for name in names]

    one, *ranks = benchmark.pedantic(both, rounds=1)
    assert all(rank == ranks[0] for rank in ranks)  # to the last bit, also after 50 iterations
    print(f"\n{size} processes beside one")
    missed = []
    for name, tolerance in TOLERANCES.items():
        alone, team = numbers(one[name]), numbers(ranks[0][name])
        error = float((team - alone).abs().max() / alone.abs().max())
        print(f"  {name:28s} {error:.1e} (limit {tolerance:.0e})")
        missed += [name] * (error > tolerance)
    gap = abs(one["density at the end"] - ranks[0]["density at the end"])
    print(f"  {'density at the end':28s} {gap:.1e} nats (limit {END:.0e})")
    assert torch.isfinite(numbers(one["end"])).all()
    assert not missed
    assert gap <= END
